package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tenure-project/tenure/store"
)

// A waiter sees the write of another handle within milliseconds.
//
// SPEC LS9
func TestHandOverIsQuick(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "leases.db")
	s, other := open(t, path), open(t, path)
	v, err := s.Create(t.Context(), key, []byte("0"))
	if err != nil {
		t.Fatal(err)
	}
	var took []time.Duration
	for range 40 {
		type wake struct {
			at  time.Time
			err error
		}
		woken := make(chan wake, 1)
		go func() {
			err := other.Watch(t.Context(), key, v)
			woken <- wake{time.Now(), err}
		}()
		pause(t.Context(), 15*time.Millisecond)
		if v, err = s.Replace(t.Context(), key, []byte("0"), v); err != nil {
			t.Fatal(err)
		}
		done := time.Now()
		w := <-woken
		if w.err != nil {
			t.Fatal(w.err)
		}
		took = append(took, w.at.Sub(done))
	}
	slices.Sort(took)
	t.Logf("from the end of the write to the end of the watch: median %v, worst %v", took[len(took)/2], took[len(took)-1])
	if took[len(took)/2] > 50*time.Millisecond {
		t.Errorf("the median is %v", took[len(took)/2])
	}
}

// Any number of watches share one poller, and a change wakes those it concerns.
//
// SPEC LS9
func TestManyWatches(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "leases.db"))
	const keys, each = 50, 20
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var woken, left sync.WaitGroup
	for i := range keys {
		for range each {
			w := &left
			if i%2 == 0 {
				w = &woken
			}
			w.Go(func() {
				err := s.Watch(ctx, fmt.Sprintf("suite/lease/k%d", i), "")
				if even := i%2 == 0; even != (err == nil) {
					t.Errorf("the watch of key %d ended with %v", i, err)
				}
			})
		}
	}
	for i := 0; i < keys; i += 2 {
		if _, err := s.Create(t.Context(), fmt.Sprintf("suite/lease/k%d", i), nil); err != nil {
			t.Fatal(err)
		}
	}
	woken.Wait()
	cancel()
	left.Wait()
	s.changes.mu.Lock()
	defer s.changes.mu.Unlock()
	if len(s.changes.watches) != 0 {
		t.Errorf("%d keys are still watched", len(s.changes.watches))
	}
}

// A watch of a key that was removed and made again ends, though the bytes are
// the same.
//
// SPEC ST4
func TestWatchSeesRemoval(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "leases.db"))
	v, err := s.Create(t.Context(), key, nil)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Watch(t.Context(), key, v) }()
	if err := s.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("Watch of a removed key: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if err := s.Watch(ctx, key, ""); !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Watch for a key to appear that does not: %v", err)
	}
}
