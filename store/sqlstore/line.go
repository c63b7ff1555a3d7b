package sqlstore

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-project/tenure/internal/standing"
	"github.com/tenure-project/tenure/store"
)

// lineSuffix names the database of the waiting lines, beside the store's. They
// have a file of their own so that a waiter can neither hold up a renewal nor
// weaken the durability of one: the line is advice and need not survive a power
// cut, so its commits do not wait for the disk.
const lineSuffix = "-queue"

const (
	// pingEvery is how often a process with tickets shows that it lives.
	pingEvery = time.Second
	// deadAfter is how long a process is watched without a ping before it is
	// passed over and its tickets are removed.
	deadAfter = 4 * time.Second
)

// line is this process's part in the waiting lines. Calls leave their wishes
// under mu; one goroutine, the keeper, carries them out.
type line struct {
	s      *SQLite
	path   string
	member string        // names this open store among the waiters
	nudge  chan struct{} // there is something to do

	mu        sync.Mutex
	running   bool
	joining   []*ticket
	leaving   []*ticket
	questions []*question
}

// question is one call of Waiting.
type question struct {
	key    string
	answer chan answer // has room for one
}

type answer struct {
	yes bool
	err error
}

// ticket is a place in a line.
type ticket struct {
	l   *line
	key string
	// state is joiningLine until the row is committed or the caller gave up.
	state atomic.Int32
	ready chan error // has room for one: how joining ended

	left  bool  // Leave was called
	id    int64 // the keeper's own
	place *standing.Place
}

const (
	joiningLine = iota
	joinedLine
	gaveUpJoining
)

func newLine(s *SQLite) *line {
	return &line{s: s, path: s.path + lineSuffix, member: rand.Text(), nudge: make(chan struct{}, 1)}
}

// wake lets the keeper look at the wishes, and starts it at the first one.
// Under mu.
func (l *line) wake() {
	if !l.running {
		l.running = true
		k := &keeper{l: l, lines: map[string][]*ticket{}, seen: map[string]*sign{}, dead: map[string]int64{}}
		l.s.running.Go(k.loop)
	}
	select {
	case l.nudge <- struct{}{}:
	default:
	}
}

// wish runs f under mu unless the store is closed, and wakes the keeper.
func (l *line) wish(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.s.stop.Err() != nil {
		return false
	}
	f()
	l.wake()
	return true
}

// Enqueue joins the end of the line for key. The line spans the processes of
// this machine and is first come, first served (LS9). A process that died is
// passed over 4 seconds after its last sign of life.
func (s *SQLite) Enqueue(ctx context.Context, key string) (store.Ticket, error) {
	const op = "enqueue"
	if err := s.check(ctx, op, key, nil); err != nil {
		return nil, err
	}
	t := &ticket{l: s.line, key: key, ready: make(chan error, 1), place: standing.New()}
	if !s.line.wish(func() { s.line.joining = append(s.line.joining, t) }) {
		return nil, s.errClosed(op, key)
	}
	var err error
	select {
	case err = <-t.ready:
	case <-ctx.Done():
		err = store.CtxErr(ctx, s.identity, op, key)
	case <-s.stop.Done():
		err = s.errClosed(op, key)
	}
	if err != nil && !t.state.CompareAndSwap(joiningLine, gaveUpJoining) {
		t.Leave() // it joined after all
	}
	if err != nil {
		return nil, err
	}
	return t, nil
}

// Waiting reports whether a process that lives, by its last ping, stands in
// line for key.
func (s *SQLite) Waiting(ctx context.Context, key string) (bool, error) {
	const op = "waiting"
	if err := s.check(ctx, op, key, nil); err != nil {
		return false, err
	}
	if _, err := os.Stat(s.line.path); errors.Is(err, fs.ErrNotExist) {
		return false, nil // nobody ever waited here
	}
	q := &question{key: key, answer: make(chan answer, 1)}
	if !s.line.wish(func() { s.line.questions = append(s.line.questions, q) }) {
		return false, s.errClosed(op, key)
	}
	select {
	case a := <-q.answer:
		if a.err != nil {
			return false, s.failed(op, key, a.err)
		}
		return a.yes, nil
	case <-ctx.Done():
		return false, store.CtxErr(ctx, s.identity, op, key)
	case <-s.stop.Done():
		return false, s.errClosed(op, key)
	}
}

// Wait returns nil at the head of the line. With patience, it also returns nil
// after patience for each live ticket before it, counted anew whenever that
// number changes: so those who overtake a stopped member do so one by one.
func (t *ticket) Wait(ctx context.Context, patience time.Duration) error {
	const op = "wait in line"
	s := t.l.s
	if t.left {
		return store.Errorf(store.ErrInvalid, s.identity, op, t.key, "the ticket was given up with Leave")
	}
	return t.place.Wait(ctx, s.stop.Done(), patience, func() error { return s.alive(ctx, op, t.key) })
}

// Leave gives the place up. It does not wait for the database: the keeper
// removes the row, and if this process dies first, another one does.
func (t *ticket) Leave() {
	if t.left {
		return
	}
	t.left = true
	t.l.wish(func() { t.l.leaving = append(t.l.leaving, t) })
}
