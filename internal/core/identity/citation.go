package identity

import (
	"errors"
	"fmt"

	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

// MaxCitation bounds the bytes of an encoded Citation.
const MaxCitation = 1 << 10

// HeadRef is what a citation says of a head.
type HeadRef struct {
	// Incarnation is the owner; empty where nobody owned the name.
	Incarnation string `json:"incarnation,omitempty"`
	Term        uint64 `json:"term"`
	Sequence    uint64 `json:"sequence"`
}

// Citation is evidence by the head alone that one process start is over: the head
// says that it ended, or has a higher term (LS8, PL5). Like a cited certificate it
// informs; whoever doubts it reads the head, which only rises. Invariants, checked
// by Valid:
//
//  1. v, node, incarnation, term and head are complete and within bounds;
//  2. a head of the same term says how the start ended, and names no other owner;
//  3. a head of a higher term says nothing of it (folded evidence), and names
//     another owner or none; a lower one proves nothing.
type Citation struct {
	V           int    `json:"v"`
	Node        string `json:"node"`
	Incarnation string `json:"incarnation"`
	Term        uint64 `json:"term"`
	// How it ended: released, forced or vouched; empty for folded evidence.
	How  string  `json:"how,omitempty"`
	Head HeadRef `json:"head"`
}

// Valid checks the invariants.
func (c *Citation) Valid() error {
	h := c.Head
	switch {
	case c.V < 1 || c.V > record.Level:
		return fmt.Errorf("format level %d", c.V)
	case !record.IsID(c.Incarnation):
		return fmt.Errorf("incarnation %q is not an id", c.Incarnation)
	case h.Incarnation != "" && !record.IsID(h.Incarnation):
		return fmt.Errorf("the head's incarnation %q is not an id", h.Incarnation)
	case c.Term < 1 || h.Term < c.Term || h.Term > record.MaxNumber:
		return fmt.Errorf("a head of term %d proves nothing of term %d", h.Term, c.Term)
	case h.Sequence < 1 || h.Sequence > record.MaxNumber:
		return fmt.Errorf("sequence %d is out of bounds", h.Sequence)
	case h.Term > c.Term && (c.How != "" || h.Incarnation == c.Incarnation):
		return errors.New("a head of a later term names the start or says how it ended")
	case h.Term == c.Term && (h.Incarnation != "" && h.Incarnation != c.Incarnation ||
		c.How != lease.HowReleased && !byForce(c.How)):
		return fmt.Errorf("a head of the same term names another owner, or the end %q", c.How)
	}
	return store.CheckName("node name", c.Node)
}

// Cite returns the canonical bytes that prove v, the judgement of o by head, to
// whoever reads them later: those of v's certificate, or of a Citation. A verdict
// other than Over is ErrInvalid.
func Cite(o Owner, head *Record, v Verdict) (string, error) {
	if v.State != Over {
		return "", store.Errorf(store.ErrInvalid, "", "cite", "", "incarnation %s is not over", o.Incarnation)
	}
	if v.Certificate != nil {
		body, err := v.Certificate.Encode()
		return string(body), err
	}
	c := Citation{V: record.Level, Node: head.Node, Incarnation: o.Incarnation, Term: o.Term, How: v.How,
		Head: HeadRef{Incarnation: head.Incarnation, Term: head.Term, Sequence: head.Sequence}}
	if !v.Folded {
		c.Term = head.Term // also where the caller could not name it
	}
	body, err := record.Encode(&c, MaxCitation)
	return string(body), err
}

// ParseCitation reads the bytes of a Citation strictly. They prove nothing by
// themselves.
func ParseCitation(body []byte) (*Citation, error) {
	var c Citation
	if err := record.Decode("citation", body, &c); err != nil {
		return nil, err
	}
	return &c, nil
}
