package identity

import (
	"time"

	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/store"
)

// State is the answer of a judgement.
type State int

// The states of an exact incarnation.
const (
	// Missing: neither the head nor what is sealed tells of it. It must be taken
	// for alive (PL5).
	Missing State = iota
	// Current: the head names it as the owner.
	Current
	// Over: it is no owner any more, once Wait has passed.
	Over
	// Behind: the evidence is newer than the head that was given: read the head
	// again. A head that stays behind shows a store that went back (LS12).
	Behind
)

// Verdict is a judgement with its grounds.
type Verdict struct {
	State State
	// How it ended; empty for Folded.
	How string
	// Wait is how long the reader must wait, on its own clock from its own first
	// read of this evidence and stretched by rho, before it proves a death: the
	// superseded TTL of what rests, or may rest, on force (LS11).
	Wait time.Duration
	// Certificate is the evidence; nil where the head alone is.
	Certificate *Certificate
	// Folded: a higher term of the head is the evidence (PL5).
	Folded bool
}

// Judge says whether the exact incarnation and term of o are over (LS8, PL5).
// head is a linearizable read of o's node; sealed is what stands under
// o's predecessor name, nil if nothing. o.Term is 0 where the caller cannot name
// it; then nothing can be folded. Contradictions are ErrCorrupt.
func Judge(o Owner, head *Record, sealed *Certificate) (Verdict, error) {
	if head == nil {
		return Verdict{}, nil
	}
	c, err := evidenceOf(o, head, sealed)
	if err != nil {
		return Verdict{}, err
	}
	last := head.Last()
	switch {
	case c != nil:
		return byCertificate(c, head)
	case last.Incarnation == o.Incarnation:
		return byHead(o, head)
	case o.Term == 0 || o.Term > head.Term:
		return Verdict{}, nil
	case o.Term == head.Term:
		return Verdict{}, corrupt("judge", head.Node, "incarnations %s and %s both claim term %d", o.Incarnation, last.Incarnation, o.Term)
	}
	return Verdict{State: Over, Wait: head.foldedWait(o.Term), Folded: true}, nil
}

// evidenceOf returns the certificate that ended o: the sealed one, or the one
// that head carries yet.
func evidenceOf(o Owner, head *Record, sealed *Certificate) (*Certificate, error) {
	if sealed != nil && (sealed.Node != head.Node || sealed.Predecessor.Incarnation != o.Incarnation) {
		return nil, store.Errorf(store.ErrInvalid, "", "judge", head.Node, "the certificate given is of incarnation %s of node %q", sealed.Predecessor.Incarnation, sealed.Node)
	}
	c := sealed
	if e := head.Certificate; e != nil && e.Predecessor.Incarnation == o.Incarnation {
		if c != nil && !c.Equal(e) {
			return nil, corrupt("judge", head.Node, "the sealed certificate of incarnation %s differs from the one in the record", o.Incarnation)
		}
		c = e
	}
	if c != nil && o.Term != 0 && c.Predecessor.Term != o.Term {
		return nil, corrupt("judge", head.Node, "incarnation %s had term %d, not %d", o.Incarnation, c.Predecessor.Term, o.Term)
	}
	return c, nil
}

// byHead judges the present or last owner of head.
func byHead(o Owner, head *Record) (Verdict, error) {
	switch e := head.Ended; {
	case o.Term != 0 && o.Term != head.Term:
		return Verdict{}, corrupt("judge", head.Node, "incarnation %s has term %d, not %d", o.Incarnation, head.Term, o.Term)
	case head.Revoker != nil: // it never acts
		return Verdict{State: Over, How: lease.HowReleased}, nil
	case head.Held():
		return Verdict{State: Current}, nil
	default:
		return Verdict{State: Over, How: e.How, Wait: millis(e.SupersededTTLMS)}, nil
	}
}

// byCertificate judges c's predecessor: head must be at or beyond the
// successor, and not the predecessor (PL7).
func byCertificate(c *Certificate, head *Record) (Verdict, error) {
	last := head.Last()
	switch s := c.Successor; {
	case head.Term < s.Term:
		return Verdict{State: Behind, Certificate: c}, nil
	case last.Incarnation == c.Predecessor.Incarnation:
		return Verdict{}, corrupt("judge", head.Node, "incarnation %s owns the name after it was superseded", last.Incarnation)
	case head.Term == s.Term && (last != s.owner() || head.Sequence < s.Sequence):
		return Verdict{}, corrupt("judge", head.Node, "term %d is incarnation %s's in the record and %s's in the certificate", s.Term, last.Incarnation, s.Incarnation)
	}
	return Verdict{State: Over, How: c.How, Wait: millis(c.SupersededTTLMS), Certificate: c}, nil
}

// foldedWait is what folded evidence about term must wait: a lower term than
// the highest forced one may have fallen by force (PL5).
func (r *Record) foldedWait(term uint64) time.Duration {
	if r.Forced != nil && term < r.Forced.Term {
		return millis(r.Forced.TTLMS)
	}
	return 0
}

// VerifyCertificate judges a cited certificate (PL7): what stands under its
// predecessor's name (stored, nil if nothing), or in the head, equals it, and
// the head is at or beyond its successor and not its predecessor. One that is
// stored nowhere any more is Over only by a head beyond its successor (PL5), else
// Missing.
func VerifyCertificate(c, stored *Certificate, head *Record) (Verdict, error) {
	if err := c.Valid(); err != nil {
		return Verdict{}, store.Wrap(store.ErrCorrupt, "", "verify", c.Node, err)
	}
	if head == nil || head.Node != c.Node {
		return Verdict{}, corrupt("verify", c.Node, "the node of the certificate has no record")
	}
	found, err := evidenceOf(c.Predecessor.owner(), head, stored)
	if err != nil {
		return Verdict{}, err
	}
	if found != nil && !found.Equal(c) {
		return Verdict{}, corrupt("verify", c.Node, "the stored certificate of incarnation %s is another than the cited one", c.Predecessor.Incarnation)
	}
	v, err := byCertificate(c, head)
	if err != nil || v.State != Over || found != nil {
		return v, err
	}
	if head.Term == c.Successor.Term {
		return Verdict{}, nil
	}
	v.Folded = true
	v.Wait = max(v.Wait, head.foldedWait(c.Predecessor.Term))
	return v, nil
}

// VerifyCurrent reports whether o is the owner right now (PL7): head matches
// (o.Term 0 is any), evidence for its term is present, and again, a read of the
// head after that of the evidence, still matches. evidence is what stands under
// head's successor name, nil if nothing. A term without its evidence and a record
// that vanished or went back are ErrCorrupt. A revoker is never current.
func VerifyCurrent(o Owner, head *Record, evidence *Certificate, again *Record) (bool, error) {
	if head == nil || head.Incarnation != o.Incarnation || o.Term != 0 && head.Term != o.Term || head.Revoker != nil {
		return false, nil
	}
	if err := head.evidenced(evidence); err != nil {
		return false, err
	}
	switch {
	case again == nil:
		return false, corrupt("verify", head.Node, "the record vanished")
	case !again.OwnedBy(head.Last()):
		return false, nil
	case again.Sequence < head.Sequence || again.Counter < head.Counter:
		return false, corrupt("verify", head.Node, "the record went back from sequence %d to %d", head.Sequence, again.Sequence)
	}
	return true, nil
}

// evidenced returns ErrCorrupt unless the evidence of r's term is present.
func (r *Record) evidenced(c *Certificate) error {
	switch {
	case r.Term == r.FirstTerm:
		return nil
	case c == nil && r.Certificate == nil:
		return corrupt("verify", r.Node, "the certificate of term %d is neither in the record nor sealed", r.Term)
	case c != nil && r.Certificate != nil && !c.Equal(r.Certificate):
		return corrupt("verify", r.Node, "the sealed certificate of term %d differs from the one in the record", r.Term)
	case c != nil && (c.Node != r.Node || c.Successor.owner() != r.Last() || c.Successor.Sequence > r.Sequence):
		return corrupt("verify", r.Node, "the sealed certificate of term %d is another owner's", r.Term)
	}
	return nil
}

// Foldable reports whether c may be removed once it is older than the
// retention: the head's term is beyond its successor's, so that it is evidence
// for both, and the head remembers c's force (PL5). The evidence of the present
// term is never foldable.
func Foldable(c *Certificate, head *Record) bool {
	return head.Node == c.Node && head.Term > c.Successor.Term &&
		head.Forced.covers("certificate", c.How, c.Predecessor.Term, c.SupersededTTLMS) == nil
}

func corrupt(op, node, format string, args ...any) error {
	return store.Errorf(store.ErrCorrupt, "", op, node, format, args...)
}
