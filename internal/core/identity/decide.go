package identity

import (
	"slices"

	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

// Renewal is what an owner writes as its next sign of life.
type Renewal struct {
	Attempt string // fresh id of this write
	NowMS   int64  // wall clock, for people
	// Sealed, once the term's certificate stands under both names, lets the
	// record drop it (PL4). Its zero value keeps what is there.
	Sealed Sealed
	// Acknowledged are revocations that the session has carried out (LS11).
	Acknowledged []Revocation
}

// Renew returns o's next sign of life: sequence + 1 at the same term (PL1).
// Whoever is not the exact owner gets ErrConflict, and so does an owner whose
// identity was raised: its session ends (LS12).
func (r *Record) Renew(o Owner, in Renewal) (*Record, error) {
	switch {
	case !r.OwnedBy(o):
		return nil, r.notOwner("renew", o)
	case r.Revoker != nil:
		return nil, store.Errorf(store.ErrInvalid, "", "renew", r.Node, "a revoker owns the name for one write and never renews")
	case r.Raised():
		return nil, store.Errorf(store.ErrConflict, "", "renew", r.Node, "the counter was raised to %d above term %d: this session ends, join again", r.Counter, r.Term)
	case r.Sequence >= record.MaxNumber:
		return nil, store.Errorf(store.ErrInvalid, "", "renew", r.Node, "the sequence is at its end")
	}
	next := r.copy().drop(in.Sealed)
	next.Sequence++
	next.WriterAttempt, next.HolderAttempt = in.Attempt, in.Attempt
	next.Expires = expiry(in.NowMS, r.TTLMS)
	next.Revocations = slices.DeleteFunc(next.Revocations, func(v Revocation) bool { return slices.Contains(in.Acknowledged, v) })
	if len(next.Revocations) == 0 {
		next.Revocations = nil
	}
	return next, nil
}

// Release gives the name up: the next process takes it at once (PL8). Counter,
// sequence and an unsealed certificate stay. Only after every lease of o has
// ended and every write of o is settled.
func (r *Record) Release(o Owner, in Renewal) (*Record, error) {
	switch {
	case !r.OwnedBy(o):
		return nil, r.notOwner("release", o)
	case r.Revoker != nil && r.Revoker.SupersededTTLMS != 0:
		return nil, store.Errorf(store.ErrInvalid, "", "release", r.Node, "the wait after the force cannot be given up by its revoker")
	}
	return r.end(in.Attempt, Ended{How: lease.HowReleased, At: in.NowMS}).drop(in.Sealed), nil
}

// end is r owned by nobody.
func (r *Record) end(attempt string, e Ended) *Record {
	next := r.copy()
	e.Incarnation = r.Incarnation
	next.Incarnation, next.HolderAttempt, next.Note, next.SecretHash, next.ClockInstance = "", "", "", "", ""
	next.Lock, next.Revoker, next.Revocations, next.Expires = nil, nil, nil, 0
	next.WriterAttempt, next.Ended = attempt, &e
	return next
}

// Operator says who forces an end, and why.
type Operator struct {
	Why   string // not empty; kept in the certificate
	By    string
	NowMS int64
	// Vouch says that the operator knows the owner to be gone: the next process
	// takes over at once, and exclusivity rests on that word.
	Vouch bool
}

// Force ends o's ownership whether or not it lives (LS11). The counter is
// raised, so that the forced term is below every later one; unless vouched for,
// everyone then observes the record for the superseded TTL. An owner that is
// not exactly o is ErrConflict.
func (r *Record) Force(attempt string, o Owner, by Operator) (*Record, error) {
	switch {
	case !r.OwnedBy(o):
		return nil, r.notOwner("force", o)
	case by.Why == "":
		return nil, store.Errorf(store.ErrInvalid, "", "force", r.Node, "a reason is required: the certificate keeps it")
	case r.Counter >= record.MaxNumber-1:
		return nil, store.Errorf(store.ErrInvalid, "", "force", r.Node, "the counter %d is at its end: no later term would be left", r.Counter)
	}
	if err := checkTexts(by.Why, by.By); err != nil {
		return nil, err
	}
	e := Ended{How: lease.HowForced, Why: by.Why, By: by.By, At: by.NowMS, SupersededTTLMS: r.TTLMS}
	if by.Vouch {
		e.How = lease.HowVouched
	}
	if r.Revoker != nil { // a wait that is pending yet is not shortened
		e.SupersededTTLMS = max(e.SupersededTTLMS, r.Revoker.SupersededTTLMS)
	}
	next := r.end(attempt, e)
	next.Counter++
	f := Forced{Term: next.Counter, TTLMS: e.SupersededTTLMS}
	if r.Forced != nil {
		f.TTLMS = max(f.TTLMS, r.Forced.TTLMS)
	}
	next.Forced = &f
	return next, nil
}

// Jump raises the counter to at least above, so that the next term is higher
// (LS12). It gives nothing to anybody; an owner's session ends at its next
// renewal. nil means nothing to do. A jump to the end of the counter is
// ErrInvalid: no term would be left.
func (r *Record) Jump(attempt string, above uint64) (*Record, error) {
	if above >= record.MaxNumber {
		return nil, store.Errorf(store.ErrInvalid, "", "jump", r.Node, "no term is above %d", above)
	}
	if r.Counter >= above {
		return nil, nil
	}
	next := r.copy()
	next.Counter, next.WriterAttempt = above, attempt // the holder's attempt stays: a foreign write (ST9)
	return next, nil
}

// Revoke makes durable that v was taken from o's session, before the lease is
// freed (LS11). Sequence and expiry stay: it is no sign of life. nil means that
// it is there already. Without room it is ErrUnavailable and the steal is
// refused.
func (r *Record) Revoke(attempt string, o Owner, v Revocation) (*Record, error) {
	switch {
	case !r.OwnedBy(o) || r.Revoker != nil:
		return nil, r.notOwner("revoke", o)
	case slices.Contains(r.Revocations, v):
		return nil, nil
	case len(r.Revocations) >= MaxRevocations:
		return nil, store.Errorf(store.ErrUnavailable, "", "revoke", r.Node,
			"%d revocations wait for the session already: try again after its next renewal", len(r.Revocations))
	}
	next := r.copy()
	next.Revocations, next.WriterAttempt = append(next.Revocations, v), attempt
	if err := next.validRevocations(); err != nil {
		return nil, store.Wrap(store.ErrInvalid, "", "revoke", r.Node, err)
	}
	return next, nil
}

// DropCertificate returns r without its certificate, which s proves to be sealed
// under both names (PL4). An owner does it within a renewal instead. nil means
// that there is none to drop, or that s does not prove it.
func (r *Record) DropCertificate(attempt string, s Sealed) *Record {
	if r.Certificate == nil || !s.of(r.Certificate) {
		return nil
	}
	next := r.copy().drop(s)
	next.WriterAttempt = attempt
	return next
}

// drop removes the certificate if s proves that it is sealed. r is a copy.
func (r *Record) drop(s Sealed) *Record {
	if r.Certificate != nil && s.of(r.Certificate) {
		r.Certificate, r.SealedTerm = nil, r.Term
	}
	return r
}

// Adoption says how an owner goes on from a record that another wrote.
type Adoption int

// The answers of Adoptable.
const (
	// Lost: this is no longer the owner's record. The session ends.
	Lost Adoption = iota
	// Adopted: the same ownership; go on from it.
	Adopted
	// Raised: the same ownership, whose counter a jump raised. The session ends,
	// and may release the name (LS12).
	Raised
)

// Adoptable says whether the owner of held (the last state that it knows to be
// its own), which meets now in the store instead, may go on from it: the same
// owner and term, the holder's last attempt one of its own, and no count fell
// (ST9). It may after a revocation; a jump ends the session (LS12).
func Adoptable(held, now *Record, mine func(attempt string) bool) Adoption {
	switch {
	case !held.Held() || !now.OwnedBy(held.Last()) || now.Node != held.Node || !mine(now.HolderAttempt),
		now.Sequence < held.Sequence || now.Counter < held.Counter || now.SealedTerm < held.SealedTerm,
		now.TTLMS != held.TTLMS || now.FirstTerm != held.FirstTerm || (now.Revoker != nil) != (held.Revoker != nil),
		held.Certificate != nil && now.Certificate != nil && !now.Certificate.Equal(held.Certificate):
		return Lost
	case now.Raised():
		return Raised
	}
	return Adopted
}

func (r *Record) notOwner(op string, o Owner) error {
	if !r.Held() {
		return store.Errorf(store.ErrConflict, "", op, r.Node, "nobody owns the name (last term %d, %s), not incarnation %s of term %d",
			r.Term, r.Ended.How, o.Incarnation, o.Term)
	}
	return store.Errorf(store.ErrConflict, "", op, r.Node, "the owner is incarnation %s of term %d, not %s of term %d",
		r.Incarnation, r.Term, o.Incarnation, o.Term)
}

// copy shares nothing that a decision changes. A certificate is never changed.
func (r *Record) copy() *Record {
	next := *r
	next.Revocations = slices.Clone(r.Revocations)
	next.MAC = "" // of other bytes; who has the key signs anew
	return &next
}

// expiry is the advisory expiry in wall-clock milliseconds.
func expiry(nowMS, ttlMS int64) int64 { return min(nowMS+ttlMS, record.MaxNumber) }
