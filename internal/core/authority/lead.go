package authority

import (
	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

// Renew returns the leader's next sign of life (LA3). Whoever is not exactly the
// leader gets ErrConflict, and so does one whose head a jump raised (LS12).
// reports are fault reports found pending, to be folded into the same write (RF);
// their fates are in the same order. A report that cannot be folded never stands
// in the way of the renewal.
func (h *Head) Renew(p Proof, attempt string, reports ...Report) (*Head, []Fate, error) {
	next, err := h.lead("renew", attempt, p)
	if err != nil {
		return nil, nil, err
	}
	_, fates := next.fold(reports)
	return next, fates, nil
}

// StepDown gives the leadership up: the next candidate takes over at once. Only
// after everything that acts under p has stopped and every write of it is settled.
func (h *Head) StepDown(p Proof, attempt string, nowMS int64) (*Head, error) {
	if !h.Leads(p) { // also a raised leadership may be given up
		return nil, h.notLeader("step down", p)
	}
	next, err := h.step("step down", attempt)
	if err != nil {
		return nil, err
	}
	next.end(h, Leadership{How: lease.HowReleased, Until: nowMS})
	return next, nil
}

// Theft is the end of a leadership by an operator (LS11).
type Theft struct {
	Token   uint64 // of the leadership that is meant
	Why, By string
	NowMS   int64
	// Vouch says that the operator knows the leader to be gone: the next candidate
	// takes over at once.
	Vouch bool
}

// Steal ends a leadership whether or not its leader lives (LS11). The counter is
// raised; unless vouched for, every candidate first observes the head for the
// superseded TTL. A leadership other than of t.Token is ErrConflict.
func (h *Head) Steal(attempt string, t Theft) (*Head, error) {
	switch {
	case !h.Led() || h.Token != t.Token:
		return nil, store.Errorf(store.ErrConflict, "", "steal", h.Authority, "nobody leads with token %d (last token %d)", t.Token, h.Token)
	case t.Why == "":
		return nil, store.Errorf(store.ErrInvalid, "", "steal", h.Authority, "a reason is required: the history keeps it")
	case h.Counter >= record.MaxNumber-1:
		return nil, store.Errorf(store.ErrInvalid, "", "steal", h.Authority, "the counter %d is at its end: no later token would be left", h.Counter)
	}
	for what, text := range map[string]string{"reason": t.Why, "name": t.By} {
		if err := lease.CheckWhy(what, text); err != nil {
			return nil, err
		}
	}
	next, err := h.step("steal", attempt)
	if err != nil {
		return nil, err
	}
	how := lease.HowForced
	if t.Vouch {
		how = lease.HowVouched
	}
	next.end(h, Leadership{How: how, Why: t.Why, By: t.By, Until: t.NowMS, SupersededTTLMS: h.TTLMS})
	next.Counter++
	return next, nil
}

// Above is what a jump leaves behind: numbers that may have been seen before.
type Above struct {
	Token    uint64
	Sequence uint64
}

// Jump raises the counter to at least a.Token and the sequence above a.Sequence
// (LS12). It gives nothing to anybody: a leader whose counter was raised above its
// token writes nothing any more, and begins again. nil means nothing to do. A jump
// to the end of a number is ErrInvalid.
func (h *Head) Jump(attempt string, a Above) (*Head, error) {
	if a.Token > record.MaxJump || a.Sequence > record.MaxJump {
		return nil, store.Errorf(store.ErrInvalid, "", "jump", h.Authority, "give numbers up to %d, not %d: what comes after them needs room",
			uint64(record.MaxJump), max(a.Token, a.Sequence))
	}
	if h.Counter >= a.Token && h.Sequence > a.Sequence {
		return nil, nil
	}
	next, err := h.step("jump", attempt) // the holder's attempt stays: a foreign write (ST9)
	if err != nil {
		return nil, err
	}
	next.Counter = max(h.Counter, a.Token)
	next.Sequence = max(next.Sequence, a.Sequence+1)
	return next, nil
}

// Adoption says how a leader goes on from a head that it did not expect.
type Adoption int

// The answers of Adoptable.
const (
	// Lost: this is no longer its leadership. The grant ends.
	Lost Adoption = iota
	// Adopted: the same leadership; go on from it.
	Adopted
	// Raised: the same leadership, whose counter a jump raised. The grant ends; the
	// process may begin again (LS12).
	Raised
)

// Adoptable says whether the leader of held (the last head that it knows to be its
// own), which meets found in the store instead, may go on from it: the same
// leadership, the holder's last attempt one of its own, and nothing taken back
// (ST9). It may after fault reports of others.
func Adoptable(held, found *Head, mine func(attempt string) bool) Adoption {
	switch {
	case !held.Led() || !found.Leads(held.Last()) || found.Authority != held.Authority || !mine(found.HolderAttempt),
		found.Sequence < held.Sequence || found.Counter < held.Counter || found.Renewal < held.Renewal,
		found.Sequence == held.Sequence && found.WriterAttempt != held.WriterAttempt,
		found.TTLMS != held.TTLMS || found.Began != held.Began || found.Revision < held.Revision:
		return Lost
	}
	for _, name := range ChainNames() {
		if !found.Chain(name).follows(held.Chain(name)) {
			return Lost
		}
	}
	if found.Raised() {
		return Raised
	}
	return Adopted
}

// Carries reports whether h shows that the write by attempt took effect: it is the
// last writer's or the leader's last attempt, or names an entry that a chain holds.
// If not, the write may still have been followed by others; of a decision, its
// chain tells (ST9).
func (h *Head) Carries(attempt string) bool {
	if h.WriterAttempt == attempt || h.HolderAttempt == attempt {
		return true
	}
	for _, name := range ChainNames() {
		for _, l := range h.Chain(name).links() {
			if l.Attempt == attempt {
				return true
			}
		}
	}
	return false
}

// Outcome is what a later look at the head says of a write of it.
type Outcome int

// The answers of Settle.
const (
	// Pending: it is not there and may land yet: send the same bytes over the same
	// version again, or let it be.
	Pending Outcome = iota
	// Applied: it took effect.
	Applied
	// Rejected: it did not, and cannot any more.
	Rejected
	// Overtaken: it cannot land any more, and later writes hide whether it did. A
	// decision asks Append again, a report FateOf, an end looks into the history; of
	// anything else it makes no difference any more.
	Overtaken
)

// Settle says what became of sent, a head that was written with an unknown outcome,
// by found, which was read after that (ST9). No two heads have the same sequence.
func Settle(sent, found *Head) Outcome {
	switch {
	case found.Carries(sent.WriterAttempt):
		return Applied
	case found.Sequence < sent.Sequence:
		return Pending
	case found.Sequence == sent.Sequence:
		return Rejected
	}
	return Overtaken
}
