// Package slots decides who serves which of 16,384 routing slots. It is pure:
// table and input in, table out; no I/O, no clock, no goroutine, no randomness.
package slots

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tenure-project/tenure/store"
)

// Count is how many routing slots there are. It never changes: who routes a key
// and who owns it must agree for ever (SL1).
const Count = 1 << 14

// Last is the last slot.
const Last = Count - 1

// SlotOf is the slot of a text key: FNV-1a, 64 bits, of its bytes, modulo Count
// (SL1).
func SlotOf(key string) uint16 {
	h := uint64(fnvOffset)
	for i := range len(key) {
		h = (h ^ uint64(key[i])) * fnvPrime
	}
	return uint16(h % Count)
}

// SlotOfBytes is SlotOf for bytes (SL1).
func SlotOfBytes(key []byte) uint16 {
	h := uint64(fnvOffset)
	for _, c := range key {
		h = (h ^ uint64(c)) * fnvPrime
	}
	return uint16(h % Count)
}

const (
	fnvOffset = 0xcbf29ce484222325
	fnvPrime  = 0x100000001b3
)

// SlotOfInt is the slot of an integer key: the first output of splitmix64 seeded
// with it, modulo Count (SL1). A signed key is converted with uint64(key).
func SlotOfInt(key uint64) uint16 { return uint16(splitmix64(key) % Count) }

func splitmix64(z uint64) uint64 {
	z += 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Range is a run of slots, both ends included. The zero Range is the slot 0.
type Range struct{ A, B uint16 }

// All is every slot.
var All = Range{0, Last}

// NewRange is the range a to b, ErrInvalid unless a <= b < Count (SL1).
func NewRange(a, b int) (Range, error) {
	if a < 0 || b < a || b > Last {
		return Range{}, store.Errorf(store.ErrInvalid, "", "slot range", "", "a range goes from a slot to the same or a later one, 0 to %d, not from %d to %d", Last, a, b)
	}
	return Range{uint16(a), uint16(b)}, nil
}

// ParseRange reads "A-B" or "N", with white space around each number if need be.
// Anything else is ErrInvalid (SL1).
func ParseRange(text string) (Range, error) {
	first, last, two := strings.Cut(text, "-")
	a, err := parseSlot(first)
	b := a
	if err == nil && two {
		b, err = parseSlot(last)
	}
	if err != nil {
		return Range{}, store.Errorf(store.ErrInvalid, "", "slot range", "", "%q is neither a slot nor a range of slots such as 0-%d", text, Last)
	}
	return NewRange(a, b)
}

func parseSlot(text string) (int, error) {
	text = strings.TrimSpace(text)
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return 0, strconv.ErrSyntax
		}
	}
	return strconv.Atoi(text)
}

// String is "A-B", also for one slot.
func (r Range) String() string { return fmt.Sprintf("%d-%d", r.A, r.B) }

// Len is how many slots the range has.
func (r Range) Len() int { return int(r.B) - int(r.A) + 1 }

// Contains reports whether slot is in the range.
func (r Range) Contains(slot uint16) bool { return r.A <= slot && slot <= r.B }

// Holds reports whether all of o is in the range.
func (r Range) Holds(o Range) bool { return r.A <= o.A && o.B <= r.B }

// Overlaps reports whether the ranges share a slot.
func (r Range) Overlaps(o Range) bool { return r.A <= o.B && o.A <= r.B }

// Valid returns an error unless the range is one.
func (r Range) Valid() error {
	if r.A > r.B || r.B > Last {
		return fmt.Errorf("the range %v is upside down or ends after %d", r, Last)
	}
	return nil
}

// MarshalText is String: a range in a record is text for people.
func (r Range) MarshalText() ([]byte, error) { return []byte(r.String()), r.Valid() }

// UnmarshalText is ParseRange.
func (r *Range) UnmarshalText(text []byte) error {
	parsed, err := ParseRange(string(text))
	if err == nil {
		*r = parsed
	}
	return err
}
