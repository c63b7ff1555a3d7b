package world

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/store"
)

// actor is one caller in one process: it does one thing after the other until
// its process ends.
type actor struct {
	p *Proc
	r *rand.Rand
	w *World
}

func (p *Proc) actor(purpose string) *actor {
	return &actor{p: p, r: dice(p.seed, purpose), w: p.w}
}

func (a *actor) ttl() time.Duration { return a.w.Plan.TTL }

func (a *actor) name() string {
	names := a.w.Plan.Names()
	return names[a.r.IntN(len(names))]
}

// live acts until ctx ends or the client is closed.
func (a *actor) live(ctx context.Context) {
	for a.p.Sleep(ctx, about(a.r, a.ttl()/time.Duration(4*a.w.Plan.Haste))) {
		var err error
		switch n := a.r.IntN(20); {
		case n < 8:
			err = a.acquire(ctx)
		case n < 11:
			err = a.try(ctx)
		case n < 17:
			err = a.do(ctx)
		default:
			err = a.watch(ctx)
		}
		if errors.Is(err, tenure.ErrClosed) {
			return
		}
		a.blame(err)
	}
}

// blame judges an error (R12): nothing in a world is denied, damaged, too new
// or wrongly asked for, and nothing was restored.
func (a *actor) blame(err error) {
	for _, k := range []error{tenure.ErrCorrupt, tenure.ErrNewer, tenure.ErrDenied, tenure.ErrInvalid, tenure.ErrRegressed} {
		if errors.Is(err, k) && !a.p.misled() && !a.p.Crashed() {
			a.w.oracle.failNow("R12", "%s was told: %v", a.p.name, err)
		}
	}
}

// options draws what an acquisition asks for. Whatever it draws passes the check
// of the timing, unless it gives the TTL of the tightest plans.
func (a *actor) options(name string) []tenure.AcquireOption {
	var opts []tenure.AcquireOption
	if chance(a.r, 0.2) {
		opts = append(opts, tenure.TTL(a.ttl()/2*time.Duration(1+a.r.IntN(4))))
	}
	if chance(a.r, 0.3) {
		opts = append(opts, tenure.Note("by "+a.p.name))
	}
	if chance(a.r, 0.3) {
		opts = append(opts, tenure.As(a.p.Slot()))
	}
	if chance(a.r, 0.3) {
		opts = append(opts, tenure.Guards(raiser{a.p, name, time.Microsecond + about(a.r, a.ttl()/20)}))
	}
	if chance(a.r, 0.5) {
		opts = append(opts, tenure.NoChildren())
	}
	return opts
}

func (a *actor) acquire(ctx context.Context) error {
	name := a.name()
	wctx, cancel := a.p.Within(ctx, about(a.r, 2*a.ttl()))
	defer cancel()
	l, err := a.p.Client.Acquire(wctx, name, a.options(name)...)
	if err != nil {
		a.w.trace.add(a.p.name, "%s: acquire: %s", name, kind(err))
		return err
	}
	a.hold(ctx, l)
	return nil
}

func (a *actor) try(ctx context.Context) error {
	name := a.name()
	stops, began := a.p.gate.count(), time.Now()
	l, err := a.p.Client.TryAcquire(ctx, name, a.options(name)...)
	if took := time.Since(began); took > 8*a.w.Plan.maxTTL() && stops == a.p.gate.count() && !a.p.Crashed() && a.w.mutation.onTime() {
		a.w.oracle.failNow("R14", "%s: %s needed %v for an acquisition that does not wait: %v", name, a.p.name, took, err)
	}
	if err != nil {
		a.w.trace.add(a.p.name, "%s: try: %s", name, kind(err))
		return err
	}
	a.hold(ctx, l)
	return nil
}

// hold uses a lease for a while and gives it up in one way or another.
func (a *actor) hold(ctx context.Context, l *tenure.Lease) {
	h := a.p.Handed(l)
	a.p.Sleep(ctx, time.Microsecond)
	for range a.r.IntN(5) / a.w.Plan.Haste {
		switch a.r.IntN(4) {
		case 0:
			err := l.Check(ctx)
			a.w.trace.add(a.p.name, "%s: check of token %d: %s", l.Name(), l.Token(), kind(err))
			a.blame(err)
		case 1:
			a.p.Sleep(ctx, about(a.r, a.ttl()/2))
		default:
			h.Write(ctx, about(a.r, a.ttl()/50), about(a.r, a.ttl()/20))
		}
	}
	switch n := a.r.IntN(20); {
	case n == 0:
		a.p.Sleep(l.Context(), 8*a.ttl()) // until something ends it, at last
	case n < 3 && ctx.Err() == nil:
		hold := min(a.ttl(), l.TTL()) / time.Duration(1+a.r.IntN(3))
		_ = h.HandOver(ctx, a.successor(), hold.Truncate(time.Millisecond))
		return
	}
	if errors.Is(h.GiveUp(ctx), tenure.ErrUnconfirmed) && chance(a.r, 0.5) {
		a.p.Sleep(ctx, about(a.r, a.ttl()))
		_ = h.GiveUp(ctx)
	}
}

func (a *actor) successor() string {
	if names := a.w.Plan.NodeNames(); len(names) > 0 && chance(a.r, 0.7) {
		return names[a.r.IntN(len(names))]
	}
	return slotName(a.r.IntN(a.w.Plan.Slots))
}

func (a *actor) do(ctx context.Context) error {
	k := a.workload()
	name := a.name()
	wctx, cancel := a.p.Within(ctx, about(a.r, 4*a.ttl()))
	defer cancel()
	return a.p.Do(wctx, name, k)
}

// workload draws how long a function works and how well it stops.
func (a *actor) workload() Work {
	k := Work{Lasts: time.Millisecond + about(a.r, a.ttl()/time.Duration(a.w.Plan.Haste)), Limit: a.ttl()}
	switch a.r.IntN(4) {
	case 0: // stops at once, and the lease knows of no stop time
	case 1: // stops within the stop time
		k.Stop = a.ttl() / 8
		k.Dawdle = time.Duration(a.r.Float64() * 0.9 * float64(k.Stop))
	case 2: // stops late
		k.Dawdle = about(a.r, a.ttl())
	case 3: // does not stop within the limit
		k.Limit = a.ttl() / 2
		k.Dawdle = k.Limit + about(a.r, a.ttl())
	}
	return k
}

// watch follows a lease for a while and judges the order of what is told (R15).
func (a *actor) watch(ctx context.Context) error {
	name := a.name()
	wctx, cancel := a.p.Within(ctx, about(a.r, 2*a.ttl()))
	defer cancel()
	var last tenure.Change
	for c, err := range a.p.Client.Watch(wctx, name) {
		if err != nil {
			if !errors.Is(err, store.ErrUnavailable) {
				return err
			}
			continue
		}
		a.w.trace.add(a.p.name, "%s: sees token %d %s", name, c.Tenure.Token, c.State)
		if last.Name != "" && !follows(last, c) && !a.p.misled() && !a.p.Crashed() && !a.w.oracle.forgot(name) {
			a.w.oracle.failNow("R15", "%s: %s was told %s of token %d after %s of token %d, %d missed", name, a.p.name, c.State, c.Tenure.Token, last.State, last.Tenure.Token, c.Missed)
		}
		last = c
	}
	return nil
}

// follows reports whether b may be told right after a.
func follows(a, b tenure.Change) bool {
	switch {
	case a.State == tenure.Held:
		return b.State == tenure.Released && b.Tenure.Token == a.Tenure.Token || b.Missed > 0 && b.Tenure.Token > a.Tenure.Token
	case b.State == tenure.Held:
		return b.Tenure.Token > a.Tenure.Token
	}
	return b.Missed > 0 && b.Tenure.Token > a.Tenure.Token
}
