package memstore

import (
	"context"
	"slices"
	"time"

	"github.com/tenure-project/tenure/store"
)

// line is who waits for one key, in the order of arrival.
type line struct {
	tickets []*ticket
}

// ticket is a place in a line. wake holds a token when the line before it may
// have moved; gone is closed when the place was given up.
type ticket struct {
	store *Store
	key   string
	wake  chan struct{}
	gone  chan struct{}
	// patient says that Wait counts patience, which begins anew whenever
	// somebody before it leaves. Under the place's mu.
	patient bool
}

// Enqueue joins the end of the line for key. The line is fair, and a place in
// it is lost when its handle is closed.
func (s *Store) Enqueue(ctx context.Context, key string) (store.Ticket, error) {
	if err := s.check(ctx, "enqueue", key, nil); err != nil {
		return nil, err
	}
	t := &ticket{store: s, key: key, wake: make(chan struct{}, 1), gone: make(chan struct{})}
	p := s.place
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-s.closed: // between the check and here
		return nil, s.fail(store.ErrUnavailable, "enqueue", key, "the store is closed")
	default:
	}
	l := p.lines[key]
	if l == nil {
		l = &line{}
		p.lines[key] = l
	}
	l.tickets = append(l.tickets, t)
	return t, nil
}

// Waiting reports whether anybody stands in line for key.
func (s *Store) Waiting(ctx context.Context, key string) (bool, error) {
	if err := s.check(ctx, "waiting", key, nil); err != nil {
		return false, err
	}
	s.place.mu.Lock()
	defer s.place.mu.Unlock()
	return s.place.lines[key] != nil, nil
}

// Wait returns nil at the head of the line. With patience, it also returns nil
// after patience for each ticket before it, counted anew whenever one of them
// leaves: so those who overtake a stopped member do so one after the other.
func (t *ticket) Wait(ctx context.Context, patience time.Duration) error {
	const op = "wait in line"
	s := t.store
	for {
		if err := s.check(ctx, op, t.key, nil); err != nil {
			return err
		}
		before := t.before(patience > 0)
		if before == 0 {
			return nil
		}
		if before < 0 {
			return s.fail(store.ErrInvalid, op, t.key, "the ticket was given up with Leave")
		}
		if t.sleep(ctx, patience*time.Duration(before)) {
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
	case <-expired:
		return true
	case <-t.wake:
	case <-t.gone:
	case <-ctx.Done():
	case <-t.store.closed:
	}
	return false
}

// before counts the tickets before t; it is negative if t left the line.
func (t *ticket) before(patient bool) int {
	p := t.store.place
	p.mu.Lock()
	defer p.mu.Unlock()
	t.patient = patient
	l := p.lines[t.key]
	if l == nil {
		return -1
	}
	return slices.Index(l.tickets, t)
}

// Leave gives the place up. It may be called more than once.
func (t *ticket) Leave() {
	p := t.store.place
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.lines[t.key]; l != nil && slices.Contains(l.tickets, t) {
		close(t.gone)
		p.shrink(t.key, func(o *ticket) bool { return o == t })
	}
}

// dropTickets gives up every place in line that was taken through s.
func (p *place) dropTickets(s *Store) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key := range p.lines {
		p.shrink(key, func(t *ticket) bool { return t.store == s })
	}
}

// shrink removes tickets from a line and wakes those for whom that matters: the
// new head, and whoever counts patience behind a ticket that left. Under mu.
func (p *place) shrink(key string, drop func(*ticket) bool) {
	l := p.lines[key]
	first := slices.IndexFunc(l.tickets, drop)
	if first < 0 {
		return
	}
	l.tickets = slices.DeleteFunc(l.tickets, drop)
	if len(l.tickets) == 0 {
		delete(p.lines, key)
		return
	}
	for i, t := range l.tickets {
		if i == 0 || i >= first && t.patient {
			select {
			case t.wake <- struct{}{}:
			default:
			}
		}
	}
}
