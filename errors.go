package tenure

import (
	"errors"
	"fmt"
	"time"

	"github.com/tenure-project/tenure/store"
)

// What a lease can say. Test with errors.Is.
var (
	// ErrHeld: somebody else holds the lease. The error is a *HeldError.
	ErrHeld = errors.New("held by another")
	// ErrLost: the lease is certainly not this holder's any more. It is the cause
	// of a lease's context, and what every later call on the handle returns.
	ErrLost = errors.New("the lease was lost")
	// ErrExpired: the lease could not be renewed in time. Whether somebody else
	// holds it is not known. It is an ErrLost too.
	ErrExpired = fmt.Errorf("%w: it was not renewed in time", ErrLost)
	// ErrReleased: the holder itself released the lease.
	ErrReleased = errors.New("the lease was released")
	// ErrShutdown: the caller of Do, or Close, asked the work to stop.
	ErrShutdown = errors.New("shutting down")
	// ErrUnconfirmed: the lease was given up here, but the store did not confirm
	// the release; it lapses after its TTL at the latest.
	ErrUnconfirmed = errors.New("the release is not confirmed")
	// ErrOverlap: the work did not stop within its limit; it may still run while
	// somebody else holds the lease.
	ErrOverlap = errors.New("the work did not stop in time and may overlap with the next holder's")
	// ErrNotCurrent: the token in question is not the lease's current one.
	ErrNotCurrent = errors.New("not the current token")
	// ErrRegressed: the store shows less than was seen before: it was restored
	// from an older copy. See Client.Jump.
	ErrRegressed = errors.New("the store shows less than was seen before")
	// ErrClosed: the client was closed.
	ErrClosed = errors.New("the client is closed")
)

// The kinds of error that come from the store (package store has their full
// meaning).
var (
	// ErrNotFound: no such record.
	ErrNotFound = store.ErrNotFound
	// ErrConflict: somebody else changed the record first.
	ErrConflict = store.ErrConflict
	// ErrUnavailable: nothing happened; try again later.
	ErrUnavailable = store.ErrUnavailable
	// ErrUnknown: it may or may not have happened.
	ErrUnknown = store.ErrUnknown
	// ErrDenied: rights or credentials are missing.
	ErrDenied = store.ErrDenied
	// ErrCorrupt: a record cannot be right; stop and call a person.
	ErrCorrupt = store.ErrCorrupt
	// ErrNewer: a record is of a newer format; upgrade this program.
	ErrNewer = store.ErrNewer
	// ErrInvalid: the caller's input is wrong; nothing happened.
	ErrInvalid = store.ErrInvalid
)

// HeldError says who holds a lease, or a node's name. It is an [ErrHeld].
type HeldError struct {
	// Name is the lease's name; empty for a node's.
	Name string
	// Node is the node's name; empty for a lease's.
	Node string
	// Owner identifies the holder's handle.
	Owner string
	// Label is the holder's own description of itself: host and process.
	Label string
	// Token is the holder's fencing token; of a node it is the owner's term.
	Token uint64
	// Since is when the holder acquired it, by the holder's wall clock.
	Since time.Time
	// Note is the holder's note.
	Note string
	// Free is set where nobody holds the lease but everyone still has to wait:
	// it says why (a forced end, a hand-over to a successor).
	Free string
}

// Error names the holder.
func (e *HeldError) Error() string {
	if e.Node != "" {
		return e.nodeError()
	}
	if e.Free != "" {
		return fmt.Sprintf("lease %q: nobody holds it (last token %d), but it is not free yet: %s", e.Name, e.Token, e.Free)
	}
	s := fmt.Sprintf("lease %q: %v: %s (owner %s, token %d) since %s", e.Name, ErrHeld, e.Label, e.Owner, e.Token, e.Since.UTC().Format(time.RFC3339))
	if e.Note != "" {
		s += fmt.Sprintf(", note %q", e.Note)
	}
	return s
}

func (e *HeldError) nodeError() string {
	if e.Free != "" {
		return fmt.Sprintf("node %q: nobody owns the name (last term %d), but it is not free yet: %s", e.Node, e.Token, e.Free)
	}
	s := fmt.Sprintf("node %q: %v: a process (incarnation %s, term %d) since %s", e.Node, ErrHeld, e.Owner, e.Token, e.Since.UTC().Format(time.RFC3339))
	if e.Note != "" {
		s += fmt.Sprintf(", note %q", e.Note)
	}
	return s
}

// Is reports whether target is ErrHeld.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// RegressedError says that a counter fell: the store was restored from an older
// copy, or failed over to a lagging one. It is an [ErrRegressed].
type RegressedError struct {
	// Kind is what it is the counter of: "lease", "floor" (of the namespace), "node",
	// "authority", "slots" (of a table: its epochs), "ledger" (of a job: its head's
	// sequence). Name is its name.
	Kind, Name string
	// Seen is the highest counter seen before, Now what the store shows.
	Seen, Now uint64
}

// Error says what to do.
func (e *RegressedError) Error() string {
	what := fmt.Sprintf("%s %q", e.Kind, e.Name)
	if e.Kind == "floor" {
		what = "the namespace's floor"
	}
	return fmt.Sprintf("%s: %v: counter %d was seen, now it is %d: if the store was restored from a backup, stop every client for the largest TTL and jump above %d",
		what, ErrRegressed, e.Seen, e.Now, e.Seen)
}

// Is reports whether target is ErrRegressed.
func (e *RegressedError) Is(target error) bool { return target == ErrRegressed }
