package authority

import (
	"errors"
	"fmt"

	"github.com/tenure-project/tenure/internal/record"
)

// The chains of an authority.
const (
	Checkpoint = "checkpoint" // CK
	Assignment = "assignment" // AS
	Recovery   = "recovery"   // RF: releases
	Catalog    = "catalog"    // CT
)

// ChainNames lists the chains in the order in which they are walked.
func ChainNames() []string { return []string{Checkpoint, Assignment, Recovery, Catalog} }

// Link names one entry and pins its bytes (LA5).
type Link struct {
	// Sequence is the head's at which the entry was admitted.
	Sequence uint64 `json:"sequence"`
	// Token and Attempt name the object (LA8).
	Token   uint64 `json:"token"`
	Attempt string `json:"attempt"`
	// Key is what the entry is unique by in its chain; it rises along the chain.
	Key uint64 `json:"key"`
	// ID is a second number that rises with the key; 0 where the chain has none.
	ID uint64 `json:"id,omitempty"`
	// Digest is of the entry's bytes: DigestOf(EntryDomain, bytes).
	Digest string `json:"digest"`
}

// Name is the object that l links.
func (l Link) Name() Name { return Name{Kind: KindEntry, Token: l.Token, Attempt: l.Attempt} }

func (l Link) valid() error {
	switch {
	case !isCount(l.Sequence) || !isCount(l.Token) || !isCount(l.Key) || l.ID > record.MaxNumber:
		return errors.New("a link has numbers out of bounds")
	case !record.IsID(l.Attempt):
		return fmt.Errorf("a link's attempt %q is not an id", l.Attempt)
	case !IsDigest(l.Digest):
		return fmt.Errorf("a link's digest %q is not one", l.Digest)
	}
	return nil
}

// before reports whether l may stand before m in one chain.
func (l Link) before(m Link) bool {
	return l.Sequence < m.Sequence && l.Token <= m.Token && l.Key < m.Key && (l.ID < m.ID || l.ID == 0 && m.ID == 0)
}

// Chain is what the head says of one chain. A chain may have *marked* entries,
// which form a second chain inside it: the newest of them is found without
// walking the others, and they stay down to a bound of their own. Invariants,
// checked by the head's Valid:
//
//  1. head is the newest entry; live, from 1 to 4096, is how many entries have a
//     key of at least floor; the floor is at most the head's key;
//  2. the anchor is the newest entry below the floor, and without a floor there is
//     none;
//  3. mark is the newest marked entry; marks, at most 4096, is how many of them
//     have a key of at least horizon; without a mark both are absent;
//  4. the horizon is at most the floor, and a horizon leaves at least one marked
//     entry at or above it (CK);
//  5. the mark anchor is the newest marked entry below the horizon;
//  6. all links are ordered like their entries, and none is newer than the head.
type Chain struct {
	Head Link   `json:"head"`
	Live uint64 `json:"live"`
	// Floor: entries with a lower key were given up, but for the anchor and for
	// marked ones from the horizon on.
	Floor  uint64 `json:"floor,omitempty"`
	Anchor *Link  `json:"anchor,omitempty"`
	Mark   *Link  `json:"mark,omitempty"`
	Marks  uint64 `json:"marks,omitempty"`
	// Horizon: marked entries with a lower key were given up, but for the anchor.
	Horizon    uint64 `json:"horizon,omitempty"`
	MarkAnchor *Link  `json:"mark_anchor,omitempty"`
	// Binding is what every entry of the chain must name, given by the first one.
	Binding string `json:"binding,omitempty"`
	// State is what the newest entry left behind: the next one must build on it.
	State string `json:"state,omitempty"`
}

// Chain returns the named chain; nil if it is empty.
func (h *Head) Chain(name string) *Chain {
	if p := h.chain(name); p != nil {
		return *p
	}
	return nil
}

func (h *Head) chain(name string) **Chain {
	switch name {
	case Checkpoint:
		return &h.Checkpoint
	case Assignment:
		return &h.Assignment
	case Recovery:
		return &h.Recovery
	case Catalog:
		return &h.Catalog
	}
	return nil
}

// links are all links that c holds.
func (c *Chain) links() []Link {
	if c == nil {
		return nil
	}
	all := []Link{c.Head}
	for _, l := range []*Link{c.Anchor, c.Mark, c.MarkAnchor} {
		if l != nil {
			all = append(all, *l)
		}
	}
	return all
}

func (c *Chain) valid(h *Head) error {
	for _, l := range c.links() {
		if err := l.valid(); err != nil {
			return err
		}
		if l.Sequence > h.Sequence || l.Token > h.Token {
			return fmt.Errorf("an entry of sequence %d, token %d is newer than the head", l.Sequence, l.Token)
		}
	}
	if c.Live < 1 || c.Live > MaxLive || c.Floor > c.Head.Key {
		return fmt.Errorf("%d live entries from %d to %d are out of bounds", c.Live, c.Floor, c.Head.Key)
	}
	if a := c.Anchor; a != nil && (a.Key >= c.Floor || !a.before(c.Head)) {
		return errors.New("the anchor is not below the floor")
	}
	for _, text := range []string{c.Binding, c.State} {
		if text != "" && !record.IsID(text) && !IsDigest(text) {
			return fmt.Errorf("%q is neither an id nor a digest", text)
		}
	}
	return c.validMarks()
}

func (c *Chain) validMarks() error {
	m, a := c.Mark, c.MarkAnchor
	switch {
	case m == nil && (c.Marks != 0 || c.Horizon != 0 || a != nil):
		return errors.New("a chain without a mark counts or bounds marks")
	case m == nil:
		return nil
	case *m != c.Head && !m.before(c.Head):
		return errors.New("the mark is newer than the head")
	case c.Marks < 1 || c.Marks > MaxLive:
		return fmt.Errorf("%d live marks are out of bounds", c.Marks)
	case c.Horizon > c.Floor || m.Key < c.Horizon:
		return fmt.Errorf("no marked entry stays at or above the horizon %d, or it is above the floor %d", c.Horizon, c.Floor)
	case a != nil && (a.Key >= c.Horizon || !a.before(*m)):
		return errors.New("the mark's anchor is not below the horizon")
	case c.Anchor == nil && (a != nil || m.Key < c.Floor):
		return errors.New("a mark is below the floor and there is no anchor")
	}
	return nil
}

// same reports whether two heads say the same of a chain: nothing was admitted
// and no bound moved between them.
func (c *Chain) same(d *Chain) bool {
	if c == nil || d == nil {
		return c == d
	}
	a, b := *c, *d
	if !sameLink(a.Anchor, b.Anchor) || !sameLink(a.Mark, b.Mark) || !sameLink(a.MarkAnchor, b.MarkAnchor) {
		return false
	}
	a.Anchor, a.Mark, a.MarkAnchor, b.Anchor, b.Mark, b.MarkAnchor = nil, nil, nil, nil, nil, nil
	return a == b
}

// follows reports whether c can be what became of d: nothing was taken back.
func (c *Chain) follows(d *Chain) bool {
	switch {
	case d == nil:
		return true
	case c == nil:
		return false
	}
	return (c.Head == d.Head || d.Head.before(c.Head)) && c.Floor >= d.Floor && c.Horizon >= d.Horizon && c.Binding == d.Binding
}

func sameLink(a, b *Link) bool { return a == b || a != nil && b != nil && *a == *b }
