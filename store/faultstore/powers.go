package faultstore

import (
	"context"
	"time"

	"github.com/tenure-project/tenure/store"
)

// Each power below is reachable only if the inner store declares it: Info says
// so, and callers ask through the As... functions. Called anyway, it is
// store.ErrInvalid.

// Watch watches through the faults.
func (s *Store) Watch(ctx context.Context, key string, v store.Version) error {
	w, ok := store.AsWatcher(s.inner)
	if !ok {
		return s.lacks(OpWatch, key)
	}
	return s.do(ctx, &request{op: OpWatch, key: key, version: v, effect: func(ctx context.Context, r *request) reply {
		return reply{err: w.Watch(ctx, r.key, r.version)}
	}}).err
}

// Now reads the inner store's clock through the faults.
func (s *Store) Now(ctx context.Context) (store.Reading, error) {
	c, ok := store.AsClocker(s.inner)
	if !ok {
		return store.Reading{}, s.lacks(OpNow, "")
	}
	out := s.do(ctx, &request{op: OpNow, effect: func(ctx context.Context, _ *request) reply {
		now, err := c.Now(ctx)
		return reply{value: now, err: err}
	}})
	now, _ := out.value.(store.Reading)
	return now, out.err
}

// Enqueue joins the inner store's line through the faults. A place whose reply
// was lost is given up at once.
func (s *Store) Enqueue(ctx context.Context, key string) (store.Ticket, error) {
	q, ok := store.AsQueuer(s.inner)
	if !ok {
		return nil, s.lacks(OpEnqueue, key)
	}
	out := s.do(ctx, &request{op: OpEnqueue, key: key, effect: func(ctx context.Context, r *request) reply {
		t, err := q.Enqueue(ctx, r.key)
		return reply{value: t, err: err}
	}})
	if out.err != nil {
		return nil, out.err
	}
	t := &ticket{s: s, key: key, inner: out.value.(store.Ticket)}
	s.mu.Lock()
	s.tickets[t] = struct{}{}
	dead := s.link == Dead
	s.mu.Unlock()
	if dead {
		t.Leave()
	}
	return t, nil
}

// Waiting asks the inner store's line through the faults.
func (s *Store) Waiting(ctx context.Context, key string) (bool, error) {
	q, ok := store.AsQueuer(s.inner)
	if !ok {
		return false, s.lacks(OpWaiting, key)
	}
	out := s.do(ctx, &request{op: OpWaiting, key: key, effect: func(ctx context.Context, r *request) reply {
		yes, err := q.Waiting(ctx, r.key)
		return reply{value: yes, err: err}
	}})
	yes, _ := out.value.(bool)
	return yes && out.err == nil, out.err
}

// ticket is a place in the inner line whose waiting meets faults.
type ticket struct {
	s     *Store
	key   string
	inner store.Ticket
}

// Wait waits through the faults.
func (t *ticket) Wait(ctx context.Context, patience time.Duration) error {
	return t.s.do(ctx, &request{op: OpWait, key: t.key, effect: func(ctx context.Context, _ *request) reply {
		return reply{err: t.inner.Wait(ctx, patience)}
	}}).err
}

// Leave gives the place up. It meets no faults.
func (t *ticket) Leave() {
	t.s.mu.Lock()
	delete(t.s.tickets, t)
	t.s.mu.Unlock()
	t.inner.Leave()
}

// NewWitness takes a lock of the inner store through the faults.
func (s *Store) NewWitness(ctx context.Context) (store.Witness, error) {
	p, ok := store.AsProver(s.inner)
	if !ok {
		return nil, s.lacks(OpNewWitness, "")
	}
	out := s.do(ctx, &request{op: OpNewWitness, effect: func(ctx context.Context, _ *request) reply {
		w, err := p.NewWitness(ctx)
		return reply{value: w, err: err}
	}})
	if out.err != nil {
		return nil, out.err
	}
	return out.value.(store.Witness), nil
}

// Gone asks the inner store for a proof through the faults.
func (s *Store) Gone(ctx context.Context, mark store.Mark) (bool, error) {
	p, ok := store.AsProver(s.inner)
	if !ok {
		return false, s.lacks(OpGone, "")
	}
	out := s.do(ctx, &request{op: OpGone, effect: func(ctx context.Context, _ *request) reply {
		gone, err := p.Gone(ctx, mark)
		return reply{value: gone, err: err}
	}})
	gone, _ := out.value.(bool)
	return gone && out.err == nil, out.err
}

// WatchGone waits for a proof through the faults.
func (s *Store) WatchGone(ctx context.Context, mark store.Mark) error {
	p, ok := store.AsProver(s.inner)
	if !ok {
		return s.lacks(OpWatchGone, "")
	}
	return s.do(ctx, &request{op: OpWatchGone, effect: func(ctx context.Context, _ *request) reply {
		return reply{err: p.WatchGone(ctx, mark)}
	}}).err
}
