package faultstore

import (
	"bytes"
	"slices"
	"time"
)

// landing is a write that left its caller and has not arrived yet.
type landing struct {
	s      *Store
	r      request
	carry  handler
	number int         // in the order of departure
	timer  *time.Timer // nil: arrives on call
}

// launch sends r on its way; a negative d waits for Land.
func (s *Store) launch(r *request, carry handler, d time.Duration) {
	l := &landing{s: s, r: *r, carry: carry}
	l.r.body = bytes.Clone(r.body) // the caller may change its own
	l.r.changes = copiedChanges(r.changes)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.launched++
	l.number = s.launched
	s.late[l] = struct{}{}
	if d >= 0 {
		l.timer = time.AfterFunc(d, func() { l.land() })
	}
}

// take claims l for its one arrival. A landing that was dropped or has arrived
// cannot be taken.
func (l *landing) take() bool {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	if _, ok := l.s.late[l]; !ok || l.s.closed {
		return false
	}
	delete(l.s.late, l)
	if l.timer != nil {
		l.timer.Stop()
	}
	l.s.flights.Add(1)
	return true
}

func (l *landing) land() bool {
	if !l.take() {
		return false
	}
	defer l.s.flights.Done()
	e := l.r.event()
	e.Late = true
	l.s.tell(e)
	out := l.carry(l.s.air, &l.r)
	l.s.tell(e.ended(out))
	return true
}

// Land lets everything arrive that is on its way, in the order in which it was
// sent, and returns how many writes that were, whether or not their conditions
// held.
func (s *Store) Land() int {
	s.mu.Lock()
	flying := make([]*landing, 0, len(s.late))
	for l := range s.late {
		flying = append(flying, l)
	}
	s.mu.Unlock()
	slices.SortFunc(flying, func(a, b *landing) int { return a.number - b.number })
	n := 0
	for _, l := range flying {
		if l.land() {
			n++
		}
	}
	return n
}

// InFlight is how many writes are on their way.
func (s *Store) InFlight() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.late)
}

// drop forgets what is on its way.
func (s *Store) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.late {
		if l.timer != nil {
			l.timer.Stop()
		}
	}
	clear(s.late)
}
