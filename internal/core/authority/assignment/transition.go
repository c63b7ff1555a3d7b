package assignment

import (
	"fmt"

	"github.com/tenure-project/tenure/internal/core/authority"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

// Transition is a drain that a leader began: from then on participants of the
// predecessor give up what the target takes from them. It is an intention only: what
// is installed says the decision, and there is one transition per target version, so
// that a later leader finds what it has to abort (AS). Invariants, checked by Valid:
//
//  1. v, authority and proof are set and within bounds;
//  2. predecessor and target are complete, of the same number of slots, and the
//     target's version is the predecessor's + 1.
type Transition struct {
	V           int             `json:"v"`
	Authority   string          `json:"authority"`
	Predecessor *Fence          `json:"predecessor"`
	Target      *Fence          `json:"target"`
	Begun       authority.Proof `json:"begun"`
}

// Valid checks the invariants.
func (t *Transition) Valid() error {
	if t.V < 1 || t.V > record.Level {
		return fmt.Errorf("format level %d", t.V)
	}
	if err := store.CheckName("authority name", t.Authority); err != nil {
		return err
	}
	return t.Decide(Abort).Valid()
}

// Decide is the decision that ends the transition with a verdict.
func (t *Transition) Decide(verdict string) *Decision {
	begun := t.Begun
	return &Decision{V: record.Level, Kind: Drain, Verdict: verdict, Predecessor: t.Predecessor, Target: t.Target, Begun: &begun}
}

// Encode returns the transition's canonical bytes.
func (t *Transition) Encode() ([]byte, error) { return record.Encode(t, authority.MaxBlob) }

// DecodeTransition reads a transition strictly, and checks that it is one of name's
// to version (ST7).
func DecodeTransition(key, name string, version uint64, body []byte) (*Transition, error) {
	var t Transition
	if err := record.Decode(key, body, &t); err != nil {
		return nil, err
	}
	if t.Authority != name || t.Target.Version != version {
		return nil, store.Errorf(store.ErrCorrupt, "", "decode", key, "the transition is authority %q's to version %d, not %q's to %d", t.Authority, t.Target.Version, name, version)
	}
	return &t, nil
}

// At is the same map under another version.
func (m *Map) At(version uint64) *Map {
	next := *m
	next.Version = version
	return &next
}

// Owner is the owner of a slot of the map.
func (m *Map) Owner(slot int) (Participant, bool) {
	if slot < 0 || slot >= len(m.Owners) {
		return Participant{}, false
	}
	return m.Participants[m.Owners[slot]], true
}

// Named returns m if it is exactly the assignment that f names; anything else is
// ErrCorrupt.
func (m *Map) Named(key string, f *Fence) (*Map, error) {
	if m.Fence().State() != f.State() {
		return nil, store.Errorf(store.ErrCorrupt, "", "read", key, "the map there is not the assignment of version %d that was decided on", f.Version)
	}
	return m, nil
}
