package recovery

import (
	"errors"
	"fmt"
	"time"

	"github.com/tenure-project/tenure/internal/core/authority"
	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

// MaxPending bounds the bytes of an encoded pending report.
const MaxPending = 2 << 10

// Pending is a fault report at its reporter's own key, until the head shows it (RF).
// Only its reporter writes it; a newer report takes its place. Invariants, checked by
// Valid: v, authority, attempt and report are set and within bounds, and the reason
// is a short text.
type Pending struct {
	V         int    `json:"v"`
	Authority string `json:"authority"`
	authority.Report
	// Attempt is the id of the write.
	Attempt string `json:"attempt"`
	// Why is for people.
	Why string `json:"why,omitempty"`
	At  int64  `json:"at_ms"`
}

// Valid checks the invariants.
func (p *Pending) Valid() error {
	switch {
	case p.V < 1 || p.V > record.Level:
		return fmt.Errorf("format level %d", p.V)
	case !record.IsID(p.Attempt):
		return fmt.Errorf("attempt %q is not an id", p.Attempt)
	case p.At < 0 || p.At > record.MaxNumber:
		return errors.New("the time is out of bounds")
	}
	return errors.Join(store.CheckName("authority name", p.Authority), p.Report.Valid(), lease.CheckWhy("reason", p.Why))
}

// Encode returns the report's canonical bytes.
func (p *Pending) Encode() ([]byte, error) { return record.Encode(p, MaxPending) }

// DecodePending reads a pending report strictly, and checks that it is node's
// (ST7).
func DecodePending(key, name, node string, body []byte) (*Pending, error) {
	var p Pending
	if err := record.Decode(key, body, &p); err != nil {
		return nil, err
	}
	if p.Authority != name || p.Node != node {
		return nil, store.Errorf(store.ErrCorrupt, "", "decode", key, "the report is node %q's to authority %q, not %q's to %q", p.Node, p.Authority, node, name)
	}
	return &p, nil
}

// Overdue says how much longer the leader is left to fold a report that stands at its
// key since from (the boot clock of its reporter after that write): one TTL of the
// head. Only then does the reporter write the head itself, at 0 (RF).
func Overdue(h *authority.Head, from, now time.Duration, rho float64) time.Duration {
	return max(0, from+lease.Stretch(h.TTL(), rho)-now)
}
