//go:build linux || darwin

package filestore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tenure-project/tenure/store"
)

const (
	// maxWorkers bounds the system calls under way, each of which holds a thread.
	maxWorkers = 128
	// stuckAfter is when a call whose caller went away counts as stuck.
	stuckAfter = time.Second
	// behindStuck is how long other calls wait behind it, if they may.
	behindStuck = 5 * time.Second
)

var (
	errClosed = errors.New("the store is closed")
	// errAbandoned ends a worker whose caller went away before it did anything.
	errAbandoned = errors.New("the caller went away")
)

// call is one operation under way. Its system calls cannot be cancelled, so
// they run in a goroutine that the caller may leave behind.
type call struct {
	op, key string
	since   time.Time

	mu   sync.Mutex
	tail func()    // what is still to do once the caller has its answer
	sent bool      // the step that makes the change visible may have been taken
	left time.Time // when the caller went away; zero while it waits
}

// commit is asked right before the step that makes a change visible. It is
// false once the caller was told that nothing happened.
func (c *call) commit() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.left.IsZero() {
		return false
	}
	c.sent = true
	return true
}

// retract takes commit back, after that step certainly failed.
func (c *call) retract() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent = false
}

// abandon marks that the caller goes away, and reports whether the change may
// have happened or may happen yet.
func (c *call) abandon() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left = time.Now()
	return c.sent
}

// abandoned is when the caller went away; zero while it waits.
func (c *call) abandoned() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.left
}

// The operations on waiting lines, which have lanes of their own: a line moves
// although a write of its key is under way.
const (
	opEnqueue = "enqueue"
	opWaiting = "waiting"
	opWait    = "wait in line"
	opLeave   = "leave the line"
)

// lane names what c must not do at the same time as others.
func (c *call) lane() string {
	switch c.op {
	case opEnqueue, opWaiting, opWait, opLeave:
		return "line " + c.key // no key holds a space
	}
	if c.key == "" {
		return " " + c.op
	}
	return c.key
}

// lane lets the calls on one key through one after the other, so that at most
// one call per key can be stuck (ST13). It is no part of what makes writes
// safe: other processes have lanes of their own.
type lane struct {
	turn    chan struct{}
	users   int
	current *call // who has the turn; nil between two
}

// lanes are all calls under way.
type lanes struct {
	closing chan struct{}
	workers chan struct{}

	mu     sync.Mutex
	byKey  map[string]*lane
	active int
	closed bool
	idle   chan struct{} // closed once closed && active == 0
}

func newLanes() *lanes {
	return &lanes{
		closing: make(chan struct{}),
		workers: make(chan struct{}, maxWorkers),
		byKey:   map[string]*lane{},
		idle:    make(chan struct{}),
	}
}

// perform runs f as a call on key and returns early when ctx ends: with
// store.ErrUnknown if f had committed, else with store.ErrUnavailable, and then
// f commits no more.
func perform[T any](ctx context.Context, s *Store, op, key string, f func(*call) (T, error)) (T, error) {
	var zero T
	if err := store.CtxErr(ctx, s.identity, op, key); err != nil {
		return zero, err
	}
	c := &call{op: op, key: key}
	if err := s.lanes.enter(ctx, s, c); err != nil {
		return zero, err
	}
	type answer struct {
		value T
		err   error
	}
	done := make(chan answer, 1)
	go func() {
		v, err := f(c)
		if c.tail == nil {
			s.lanes.leave(c)
			done <- answer{v, s.explain(op, key, err)}
			return
		}
		done <- answer{v, s.explain(op, key, err)}
		c.tail()
		s.lanes.leave(c)
	}()
	select {
	case a := <-done:
		return a.value, a.err
	case <-ctx.Done():
	case <-s.lanes.closing:
		select { // most calls are done in a moment
		case a := <-done:
			return a.value, a.err
		case <-ctx.Done():
		case <-time.After(s.grace.close):
		}
	}
	sent := c.abandon()
	select {
	case a := <-done:
		return a.value, a.err
	default:
		return zero, s.leftBehind(ctx, c, sent)
	}
}

// obtain is perform for something that must be given back: what comes after the
// caller went away is undone.
func obtain[T any](ctx context.Context, s *Store, op, key string, f func(*call) (T, error), undo func(T)) (T, error) {
	var (
		mu   sync.Mutex
		got  *T
		left bool
	)
	v, err := perform(ctx, s, op, key, func(c *call) (T, error) {
		v, err := f(c)
		if err != nil {
			return v, err
		}
		mu.Lock()
		defer mu.Unlock()
		if left {
			undo(v)
			return v, errAbandoned
		}
		got = &v
		return v, nil
	})
	if err != nil {
		mu.Lock()
		defer mu.Unlock()
		if left = true; got != nil {
			undo(*got)
		}
	}
	return v, err
}

// leftBehind is the error of a caller that goes away while its call is under way.
func (s *Store) leftBehind(ctx context.Context, c *call, sent bool) error {
	cause := context.Cause(ctx)
	if cause == nil {
		cause = errClosed
	}
	e := &store.Error{Kind: store.ErrUnavailable, Store: s.identity, Op: c.op, Key: c.key, Cause: cause}
	if sent {
		e.Kind, e.Detail = store.ErrUnknown, "the file system has not answered yet"
	}
	return e
}

// enter waits for the turn on c's key and for a free worker.
func (l *lanes) enter(ctx context.Context, s *Store, c *call) error {
	ln, err := l.join(s, c)
	if err != nil {
		return err
	}
	if err := l.takeTurn(ctx, s, c, ln); err != nil {
		l.quit(c, ln)
		return err
	}
	select {
	case l.workers <- struct{}{}:
	case <-ctx.Done():
		err = &store.Error{Kind: store.ErrUnavailable, Store: s.identity, Op: c.op, Key: c.key,
			Detail: "too many calls are under way", Cause: context.Cause(ctx)}
	case <-l.closing:
		err = store.Wrap(store.ErrUnavailable, s.identity, c.op, c.key, errClosed)
	}
	if err != nil {
		<-ln.turn
		l.quit(c, ln)
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	c.since = time.Now()
	ln.current = c
	return nil
}

// join counts c among the users of its lane, which keeps the store open.
func (l *lanes) join(s *Store, c *call) (*lane, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, store.Wrap(store.ErrUnavailable, s.identity, c.op, c.key, errClosed)
	}
	ln := l.byKey[c.lane()]
	if ln == nil {
		ln = &lane{turn: make(chan struct{}, 1)}
		l.byKey[c.lane()] = ln
	}
	ln.users++
	l.active++
	return ln, nil
}

// takeTurn waits until nobody else in this process is at the key, but not for
// long behind a call that its own caller gave up.
func (l *lanes) takeTurn(ctx context.Context, s *Store, c *call, ln *lane) error {
	select {
	case ln.turn <- struct{}{}:
		return nil
	default:
	}
	tick := time.NewTicker(behindStuck / 10)
	defer tick.Stop()
	for {
		select {
		case ln.turn <- struct{}{}:
			return nil
		case <-l.closing:
			return store.Wrap(store.ErrUnavailable, s.identity, c.op, c.key, errClosed)
		case <-ctx.Done():
			err := &store.Error{Kind: store.ErrUnavailable, Store: s.identity, Op: c.op, Key: c.key, Cause: context.Cause(ctx)}
			if cur := l.currentOf(ln); cur != nil {
				err.Detail = "waited for " + cur.text()
			}
			return err
		case <-tick.C:
			if cur := l.currentOf(ln); cur != nil && cur.stuck(behindStuck) {
				return store.Errorf(store.ErrUnavailable, s.identity, c.op, c.key, "%s", cur.text())
			}
		}
	}
}

func (l *lanes) currentOf(ln *lane) *call {
	l.mu.Lock()
	defer l.mu.Unlock()
	return ln.current
}

// stuck reports whether c's caller went away at least that long ago.
func (c *call) stuck(d time.Duration) bool {
	left := c.abandoned()
	return !left.IsZero() && time.Since(left) >= d
}

func (c *call) text() string {
	return fmt.Sprintf("an earlier call (%s) that is stuck since %s", c.op, c.since.UTC().Format(time.RFC3339Nano))
}

// leave gives c's turn and worker back.
func (l *lanes) leave(c *call) {
	l.mu.Lock()
	ln := l.byKey[c.lane()]
	ln.current = nil
	l.mu.Unlock()
	<-l.workers
	<-ln.turn
	l.quit(c, ln)
}

// quit forgets a user of a lane, and the lane after its last.
func (l *lanes) quit(c *call, ln *lane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ln.users--; ln.users == 0 {
		delete(l.byKey, c.lane())
	}
	l.active--
	if l.closed && l.active == 0 {
		close(l.idle)
	}
}

// close lets no call in any more. It is called once.
func (l *lanes) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	close(l.closing)
	if l.active == 0 {
		close(l.idle)
	}
}

// oldestStuck is the call that hangs longest without a caller, and how many do.
func (l *lanes) oldestStuck() (oldest *call, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, ln := range l.byKey {
		c := ln.current
		if c == nil || !c.stuck(stuckAfter) {
			continue
		}
		if n++; oldest == nil || c.since.Before(oldest.since) {
			oldest = c
		}
	}
	return oldest, n
}
