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

// blow is something that fate does to a process.
type blow int

const (
	_ blow = iota
	crash
	pause
	suspend
	cut
	refuse
	mute
	freeze
	wallStep
	storm
)

// blows are as frequent as they stand here.
var blows = []blow{
	crash, crash, crash, pause, pause, pause, pause, suspend, suspend, suspend,
	cut, cut, cut, refuse, mute, freeze, wallStep, wallStep, storm, storm,
}

func (f fate) strike(p *Proc) {
	d := about(f.r, f.w.Plan.TTL*2/3)
	if chance(f.r, 0.15) {
		d += 2 * f.w.Plan.TTL
	}
	b := blows[f.r.IntN(len(blows))]
	if most := f.w.mutation.blow; most != 0 && chance(f.r, 0.8) {
		b, d = most, 2*d
	}
	switch b {
	case crash:
		p.Crash()
	case pause:
		p.Pause(d)
	case suspend:
		p.Suspend(d)
	case cut:
		p.Network(faultstore.Cut, d)
	case refuse:
		p.Network(faultstore.Refused, d)
	case mute:
		p.Network(faultstore.Mute, d)
	case freeze:
		p.Network(faultstore.Frozen, d)
	case wallStep:
		p.StepWall(time.Duration(f.r.NormFloat64() * float64(20*time.Minute)))
	case storm:
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
