package numbered

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/tenure-project/tenure/store"
)

// Clean-up runs within the call that made it due, after that call's answer is
// certain, and bounded: at most half of the time that the caller has left and at
// most tuning.tidy, a few rounds of requests. Whatever fails is left to the next
// one, and no error of it is told.

// clean makes the old states of a key void and deletes them, once in a while.
func (s *Store) clean(ctx context.Context, key string, won seen) {
	if won.number%s.t.every != 0 || won.number <= s.t.keep {
		return
	}
	s.spare(ctx, func(ctx context.Context) {
		b := seen{number: won.number - s.t.keep, nonces: won.nonces[min(int(s.t.keep), len(won.nonces)):]}
		// A life of the key that is younger than b began above a mark.
		if len(b.nonces) == 0 || s.bound(ctx, key, b) == nil {
			s.sweep(ctx, key)
		}
	})
}

// spare runs f with a part of the time that is left.
func (s *Store) spare(ctx context.Context, f func(ctx context.Context)) {
	limit := s.t.tidy
	if d, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(d)/2)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if ctx.Err() == nil {
		f(ctx)
	}
}

// bound makes the mark "all numbers up to k's are void" durable (N2): the caller
// knows that the register is past k, or k is a tombstone.
func (s *Store) bound(ctx context.Context, key string, k seen) error {
	h := header{kind: boundary, number: k.number, nonces: k.nonces, key: key}
	_, err := s.inner.Create(ctx, markKey(key, k.number), h.encode(nil))
	if errors.Is(err, store.ErrExists) {
		return nil // whoever made it, it is true
	}
	return err
}

// atOnce is how many deletes are under way at a time.
const atOnce = 8

// sweep deletes what is void, and marks that are no longer needed (N3).
func (s *Store) sweep(ctx context.Context, key string) {
	v, err := s.look(ctx, key, 0)
	if err != nil {
		return
	}
	void := []string{}
	for _, n := range v.states {
		if n <= last(v.marks) {
			void = append(void, stateKey(key, n))
		}
	}
	for _, b := range v.marks[:max(len(v.marks)-s.t.keepMarks, 0)] {
		void = append(void, markKey(key, b))
	}
	most := min(len(void), 4*int(s.t.every+s.t.keep))
	for batch := range slices.Chunk(void[:most], atOnce) {
		var wg sync.WaitGroup
		for _, object := range batch {
			wg.Go(func() { _ = s.inner.Delete(ctx, object) })
		}
		wg.Wait()
		if ctx.Err() != nil {
			return
		}
	}
}
