package world

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tenure-project/tenure/internal/core/identity"
	"github.com/tenure-project/tenure/internal/core/lease"
)

// The legal steps of a node's record that are none of a lease's, beside granted,
// tookOver, renewed and jumped.
const (
	revokedOne step = "revoked a lease"
	gaveUp     step = "gave up"
	forcedOut  step = "forced out"
)

// identityStep says which step leads from prev (nil: absent) to next, or why none
// does (R19). It knows nothing of who wrote and when, nor of what is sealed.
func identityStep(prev, next *identity.Record) (step, error) {
	switch {
	case next.Term > next.Counter:
		return "", fmt.Errorf("the term %d is above the counter %d", next.Term, next.Counter)
	case prev == nil:
		return granted, firstJoin(next)
	case next.Counter < prev.Counter || next.Term < prev.Term || next.Sequence < prev.Sequence:
		return "", fmt.Errorf("a number fell: term %d to %d, counter %d to %d, sequence %d to %d", prev.Term, next.Term, prev.Counter, next.Counter, prev.Sequence, next.Sequence)
	case next.FirstTerm != prev.FirstTerm:
		return "", errors.New("the first term changed")
	case next.Held() && (!prev.Held() || next.Last() != prev.Last()):
		return tookOver, takeover(prev, next)
	case next.Held():
		return keptName(prev, next)
	case prev.Held():
		return endedName(prev, next)
	}
	if next.Counter <= prev.Counter || *next.Ended != *prev.Ended || next.Sequence != prev.Sequence || next.Term != prev.Term {
		return "", errors.New("a record that nobody owns changed and its counter did not rise")
	}
	return jumped, nil
}

func firstJoin(next *identity.Record) error {
	if !next.Held() || next.Term != next.Counter || next.Term != next.FirstTerm || next.Sequence != 1 || next.Certificate != nil || next.Revoker != nil {
		return fmt.Errorf("a node begins with term %d, counter %d, first term %d, sequence %d", next.Term, next.Counter, next.FirstTerm, next.Sequence)
	}
	return nil
}

// takeover wants the next term and sequence, and the certificate of exactly these
// two states.
func takeover(prev, next *identity.Record) error {
	c := next.Certificate
	switch {
	case next.Term != prev.Counter+1 || next.Counter != next.Term:
		return fmt.Errorf("term %d with counter %d follows counter %d", next.Term, next.Counter, prev.Counter)
	case next.Sequence != prev.Sequence+1:
		return fmt.Errorf("the sequence of a takeover is %d after %d", next.Sequence, prev.Sequence)
	case next.Incarnation == prev.Last().Incarnation:
		return errors.New("an incarnation succeeds itself")
	case c == nil:
		return errors.New("a takeover without its certificate")
	case c.Node != next.Node || !sideOf(c.Predecessor, prev, prev.Last()) || !sideOf(c.Successor, next, next.Last()):
		return errors.New("the certificate of a takeover speaks of other states")
	case c.Successor.Revoker != (next.Revoker != nil):
		return errors.New("a revoker is not marked as one, or another owner is")
	}
	return fellAs(prev, next)
}

func sideOf(s identity.Side, r *identity.Record, o identity.Owner) bool {
	return s.Incarnation == o.Incarnation && s.Term == r.Term && s.Counter == r.Counter && s.Sequence == r.Sequence && s.TTLMS == r.TTLMS
}

// fellAs wants the certificate to say what prev says of how it ended.
func fellAs(prev, next *identity.Record) error {
	c := next.Certificate
	want := []string{lease.HowObserved, lease.HowProven, lease.HowStoreClock}
	superseded := int64(0)
	switch {
	case prev.Revoker != nil:
		want = []string{lease.HowReleased}
	case !prev.Held():
		want, superseded = []string{prev.Ended.How}, prev.Ended.SupersededTTLMS
	}
	if !slices.Contains(want, c.How) || c.SupersededTTLMS != superseded {
		return fmt.Errorf("the certificate says %q with %d ms superseded, want one of %v with %d ms", c.How, c.SupersededTTLMS, want, superseded)
	}
	if v := next.Revoker; v != nil && c.How == lease.HowForced && v.SupersededTTLMS != superseded {
		return errors.New("a revoker after force does not carry the wait")
	}
	return nil
}

// keptName wants a renewal, a jump or a revocation.
func keptName(prev, next *identity.Record) (step, error) {
	if next.TTLMS != prev.TTLMS || next.Since != prev.Since || next.Note != prev.Note || (next.Revoker != nil) != (prev.Revoker != nil) {
		return "", errors.New("an ownership changed what is fixed for it")
	}
	if next.Certificate != nil && !next.Certificate.Equal(prev.Certificate) {
		return "", errors.New("a record changed the certificate that it carries")
	}
	own := next.HolderAttempt == next.WriterAttempt && next.HolderAttempt != prev.HolderAttempt
	foreign := next.HolderAttempt == prev.HolderAttempt && next.WriterAttempt != prev.WriterAttempt && next.Sequence == prev.Sequence
	same := slices.Equal(next.Revocations, prev.Revocations)
	switch {
	case own && prev.Counter > prev.Term:
		return "", errors.New("an owner renewed whose counter was raised")
	case own && next.Sequence == prev.Sequence+1 && next.Counter == prev.Counter && next.Revoker == nil && subset(next.Revocations, prev.Revocations):
		return renewed, nil
	case foreign && next.Counter > prev.Counter && same:
		return jumped, nil
	case foreign && next.Counter == prev.Counter && len(next.Revocations) == len(prev.Revocations)+1 && subset(prev.Revocations, next.Revocations):
		return revokedOne, nil
	}
	return "", fmt.Errorf("neither a renewal nor a jump nor a revocation: sequence %d to %d, counter %d to %d, %d to %d revocations",
		prev.Sequence, next.Sequence, prev.Counter, next.Counter, len(prev.Revocations), len(next.Revocations))
}

func subset(some, all []identity.Revocation) bool {
	for _, v := range some {
		if !slices.Contains(all, v) {
			return false
		}
	}
	return true
}

// endedName wants a release or an end by force.
func endedName(prev, next *identity.Record) (step, error) {
	rise, e := next.Counter-prev.Counter, next.Ended
	switch {
	case next.Sequence != prev.Sequence || next.Term != prev.Term || e.Incarnation != prev.Incarnation:
		return "", errors.New("the end of an ownership changed its sequence, its term or its owner")
	case e.How == lease.HowReleased && rise == 0 && e.SupersededTTLMS == 0:
		return gaveUp, nil
	case (e.How == lease.HowForced || e.How == lease.HowVouched) && rise == 1 && e.SupersededTTLMS == prev.TTLMS:
		return forcedOut, nil
	}
	return "", fmt.Errorf("an ownership ended by %q with %d ms superseded, and its counter rose by %d", e.How, e.SupersededTTLMS, rise)
}
