package main

import (
	"context"
	"testing"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
	"github.com/tenure-project/tenure/store/memstore"
)

// A wait that is over says who holds the lease only where somebody does: where
// the store could be read but not be written, it says that.
//
// SPEC UI1
func TestWaitOverOnAStoreThatRefusesWrites(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		held   bool
		writes error // what every write fails with; nil for none
		want   int
		text   string
	}{
		{"free, full disk", false, store.ErrUnavailable, exitUnavailable, "waited for 300ms, and the store does not take the lease: "},
		{"held, full disk", true, store.ErrUnavailable, exitHeld, "waited for 300ms: lease \"j\": held by another"},
		{"held", true, nil, exitHeld, "waited for 300ms: lease \"j\": held by another"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			mem := memstore.New()
			first := clientOn(t, mem)
			if c.held {
				l, err := first.Acquire(t.Context(), "j")
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = l.Release(context.Background()) }()
			} else if _, err := first.JumpAll(t.Context(), 1); err != nil { // makes the namespace
				t.Fatal(err)
			}
			var rules []faultstore.Rule
			if c.writes != nil {
				rules = fail(c.writes, faultstore.OpCreate, faultstore.OpReplace)
			}
			second := clientOn(t, faultstore.New(mem, faultstore.Options{Rules: rules}))
			r := &running{lease: "j", wait: 300 * time.Millisecond}
			ctx, cancel := r.waiting(t.Context())
			defer cancel()
			_, err := second.Acquire(ctx, "j")
			if !isA[*waitedError](err) {
				t.Fatalf("the wait ended with %v", err)
			}
			err = r.notHad(t.Context(), second, err)
			if got := exitCode(err); got != c.want || !hasPrefix(err, c.text) {
				t.Errorf("exit code %d, want %d: %v", got, c.want, err)
			}
		})
	}
}

func hasPrefix(err error, text string) bool {
	return len(err.Error()) >= len(text) && err.Error()[:len(text)] == text
}

// clientOn is a client on st that does not probe it.
func clientOn(t *testing.T, st store.Store) *tenure.Client {
	t.Helper()
	c, err := tenure.New(t.Context(), st, tenure.WithoutProbe())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}
