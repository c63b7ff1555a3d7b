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

// The kinds of objects of assignments. Each is created once.
const (
	KindInstalled authority.Kind = "assignment" // a map at its version
	KindProposal  authority.Kind = "proposal"   // a map that may be decided on, by version and content
	KindDrain     authority.Kind = "drain"      // a transition, by target version
)

// VersionElement is the last key element of what there is one of per version.
func VersionElement(version uint64) string { return fmt.Sprintf("%016d", version) }

// ProposalElement is the last key element of a proposal of the assignment f.
func ProposalElement(f *Fence) string { return VersionElement(f.Version) + "-" + f.State() }

// Needs lists where the map of the newest decision may stand: written down at its
// version, staged, or, after an abort, where the one before it does.
func (Rules) Needs(_ *authority.Chain, all []authority.Decided) []authority.Need {
	need := authority.Need{Chain: authority.Assignment, Link: all[0].Link}
	for i, d := range all {
		decided := d.Value.(*Decision)
		result := decided.Result()
		need.Any = append(need.Any, installed(result))
		if decided.Verdict != Abort {
			need.Any = append(need.Any, staged(decided))
			break
		}
		if i+1 == len(all) { // its predecessor was seeded, or its decision given up
			need.Any = append(need.Any, installed(decided.Predecessor))
		}
	}
	return []authority.Need{need}
}

func installed(f *Fence) authority.Object {
	return authority.Object{Kind: KindInstalled, Element: VersionElement(f.Version), Limit: authority.MaxBlob, Verify: func(key string, body []byte) error {
		m, err := DecodeMap(key, body)
		if err == nil {
			_, err = m.Named(key, f)
		}
		return err
	}}
}

func staged(d *Decision) authority.Object {
	o := installed(d.Target)
	o.Kind, o.Element = KindProposal, ProposalElement(d.Target)
	if d.Kind == Replace {
		o.Verify = func(key string, body []byte) error { _, err := d.Stage(key, body); return err }
	}
	return o
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
