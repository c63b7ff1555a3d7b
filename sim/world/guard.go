package world

import (
	"context"
	"time"

	"github.com/tenure-project/tenure"
)

// guard is a resource that refuses every token lower than the highest it has
// seen. It runs under the oracle's mu.
type guard struct {
	high   uint64
	owners map[uint64]*Handle
}

// arrive judges a write under h that arrives now (R7), and reports whether the
// guard took it.
func (o *oracle) arrive(h *Handle) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	ls := o.byName[h.Name()]
	g, token := &ls.guard, h.Token()
	if token < g.high && !o.w.mutation.openGuard {
		o.stats["guard refused"]++
		if h.live() && !h.p.crashed.Load() {
			o.fail("R7", "%s: the guard, at %d, refused token %d of %s, which is live", ls.name, g.high, token, h.p.name)
		}
		return false
	}
	if token < g.high {
		o.fail("R7", "%s: a write with token %d of %s was taken after one with token %d", ls.name, token, h.p.name, g.high)
	}
	if other := g.owners[token]; other != nil && other.Owner() != h.Owner() {
		o.fail("R7", "%s: token %d wrote from two handles, at %s and %s", ls.name, token, other.p.name, h.p.name)
	}
	g.owners[token], g.high = h, max(g.high, token)
	o.stats["guarded writes"]++
	return true
}

// Write is a guarded write: it asks whether the lease is live, and sends what
// arrives some time later. The process may be stopped between the two, and then
// still believes the first answer. It returns when the write was sent.
func (h *Handle) Write(ctx context.Context, before, after time.Duration) {
	if !h.Live() || !h.p.Sleep(ctx, before) {
		return
	}
	time.AfterFunc(after, func() { h.p.w.oracle.arrive(h) })
}

// raiser lifts the guard of one lease for one process, some time after it is
// asked.
type raiser struct {
	p    *Proc
	name string
	took time.Duration
}

var _ tenure.Raiser = raiser{}

// Raise lifts the guard.
func (r raiser) Raise(ctx context.Context, token uint64) error {
	if !r.p.Sleep(ctx, r.took) {
		return context.Cause(ctx)
	}
	o := r.p.w.oracle
	o.mu.Lock()
	defer o.mu.Unlock()
	g := &o.byName[r.name].guard
	g.high = max(g.high, token)
	return nil
}
