package tenure

import (
	"context"
	"testing"
	"time"

	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/store/memstore"
)

// Release ends the local grant before its first send, keeps the record, and
// does not mind a cancelled context.
//
// SPEC LS5 ST5
// CASE B43
func TestRelease(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.join()
		l := w.acquire(a, "job")
		a.link.tune(func(k *link) {
			k.after = func(op string) {
				if op == "replace" && l.Live() {
					t.Error("live while the release is sent")
				}
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := l.Release(ctx); err != nil {
			t.Fatalf("release under a cancelled context: %v", err)
		}
		wantErr(t, context.Cause(l.Context()), ErrReleased)
		s, err := a.Status(t.Context(), "job")
		if err != nil || s.State != Released || s.Token != 1 || s.Counter != 1 || s.EndedHow != lease.HowReleased {
			t.Fatalf("status %+v, %v", s, err)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Fatalf("second release: %v", err)
		}
	})
}

// A release that the store does not confirm says so within its limit, goes on in
// the background, and can be asked for again.
//
// SPEC LS5
// CASE B43 B73
func TestReleaseUnconfirmed(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.join(WithReleaseLimit(2*time.Second)), w.join()
		l := w.acquire(a, "job")
		a.die()
		start := time.Now()
		err := l.Release(t.Context())
		wantErr(t, err, ErrUnconfirmed)
		if d := time.Since(start); d > 3*time.Second || l.Live() {
			t.Fatalf("release took %v, live %v", d, l.Live())
		}
		a.link.heal()
		time.Sleep(ttl / 2)
		if err := l.Release(t.Context()); err != nil {
			t.Fatalf("release again: %v", err)
		}
		if next, err := b.TryAcquire(t.Context(), "job"); err != nil || next.Token() != 2 {
			t.Fatalf("not free after the retried release: %v", err)
		}
	})
}

// Old handles never touch a newer acquisition: not by a retried release, not by
// a release after a loss, not by a late renewal.
//
// SPEC LS5 LS4
// CASE B18 B42
func TestOldHandleIsHarmless(t *testing.T) {
	t.Run("release with lost reply", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			a := w.join(WithReleaseLimit(time.Second))
			h1 := w.acquire(a, "job")
			a.link.set(func(op string) fault { return lose })
			wantErr(t, h1.Release(t.Context()), ErrUnconfirmed)
			a.link.heal()
			h2 := w.acquire(a, "job")
			if err := h1.Release(t.Context()); err != nil {
				t.Fatalf("the first release took effect: %v", err)
			}
			if err := h2.Check(t.Context()); err != nil || !h2.Live() {
				t.Fatalf("the old handle harmed the new one: %v", err)
			}
		})
	})
	t.Run("release after loss", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			a, b := w.join(), w.join()
			for range 10 {
				old := w.acquire(a, "job")
				a.die()
				l := w.acquire(b, "job")
				a.link.heal()
				wantErr(t, old.Release(t.Context()), ErrLost)
				if err := l.Check(t.Context()); err != nil {
					t.Fatalf("the loser's release harmed the winner: %v", err)
				}
				w.release(l)
			}
		})
	})
}

// An acquisition that fails leaves nothing behind, whatever was already done in
// the store, and returns at once when cancelled.
//
// SPEC ST9 LS9
// CASE B24
func TestFailedAcquireLeavesNothing(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.join(), w.join()
		ctx, cancel := context.WithCancel(t.Context())
		a.link.set(func(op string) fault {
			if op == "create" {
				time.AfterFunc(time.Millisecond, cancel)
				return lose
			}
			return pass
		})
		start := time.Now()
		_, err := a.Acquire(ctx, "job")
		wantErr(t, err, context.Canceled)
		if d := time.Since(start); d > 10*time.Millisecond {
			t.Fatalf("cancel took %v", d)
		}
		time.Sleep(time.Second) // the clean-up's own requests
		if l, err := b.TryAcquire(t.Context(), "job"); err != nil || l.Token() != 2 {
			t.Fatalf("the failed acquire left a claim: %v", err)
		}
	})
}

// Whoever has released a lease may take it again at once, also without waiting:
// nothing of the old handle stands in line any more.
//
// SPEC LS5 LS7
func TestTryAcquireRightAfterRelease(t *testing.T) {
	t.Parallel()
	st := memstore.New()
	defer st.Close()
	c, err := New(t.Context(), st, WithoutProbe())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for token := uint64(1); token <= 200; token++ {
		l, err := c.TryAcquire(t.Context(), "job")
		if err != nil || l.Token() != token {
			t.Fatalf("token %d: %v", token, err)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
