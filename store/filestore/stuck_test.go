//go:build linux || darwin

package filestore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenure-project/tenure/store"
)

// cut runs f with a context that ends once the gate holds f up.
func cut(t *testing.T, g *gate, want func(step) bool, f func(ctx context.Context) error) error {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	g.set(want)
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	g.arrive(t)
	cancel()
	select {
	case err := <-done:
		return err
	case <-time.After(limit):
		t.Fatal("the call hangs although its context ended")
		return nil
	}
}

// A disk that hangs does not hold a caller up past its context. What it is told
// depends on whether the change may have been made, and a call that was told
// that nothing happened makes none later.
//
// SPEC ST9 ST13
func TestHangingDisk(t *testing.T) {
	t.Parallel()
	nth := func(k stepKind, n int) func(step) bool {
		return func(st step) bool {
			if st.kind == k {
				n--
			}
			return n == 0
		}
	}
	for _, c := range []struct {
		op   string
		at   func(step) bool
		want error
		late string // what the key holds once the disk works again
	}{
		{"create", nth(stepSync, 1), store.ErrUnavailable, "-"},
		{"create", nth(stepRename, 1), store.ErrUnknown, "new"},
		{"create", func(st step) bool { return false }, nil, "new"},
		{"replace", nth(stepWrite, 1), store.ErrUnavailable, "old"},
		{"replace", nth(stepSync, 1), store.ErrUnavailable, "old"},
		{"replace", nth(stepLink, 1), store.ErrUnknown, "new"},
		{"replace", nth(stepSync, 2), store.ErrUnknown, "new"},
		{"delete-if", nth(stepSync, 1), store.ErrUnavailable, "old"},
		{"delete-if", nth(stepSync, 2), store.ErrUnknown, "-"},
	} {
		if c.want == nil {
			continue
		}
		t.Run(fmt.Sprintf("%s-%v", c.op, c.want), func(t *testing.T) {
			t.Parallel()
			g := &gate{}
			s := opened(t, quick(t), traced(g))
			p := part{Op: c.op, Key: sleeperKey, Body: "new"}
			if c.op != "create" {
				p.Version = create(t, s, sleeperKey, "old")
			}
			err := cut(t, g, c.at, func(ctx context.Context) error { return p.write(ctx, s) })
			isKind(t, "a "+c.op+" on a disk that hangs", err, c.want)
			isKind(t, "its cause", err, context.Canceled)
			close(g.open)
			holds(t, s, sleeperKey, c.late) // waits until the call that was left is done
			if err := s.Health(); err != nil {
				t.Errorf("with nothing under way: %v", err)
			}
		})
	}
}

// At most one call per key hangs: the next ones wait behind it only as long as
// they may, and say why. Other keys go on.
//
// SPEC ST13
func TestOneStuckCallPerKey(t *testing.T) {
	t.Parallel()
	g := &gate{}
	s := opened(t, quick(t), traced(g))
	v := create(t, s, sleeperKey, "old")
	err := cut(t, g, of(stepSync), func(ctx context.Context) error {
		_, err := s.Replace(ctx, sleeperKey, []byte("new"), v)
		return err
	})
	isKind(t, "the call that hangs", err, store.ErrUnavailable)
	for range 3 {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		_, err := s.Get(ctx, sleeperKey, MaxBody)
		cancel()
		isKind(t, "a call behind one that hangs", err, store.ErrUnavailable)
		isKind(t, "its cause", err, context.DeadlineExceeded)
		if !strings.Contains(err.Error(), "stuck since") {
			t.Errorf("the error %q does not say what it waited for", err)
		}
	}
	create(t, s, "ns/lease/other", "x")
	if n := workers(s); n != 1 {
		t.Errorf("%d calls are under way, want the one that hangs", n)
	}
	close(g.open)
	holds(t, s, sleeperKey, "old")
}

func workers(s *Store) int { return len(s.lanes.workers) }

// SPEC ST13
func TestHealthNamesTheStuckCall(t *testing.T) {
	t.Parallel()
	l := newLanes()
	s := &Store{identity: "file:/x", lanes: l}
	c := &call{op: "replace", key: "ns/lease/a"}
	if err := l.enter(within(t), s, c); err != nil {
		t.Fatal(err)
	}
	if err := s.Health(); err != nil {
		t.Errorf("a call whose caller waits is not stuck: %v", err)
	}
	c.abandon()
	c.left = c.left.Add(-stuckAfter)
	err := s.Health()
	isKind(t, "Health with a stuck call", err, store.ErrUnavailable)
	if err != nil && !strings.Contains(err.Error(), "ns/lease/a") {
		t.Errorf("the error %q does not name the key", err)
	}
	l.leave(c)
	if err := s.Health(); err != nil {
		t.Errorf("after the call returned: %v", err)
	}
}

// SPEC ST13
func TestCloseDoesNotWaitForAHangingDisk(t *testing.T) {
	t.Parallel()
	g := &gate{}
	s := opened(t, quick(t), hasty, traced(g))
	v := create(t, s, sleeperKey, "old")
	wake := asleep(t, g, of(stepLink), func() error {
		_, err := s.Replace(context.Background(), sleeperKey, []byte("new"), v)
		return err
	})
	start := time.Now()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if d := time.Since(start); d > limit/4 {
		t.Errorf("Close took %v", d)
	}
	// The call either ended with the store, not knowing, or in time.
	if err := wake(); err != nil {
		isKind(t, "the call in flight", err, store.ErrUnknown)
	}
	_, err := s.Get(within(t), sleeperKey, MaxBody)
	isKind(t, "a call after Close", err, store.ErrUnavailable)
}

// A step that fails leaves the old record, with an error that says so, or the
// new one, with none or one that says that it cannot know. Then others go on.
//
// SPEC ST8 ST9
func TestEveryStepFails(t *testing.T) {
	t.Parallel()
	kinds := map[error]error{
		unix.EIO: store.ErrUnavailable, unix.ENOSPC: store.ErrUnavailable, unix.EACCES: store.ErrDenied,
	}
	for _, sc := range scenes() {
		for errno, kind := range kinds {
			t.Run(fmt.Sprintf("%s-%v", sc.name, errno), func(t *testing.T) {
				t.Parallel()
				for n := 1; ; n++ {
					path, reached := quick(t), false
					v := sc.prepare(t, path)
					count := 0
					s := opened(t, path, hasty)
					s.tracer = failing(func(st step) error {
						if count++; count == n {
							reached = true
							return errno
						}
						return nil
					})
					err := part{Op: sc.op, Key: sceneKey, Body: "new", Version: v}.write(within(t), s)
					_ = s.Close()
					what := fmt.Sprintf("step %d failed", n)
					switch {
					case err == nil:
						sc.check(t, path, what, sc.after())
					case errors.Is(err, store.ErrUnknown):
						sc.check(t, path, what, sc.old, sc.after())
					default:
						isKind(t, what, err, kind)
						if !errors.Is(err, errno) || !strings.Contains(err.Error(), path) {
							t.Errorf("%s: the error %q names no path or no cause", what, err)
						}
						sc.check(t, path, what, sc.old)
					}
					if !reached {
						return
					}
				}
			})
		}
	}
}
