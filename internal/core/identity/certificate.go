package identity

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

// Side is one owner's state at the change of owners.
type Side struct {
	Incarnation string `json:"incarnation"`
	Term        uint64 `json:"term"`
	Counter     uint64 `json:"counter"`
	Sequence    uint64 `json:"sequence"`
	TTLMS       int64  `json:"ttl_ms"`
	Since       int64  `json:"since_ms"`
	Revoker     bool   `json:"revoker,omitempty"`
}

func (s Side) owner() Owner { return Owner{Incarnation: s.Incarnation, Term: s.Term} }

// Certificate is durable evidence that one exact incarnation was superseded by
// the next, and how (PL3). It is finished when the takeover is written and never
// changes. Invariants, checked by Valid:
//
//  1. v, node and both sides are complete and within bounds;
//  2. the incarnations differ;
//  3. successor sequence = predecessor sequence + 1;
//  4. successor term = successor counter = predecessor counter + 1;
//  5. exactly a forced or vouched one names a superseded TTL; it has a reason and
//     its predecessor's counter was raised above the term.
type Certificate struct {
	V    int    `json:"v"`
	Node string `json:"node"`
	// How the predecessor fell: released, observed, proven, store-clock, forced
	// or vouched (LS11).
	How string `json:"how"`
	Why string `json:"why,omitempty"`
	By  string `json:"by,omitempty"`
	At  int64  `json:"at_ms"`
	// SupersededTTLMS is what forced or vouched evidence must wait before it
	// proves a death (LS11).
	SupersededTTLMS int64  `json:"superseded_ttl_ms,omitempty"`
	Predecessor     Side   `json:"predecessor"`
	Successor       Side   `json:"successor"`
	MAC             string `json:"mac,omitempty"`
}

// Valid checks the invariants.
func (c *Certificate) Valid() error {
	p, s := c.Predecessor, c.Successor
	switch {
	case c.V < 1 || c.V > record.Level:
		return fmt.Errorf("format level %d", c.V)
	case p.Incarnation == s.Incarnation:
		return errors.New("an incarnation cannot succeed itself")
	case s.Sequence != p.Sequence+1:
		return fmt.Errorf("sequence %d does not follow %d", s.Sequence, p.Sequence)
	case s.Term != p.Counter+1 || s.Counter != s.Term:
		return fmt.Errorf("term %d does not follow the counter %d", s.Term, p.Counter)
	case !knownHow(c.How):
		return fmt.Errorf("unknown end %q", c.How)
	case byForce(c.How) != (c.SupersededTTLMS != 0):
		return errors.New("exactly a forced certificate names a superseded TTL")
	case byForce(c.How) && (c.Why == "" || p.Counter <= p.Term):
		return errors.New("a forced certificate lacks its reason or a raised counter")
	case !isTime(c.At):
		return errors.New("the time is out of bounds")
	}
	if c.SupersededTTLMS != 0 {
		if err := checkTTL(c.SupersededTTLMS); err != nil {
			return err
		}
	}
	return errors.Join(store.CheckName("node name", c.Node), p.valid(), s.valid(), checkTexts(c.Why, c.By, c.MAC))
}

func (s Side) valid() error {
	switch {
	case !record.IsID(s.Incarnation):
		return fmt.Errorf("incarnation %q is not an id", s.Incarnation)
	case s.Term < 1 || s.Term > s.Counter || s.Counter > record.MaxNumber:
		return fmt.Errorf("term %d with counter %d is out of bounds", s.Term, s.Counter)
	case s.Sequence < 1 || s.Sequence > record.MaxNumber:
		return fmt.Errorf("sequence %d is out of bounds", s.Sequence)
	case !isTime(s.Since):
		return errors.New("a time is out of bounds")
	}
	return checkTTL(s.TTLMS)
}

// Encode returns the certificate's canonical bytes. They are also, byte for
// byte, what a record embeds.
func (c *Certificate) Encode() ([]byte, error) { return record.Encode(c, MaxCertificate) }

// Equal reports whether both have the same canonical bytes.
func (c *Certificate) Equal(d *Certificate) bool {
	return c == d || c != nil && d != nil && *c == *d
}

// PredecessorName is the last element of the key under which the certificate
// that ended incarnation is sealed (PL3).
func PredecessorName(incarnation string) string { return "predecessor-" + incarnation }

// SuccessorName is the last element of the key under which the certificate that
// began o's term is sealed (PL3).
func SuccessorName(o Owner) string { return fmt.Sprintf("successor-%s-%016d", o.Incarnation, o.Term) }

// Names returns the last elements of the two create-only keys that c is sealed
// under, in the order in which it is sealed: whoever finds the second may rely
// on the first, which proves an end.
func (c *Certificate) Names() [2]string {
	return [2]string{PredecessorName(c.Predecessor.Incarnation), SuccessorName(c.Successor.owner())}
}

// DecodeCertificate reads a certificate strictly and checks that node and name
// (one of its two) are its own (ST7). Anything else is ErrCorrupt.
func DecodeCertificate(key, node, name string, body []byte) (*Certificate, error) {
	var c Certificate
	if err := record.Decode(key, body, &c); err != nil {
		return nil, err
	}
	if names := c.Names(); c.Node != node || name != names[0] && name != names[1] {
		return nil, store.Errorf(store.ErrCorrupt, "", "decode", key,
			"the certificate belongs to node %q as %s or %s, not to node %q as %s", c.Node, names[0], names[1], node, name)
	}
	return &c, nil
}

// ParseCertificate reads the bytes of a citation strictly (PL5). They prove
// nothing until [VerifyCertificate] accepts them.
func ParseCertificate(body []byte) (*Certificate, error) {
	var c Certificate
	if err := record.Decode("citation", body, &c); err != nil {
		return nil, err
	}
	return &c, nil
}

// Sealed proves that one certificate stands under both of its names. The only
// way to make one is [Seal]; its zero value proves nothing.
type Sealed struct{ c *Certificate }

// Seal returns the proof that c is sealed, from the bodies that stand at its two
// names, in the order of Names: read back, or just created there. A missing body
// is ErrNotFound: create it and read again. Same content is fine; different
// content under one name is ErrCorrupt (PL3).
func Seal(c *Certificate, bodies [2][]byte) (Sealed, error) {
	want, err := c.Encode()
	if err != nil {
		return Sealed{}, err
	}
	for i, name := range c.Names() {
		if bodies[i] == nil {
			return Sealed{}, store.Errorf(store.ErrNotFound, "", "seal", name, "the certificate does not stand there yet")
		}
		if !bytes.Equal(bodies[i], want) {
			return Sealed{}, store.Errorf(store.ErrCorrupt, "", "seal", name,
				"another certificate stands there than the one that node %q carries: stop and look", c.Node)
		}
	}
	copied := *c
	return Sealed{c: &copied}, nil
}

// of reports whether s proves that c is sealed.
func (s Sealed) of(c *Certificate) bool { return s.c != nil && s.c.Equal(c) }

// newCertificate is the finished certificate of next's takeover from prev.
func newCertificate(prev, next *Record, how string) *Certificate {
	last := prev.Last()
	c := &Certificate{
		V: record.Level, Node: prev.Node, How: how, At: next.Since,
		Predecessor: Side{Incarnation: last.Incarnation, Term: prev.Term, Counter: prev.Counter, Sequence: prev.Sequence,
			TTLMS: prev.TTLMS, Since: prev.Since, Revoker: prev.Revoker != nil},
		Successor: Side{Incarnation: next.Incarnation, Term: next.Term, Counter: next.Counter, Sequence: next.Sequence,
			TTLMS: next.TTLMS, Since: next.Since, Revoker: next.Revoker != nil},
	}
	if e := prev.Ended; e != nil {
		c.Why, c.By, c.SupersededTTLMS = e.Why, e.By, e.SupersededTTLMS
	}
	return c
}
