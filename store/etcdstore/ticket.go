package etcdstore

import (
	"context"
	"time"

	"github.com/tenure-project/tenure/internal/standing"
	"github.com/tenure-project/tenure/store"
)

// ticket is a place in a line. It implements store.Ticket.
type ticket struct {
	q     *queue
	key   string
	place *standing.Place

	// Under queue.mu.
	name    string // of its key in the cluster
	created int64  // the revision at which the key was made
	gone    bool   // Leave was called

	left bool // the owner's own: Leave was called
}

// Wait returns nil at the head of the line. With patience, it also returns nil
// after patience for each live ticket before it, counted anew whenever that
// number changes: so those who overtake a stopped member do so one by one. A
// line that is out of sight for 5 seconds is ErrUnavailable.
func (t *ticket) Wait(ctx context.Context, patience time.Duration) error {
	const op = "wait in line"
	s := t.q.s
	if t.left {
		return store.Errorf(store.ErrInvalid, s.identity, op, t.key, "the ticket was given up with Leave")
	}
	return t.place.Wait(ctx, s.stop.Done(), patience, func() error { return s.alive(ctx, op, t.key) })
}

// Leave gives the place up. It does not wait for the cluster: its key is removed
// in the background, or by the end of its lease if this process dies first.
func (t *ticket) Leave() {
	if t.left {
		return
	}
	t.left = true
	t.q.leave(t)
}
