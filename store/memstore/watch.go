package memstore

import (
	"context"

	"github.com/tenure-project/tenure/store"
)

// watch is the next change of one key, awaited by n callers.
type watch struct {
	changed chan struct{}
	n       int
}

// Watch returns nil once key is at another version than v. The watch is set
// and the version compared under one lock, so no change is missed.
func (s *Store) Watch(ctx context.Context, key string, v store.Version) error {
	const op = "watch"
	if err := s.check(ctx, op, key, nil); err != nil {
		return err
	}
	p := s.place
	p.mu.Lock()
	if p.entries[key].version != v {
		p.mu.Unlock()
		return nil
	}
	w := p.watches[key]
	if w == nil {
		w = &watch{changed: make(chan struct{})}
		p.watches[key] = w
	}
	w.n++
	p.mu.Unlock()

	var err error
	select {
	case <-w.changed:
		return nil
	case <-ctx.Done():
		err = store.CtxErr(ctx, p.identity, op, key)
	case <-s.closed:
		err = s.fail(store.ErrUnavailable, op, key, "the store was closed")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	w.n--
	if w.n == 0 && p.watches[key] == w {
		delete(p.watches, key)
	}
	return err
}

// wakeWatchers ends every watch on key. Under mu.
func (p *place) wakeWatchers(key string) {
	if w := p.watches[key]; w != nil {
		close(w.changed)
		delete(p.watches, key)
	}
}
