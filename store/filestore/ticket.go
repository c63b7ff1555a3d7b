//go:build linux || darwin

package filestore

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenure-project/tenure/store"
)

const (
	// secondLook is how often a waiter looks even if the kernel tells nothing.
	secondLook = time.Second
	// leaveLimit is how long Leave waits for a disk that hangs.
	leaveLimit = time.Second
)

// ticket is a place in line.
type ticket struct {
	s      *Store
	key    string
	number uint64
	fd     int // holds the lock

	once sync.Once
	gone chan struct{} // closed by Leave
}

// Wait returns nil when nobody alive stands before t (LS9). With patience, it
// also returns nil after patience for each ticket before it, counted anew
// whenever one of them leaves: so those who overtake a stopped member do so one
// after the other.
func (t *ticket) Wait(ctx context.Context, patience time.Duration) error {
	const op = opWait
	var before []uint64
	var expires time.Time
	for look := 0; ; look++ {
		v, err := t.look(ctx, op, patience > 0)
		if err != nil {
			return err
		}
		if len(v.before) == 0 {
			v.cancel()
			return t.ended(op)
		}
		if patience > 0 {
			if before == nil || !slices.Equal(before, v.before) {
				before, expires = v.before, time.Now().Add(patience*time.Duration(len(v.before)))
			} else if !time.Now().Before(expires) {
				v.cancel()
				return nil
			}
		}
		err = t.sleep(ctx, op, v, look, expires)
		v.cancel()
		if err != nil {
			return err
		}
	}
}

// ended is the error of a wait that ends because its store is closed.
func (t *ticket) ended(op string) error {
	select {
	case <-t.s.ending:
		return store.Wrap(store.ErrUnavailable, t.s.identity, op, t.key, errClosed)
	default:
		return nil
	}
}

// view is what stands before a ticket, and how to learn that it changes.
type view struct {
	before  []uint64
	front   *subscription // of the last living ticket before; nil: poll
	changes *subscription // of the line as a whole, for those with patience
}

func (v *view) cancel() {
	for _, sub := range []*subscription{v.front, v.changes} {
		if sub != nil {
			sub.cancel()
		}
	}
}

// wakes returns a channel that never speaks for a subscription that is none.
func wakes(sub *subscription) <-chan struct{} {
	if sub == nil {
		return nil
	}
	return sub.wake
}

// look finds out who stands before t, and asks the kernel to tell of changes
// before it does.
func (t *ticket) look(ctx context.Context, op string, patient bool) (*view, error) {
	s := t.s
	select {
	case <-t.gone:
		if err := t.ended(op); err != nil {
			return nil, err
		}
		return nil, store.Errorf(store.ErrInvalid, s.identity, op, t.key, "the ticket was given up with Leave")
	default:
	}
	return obtain(ctx, s, op, t.key, func(*call) (*view, error) {
		q, err := s.openLine(t.key)
		if err != nil {
			return nil, err
		}
		v := &view{}
		if q == nil { // removed by hand; the conditional write decides anyway
			return v, nil
		}
		defer q.close()
		if patient {
			v.changes, _ = s.notifier.subscribe(q.full(""), noticeDir, "", goneEvents)
		}
		if err := v.fill(q, t.number); err != nil {
			v.cancel()
			return nil, err
		}
		return v, nil
	}, (*view).cancel)
}

// fill finds the last living ticket before number and watches it. Those before
// that one count too: their own successors see to them.
func (v *view) fill(q *line, number uint64) error {
	numbers, err := q.numbers()
	if err != nil {
		return err
	}
	end, _ := slices.BinarySearch(numbers, number)
	for numbers = numbers[:end]; len(numbers) > 0; numbers = numbers[:len(numbers)-1] {
		n := numbers[len(numbers)-1]
		alive, err := q.alive(n, true)
		if err != nil {
			return err
		}
		if !alive {
			continue
		}
		sub, err := q.s.notifier.subscribe(q.full(numberName(n)), noticeFile, "", 0)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		// Only now, for it may have ended before the watch was in place.
		if alive, err = q.alive(n, true); alive && err == nil {
			v.before, v.front = numbers, sub
			return nil
		}
		if sub != nil {
			sub.cancel()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// sleep waits for a reason to look again.
func (t *ticket) sleep(ctx context.Context, op string, v *view, look int, expires time.Time) error {
	limit := secondLook
	if v.front == nil {
		limit = pollDelay(look)
	}
	if !expires.IsZero() {
		limit = min(limit, max(time.Until(expires), 0))
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	s := t.s
	select {
	case <-timer.C:
	case <-wakes(v.changes):
	case <-wakes(v.front):
		// The kernel tells that a file is closed just before it frees the lock.
		t.settle(ctx, op, v.before[len(v.before)-1])
	case <-t.gone:
	case <-ctx.Done():
		return store.CtxErr(ctx, s.identity, op, t.key)
	case <-s.ending:
		return t.ended(op)
	}
	return nil
}

// settle waits for a moment until the ticket that just changed is free.
func (t *ticket) settle(ctx context.Context, op string, front uint64) {
	soon(ctx, func() bool {
		alive, err := perform(ctx, t.s, op, t.key, func(*call) (bool, error) {
			q, err := t.s.openLine(t.key)
			if err != nil || q == nil {
				return false, err
			}
			defer q.close()
			return q.alive(front, true)
		})
		return !alive || err != nil
	})
}

// soon asks a few times within about 5 ms until done is true.
func soon(ctx context.Context, done func() bool) bool {
	for d := 20 * time.Microsecond; ; d *= 2 {
		if done() {
			return true
		}
		if d > 3*time.Millisecond {
			return false
		}
		timer := time.NewTimer(d)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return false
		}
	}
}

// Leave gives the place up. It may be called more than once.
func (t *ticket) Leave() {
	t.s.drop(t)
	t.release()
}

// release removes the ticket, and the line after its last. A disk that hangs
// does not hold it up for long: then the name goes when someone meets it.
func (t *ticket) release() {
	t.once.Do(func() {
		close(t.gone)
		ctx, cancel := context.WithTimeout(context.Background(), leaveLimit)
		defer cancel()
		var taken atomic.Bool // whoever takes it closes the descriptor
		_, err := perform(ctx, t.s, opLeave, t.key, func(*call) (struct{}, error) {
			if taken.CompareAndSwap(false, true) {
				t.remove()
			}
			return struct{}{}, nil
		})
		if err != nil && taken.CompareAndSwap(false, true) {
			closeFD(t.fd)
		}
	})
}

func (t *ticket) remove() {
	defer closeFD(t.fd)
	s := t.s
	q, err := s.openLine(t.key)
	if err != nil || q == nil {
		return
	}
	defer q.close()
	s.unlinkIfSame(q.fd, numberName(t.number), t.fd)
	_ = s.rmdir(s.rootFD, q.path)
}
