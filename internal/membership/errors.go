package membership

import (
	"errors"
	"fmt"
	"time"

	"github.com/tenure-project/tenure/internal/core/identity"
	"github.com/tenure-project/tenure/internal/settle"
	"github.com/tenure-project/tenure/store"
)

// What the identities can say. Test with errors.Is; what comes from the store
// keeps the kinds of package store.
var (
	// ErrHeld: another process owns the name. The error is a *HeldError.
	ErrHeld = errors.New("the node name is owned by another process")
	// ErrAlive: the incarnation renewed while it was observed: it lives (PL6).
	ErrAlive = errors.New("it renewed, so it is alive")
	// ErrMissingEvidence: neither the head nor a certificate tells of the
	// incarnation. It must be taken for alive (PL5).
	ErrMissingEvidence = errors.New("missing evidence")
	// ErrTooShort: the time given does not cover the observation and the store's
	// calls; nothing was done (PL6).
	ErrTooShort = errors.New("the time given is too short")
	// ErrBehind: the store shows a head that is older than evidence that it holds
	// itself: it went back. It is a store.ErrCorrupt, too (LS12).
	ErrBehind = errors.New("the head is behind its own evidence")
)

// The causes of a member's end, beside deadline.ErrExpired and what Abandon was
// given.
var (
	// ErrLost: the name is certainly not this member's any more, or the session may
	// not go on. ErrSuperseded and ErrRaised are ErrLost, too.
	ErrLost = errors.New("the identity was lost")
	// ErrSuperseded: another process or an operator ended the ownership.
	ErrSuperseded = fmt.Errorf("%w: superseded", ErrLost)
	// ErrRaised: a jump raised the counter above the member's term: end the session,
	// release the name, join again (LS12).
	ErrRaised = fmt.Errorf("%w: its counter was raised by a jump", ErrLost)
	// ErrReleased: the member gave the name up itself.
	ErrReleased = errors.New("the identity was released")
	// ErrUnconfirmed: the member ended here, but the store did not confirm the
	// release; the name lapses after its TTL at the latest.
	ErrUnconfirmed = errors.New("the release is not confirmed")
)

// HeldError says who owns a name. It is an [ErrHeld].
type HeldError struct {
	// Node is the name.
	Node string
	// Owner is the process start; the last one where Free is set.
	Owner identity.Owner
	// Note is the owner's.
	Note string
	// Since is when it joined, by its wall clock.
	Since time.Time
	// Free is set where nobody owns the name but everyone must watch it first: why.
	Free string
}

// Error names the owner.
func (e *HeldError) Error() string {
	if e.Free != "" {
		return fmt.Sprintf("node %q: nobody owns the name (last term %d), but it is not free yet: %s", e.Node, e.Owner.Term, e.Free)
	}
	s := fmt.Sprintf("node %q: %v: incarnation %s, term %d, since %s", e.Node, ErrHeld, e.Owner.Incarnation, e.Owner.Term, e.Since.UTC().Format(time.RFC3339))
	if e.Note != "" {
		s += fmt.Sprintf(", note %q", e.Note)
	}
	return s
}

// Is reports whether target is ErrHeld.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

func heldBy(r *identity.Record) *HeldError {
	e := &HeldError{Node: r.Node, Owner: r.Last(), Note: r.Note, Since: time.UnixMilli(r.Since)}
	wait, possible := r.Wait()
	switch {
	case r.Revoker != nil:
		e.Free = fmt.Sprintf("it was ended by force, and everyone watches it for the superseded TTL %v first", wait)
	case !r.Held() && possible:
		e.Free = fmt.Sprintf("it was %s by %q (%s), and everyone watches it for the superseded TTL %v first", r.Ended.How, r.Ended.By, r.Ended.Why, wait)
	}
	return e
}

// retryable reports whether time may mend err. What does not come from a store is
// no trouble of a store: a counter that fell, for one.
func retryable(err error) bool {
	var e *store.Error
	if !errors.As(err, &e) || errors.Is(err, ErrBehind) {
		return false
	}
	switch e.Kind {
	case store.ErrUnavailable, store.ErrUnknown:
		return true
	}
	return settle.LostRace(err)
}
