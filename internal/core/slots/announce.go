package slots

import (
	"errors"
	"fmt"

	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

// Bounds of an announcement.
const (
	MaxAnnounce = 8 << 10
	MaxWeight   = 1 << 16
)

// Announce is what a host tells of itself to whoever balances and routes (SL8). It proves
// nothing about ownership. Invariants, checked by Valid:
//
//  1. v, table, birth, attempt and host are set and within bounds;
//  2. the weight is 0 to MaxWeight, the capacity 0 to Count;
//  3. beat and since are within bounds.
type Announce struct {
	V     int    `json:"v"`
	Table string `json:"table"`
	// Birth is the table's.
	Birth string `json:"birth"`
	Host  Host   `json:"host"`
	// Weight is the host's share beside those of others; with 0 it takes nothing.
	Weight int `json:"weight"`
	// Capacity is how many shards it takes at most, 0 for any number.
	Capacity int `json:"capacity,omitempty"`
	// Leaving asks that everything be moved away.
	Leaving bool `json:"leaving,omitempty"`
	// Beat counts the announcements of the incarnation: of a self host, its signs of life.
	Beat uint64 `json:"beat"`
	// Since is when the incarnation began, by the host's wall clock, for people.
	Since int64 `json:"since_ms"`
	// Attempt is the fresh id of this write.
	Attempt string `json:"attempt"`
}

// Valid checks the invariants.
func (a *Announce) Valid() error {
	switch {
	case a.V < 1 || a.V > record.Level:
		return fmt.Errorf("format level %d", a.V)
	case !record.IsID(a.Birth) || !record.IsID(a.Attempt):
		return fmt.Errorf("birth %q or attempt %q is not an id", a.Birth, a.Attempt)
	case a.Weight < 0 || a.Weight > MaxWeight:
		return fmt.Errorf("the weight %d is not between 0 and %d", a.Weight, MaxWeight)
	case a.Capacity < 0 || a.Capacity > Count:
		return fmt.Errorf("the capacity %d is not between 0 and %d", a.Capacity, Count)
	case a.Beat > record.MaxNumber || a.Since < 0 || a.Since > record.MaxNumber:
		return errors.New("the beat or the time is out of bounds")
	}
	return errors.Join(store.CheckName("table", a.Table), a.Host.Valid())
}

// Encode returns the announcement's canonical bytes.
func (a *Announce) Encode() ([]byte, error) { return record.Encode(a, MaxAnnounce) }

// DecodeAnnounce reads an announcement for the table strictly, and checks that key is that
// of its owner (ST7).
func DecodeAnnounce(key, table string, body []byte, keyOf func(owner string) string) (*Announce, error) {
	var a Announce
	if err := record.Decode(key, body, &a); err != nil {
		return nil, err
	}
	if a.Table != table {
		return nil, store.Errorf(store.ErrCorrupt, "", "decode", key, "the announcement is for table %q, not %q", a.Table, table)
	}
	if want := keyOf(a.Host.Owner); want != key {
		return nil, store.Errorf(store.ErrCorrupt, "", "decode", key, "the announcement says it is of %q, whose key is %q", a.Host.Owner, want)
	}
	return &a, nil
}
