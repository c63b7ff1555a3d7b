package etcdstore

import (
	"context"
	"time"

	"github.com/tenure-project/tenure/store"
)

// ticket is a place in a line. It implements store.Ticket.
type ticket struct {
	q    *queue
	key  string
	news chan struct{} // told has changed

	// Under queue.mu.
	name    string // of its key in the cluster
	created int64  // the revision at which the key was made
	told    standing
	gone    bool // Leave was called

	left bool // the owner's own: Leave was called
}

// standing is where a ticket stands: how many live ones are before it, -1 while
// that is not known, or why it cannot be known.
type standing struct {
	before int
	err    error
}

// tell gives a ticket news of its place, if it is news. Under queue.mu.
func (t *ticket) tell(now standing) {
	if t.told != now {
		t.told = now
		poke(t.news)
	}
}

// standing is the latest news of the place.
func (t *ticket) standing() standing {
	select {
	case <-t.news:
	default:
	}
	t.q.mu.Lock()
	defer t.q.mu.Unlock()
	return t.told
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
	for {
		if err := s.alive(ctx, op, t.key); err != nil {
			return err
		}
		now := t.standing()
		if now.err != nil {
			return now.err
		}
		if now.before == 0 || t.sleep(ctx, patience*time.Duration(max(now.before, 0))) {
			return nil
		}
	}
}

// sleep waits for a reason to look again and reports whether limit, if not
// zero, went by instead.
func (t *ticket) sleep(ctx context.Context, limit time.Duration) bool {
	var expired <-chan time.Time
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		expired = timer.C
	}
	select {
	case <-t.news:
	case <-expired:
		return true
	case <-ctx.Done():
	case <-t.q.s.stop.Done():
	}
	return false
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
