package world

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/authority"
	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/store"
)

// Handle is a lease that was handed out.
type Handle struct {
	*tenure.Lease
	p *Proc
	s *Session // that it lives by, nil if it renews itself

	to    string    // to whom it was handed over at the end
	over  time.Time // since when it was seen not to be live while its context went on
	stops int       // of its process until then
}

func (h *Handle) live() bool { return h.Live() }

// Handed tells the oracle that p was handed l, and judges it (R1, R2).
func (p *Proc) Handed(l *tenure.Lease) *Handle {
	o := p.w.oracle
	h := &Handle{Lease: l, p: p}
	p.w.trace.add(p.name, "%s: has token %d", l.Name(), l.Token())
	o.mu.Lock()
	defer o.mu.Unlock()
	ls := o.byName[l.Name()]
	o.stats["handed out"]++
	if t := ls.tenancy(idOf(l)); t == nil || t.token != l.Token() {
		o.fail("R2", "%s: %s was handed token %d, which the record never granted to it", ls.name, p.name, l.Token())
	}
	if l.Token() <= ls.highest && !p.crashed.Load() {
		o.fail("R2", "%s: %s was handed token %d after %d", ls.name, p.name, l.Token(), ls.highest)
	}
	ls.highest = max(ls.highest, l.Token())
	ls.handed[idOf(l)] = h
	ls.handles = append(ls.handles, h)
	o.handedUnder(ls, h)
	o.exclusive(ls)
	return h
}

func idOf(l *tenure.Lease) tenureID { return tenureID{l.Owner(), l.Token()} }

// handle is the handle of a tenure that may still be live, nil if there is none.
func (ls *leaseState) handle(id tenureID) *Handle {
	for _, h := range ls.handles {
		if idOf(h.Lease) == id {
			return h
		}
	}
	return nil
}

// exclusive judges R1 at this instant. Under mu.
func (o *oracle) exclusive(ls *leaseState) {
	ls.handles = slices.DeleteFunc(ls.handles, func(h *Handle) bool { return !h.live() && h.Err() != nil })
	var first *Handle
	for _, h := range ls.handles {
		o.underSession(h)
		o.ends(h)
		t := ls.tenancy(idOf(h.Lease))
		if !h.live() || t == nil || h.p.crashed.Load() && (t.how == lease.HowVouched || t.how == lease.HowProven || t.how == lease.HowReleased) {
			continue
		}
		if t.how == lease.HowObserved || t.how == lease.HowStoreClock || t.how == lease.HowProven || t.how == lease.HowReleased {
			o.fail("R1", "%s: token %d is live at %s although its tenure ended: %s", ls.name, t.token, h.p.name, t.how)
		}
		if first != nil {
			o.fail("R1", "%s: tokens %d at %s and %d at %s are both live", ls.name, first.Token(), first.p.name, h.Token(), h.p.name)
		}
		first = h
	}
}

// endsWithin is how long after its deadline a context may go on (DL3), in
// running time.
const endsWithin = 100 * time.Millisecond

// ends judges that the context of a lease ends with its deadline (R17). Under
// mu.
func (o *oracle) ends(h *Handle) {
	if h.live() || h.p.crashed.Load() {
		return
	}
	if stops := h.p.gate.count(); h.over.IsZero() || h.stops != stops || h.p.gate.unsettled() {
		h.over, h.stops = time.Now(), stops
	}
	if late := time.Since(h.over); late > endsWithin {
		o.fail("R17", "%s: the context of token %d at %s goes on %v after the lease ended", h.Name(), h.Token(), h.p.name, late)
	}
}

// sample judges every lease at this instant.
func (o *oracle) sample() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, name := range o.w.Plan.Names() {
		o.exclusive(o.byName[name])
		o.checkRuns(o.byName[name])
	}
	for _, name := range o.w.Plan.NodeNames() {
		o.oneSession(o.nodes[name])
	}
	for _, name := range o.w.Plan.AuthorityNames() {
		o.oneLeader(o.authorities[name])
	}
	for _, name := range o.w.Plan.TableNames() {
		o.oneHost(o.tables[name])
	}
}

// lost judges that p calls a lease lost (R11). A lease that merely expired may
// still be its holder's in the store. Under mu.
func (o *oracle) lost(p *Proc, e tenure.Event) {
	ls := o.byName[e.Lease]
	if errors.Is(e.Err, tenure.ErrExpired) {
		o.stats["expired"]++
		return
	}
	o.stats["lost"]++
	r := ls.rec
	if r != nil && r.Held() && r.Kind == lease.Self && r.Token == e.Token && r.Owner.Node == p.name && !p.misled() {
		o.fail("R11", "%s: %s calls token %d lost, and the record is still its own: %v", e.Lease, p.name, e.Token, e.Err)
	}
}

// GiveUp releases the lease and judges the answer (R12) and how long it took
// (R14).
func (h *Handle) GiveUp(ctx context.Context) error {
	return h.timed(func() error { return h.Release(ctx) })
}

// HandOver releases the lease to a successor, and judges as GiveUp does.
func (h *Handle) HandOver(ctx context.Context, to string, hold time.Duration) error {
	o := h.p.w.oracle
	o.mu.Lock()
	h.to = to
	o.mu.Unlock()
	return h.timed(func() error { return h.ReleaseTo(ctx, to, hold) })
}

func (h *Handle) timed(release func() error) error {
	stops, began := h.p.gate.count(), time.Now()
	err := release()
	took, plan := time.Since(began), h.p.w.Plan
	limit := plan.Release
	if limit == 0 {
		limit = max(3*plan.attempt(h.TTL()), time.Second)
	}
	// Its limit by the slowest clock, and what a call needs to notice.
	most := time.Duration(float64(limit)/(1-plan.Rho)) + 2*plan.Latency + time.Millisecond
	if took > most && stops == h.p.gate.count() && !h.p.Crashed() && h.p.w.mutation.onTime() {
		h.p.w.oracle.failNow("R14", "%s: the release of token %d took %v, want at most %v: %v", h.Name(), h.Token(), took, most, err)
	}
	h.released(err)
	return err
}

func (h *Handle) released(err error) {
	o := h.p.w.oracle
	h.p.w.trace.add(h.p.name, "%s: release of token %d: %v", h.Name(), h.Token(), kind(err))
	o.mu.Lock()
	defer o.mu.Unlock()
	if h.Live() {
		o.fail("R6", "%s: token %d is live after its release", h.Name(), h.Token())
	}
	if h.p.crashed.Load() {
		return
	}
	ls := o.byName[h.Name()]
	t := ls.tenancy(idOf(h.Lease))
	if t == nil {
		return // said already
	}
	switch {
	case err == nil && t.how == "":
		o.fail("R12", "%s: token %d was released without an error, and the record is still held", h.Name(), h.Token())
	case errors.Is(err, tenure.ErrUnconfirmed):
		o.stats["unconfirmed"]++
	case errors.Is(err, tenure.ErrLost) && t.how == "" && !h.p.misled() && !o.takenFrom(h):
		o.fail("R12", "%s: the release of token %d says that it was lost, and it is still held: %v", h.Name(), h.Token(), err)
	case errors.Is(err, tenure.ErrLost) && t.how == lease.HowReleased && t.byProc == h.p && !t.taken && !ls.pruned && !h.p.misled():
		o.fail("R12", "%s: the release of token %d took effect, and its answer is: %v", h.Name(), h.Token(), err)
	}
}

// kind is an error for the trace: without ids.
func kind(err error) string {
	if err == nil {
		return "done"
	}
	for _, k := range []error{
		tenure.ErrOverlap, tenure.ErrUnconfirmed, tenure.ErrHeld, tenure.ErrExpired, tenure.ErrLost, tenure.ErrReleased, tenure.ErrShutdown,
		authority.ErrFenced, authority.ErrChanged, authority.ErrInventoryChanged, authority.ErrSuperseded,
		tenure.ErrAlive, tenure.ErrTooShort, tenure.ErrMissingEvidence, tenure.ErrNotCurrent, tenure.ErrRegressed, tenure.ErrClosed, tenure.ErrUnknown, tenure.ErrConflict, tenure.ErrUnavailable,
		store.ErrExists, tenure.ErrNotFound, tenure.ErrCorrupt, tenure.ErrDenied, tenure.ErrNewer, tenure.ErrInvalid,
		context.Canceled, context.DeadlineExceeded,
	} {
		if errors.Is(err, k) {
			return k.Error()
		}
	}
	return err.Error()
}
