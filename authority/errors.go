package authority

import (
	"errors"
	"fmt"
	"time"

	tenure "github.com/tenure-project/tenure"
	core "github.com/tenure-project/tenure/internal/core/authority"
	"github.com/tenure-project/tenure/internal/core/authority/recovery"
)

// What an authority can say, beside the errors of package tenure: ErrHeld (somebody
// else leads), ErrLost, ErrExpired, ErrReleased, ErrShutdown, ErrUnconfirmed,
// ErrOverlap, ErrRegressed, and the kinds of the store. Test with errors.Is.
var (
	// ErrFenced: the proof leads no more, or never did. Nothing was written (LA4).
	ErrFenced = errors.New("the proof does not lead")
	// ErrChanged: what a snapshot said is not so any more: take another (RF).
	ErrChanged = errors.New("the authority changed since the snapshot")
	// ErrInventoryChanged: a fault was made since the round began, or another round
	// was begun: begin a new one (RF). It comes with a store.ErrConflict.
	ErrInventoryChanged = recovery.ErrInventoryChanged
	// ErrSuperseded: a later start of the node reported a fault (RF).
	ErrSuperseded = errors.New("a later start of the node reported a fault")
)

// HeldError says who leads. It is a tenure.ErrHeld.
type HeldError struct {
	// Authority is the authority's name.
	Authority string
	// Leader is the present leader, or the last one where Free is set.
	Leader tenure.Proof
	// Since is when it began to lead, by its own wall clock.
	Since time.Time
	// Note is the leader's.
	Note string
	// Free is set where nobody leads but everyone still has to wait: why.
	Free string
}

// Error names the leader.
func (e *HeldError) Error() string {
	if e.Free != "" {
		return fmt.Sprintf("authority %q: nobody leads (last token %d), but it is not free yet: %s", e.Authority, e.Leader.Token, e.Free)
	}
	s := fmt.Sprintf("authority %q: %v: node %q (incarnation %s, term %d) leads with token %d since %s",
		e.Authority, tenure.ErrHeld, e.Leader.Node, e.Leader.Incarnation, e.Leader.Term, e.Leader.Token, e.Since.UTC().Format(time.RFC3339))
	if e.Note != "" {
		s += fmt.Sprintf(", note %q", e.Note)
	}
	return s
}

// Is reports whether target is tenure.ErrHeld.
func (e *HeldError) Is(target error) bool { return target == tenure.ErrHeld }

func heldBy(h *core.Head) *HeldError {
	e := &HeldError{Authority: h.Authority, Leader: tenure.Proof(h.Last()), Since: time.UnixMilli(h.Since), Note: h.Note}
	if end := h.Ended(); end != nil {
		e.Free = fmt.Sprintf("it was ended by force (%s) by %q (%s), and everyone watches it for the superseded TTL %v first",
			end.How, end.By, end.Why, time.Duration(end.SupersededTTLMS)*time.Millisecond)
	}
	return e
}

// BrokenError is the first broken link that was found: which chain, which object,
// what is wrong with it (LA5). It is a store.ErrCorrupt. Nothing behind it is proven;
// putting the object back with its very bytes mends it.
//
//	Chain  string // the chain's name
//	Link   Link   // names the entry at which the chain breaks
//	Flaw   Flaw   // what is wrong
//	Detail string // the same for people
//	Object string // KIND/ELEMENT of what is broken, where it is not the entry itself
//
//	func (b *BrokenError) Where() string // KIND/ELEMENT of what is to be put back; see [Reader.Key]
type BrokenError = core.Break

// Flaw says what is wrong with a broken link. It is a string.
type Flaw = core.Flaw

// The flaws that a walk finds (LA5).
const (
	// Missing: no object has the linked name.
	Missing = core.Missing
	// Altered: its bytes are not the linked ones.
	Altered = core.Altered
	// NotCanonical: the linked bytes are no valid entry or decision.
	NotCanonical = core.NotCanonical
	// Reordered: it does not stand where its link says.
	Reordered = core.Reordered
	// ForeignChain: it belongs to another chain or authority.
	ForeignChain = core.ForeignChain
	// ForeignProof: it was decided by nobody who led then.
	ForeignProof = core.ForeignProof
	// Gap: the chain ends, or counts, before its bound.
	Gap = core.Gap
	// UnderFloor: the chain passes its floor beside the anchor.
	UnderFloor = core.UnderFloor
)
