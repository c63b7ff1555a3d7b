package pgstore

import (
	"context"
	"crypto/rand"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-project/tenure/internal/standing"
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
	l     *line
	key   string
	place *standing.Place
	left  atomic.Bool
	id    int64 // under l.mu
}

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
	t := &ticket{l: s.line, key: key, place: standing.New()}
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
	return t.place.Wait(ctx, s.stop.Done(), patience, func() error { return s.alive(ctx, op, t.key) })
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
