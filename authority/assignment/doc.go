// Package assignment moves slots between processes through an authority's log (AS):
// one map of slots to owners, of rising versions, and one decision for every version.
//
// A drain ([Client.BeginDrain]) moves slots between processes that live: the leader
// that began it commits it, and every later leader may abort it. A recovery
// ([Client.Recover]) replaces processes that are gone, each proven to be over by one
// certificate. What is current is what the newest decision says, and nothing else:
// [Reader.Current] reads it, [Client.Materialize] writes it down at its version.
package assignment

import (
	"fmt"

	tenure "github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/authority"
	coreauthority "github.com/tenure-project/tenure/internal/core/authority"
	core "github.com/tenure-project/tenure/internal/core/authority/assignment"
	"github.com/tenure-project/tenure/store"
)

// Limits.
const (
	// MaxParticipants is how many processes own slots at most: a fence lists all of
	// them, and stands in every checkpoint's outcome, which is to fit into its entry.
	MaxParticipants = core.MaxParticipants
	// MaxSlots bounds a map: with the index of an owner each it is a small part of
	// the largest object.
	MaxSlots = core.MaxSlots
	// MaxBytes bounds an encoded map, proposal or decision: every store takes an
	// object of that size in one write.
	MaxBytes = coreauthority.MaxBlob
	// PruneStep is how many objects of given-up versions one Prune removes at most: it
	// ends within a leader's few seconds, and the next one goes on.
	PruneStep = 256
	// maxBehind is how many versions may be decided on and not be written down by
	// anybody before a map cannot be read any more: as many as a chain holds.
	maxBehind = coreauthority.MaxLive
)

// Fence names one assignment exactly: its version, its number of slots, the digest of
// its map and its participants, sorted and exactly the owners of slots (AS).
//
//	Version      uint64        // of the assignment, from 1 on
//	Slots        uint64        // how many there are; it never changes
//	Digest       string        // of the map of slots to owners
//	Participants []Participant // who owns slots, by node
//
//	func (f *Fence) Has(p Participant) bool    // p owns slots
//	func (f *Fence) State() string             // a digest of all of it: equal fences have equal states
//	func (f *Fence) At(version uint64) *Fence  // the same under another version
//	func (f *Fence) Valid() error              // nil if it is within bounds
type Fence = core.Fence

// Participant is one process start that owns slots: a restart is another one. It may
// be compared (==) and be a map's key.
//
//	Node        string // the node's name
//	Incarnation string // the start's id: Session.Proof().Incarnation
//
//	func (p Participant) Valid() error // nil if both are names that can be
type Participant = core.Participant

// Map is one whole assignment: which participant owns which slot. [NewMap] makes one;
// it is not changed after that.
//
//	V            int           // the format's level
//	Version      uint64        // from 1 on
//	Participants []Participant // by node; each owns a slot
//	Owners       []int         // by slot: the index of its owner in Participants
//
//	func (m *Map) Owner(slot int) (Participant, bool) // false: there is no such slot
//	func (m *Map) Fence() *Fence                      // what names it: for commits and aborts
//	func (m *Map) At(version uint64) *Map             // the same under another version
//	func (m *Map) Valid() error                       // nil if it is within bounds
type Map = core.Map

// NewMap makes the assignment of owners, by slot, of a version. One out of bounds is
// store.ErrInvalid.
func NewMap(version uint64, owners []Participant) (*Map, error) { return core.NewMap(version, owners) }

// Kind is the kind of a decision.
type Kind string

// The kinds of decisions.
const (
	// Drain moves slots between processes that live.
	Drain Kind = core.Drain
	// Recovery replaces processes that are gone.
	Recovery Kind = core.Replace
)

// Decision settled one version.
type Decision struct {
	// Kind says how.
	Kind Kind
	// Aborted: the predecessor was restored, at the target's version.
	Aborted bool
	// Predecessor and Target are what it moved from and to.
	Predecessor, Target *Fence
	// Result names what it installed: the target, or the predecessor under the
	// target's version.
	Result *Fence
	// Removed are the processes that a recovery replaced, each with a certificate.
	Removed []Participant
	// Begun is the leadership that began a drain, Proof the one that decided.
	Begun, Proof tenure.Proof
	// Link pins the decision's bytes.
	Link authority.Link
}

func newDecision(d *core.Decision, p tenure.Proof, l authority.Link) *Decision {
	out := &Decision{
		Kind: Kind(d.Kind), Aborted: d.Verdict == core.Abort, Predecessor: d.Predecessor, Target: d.Target,
		Result: d.Result(), Proof: p, Link: l,
	}
	if d.Begun != nil {
		out.Begun = tenure.Proof(*d.Begun)
	} else {
		out.Removed = d.Gone()
	}
	return out
}

// Result is what became of a decision.
type Result struct {
	authority.Result
	// Decision is the one that stands: this one for Created and Unchanged, the winner
	// for Conflict, which may be of an earlier version that this one did not build on;
	// nil for Fenced and BelowFloor, and where the winner was given up meanwhile.
	Decision *Decision
}

// Transition is a drain that was begun and not decided (AS).
type Transition struct {
	// Predecessor and Target are what it moves from and to.
	Predecessor, Target *Fence
	// Begun is the leadership that began it: only it commits.
	Begun tenure.Proof

	t *core.Transition
}

func newTransition(t *core.Transition) *Transition {
	return &Transition{Predecessor: t.Predecessor, Target: t.Target, Begun: tenure.Proof(t.Begun), t: t}
}

// PendingError says that another drain to the same version was begun: abort it, or
// decide a recovery. It is a store.ErrConflict.
type PendingError struct {
	// Pending is the drain that was begun.
	Pending *Transition
}

// Error names the drain and who began it.
func (e *PendingError) Error() string {
	return fmt.Sprintf("a drain to version %d was begun by node %q with token %d: abort it first", e.Pending.Target.Version, e.Pending.Begun.Node, e.Pending.Begun.Token)
}

// Is reports whether target is store.ErrConflict.
func (e *PendingError) Is(target error) bool { return target == store.ErrConflict }
