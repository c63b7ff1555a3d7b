//go:build linux || darwin

package filestore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tenure-project/tenure/store"
)

// watchers starts n watches of a key and waits until all are in place.
func watchers(t *testing.T, s *Store, key string, v store.Version, n int) <-chan error {
	t.Helper()
	ended := make(chan error, n)
	for range n {
		go func() { ended <- s.Watch(within(t), key, v) }()
	}
	eventually(t, fmt.Sprintf("%d watches to be in place", n), func() bool { return subscriptions(s) == n })
	return ended
}

// eventually polls a condition that something else makes true.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for !f() {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
		time.Sleep(200 * time.Microsecond)
	}
}

func woken(t *testing.T, ended <-chan error, n int, what string) {
	t.Helper()
	timeout := time.After(limit)
	for i := range n {
		select {
		case err := <-ended:
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		case <-timeout:
			t.Fatalf("%s: only %d of %d watches woke up", what, i, n)
		}
	}
}

// Ten thousand who wait for one key in a process share one watch of the kernel,
// and all of them wake up.
//
// SPEC LS9
func TestManyWatchersShareOneWatch(t *testing.T) {
	t.Parallel()
	n := 10000
	if raceEnabled {
		n = 500
	}
	path := quick(t)
	s, rival := opened(t, path), opened(t, path)
	v := create(t, rival, sleeperKey, "0")
	ended := watchers(t, s, sleeperKey, v, n)
	if got := kernelWatches(s); got > 1 {
		t.Errorf("%d watchers of one key take %d watches", n, got)
	}
	replace(t, rival, sleeperKey, "1", v)
	woken(t, ended, n, "a replace by another store")
	if got := kernelWatches(s); got != 0 {
		t.Errorf("%d watches are left after the last watcher", got)
	}
}

// A key that does not exist is watched through the deepest directory above it
// that does, and its neighbours wake nobody.
//
// SPEC ST14
func TestWatchOfAbsentKeys(t *testing.T) {
	t.Parallel()
	for _, polls := range []bool{false, true} {
		t.Run(fmt.Sprintf("polls-%v", polls), func(t *testing.T) {
			t.Parallel()
			path := quick(t)
			var opts []Option
			if polls {
				opts = []Option{remote, WithNetworkFS()}
			}
			s, rival := opened(t, path, opts...), opened(t, path)
			deep := "ns/lease/history/a"
			ended := watchers(t, s, deep, "", 1)
			create(t, rival, "ns/lease/other", "x")
			create(t, rival, "ns/lease/history/b", "x")
			select {
			case err := <-ended:
				t.Fatalf("neighbours ended the watch: %v", err)
			default:
			}
			v := create(t, rival, deep, "0")
			woken(t, ended, 1, "the create of the key")
			ended = watchers(t, s, deep, v, 1)
			remove(t, rival, deep, v)
			woken(t, ended, 1, "the delete of the key")
			ended = watchers(t, s, deep, "", 1)
			create(t, rival, deep, "1")
			woken(t, ended, 1, "a create after a delete")
		})
	}
}

// The watch of a key whose life was replaced is not left on the dead one.
//
// SPEC ST14
func TestWatchOfAnotherLife(t *testing.T) {
	t.Parallel()
	path := quick(t)
	s, rival := opened(t, path), opened(t, path)
	old := create(t, rival, sleeperKey, "0")
	remove(t, rival, sleeperKey, old)
	v := create(t, rival, sleeperKey, "1")
	if err := s.Watch(within(t), sleeperKey, old); err != nil {
		t.Errorf("a watch from a version of an earlier life: %v", err)
	}
	ended := watchers(t, s, sleeperKey, v, 3)
	replace(t, rival, sleeperKey, "2", v)
	woken(t, ended, 3, "a replace in the new life")
}

// SPEC ST13
func TestWatchErrors(t *testing.T) {
	t.Parallel()
	s := opened(t, quick(t))
	v := create(t, s, sleeperKey, "0")
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Watch(ctx, sleeperKey, v) }()
	eventually(t, "the watch", func() bool { return subscriptions(s) == 1 })
	cancel()
	err := <-ended
	isKind(t, "a watch whose context ended", err, store.ErrUnavailable)
	isKind(t, "its cause", err, context.Canceled)
	eventually(t, "the watch to go", func() bool { return subscriptions(s) == 0 && kernelWatches(s) == 0 })

	state := filepath.Join(s.root, lifePath(sleeperKey), numberName(1))
	must(t, errors.Join(os.Remove(state), os.WriteFile(state, []byte("x"), 0o600)))
	isKind(t, "a watch of a damaged record", s.Watch(within(t), sleeperKey, v), store.ErrCorrupt)
}
