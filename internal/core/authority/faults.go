package authority

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

// Report is one fault that one process start reports, leader or not (RF).
type Report struct {
	Node        string `json:"node"`
	Incarnation string `json:"incarnation"`
	// Term is the process term, Request counts the reports of that start.
	Term    uint64 `json:"term"`
	Request uint64 `json:"request"`
}

// Valid checks that the report is complete and within bounds.
func (r Report) Valid() error {
	if !isCount(r.Request) {
		return fmt.Errorf("request %d is out of bounds", r.Request)
	}
	return Owner{Node: r.Node, Incarnation: r.Incarnation, Term: r.Term}.Valid()
}

// Slot is the newest fault report of one node (RF).
type Slot struct {
	Report
	// Sequence is the head's at which the fault was made.
	Sequence uint64 `json:"sequence"`
	// Active is false once a release cleared the fault.
	Active bool `json:"active,omitempty"`
}

// Fate is what became of a report.
type Fate int

// The fates of a report (RF).
const (
	// Made: this write makes the fault, and it is active.
	Made Fate = iota + 1
	// Active: the head has it already, and it is active.
	Active
	// Cleared: the head had it, and a release cleared it.
	Cleared
	// Covered: a later request of the same start stands in its place.
	Covered
	// Superseded: a later start of the node stands in its place.
	Superseded
	// Clash: two incarnations claim one process term. Stop and look.
	Clash
	// Refused: the report is not valid.
	Refused
	// Full: there is no room for another active fault. Nothing was recorded.
	Full
)

func (h *Head) validSlots() error {
	if len(h.Slots) > MaxSlots || h.Slots != nil && len(h.Slots) == 0 {
		return fmt.Errorf("it carries %d fault slots", len(h.Slots))
	}
	if h.Revision > h.Sequence || h.Revision == 0 && h.Slots != nil {
		return fmt.Errorf("the faults' revision %d is out of bounds", h.Revision)
	}
	last := ""
	for _, s := range h.Slots {
		if err := s.Report.Valid(); err != nil {
			return fmt.Errorf("a fault slot: %w", err)
		}
		if s.Node <= last || !isCount(s.Sequence) || s.Sequence > h.Revision {
			return fmt.Errorf("the fault slot of node %q is out of order or newer than its revision", s.Node)
		}
		last = s.Node
	}
	if !fits(h.Slots) {
		return fmt.Errorf("the fault slots take more than %d bytes", maxSlotBytes)
	}
	return nil
}

// longestSlot is more than any slot takes.
const longestSlot = 420

// fits reports whether slots leave the rest of a head, and the headroom, their room
// (LA9).
func fits(slots []Slot) bool {
	return len(slots)*longestSlot <= maxSlotBytes || slotBytes(slots) <= maxSlotBytes
}

// slotBytes is what slots take of a head.
func slotBytes(slots []Slot) int {
	if len(slots) == 0 {
		return 0
	}
	return record.Size(slots) + len(`,"slots":`)
}

// Faults are the active faults of h, by node. With the revision they are the
// inventory that a round freezes (RF).
func (h *Head) Faults() []Slot {
	var active []Slot
	for _, s := range h.Slots {
		if s.Active {
			active = append(active, s)
		}
	}
	return active
}

// FateOf says what the head makes of r: a fault is made, and its reporter is told,
// only once the head shows it (RF). known is false where the head does not tell of it
// yet.
func (h *Head) FateOf(r Report) (fate Fate, known bool) {
	i, found := slices.BinarySearchFunc(h.Slots, r.Node, byNode)
	if !found {
		return 0, false
	}
	fate = h.Slots[i].fate(r)
	return fate, fate != Made
}

func byNode(s Slot, node string) int { return cmp.Compare(s.Node, node) }

// Fold returns the head by which a reporter makes its own fault, and those that it
// found pending, where no leader folded them for a TTL (RF). It is no sign of the
// leader's life and leaves the leader's attempt. A nil head means that there is
// nothing to write: the fates say why.
func (h *Head) Fold(attempt string, reports ...Report) (*Head, []Fate, error) {
	next, err := h.step("report a fault", attempt)
	if err != nil {
		return nil, nil, err
	}
	changed, fates := next.fold(reports)
	if !changed {
		next = nil
	}
	return next, fates, nil
}

// fold works reports into h, a copy, and reports whether that changed it.
func (h *Head) fold(reports []Report) (changed bool, fates []Fate) {
	for _, r := range reports {
		fate := h.foldOne(r)
		changed = changed || fate == Made
		fates = append(fates, fate)
	}
	if changed {
		h.Revision = h.Sequence
	}
	return changed, fates
}

func (h *Head) foldOne(r Report) Fate {
	if r.Valid() != nil {
		return Refused
	}
	i, found := slices.BinarySearchFunc(h.Slots, r.Node, byNode)
	if found {
		if fate := h.Slots[i].fate(r); fate != Made {
			return fate
		}
	}
	next := slices.Clone(h.Slots)
	slot := Slot{Report: r, Sequence: h.Sequence, Active: true}
	if found {
		next[i] = slot
	} else {
		next = slices.Insert(next, i, slot)
	}
	for len(next) > MaxSlots || !fits(next) {
		var ok bool
		if next, ok = evict(next); !ok {
			return Full
		}
	}
	h.Slots = next
	return Made
}

// fate is what the slot of a node makes of another report of that node.
func (s Slot) fate(r Report) Fate {
	switch {
	case r.Term < s.Term:
		return Superseded
	case r.Term > s.Term:
		return Made
	case r.Incarnation != s.Incarnation:
		return Clash
	case r.Request < s.Request:
		return Covered
	case r.Request > s.Request:
		return Made
	case s.Active:
		return Active
	}
	return Cleared
}

// evict makes room for an active fault: the oldest cleared slot goes. A late repeat
// of its request then makes a fault anew, which errs on the safe side.
func evict(slots []Slot) ([]Slot, bool) {
	oldest := -1
	for i, s := range slots {
		if !s.Active && (oldest < 0 || s.Sequence < slots[oldest].Sequence) {
			oldest = i
		}
	}
	if oldest < 0 {
		return nil, false
	}
	return slices.Delete(slots, oldest, oldest+1), true
}

// Round is a recovery round that its leader began: it froze the inventory of
// faults (RF).
type Round struct {
	// Generation rises with every round.
	Generation uint64 `json:"generation"`
	// ID is the attempt that began it.
	ID    string `json:"id"`
	Proof Proof  `json:"proof"`
	// Revision is the inventory's that was frozen.
	Revision uint64 `json:"revision"`
	// Began is the head's sequence.
	Began uint64 `json:"began"`
	// Plan is the digest of what the round is to do, as its release must repeat it.
	Plan string `json:"plan"`
}

func (h *Head) validRound() error {
	r := h.Round
	if r == nil {
		return nil
	}
	switch {
	case !isCount(r.Generation) || !isCount(r.Began) || r.Began > h.Sequence:
		return errors.New("the round's numbers are out of bounds")
	case h.Recovery != nil && r.Generation <= h.Recovery.Head.Key:
		return fmt.Errorf("the round of generation %d is not above the last release", r.Generation)
	case r.Revision >= r.Began || r.Revision > h.Revision:
		return fmt.Errorf("the round froze revision %d, which never was", r.Revision)
	case !record.IsID(r.ID) || !IsDigest(r.Plan) || r.Proof.Token > h.Token:
		return errors.New("the round is not complete, or of a later leader")
	}
	return r.Proof.Valid()
}

// BeginRound returns the head in which p's leader froze the inventory for a new
// round of the next generation (RF). plan is DigestOf the round's description. It
// replaces an unfinished round of its own or of a leader before it.
func (h *Head) BeginRound(p Proof, attempt, plan string) (*Head, error) {
	if !IsDigest(plan) {
		return nil, store.Errorf(store.ErrInvalid, "", "begin a round", h.Authority, "the plan %q is not a digest", plan)
	}
	next, err := h.lead("begin a round", attempt, p)
	if err != nil {
		return nil, err
	}
	var last uint64
	if h.Round != nil {
		last = h.Round.Generation
	}
	if h.Recovery != nil {
		last = max(last, h.Recovery.Head.Key)
	}
	if last >= record.MaxNumber {
		return nil, store.Errorf(store.ErrInvalid, "", "begin a round", h.Authority, "no generation is above %d", last)
	}
	next.Round = &Round{Generation: last + 1, ID: attempt, Proof: p, Revision: h.Revision, Began: next.Sequence, Plan: plan}
	return next, nil
}
