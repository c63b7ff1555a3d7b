package faultstore

import (
	"bytes"
	"context"
	"errors"
	"iter"

	"github.com/tenure-project/tenure/store"
)

// Link is the state of the network between one handle and its store.
type Link int

// The states of a link. A change also meets calls that are under way: their
// answers come back only over a link that is Up.
const (
	// Up: calls go through.
	Up Link = iota
	// Cut: calls hang until their context ends; those that still wait when the
	// link is Up again go through then.
	Cut
	// Refused: calls fail at once with store.ErrUnavailable.
	Refused
	// Mute: calls arrive and take effect, but answers hang until the context
	// ends or the link is Up again.
	Mute
	// Frozen: writes fail with store.ErrUnavailable, and reads, scans and listings show
	// for ever what they showed last. Watches see no change; other powers fail.
	Frozen
	// Dead: the process of this handle is gone. All calls fail, also those that
	// hang now; its places in line are given up. Writes that are on their way
	// still arrive. There is no way back.
	Dead
)

// frozen is what a Frozen link shows: the history as it was when the link
// froze, and what was read for the first time since.
type frozen struct {
	objects map[string]state
	lists   map[[2]string][]string
	scans   map[store.ScanRange][]store.Keyed
}

// SetLink changes the state of this handle's link.
func (s *Store) SetLink(l Link) {
	known := s.history.last()
	s.mu.Lock()
	if s.link == Dead || s.link == l {
		s.mu.Unlock()
		return
	}
	s.link = l
	s.frozen = frozen{objects: known, lists: map[[2]string][]string{}, scans: map[store.ScanRange][]store.Keyed{}}
	close(s.turned)
	s.turned = make(chan struct{})
	leave := []*ticket{}
	if l == Dead {
		for t := range s.tickets {
			leave = append(leave, t)
		}
	}
	s.mu.Unlock()
	if l == Dead {
		s.end(errDead)
	}
	for _, t := range leave {
		t.inner.Leave()
	}
}

func (s *Store) linkNow() (Link, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.link, s.turned
}

// alive is ctx, ended also when the handle is Dead or closed.
func (s *Store) alive(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.life, func() { cancel(context.Cause(s.life)) })
	return ctx, func() { stop(); cancel(nil) }
}

// gate leads a call over the link and its answer back.
func (s *Store) gate(ctx context.Context, r *request, h handler) reply {
	for {
		l, turned := s.linkNow()
		switch l {
		case Up, Mute:
			return s.back(ctx, r, h(ctx, r))
		case Refused, Dead:
			return s.refused(r)
		case Frozen:
			return s.whileFrozen(ctx, r, h)
		}
		select { // Cut
		case <-turned:
		case <-ctx.Done():
			return s.lost(r, context.Cause(ctx), "injected: the link is cut")
		}
	}
}

// back brings an answer back once the link is Up.
func (s *Store) back(ctx context.Context, r *request, out reply) reply {
	for {
		l, turned := s.linkNow()
		switch l {
		case Up:
			return out
		case Refused, Dead, Frozen:
			forget(out)
			return s.lost(r, nil, "injected: the link broke before the answer came")
		}
		select { // Cut, Mute
		case <-turned:
		case <-ctx.Done():
			forget(out)
			return s.lost(r, context.Cause(ctx), "injected: answers do not come through")
		}
	}
}

func (s *Store) refused(r *request) reply {
	return reply{err: store.Errorf(store.ErrUnavailable, s.info.Identity, string(r.op), r.key, "injected: the link is down")}
}

// whileFrozen answers a call from what was known when the link froze. What was
// not known then is read once and kept.
func (s *Store) whileFrozen(ctx context.Context, r *request, h handler) reply {
	switch r.op {
	case OpGet:
		return s.frozenGet(ctx, r, h)
	case OpList:
		return s.frozenList(ctx, r, h)
	case OpScan:
		return s.frozenScan(ctx, r)
	case OpWatch:
		return s.lost(r, s.hang(ctx), "injected: this node sees no change")
	}
	return s.refused(r)
}

func (s *Store) frozenGet(ctx context.Context, r *request, h handler) reply {
	s.mu.Lock()
	st, known := s.frozen.objects[r.key]
	s.mu.Unlock()
	if known {
		return st.reply(s, r)
	}
	out := h(ctx, r)
	if out.err != nil && !errors.Is(out.err, store.ErrNotFound) {
		return out
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frozen.objects[r.key] = state{object: copied(out.object), absent: out.err != nil}
	return out
}

func (s *Store) frozenList(ctx context.Context, r *request, h handler) reply {
	id := [2]string{r.key, r.after}
	s.mu.Lock()
	keys, known := s.frozen.lists[id]
	s.mu.Unlock()
	if !known {
		out := h(ctx, r)
		if out.err != nil {
			return out
		}
		for k, err := range out.value.(iter.Seq2[string, error]) {
			if err != nil {
				return reply{err: err}
			}
			keys = append(keys, k)
		}
		s.mu.Lock()
		s.frozen.lists[id] = keys
		s.mu.Unlock()
	}
	return reply{value: listOf(keys)}
}

func listOf(keys []string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for _, k := range keys {
			if !yield(k, nil) {
				return
			}
		}
	}
}

func copied(o store.Object) store.Object {
	o.Body = bytes.Clone(o.Body)
	return o
}
