// Package recovery has the rules of recovery rounds (RF): a round freezes the
// inventory of faults, and its release stands only while that inventory does. The
// faults themselves are in the head (see authority.Head.Fold). It is pure.
package recovery

import (
	"errors"
	"fmt"

	"github.com/tenure-project/tenure/internal/core/authority"
	"github.com/tenure-project/tenure/internal/core/authority/assignment"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

// ErrInventoryChanged: a fault was made since the round froze the inventory, or
// another round was begun. Begin a new round. It comes as a store.ErrConflict.
var ErrInventoryChanged = errors.New("the fault inventory is not the one that the round froze")

// Release ends one round: the faults of the processes that stopped for it are
// cleared (RF). Invariants, checked by Valid:
//
//  1. v, generation, round and plan are set; the revision may be 0;
//  2. those that stopped are sorted by node, each node once, at most 516.
type Release struct {
	V          int    `json:"v"`
	Generation uint64 `json:"generation"`
	// Round is the round's id.
	Round string `json:"round"`
	// Revision is the inventory's that the round froze.
	Revision uint64 `json:"revision"`
	// Plan is the digest that the round was begun with.
	Plan string `json:"plan"`
	// Stopped are the processes that stopped for the round, or are proven to be over.
	Stopped []assignment.Participant `json:"stopped,omitempty"`
}

// Valid checks the invariants.
func (r *Release) Valid() error {
	switch {
	case r.V < 1 || r.V > record.Level:
		return fmt.Errorf("format level %d", r.V)
	case r.Generation < 1 || r.Generation > record.MaxNumber || r.Revision > record.MaxNumber:
		return errors.New("a number is out of bounds")
	case !record.IsID(r.Round) || !authority.IsDigest(r.Plan):
		return errors.New("the round's id or plan is not complete")
	case len(r.Stopped) > authority.MaxSlots || r.Stopped != nil && len(r.Stopped) == 0:
		return fmt.Errorf("%d processes stopped", len(r.Stopped))
	}
	return assignment.CheckParticipants(r.Stopped)
}

// NewRelease is the release of round.
func NewRelease(round *authority.Round, stopped []assignment.Participant) *Release {
	return &Release{V: record.Level, Generation: round.Generation, Round: round.ID, Revision: round.Revision, Plan: round.Plan, Stopped: stopped}
}

// Encode returns the release's canonical bytes.
func (r *Release) Encode() ([]byte, error) { return record.Encode(r, authority.MaxBlob) }

// Decode reads a release strictly (ST7).
func Decode(key string, body []byte) (*Release, error) {
	var r Release
	if err := record.Decode(key, body, &r); err != nil {
		return nil, err
	}
	return &r, nil
}

// Rules are the releases'. Generations rise.
type Rules struct{}

var _ authority.Rules = Rules{}

// Chain is the name of the chain.
func (Rules) Chain() string { return authority.Recovery }

// Policy keeps the last releases.
func (Rules) Policy() authority.Policy { return authority.Policy{CompactAt: 64, Keep: 16} }

// Item reads a release.
func (Rules) Item(key string, _ authority.Proof, body []byte) (authority.Item, error) {
	r, err := Decode(key, body)
	if err != nil {
		return authority.Item{}, err
	}
	return authority.Item{Key: r.Generation, Value: r}, nil
}

// Admit lets a release in only for the round that stands, by the leadership that
// began it, and while the inventory is the one that it froze. Anything else is
// ErrInventoryChanged.
func (Rules) Admit(h *authority.Head, p authority.Proof, it authority.Item) error {
	r := it.Value.(*Release)
	round := h.Round
	if round == nil || round.Generation != r.Generation || round.ID != r.Round || round.Proof != p ||
		round.Plan != r.Plan || round.Revision != r.Revision || h.Revision != round.Revision {
		return store.Wrap(store.ErrConflict, "", "release", authority.Recovery, ErrInventoryChanged)
	}
	return nil
}

// Apply clears exactly the faults of the processes that stopped, and ends the
// round.
func (Rules) Apply(next *authority.Head, it authority.Item) {
	stopped := map[assignment.Participant]bool{}
	for _, p := range it.Value.(*Release).Stopped {
		stopped[p] = true
	}
	for i, s := range next.Slots { // next is a copy
		if stopped[assignment.Participant{Node: s.Node, Incarnation: s.Incarnation}] {
			next.Slots[i].Active = false
		}
	}
	next.Revision, next.Round = next.Sequence, nil
}

// Snapshot is what a reader saw of the recovery's state before it acts on it.
type Snapshot struct {
	Authority string
	Sequence  uint64
	// Release is the last release's link; nil before the first.
	Release  *authority.Link
	Revision uint64
	// Faults are active.
	Faults []authority.Slot
}

// Look takes a snapshot of h.
func Look(h *authority.Head) Snapshot {
	s := Snapshot{Authority: h.Authority, Sequence: h.Sequence, Revision: h.Revision, Faults: h.Faults()}
	if h.Recovery != nil {
		l := h.Recovery.Head
		s.Release = &l
	}
	return s
}

// Admits reports whether, by h, which was read just before acting, s still holds,
// p leads, and no fault is active (RF). A head older than the snapshot admits
// nothing.
func (s Snapshot) Admits(h *authority.Head, p authority.Proof) bool {
	now := Look(h)
	return s.Authority == now.Authority && now.Sequence >= s.Sequence && now.Revision == s.Revision && len(now.Faults) == 0 &&
		(s.Release == nil) == (now.Release == nil) && (s.Release == nil || *s.Release == *now.Release) && h.Leads(p) && !h.Raised()
}
