package slots

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tenure-project/tenure/internal/core/lease"
)

// What a decision can say beside the kinds of package store. The shell gives them the
// kinds of package tenure.
var (
	// ErrHeld: somebody else holds a slot of the range, or everyone must wait. The error
	// is a *HeldError.
	ErrHeld = errors.New("held by another host")
	// ErrLost: the range is certainly not this host's any more. The error is a
	// *LostError.
	ErrLost = errors.New("the range was lost")
	// ErrFenced: a plan was published under a higher token. The error is a *FencedError.
	ErrFenced = errors.New("fenced by a higher token")
)

// HeldError says why a range cannot be claimed. It is an ErrHeld.
type HeldError struct {
	// Range was claimed.
	Range Range
	// Rows are all those in the way, sorted, at least one: a claimant watches them at the
	// same time.
	Rows []Row
}

// Error names the rows.
func (e *HeldError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "slots %v: %v", e.Range, ErrHeld)
	for i := range e.Rows {
		r := &e.Rows[i]
		switch {
		case i == 4:
			fmt.Fprintf(&b, "; and %d more", len(e.Rows)-i)
			return b.String()
		case r.Held():
			fmt.Fprintf(&b, "; %v by %s (epoch %d)", r.Range, r.Host.Owner, r.Epoch)
		case r.Freed.Successor != "":
			fmt.Fprintf(&b, "; %v is kept for %s (last epoch %d)", r.Range, r.Freed.Successor, r.Epoch)
		default:
			fmt.Fprintf(&b, "; %v was ended by force (last epoch %d) and is watched for a while", r.Range, r.Epoch)
		}
	}
	return b.String()
}

// Is reports whether target is ErrHeld.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// LostError says that a range is not the host's under its epoch. It is an ErrLost.
type LostError struct {
	// Range and Epoch are what was held.
	Range Range
	Epoch uint64
	// Now is the row that has the range's bounds, or else its first slot; nil if there is
	// none.
	Now *Row
}

// Error says who has it now.
func (e *LostError) Error() string {
	s := fmt.Sprintf("slots %v, epoch %d: %v", e.Range, e.Epoch, ErrLost)
	switch {
	case e.Now == nil:
		return s + ": there is no such row"
	case e.Now.Held():
		return s + fmt.Sprintf(": %v is held by %s (incarnation %s, epoch %d)", e.Now.Range, e.Now.Host.Owner, e.Now.Host.Incarnation, e.Now.Epoch)
	}
	return s + fmt.Sprintf(": %v is free (last epoch %d, %s)", e.Now.Range, e.Now.Epoch, e.Now.Freed.How)
}

// Is reports whether target is ErrLost.
func (e *LostError) Is(target error) bool { return target == ErrLost }

// FencedError says that a plan is of an older leader. It is an ErrFenced.
type FencedError struct {
	// Have is the token of the plan there is, Given the one that was refused.
	Have, Given uint64
}

// Error names both tokens.
func (e *FencedError) Error() string {
	return fmt.Sprintf("plan: %v: the plan has token %d, this one %d", ErrFenced, e.Have, e.Given)
}

// Is reports whether target is ErrFenced.
func (e *FencedError) Is(target error) bool { return target == ErrFenced }

// tooLong reports whether a short text is not UTF-8, or has more than lease.MaxWhy bytes as
// a JSON string.
func tooLong(text string) bool { return lease.CheckWhy("text", text) != nil }
