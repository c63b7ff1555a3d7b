package identity

import (
	"time"

	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

// Claim is what a process that joins wants to be written.
type Claim struct {
	Node string
	// Incarnation is fresh for every write that may make it the owner, and is that
	// write's attempt id too. A write whose outcome is unknown is settled or sent
	// again as it is; a new one over another state takes a new incarnation, or one
	// that had won unseen and was superseded since would come back from the dead
	// and break its certificates.
	Incarnation   string
	TTL           time.Duration
	Note          string
	Lock          *lease.Lock
	ClockInstance string
	SecretHash    string
	NowMS         int64 // wall clock, for people
}

// check returns ErrInvalid for what may not be written.
func (c Claim) check() error {
	if err := store.CheckName("node name", c.Node); err != nil {
		return err
	}
	if !record.IsID(c.Incarnation) {
		return store.Errorf(store.ErrInvalid, "", "join", c.Node, "the incarnation %q is not a UUID in lower case", c.Incarnation)
	}
	if err := lease.CheckTTL(c.TTL); err != nil {
		return err
	}
	return lease.CheckNote(c.Note)
}

func (c Claim) record() *Record {
	return &Record{
		V: record.Level, Node: c.Node, Incarnation: c.Incarnation, TTLMS: c.TTL.Milliseconds(),
		WriterAttempt: c.Incarnation, HolderAttempt: c.Incarnation, Note: c.Note, Since: c.NowMS,
		Expires: expiry(c.NowMS, c.TTL.Milliseconds()), Lock: c.Lock, ClockInstance: c.ClockInstance, SecretHash: c.SecretHash,
	}
}

// First returns the record of a node that was never seen, to be created: term 1,
// sequence 1 (PL1). floor is the namespace's, read after the absence: where it
// was raised (LS12), the first term is above it, as a lease's token is.
func First(c Claim, floor uint64) (*Record, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	if floor >= record.MaxNumber {
		return nil, store.Errorf(store.ErrInvalid, "", "join", c.Node, "the namespace's floor is at its end, %d", floor)
	}
	r := c.record()
	r.Term, r.Counter, r.FirstTerm, r.Sequence = floor+1, floor+1, floor+1, 1
	return r, nil
}

// Wait says how long a candidate must see this very record before it may take
// the name: the TTL of a process that may live (PL2), the superseded TTL after
// a forced end or fence (LS11, PL6), 0 after a release, a vouched end or any
// other fence. possible is false where no term is left.
func (r *Record) Wait() (d time.Duration, possible bool) {
	switch {
	case r.Counter >= record.MaxNumber || r.Sequence >= record.MaxNumber:
		return 0, false
	case r.Revoker != nil:
		return millis(r.Revoker.SupersededTTLMS), true
	case r.Held():
		return r.TTL(), true
	case r.Ended.How == lease.HowForced:
		return millis(r.Ended.SupersededTTLMS), true
	}
	return 0, true
}

// Observation is a candidate's own proof, on its own clock, that a record did
// not change. It is a value; a changed record, also by a foreign write, starts
// a new one. The zero value observed nothing.
type Observation struct {
	Version     store.Version
	Incarnation string
	Sequence    uint64
	Term        uint64
	From        time.Duration // boot clock, after the response that first showed it
}

// Observe continues o if r at v is what o saw, and begins anew at now (the
// boot clock after the response) otherwise.
func (o Observation) Observe(r *Record, v store.Version, now time.Duration) Observation {
	seen := Observation{Version: v, Incarnation: r.Incarnation, Sequence: r.Sequence, Term: r.Term, From: o.From}
	if o == seen && o.From <= now {
		return o
	}
	seen.From = now
	return seen
}

// Ground proves that one exact state may be taken over, and how its owner fell.
// Only Observation.Ground, Proven and StoreClock make one.
type Ground struct {
	attempt string // of the write that made the state: it names the state
	version store.Version
	how     string
}

// Version is the state that the takeover must replace.
func (g Ground) Version() store.Version { return g.version }

// How is released, observed, proven, store-clock, forced or vouched.
func (g Ground) How() string { return g.how }

// Ground judges r at v, read at now (the boot clock after the response), by o:
// the proof that it may be taken, or how much longer it must be observed (PL2).
// rho bounds the difference of clock rates (DL5). A record that vanished (nil)
// is ErrCorrupt.
func (o Observation) Ground(r *Record, v store.Version, now time.Duration, rho float64) (Ground, time.Duration, error) {
	if r == nil {
		return Ground{}, 0, store.Errorf(store.ErrCorrupt, "", "take over", "", "the observed record of incarnation %s, term %d vanished", o.Incarnation, o.Term)
	}
	d, possible := r.Wait()
	if !possible {
		return Ground{}, 0, store.Errorf(store.ErrInvalid, "", "take over", r.Node, "the counter is at its end, %d", r.Counter)
	}
	if d > 0 {
		if left := o.Observe(r, v, now).From + lease.Stretch(d, rho) - now; left > 0 {
			return Ground{}, left, nil
		}
	}
	g := Ground{attempt: r.WriterAttempt, version: v, how: lease.HowReleased}
	switch {
	case r.Revoker != nil: // a name that its one-off owner gave up as it took it
	case r.Held():
		g.how = lease.HowObserved
	default:
		g.how = r.Ended.How
	}
	return g, 0, nil
}

// Proven is the ground where the kernel proved that the owner is gone (LS14).
// It needs the lock that the owner took before its write.
func Proven(r *Record, v store.Version) (Ground, error) {
	if !r.Held() || r.Revoker != nil || r.Lock == nil {
		return Ground{}, store.Errorf(store.ErrInvalid, "", "take over", r.Node, "the record names no lock whose freedom would prove its owner's death")
	}
	return Ground{attempt: r.WriterAttempt, version: v, how: lease.HowProven}, nil
}

// StoreClock is the ground where the store's own clock instance says that the
// owner was silent for TTL·(1+rho) + margin (LS3). Anything less is
// ErrInvalid.
func StoreClock(r *Record, v store.Version, instance string, silent, margin time.Duration, rho float64) (Ground, error) {
	if !r.Held() || r.Revoker != nil || instance == "" || r.ClockInstance != instance || silent < lease.Stretch(r.TTL(), rho)+margin {
		return Ground{}, store.Errorf(store.ErrInvalid, "", "take over", r.Node, "the store's clock %q does not prove that the owner was silent for its TTL", instance)
	}
	return Ground{attempt: r.WriterAttempt, version: v, how: lease.HowStoreClock}, nil
}

// Takeover returns the record that makes c's incarnation the owner at term
// counter + 1, sequence + 1, with the finished certificate in it (PL2, PL3,
// PL4). g proves that prev may be taken; s proves that the certificate which
// prev carries is sealed under both names, and is not looked at where prev
// carries none. The write replaces g's version.
func Takeover(prev *Record, c Claim, g Ground, s Sealed) (*Record, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	return takeover(prev, c.record(), g, s)
}

// Fence returns the record by which a one-off revoker ends target's ownership
// (PL6). revoker is a fresh id. The next process takes the name at once, or
// after the superseded TTL where target fell by force.
func Fence(prev *Record, target, revoker string, g Ground, s Sealed, nowMS int64) (*Record, error) {
	if last := prev.Last(); last.Incarnation != target {
		return nil, store.Errorf(store.ErrConflict, "", "fence", prev.Node, "the last owner is incarnation %s, not %s", last.Incarnation, target)
	}
	c := Claim{Node: prev.Node, Incarnation: revoker, TTL: prev.TTL(), NowMS: nowMS}
	if err := c.check(); err != nil {
		return nil, err
	}
	next := c.record()
	next.Expires = 0
	next.Revoker = &Revoker{How: g.how}
	if g.how == lease.HowForced && prev.Ended != nil {
		next.Revoker.SupersededTTLMS = prev.Ended.SupersededTTLMS
	}
	return takeover(prev, next, g, s)
}

// takeover completes next, the claim of a new owner, as prev's successor.
func takeover(prev, next *Record, g Ground, s Sealed) (*Record, error) {
	bad := func(kind error, format string, args ...any) error {
		return store.Errorf(kind, "", "take over", prev.Node, format, args...)
	}
	switch {
	case next.Node != prev.Node:
		return nil, bad(store.ErrInvalid, "the claim is for node %q", next.Node)
	case g.attempt != prev.WriterAttempt:
		return nil, bad(store.ErrConflict, "what was observed is not the state that would be replaced: observe it")
	case prev.Counter >= record.MaxNumber || prev.Sequence >= record.MaxNumber:
		return nil, bad(store.ErrInvalid, "the counter is at its end, %d", prev.Counter)
	case prev.Last().Incarnation == next.Incarnation,
		prev.Certificate != nil && prev.Certificate.Predecessor.Incarnation == next.Incarnation:
		return nil, bad(store.ErrInvalid, "incarnation %s owned the name before: a new start needs a new one", next.Incarnation)
	case prev.Certificate != nil && !s.of(prev.Certificate):
		return nil, bad(store.ErrInvalid, "the certificate of term %d is not sealed under both names: seal it first", prev.Term)
	}
	next.V = max(prev.V, record.Level) // no write lowers a record's level (ST15)
	next.Term, next.Counter = prev.Counter+1, prev.Counter+1
	next.Sequence = prev.Sequence + 1
	next.FirstTerm, next.Forced = prev.FirstTerm, prev.Forced
	next.Certificate = newCertificate(prev, next, g.how)
	return next, nil
}
