package checkpoint

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tenure-project/tenure/internal/core/authority"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

// SweepStep is the most capsules that one step of a sweep looks at (CK).
const SweepStep = 64

// CapsuleName names the object of one recovery capsule by its epoch, the token that
// wrote it and an attempt that no other object has (LA8).
type CapsuleName struct {
	Epoch   uint64
	Token   uint64
	Attempt string
}

// Element is the last element of the object's key. It is ordered by epoch.
func (n CapsuleName) Element() string {
	return fmt.Sprintf("%016d-%016d-%s", n.Epoch, n.Token, n.Attempt)
}

// Name is the object's name for a candidacy (see authority.Candidacy.Writing).
func (n CapsuleName) Name() authority.Name {
	return authority.Name{Kind: KindCapsule, Token: n.Token, Attempt: n.Attempt}
}

// ParseCapsuleName reads a capsule's last key element strictly. Anything else is
// ErrCorrupt.
func ParseCapsuleName(element string) (CapsuleName, error) {
	first, rest, ok := strings.Cut(element, "-")
	epoch, err := strconv.ParseUint(first, 10, 64)
	name, bad := authority.ParseName(KindCapsule, rest)
	n := CapsuleName{Epoch: epoch, Token: name.Token, Attempt: name.Attempt}
	if !ok || err != nil || bad != nil || epoch < 1 || epoch > record.MaxNumber || n.Element() != element {
		return CapsuleName{}, store.Errorf(store.ErrCorrupt, "", "parse name", element, "no capsule is named so")
	}
	return n, nil
}

// Act is what a sweep does with one capsule.
type Act int

// The acts of a sweep.
const (
	// Keep: it is live, or may become so.
	Keep Act = iota
	// Quarantine: no capsule is named so. Move it away, never delete it.
	Quarantine
	// Examine: read it, and do what Examined says.
	Examine
	// Delete it.
	Delete
)

// Sweep looks at capsules below the horizon (CK): no outcome of those epochs can be
// admitted any more. Malformed ones are set aside, and what failed is looked at
// again in the next pass.
type Sweep struct {
	head   *authority.Head
	flight authority.Flight
}

// NewSweep begins one step on h. f is the sweeper's own flight if its process leads
// h, taken after the names were listed and before h was read; else zero (LA8). ok is
// false where there is no horizon yet: nothing is touched.
func NewSweep(h *authority.Head, f authority.Flight) (s *Sweep, ok bool) {
	if h.Checkpoint == nil || h.Checkpoint.Horizon == 0 {
		return nil, false
	}
	return &Sweep{head: h, flight: f}, true
}

// Judge says what to do with the object of that last key element.
func (s *Sweep) Judge(element string) Act {
	n, err := ParseCapsuleName(element)
	switch {
	case err != nil:
		return Quarantine
	case n.Epoch >= s.head.Checkpoint.Horizon || !s.head.Past(n.Name(), s.flight):
		return Keep
	}
	return Examine
}

// Examined says what to do with an object that Judge wanted examined, of which body
// was read: a capsule of its name's epoch is deleted, anything else set aside.
func (s *Sweep) Examined(element string, body []byte) Act {
	n, err := ParseCapsuleName(element)
	if err != nil {
		return Quarantine
	}
	c, err := DecodeCapsule(element, body)
	if err != nil || c.Epoch != n.Epoch {
		return Quarantine
	}
	return Delete
}

// Cursor is where the sweeps of an authority go on: a register of its own.
// Invariants, checked by Valid: v, authority and attempt are set.
type Cursor struct {
	V         int    `json:"v"`
	Authority string `json:"authority"`
	Attempt   string `json:"attempt"`
	// After is the last element that was looked at; empty at the beginning.
	After string `json:"after,omitempty"`
}

// Valid checks the invariants.
func (c *Cursor) Valid() error {
	switch {
	case c.V < 1 || c.V > record.Level:
		return fmt.Errorf("format level %d", c.V)
	case !record.IsID(c.Attempt):
		return fmt.Errorf("attempt %q is not an id", c.Attempt)
	case len(c.After) > 2*store.MaxName || strings.ContainsAny(c.After, "/\x00"):
		return fmt.Errorf("the cursor %q is no key element", c.After)
	}
	return store.CheckName("authority name", c.Authority)
}

// Encode returns the cursor's canonical bytes.
func (c *Cursor) Encode() ([]byte, error) { return record.Encode(c, authority.MaxInline) }

// Move returns the cursor after a step that looked at elements, in their order.
// After a step that found fewer than SweepStep it begins anew: a write that was
// delayed may have come behind it.
func (c Cursor) Move(attempt string, elements []string) *Cursor {
	c.Attempt, c.After = attempt, ""
	if len(elements) >= SweepStep {
		c.After = elements[len(elements)-1]
	}
	return &c
}
