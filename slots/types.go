package slots

import (
	"errors"
	"fmt"

	tenure "github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/core/lease"
	core "github.com/tenure-project/tenure/internal/core/slots"
	"github.com/tenure-project/tenure/internal/deadline"
	"github.com/tenure-project/tenure/internal/membership"
	"github.com/tenure-project/tenure/store"
)

// Count is how many slots there are (SL1).
const Count = core.Count

// Range is a run of slots, both ends included (SL1).
type Range = core.Range

// All is every slot.
var All = core.All

// NewRange is the range a to b, ErrInvalid unless 0 <= a <= b < Count (SL1).
func NewRange(a, b int) (Range, error) { return core.NewRange(a, b) }

// ParseRange reads "A-B" or "N" (SL1). Anything else is ErrInvalid.
func ParseRange(text string) (Range, error) { return core.ParseRange(text) }

// SlotOf is the slot of a text key (SL1).
func SlotOf(key string) uint16 { return core.SlotOf(key) }

// SlotOfBytes is the slot of a key of bytes, that of the text of the same bytes (SL1).
func SlotOfBytes(key []byte) uint16 { return core.SlotOfBytes(key) }

// SlotOfInt is the slot of an integer key (SL1).
func SlotOfInt(key uint64) uint16 { return core.SlotOfInt(key) }

// Form is where a table's rows are. It is fixed when the table is made.
type Form = core.Form

// The forms of a table.
const (
	// RowsForm keeps each row by itself; it needs a store that commits several keys at
	// once.
	RowsForm = core.RowsForm
	// RegisterForm keeps the whole table in one record.
	RegisterForm = core.RegisterForm
)

// The parts of a table, as it is stored. They are not to be changed.
type (
	// Row is a range and who owns it, or how it was freed.
	Row = core.Row
	// Owner is the host that a row names.
	Owner = core.Host
	// Freed says how the last ownership of a free row ended.
	Freed = core.Freed
	// Past is a former owner of slots of a row.
	Past = core.Past
	// Plan says which owner each shard is meant for (SL8).
	Plan = core.Plan
	// Shard is a range of slots that is moved as one.
	Shard = core.Shard
	// Announced is what a host tells of itself (SL8).
	Announced = core.Announce
)

// Kinds of a row: what keeps it alive.
const (
	// Self rows are renewed by their host.
	Self = lease.Self
	// SessionKind rows live by a session.
	SessionKind = lease.Session
)

// HeldError says who is in the way of a claim, LostError who has a range now that was lost.
// They come with a tenure.ErrHeld and a tenure.ErrLost.
type (
	HeldError = core.HeldError
	LostError = core.LostError
)

// told is an error with a kind of package tenure.
type told struct{ kind, err error }

// Error is the error's.
func (e *told) Error() string { return e.err.Error() }

// Unwrap is the kind and the error.
func (e *told) Unwrap() []error { return []error{e.kind, e.err} }

// lostTo is the error of a range that is certainly not the host's any more.
func lostTo(err error) error {
	if errors.Is(err, tenure.ErrLost) {
		return err
	}
	return &told{kind: tenure.ErrLost, err: err}
}

// endOf is the end of a grant's deadline in the words of package tenure.
func endOf(err error) error {
	switch {
	case errors.Is(err, tenure.ErrLost), errors.Is(err, tenure.ErrReleased), errors.Is(err, tenure.ErrShutdown):
		return err
	case errors.Is(err, deadline.ErrExpired):
		return tenure.ErrExpired
	case errors.Is(err, membership.ErrReleased):
		return fmt.Errorf("the session left: %w", tenure.ErrReleased)
	}
	return lostTo(err)
}

func invalid(op, key, format string, args ...any) error {
	return store.Errorf(store.ErrInvalid, "", op, key, format, args...)
}

// NewerError says that a newer epoch of a range was seen (SL6). It comes with a
// tenure.ErrLost.
type NewerError struct {
	// Epoch is the range's, Newer the one that was seen.
	Epoch, Newer uint64
}

// Error names both.
func (e *NewerError) Error() string {
	return fmt.Sprintf("epoch %d was seen, which is newer than %d", e.Newer, e.Epoch)
}
