package authority

import (
	"time"

	"github.com/tenure-project/tenure/internal/core/identity"
	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

// Claim is what a candidate wants to be written.
type Claim struct {
	Authority string
	Owner     Owner
	TTL       time.Duration
	Note      string
	// Floor is the namespace's, read after the state that the claim replaces, or after
	// its absence: the token is above it (LS12).
	Floor uint64
	// Attempt is a fresh id of this write.
	Attempt    string
	SecretHash string
	NowMS      int64 // wall clock, for people
}

func (c Claim) check() error {
	if err := store.CheckName("authority name", c.Authority); err != nil {
		return err
	}
	if err := c.Owner.Valid(); err != nil {
		return store.Wrap(store.ErrInvalid, "", "begin", c.Authority, err)
	}
	if !record.IsID(c.Attempt) {
		return store.Errorf(store.ErrInvalid, "", "begin", c.Authority, "the attempt %q is not a UUID in lower case", c.Attempt)
	}
	if c.Floor >= record.MaxNumber {
		return store.Errorf(store.ErrInvalid, "", "begin", c.Authority, "the namespace's floor is at its end, %d", c.Floor)
	}
	if err := lease.CheckTTL(c.TTL); err != nil {
		return err
	}
	return lease.CheckNote(c.Note)
}

// lead makes h c's leadership at token.
func (c Claim) lead(h *Head, token uint64) {
	h.Leader, h.Token, h.Counter, h.Began = &c.Owner, token, token, h.Sequence
	h.TTLMS, h.Note, h.SecretHash, h.Since = c.TTL.Milliseconds(), c.Note, c.SecretHash, c.NowMS
	h.WriterAttempt, h.HolderAttempt = c.Attempt, c.Attempt
}

// First returns the head of an authority that never was, to be created: sequence
// 1, and token 1 or the first above the floor (LA3).
func First(c Claim) (*Head, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	h := &Head{V: record.Level, Authority: c.Authority, Sequence: 1, Renewal: 1}
	c.lead(h, c.Floor+1)
	return h, nil
}

// Wait says how long a candidate must see this leadership unchanged before it may
// take over: the TTL of a leader that may live (LA3), the superseded TTL after a
// forced end (LS11), 0 after a release or a vouched end. possible is false where
// no token is left.
func (h *Head) Wait() (d time.Duration, possible bool) {
	switch {
	case h.Counter >= record.MaxNumber || h.Sequence >= record.MaxNumber:
		return 0, false
	case h.Led():
		return h.TTL(), true
	case h.Ended().How == lease.HowForced:
		return millis(h.Ended().SupersededTTLMS), true
	}
	return 0, true
}

// Observation is a candidate's own proof, on its own clock, that a leader showed
// no sign of life. What others write (fault reports, a jump) moves the sequence
// and the version and is none (LA3), so it is of the leadership, not of the
// register's state; the takeover replaces the state that Ground judged. The zero
// value observed nothing.
type Observation struct {
	Owner   Owner // zero where nobody leads
	Token   uint64
	Renewal uint64
	From    time.Duration // boot clock, after the response that first showed it
}

// Observe continues o if h is still in the leadership and renewal that o saw, and
// begins anew at now (the boot clock after the response) otherwise.
func (o Observation) Observe(h *Head, now time.Duration) Observation {
	seen := Observation{Token: h.Token, Renewal: h.Renewal, From: o.From}
	if h.Led() {
		seen.Owner = *h.Leader
	}
	if o == seen && o.From <= now {
		return o
	}
	seen.From = now
	return seen
}

// Ground proves that one exact state may be taken over by one exact candidate,
// and how its leader fell. Only [Observation.Ground], [Evidence.Ground] and
// [Quiet.Ground] make one.
type Ground struct {
	me      Owner
	attempt string // of the write that made the state: it names the state
	version store.Version
	how     string
}

// Version is the state that the takeover must replace.
func (g Ground) Version() store.Version { return g.version }

// How is released, observed, proven, store-clock, forced or vouched.
func (g Ground) How() string { return g.how }

func (h *Head) ground(me Owner, v store.Version, how string) Ground {
	return Ground{me: me, attempt: h.WriterAttempt, version: v, how: how}
}

func exhausted(h *Head) error {
	return store.Errorf(store.ErrInvalid, "", "take over", h.Authority, "the counter %d or the sequence %d is at its end", h.Counter, h.Sequence)
}

// Ground judges h at v, read at now (the boot clock after the response), by o: the
// proof that me may take over, or how much longer the leader must be observed
// (LA3). rho bounds the difference of clock rates (DL5). A head that vanished
// (nil) is ErrCorrupt. One that me itself leads is ErrConflict: only its own
// candidacy can say that it ended (see [Candidacy.Quiet]).
func (o Observation) Ground(h *Head, v store.Version, me Owner, now time.Duration, rho float64) (Ground, time.Duration, error) {
	if h == nil {
		return Ground{}, 0, store.Errorf(store.ErrCorrupt, "", "take over", "", "the observed head of token %d vanished", o.Token)
	}
	if h.Led() && *h.Leader == me {
		return Ground{}, 0, store.Errorf(store.ErrConflict, "", "take over", h.Authority,
			"the head names this very process, with token %d: nobody observes himself", h.Token)
	}
	d, possible := h.Wait()
	if !possible {
		return Ground{}, 0, exhausted(h)
	}
	if d > 0 {
		if left := o.Observe(h, now).From + lease.Stretch(d, rho) - now; left > 0 {
			return Ground{}, left, nil
		}
	}
	if h.Led() {
		return h.ground(me, v, lease.HowObserved), 0, nil
	}
	return h.ground(me, v, h.Ended().How), 0, nil
}

// Evidence is the judgement that one exact process start is over (LA3).
type Evidence struct {
	Node    string
	Owner   identity.Owner
	Verdict identity.Verdict
	// From is the boot clock after this candidate's own first read of any evidence
	// of it: the wait after force counts from there (LS11).
	From time.Duration
}

// Ground lets me take over from the leader that e proves to be over, without
// another wait; evidence that rests on force waits first (LA3, LS11). left is how
// much longer. A head that is not led by exactly that start is ErrConflict; a
// verdict other than over is ErrInvalid.
func (e Evidence) Ground(h *Head, v store.Version, me Owner, now time.Duration, rho float64) (g Ground, left time.Duration, err error) {
	if h == nil {
		return Ground{}, 0, store.Errorf(store.ErrCorrupt, "", "take over", "", "the head that incarnation %s led vanished", e.Owner.Incarnation)
	}
	gone := Owner{Node: e.Node, Incarnation: e.Owner.Incarnation, Term: e.Owner.Term}
	switch {
	case e.Verdict.State != identity.Over || !e.fits():
		return Ground{}, 0, store.Errorf(store.ErrInvalid, "", "take over", h.Authority,
			"nothing here proves that node %q, incarnation %s, term %d is over", e.Node, e.Owner.Incarnation, e.Owner.Term)
	case !h.Led() || *h.Leader != gone:
		return Ground{}, 0, store.Errorf(store.ErrConflict, "", "take over", h.Authority,
			"the head is not led by incarnation %s of node %q, whose end was proven", gone.Incarnation, gone.Node)
	case gone == me:
		return Ground{}, 0, store.Errorf(store.ErrInvalid, "", "take over", h.Authority, "this very process is over: it leads nothing any more")
	case h.Counter >= record.MaxNumber || h.Sequence >= record.MaxNumber:
		return Ground{}, 0, exhausted(h)
	}
	if w := e.Verdict.Wait; w > 0 {
		if left = e.From + lease.Stretch(w, rho) - now; left > 0 {
			return Ground{}, left, nil
		}
	}
	how := e.Verdict.How
	switch {
	case how != "":
	case e.Verdict.Wait > 0: // folded, and it may rest on force
		how = lease.HowForced
	default:
		how = lease.HowObserved
	}
	return h.ground(me, v, how), 0, nil
}

// fits reports whether the verdict's certificate, if it has one, is of the start
// that e names.
func (e Evidence) fits() bool {
	c := e.Verdict.Certificate
	return e.Owner.Term != 0 && (c == nil || c.Node == e.Node && c.Predecessor.Incarnation == e.Owner.Incarnation && c.Predecessor.Term == e.Owner.Term)
}

// Takeover returns the head that c's owner leads with token counter + 1, or the
// first above the floor if that is higher: the first head may have been created
// while the floor was raised, and nobody have looked again (LA3, LS12). g proves
// that prev may be taken by that owner. All standing state is carried on. The write
// replaces g's version.
func Takeover(prev *Head, c Claim, g Ground) (*Head, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	switch {
	case c.Authority != prev.Authority:
		return nil, store.Errorf(store.ErrInvalid, "", "take over", prev.Authority, "the claim is for authority %q", c.Authority)
	case g.me != c.Owner:
		return nil, store.Errorf(store.ErrInvalid, "", "take over", prev.Authority, "the ground is another candidate's")
	case g.attempt != prev.WriterAttempt:
		return nil, store.Errorf(store.ErrConflict, "", "take over", prev.Authority, "what was judged is not the state that would be replaced: judge it")
	case prev.Counter >= record.MaxNumber:
		return nil, exhausted(prev)
	}
	next, err := prev.step("take over", c.Attempt)
	if err != nil {
		return nil, err
	}
	if prev.Led() {
		next.end(prev, Leadership{How: g.how, Until: c.NowMS, By: c.Owner.Node})
	}
	next.Renewal++
	c.lead(next, max(prev.Counter, c.Floor)+1)
	return next, nil
}
