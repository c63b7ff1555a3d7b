package numbered

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tenure-project/tenure/store"
)

// seen is what a handle knows of a key: its present state, or the number above
// which it is absent.
type seen struct {
	number  uint64
	present bool
	nonces  []string // as in a header; empty where they were not read
	buried  bool     // absent because of a tombstone at number, which no mark covers
	at      time.Time
}

// version is that of the present state, zero if there is none.
func (k seen) version() store.Version {
	if !k.present {
		return ""
	}
	return version(k.number, k.nonces[0])
}

// same reports whether k and o are one state.
func (k seen) same(o seen) bool {
	return k.number == o.number && len(k.nonces) > 0 && len(o.nonces) > 0 && k.nonces[0] == o.nonces[0]
}

// view is what a listing showed of a key from some number on, in rising order.
type view struct{ states, marks []uint64 }

func last(ns []uint64) uint64 {
	if len(ns) == 0 {
		return 0
	}
	return ns[len(ns)-1]
}

// look lists the objects of key from number from on. It is one request unless
// there are more than a page of them.
func (s *Store) look(ctx context.Context, key string, from uint64) (view, error) {
	var v view
	for object, err := range s.inner.List(ctx, dir(key)+"/", before(key, from)) {
		if err != nil {
			return view{}, err
		}
		_, n, mark, err := cut(object)
		switch {
		case err != nil:
			return view{}, err
		case mark:
			v.marks = append(v.marks, n)
		default:
			v.states = append(v.states, n)
		}
	}
	return v, nil
}

// find reads the present state of key (N4, N6). Its body has at most limit bytes.
func (s *Store) find(ctx context.Context, key string, limit int) (seen, store.Object, error) {
	from := s.recall(key).number
	for range tries {
		at := time.Now()
		v, err := s.look(ctx, key, from)
		if err != nil {
			return seen{}, store.Object{}, err
		}
		n := last(v.states)
		switch {
		case n <= last(v.marks) && (n > 0 || len(v.marks) > 0 || from == 0):
			k := seen{number: last(v.marks), at: at}
			s.learn(key, k)
			return k, store.Object{}, nil
		case n == 0: // not even what this handle saw before: trust nothing that is remembered
			s.forget(key)
			from = 0
			continue
		}
		k, o, err := s.read(ctx, key, n, limit)
		if errors.Is(err, store.ErrNotFound) && ctx.Err() == nil {
			from = 0 // replaced and cleaned away meanwhile
			continue
		}
		if err != nil {
			return seen{}, store.Object{}, err
		}
		if !s.recall(key).same(k) {
			// Between listing and reading, the number may have become void, its
			// object deleted, and another made in vain. Then there is a mark now.
			v, err := s.look(ctx, key, n)
			if err != nil {
				return seen{}, store.Object{}, err
			}
			if len(v.marks) > 0 {
				continue
			}
		}
		k.at = at
		s.learn(key, k)
		return k, o, nil
	}
	return seen{}, store.Object{}, s.fail(store.ErrUnavailable, "read", key, "the listing shows states that cannot be read, %d times in a row", tries)
}

// tries bounds what is repeated because others were faster: each time, somebody
// else came on. A store that contradicts itself ends there too.
const tries = 1000

// read reads state n of key.
func (s *Store) read(ctx context.Context, key string, n uint64, limit int) (seen, store.Object, error) {
	limit = min(limit, s.info.MaxBody)
	o, err := s.inner.Get(ctx, stateKey(key, n), limit+maxHeader)
	if err != nil {
		return seen{}, store.Object{}, err
	}
	h, body, err := decode(key, n, o.Body)
	if err != nil {
		return seen{}, store.Object{}, err
	}
	switch {
	case h.kind == tombstone:
		return seen{number: n, buried: true, nonces: h.nonces}, store.Object{}, nil
	case h.kind != record:
		return seen{}, store.Object{}, s.fail(store.ErrCorrupt, "get", key, "number %d is a %s, not a state", n, h.kind)
	case len(body) > limit:
		return seen{}, store.Object{}, s.fail(store.ErrCorrupt, "get", key, "the body has %d bytes, the caller accepts %d", len(body), limit)
	}
	k := seen{number: n, present: true, nonces: h.nonces}
	return k, store.Object{Body: slices.Clone(body), Version: k.version(), Modified: o.Modified}, nil
}

// Get returns the present state of key (ST3, ST7): one listing and one read, and
// one listing more if the handle did not know that state before.
func (s *Store) Get(ctx context.Context, key string, limit int) (store.Object, error) {
	const op = "get"
	if err := s.check(ctx, op, key, nil); err != nil {
		return store.Object{}, err
	}
	k, o, err := s.find(ctx, key, limit)
	switch {
	case err != nil:
		return store.Object{}, s.pass(op, key, err)
	case k.buried:
		_ = s.bound(ctx, key, k) // its deleter did not come to it
	}
	if !k.present {
		if err := s.refusePlain(ctx, op, key); err != nil {
			return store.Object{}, err
		}
		return store.Object{}, s.fail(store.ErrNotFound, op, key, "")
	}
	return o, nil
}

// maxKnown bounds what a handle remembers.
const maxKnown = 4096

func (s *Store) recall(key string) seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known[key]
}

// learn remembers k unless more is known already.
func (s *Store) learn(key string, k seen) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, known := s.known[key]
	if known && old.number > k.number {
		return
	}
	if !known && len(s.known) >= maxKnown {
		for any := range s.known {
			delete(s.known, any)
			break
		}
	}
	s.known[key] = k
}

func (s *Store) forget(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, key)
}

// fresh reports whether k was true a moment ago by both clocks: that of the
// process may have stood still while the machine slept. A stale one would be
// found out all the same; this only saves an object created in vain.
func (s *Store) fresh(k seen) bool {
	now := time.Now()
	wall := now.Round(0).Sub(k.at.Round(0))
	return !k.at.IsZero() && now.Sub(k.at) < s.t.fresh && wall >= 0 && wall < s.t.fresh
}
