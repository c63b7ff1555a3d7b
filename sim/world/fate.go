package world

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/tenure-project/tenure/store/faultstore"
)

// fate strikes at random until ctx ends.
type fate struct {
	w *World
	r *rand.Rand
}

func (f fate) rage(ctx context.Context) {
	for wait(ctx, 1+about(f.r, f.w.Plan.Every)) == nil {
		f.w.oracle.sample()
		if p := f.victim(); p != nil {
			f.strike(p)
		}
	}
}

// victim is some process that is alive.
func (f fate) victim() *Proc {
	alive := f.w.alive()
	if len(alive) == 0 {
		return nil
	}
	return alive[f.r.IntN(len(alive))]
}

func (f fate) strike(p *Proc) {
	d := about(f.r, f.w.Plan.TTL*2/3)
	if chance(f.r, 0.15) {
		d += 2 * f.w.Plan.TTL
	}
	n := f.r.IntN(20)
	if f.w.mutation.dozing {
		n = 7
	}
	switch {
	case n < 3:
		p.Crash()
	case n < 7:
		p.Pause(d)
	case n < 10:
		p.Suspend(d)
	case n < 13:
		p.Network(faultstore.Cut, d)
	case n < 14:
		p.Network(faultstore.Refused, d)
	case n < 15:
		p.Network(faultstore.Mute, d)
	case n < 16:
		p.Network(faultstore.Frozen, d)
	case n < 18:
		p.StepWall(time.Duration(f.r.NormFloat64() * float64(20*time.Minute)))
	default:
		f.storm(p, d)
	}
}

// storm makes the network of one process bad for a while.
func (f fate) storm(p *Proc, d time.Duration) {
	p.w.trace.add(p.name, "STORM %v", d)
	p.rules(1)
	time.AfterFunc(d, func() { p.rules(p.w.Plan.Intensity) })
}

// rules sets how bad the network of a process is.
func (p *Proc) rules(intensity float64) {
	p.Link.Clear()
	p.Link.Add(p.w.Plan.rules()...)
	if p.w.calmed.Load() {
		return
	}
	p.Link.Add(faultstore.Chaos(p.seed, intensity, p.w.Plan.longest()).Rules...)
}
