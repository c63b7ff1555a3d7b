package pgstore

import (
	"context"
	"crypto/rand"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-project/tenure/store"
)

const (
	// roundEvery is how often a process with places in line confirms them and
	// looks where they stand, if notifications tell of every change in between.
	roundEvery = time.Second
	// pollEvery is how often it looks if they do not.
	pollEvery = 250 * time.Millisecond
	// roundLimit bounds one look, which must come well before a place that is
	// not confirmed is passed over, 4 seconds after the last confirmation.
	roundLimit = 2 * time.Second
	// troubleLimit is how long looks may fail before those who wait are told.
	troubleLimit = 2 * time.Second
	// leaveLimit bounds how long Close tries to take the places out.
	leaveLimit = 250 * time.Millisecond
)

// line is this process's part in the waiting lines. One goroutine, the keeper,
// speaks for all its tickets, with one statement at a time however many there
// are.
//
// A place is a row, in order of id, that its owner confirms: it counts while its
// confirmation is younger than 4 seconds by the server's clock. A place that
// falls silent is passed over, and counts again when it is confirmed again.
type line struct {
	s      *Store
	member string // names this open store among the waiters
	nudge  chan struct{}
	every  time.Duration // roundEvery, but for tests

	mu      sync.Mutex
	running bool
	tickets map[int64]*ticket // by row
	lost    []*ticket         // their rows are gone: they join again
	leaving map[int64]bool    // rows to remove
}

// ticket is a place in a line.
type ticket struct {
	l    *line
	key  string
	news chan standing // the latest change of the place, for Wait

	before int // as Wait knows it; -1: not yet known
	left   atomic.Bool

	id   int64 // under l.mu
	told standing
}

// standing is where a ticket stands: how many live ones are before it.
type standing struct {
	before int
	err    error
}

var unknownPlace = standing{before: -1}

func newLine(s *Store) *line {
	return &line{s: s, member: rand.Text(), nudge: make(chan struct{}, 1), every: roundEvery, tickets: map[int64]*ticket{}, leaving: map[int64]bool{}}
}

// poke makes the keeper look now, if it runs.
func (l *line) poke() {
	select {
	case l.nudge <- struct{}{}:
	default:
	}
}

// Enqueue joins the end of the line for key. The line spans all processes of the
// store and is first come, first served (LS9). A process that died is passed
// over 5 seconds after its last sign of life at the latest, as is one whose
// answer to Enqueue was lost.
func (s *Store) Enqueue(ctx context.Context, key string) (store.Ticket, error) {
	r := request{op: "enqueue", key: key}
	if err := s.check(ctx, r.op, key, nil); err != nil {
		return nil, err
	}
	t := &ticket{l: s.line, key: key, news: make(chan standing, 1), before: -1, told: unknownPlace}
	id, err := s.line.join(ctx, r)
	if err != nil {
		return nil, err
	}
	l := s.line
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.stop.Err() != nil {
		return nil, s.errClosed(r.op, key)
	}
	t.id = id
	l.tickets[id] = t
	l.start()
	return t, nil
}

// start lets the keeper look, and starts it at the first ticket. Under mu.
func (l *line) start() {
	if !l.running && l.s.stop.Err() == nil {
		l.running = true
		l.s.running.Go(l.keep)
	}
	l.poke()
}

// join makes a row and returns its id. No row is made if another line got the
// same number in the same microsecond.
func (l *line) join(ctx context.Context, r request) (int64, error) {
	for {
		rows, err := l.s.exec(ctx, r, l.s.sql.enqueue, textArg(r.key), textArg(l.member))
		if err != nil {
			return 0, err
		}
		if len(rows) == 0 {
			continue
		}
		got, err := l.s.first(r, rows, 1)
		if err != nil {
			return 0, err
		}
		return got.int(0), nil
	}
}

// Waiting reports whether a process that lives, by its last confirmation, stands
// in line for key.
func (s *Store) Waiting(ctx context.Context, key string) (bool, error) {
	r := request{op: "waiting", key: key}
	if err := s.check(ctx, r.op, key, nil); err != nil {
		return false, err
	}
	s.line.mu.Lock()
	leaving := ids(s.line.leaving)
	s.line.mu.Unlock()
	rows, err := s.exec(ctx, r, s.sql.waiting, textArg(key), textArg(s.line.member), idsArg(leaving))
	if err != nil {
		return false, err
	}
	got, err := s.first(r, rows, 2)
	if err != nil {
		return false, err
	}
	return got.bool(1), s.fromPrimary(r.op, key, got.bool(0))
}

func ids[V any](m map[int64]V) []int64 {
	out := make([]int64, 0, len(m))
	for id := range m {
		out = append(out, id)
	}
	return out
}

// Wait returns nil at the head of the line. With patience, it also returns nil
// after patience for each live ticket before it, counted anew whenever that
// number changes: so those who overtake a stopped member do so one by one.
func (t *ticket) Wait(ctx context.Context, patience time.Duration) error {
	const op = "wait in line"
	s := t.l.s
	if t.left.Load() {
		return store.Errorf(store.ErrInvalid, s.label, op, t.key, "the ticket was given up with Leave")
	}
	for {
		if err := s.alive(ctx, op, t.key); err != nil {
			return err
		}
		select {
		case now := <-t.news: // first of all: the place may have been lost
			if now.err != nil {
				return s.failed(ctx, request{op: op, key: t.key}, now.err)
			}
			t.before = now.before
		default:
		}
		if t.before == 0 || t.sleep(ctx, patience*time.Duration(max(t.before, 0))) {
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
	case now := <-t.news:
		t.put(now) // Wait judges it
	case <-expired:
		return true
	case <-ctx.Done():
	case <-t.l.s.stop.Done():
	}
	return false
}

// put makes now the news, unless there is newer one already: only Wait puts
// back what it took, and the keeper takes the old one away first.
func (t *ticket) put(now standing) {
	select {
	case t.news <- now:
	default:
	}
}

// tell gives the ticket news of its place, if it is news. For the keeper.
func (t *ticket) tell(now standing) {
	if t.told == now {
		return
	}
	t.told = now
	select {
	case <-t.news:
	default:
	}
	t.put(now)
}

// Leave gives the place up. It does not wait for the server: the keeper removes
// the row, and if this process dies first, the row falls silent.
func (t *ticket) Leave() {
	if t.left.Swap(true) {
		return
	}
	l := t.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tickets[t.id] == t {
		delete(l.tickets, t.id)
		l.leaving[t.id] = true
		l.start()
	}
}
