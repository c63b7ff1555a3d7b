package tenure

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-project/tenure/internal/clock"
	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

// A steal ends a tenure for everybody: the holder's next renewal fails, and the
// next acquire comes only after the superseded TTL was watched.
//
// SPEC LS11
func TestSteal(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.join(), w.join()
		l := w.acquire(a, "job")
		_, err := b.Steal(t.Context(), "job", StealOptions{Token: 7, Reason: "r"})
		wantErr(t, err, ErrConflict) // another tenure than the one meant
		_, err = b.Steal(t.Context(), "job", StealOptions{Token: 1})
		wantErr(t, err, ErrInvalid) // no reason
		a.die()                     // the holder hangs, and may still be at work until its deadline
		s, err := b.Steal(t.Context(), "job", StealOptions{Token: 1, Reason: "host on fire", By: "anna"})
		if err != nil {
			t.Fatal(err)
		}
		if s.State != Released || s.EndedHow != lease.HowForced || s.Counter != 2 || s.FreeAfter != ttl {
			t.Fatalf("status after the steal: %+v", s)
		}
		_, err = b.TryAcquire(t.Context(), "job")
		wantErr(t, err, ErrHeld)
		start := time.Now()
		next := w.acquire(b, "job")
		if d := time.Since(start); d < ttl || l.Live() {
			t.Fatalf("acquired %v after the steal, old holder live: %v", d, l.Live())
		}
		if next.Token() != 3 {
			t.Fatalf("token %d, want one above the raised counter", next.Token())
		}
		h, _ := b.History(t.Context(), "job")
		if got := h.Tenures[0]; got.How != lease.HowForced || got.Why != "host on fire" || got.By != "anna" {
			t.Fatalf("history says %+v", got)
		}
	})
}

// A vouched steal frees at once, and says on whose word.
//
// SPEC LS11
func TestStealVouched(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.join(), w.join()
		l := w.acquire(a, "job")
		s, err := b.Steal(t.Context(), "job", StealOptions{Token: 1, Reason: "power is off", By: "anna", Vouch: true})
		if err != nil || s.EndedHow != lease.HowVouched || s.EndedBy != "anna" || s.FreeAfter != 0 {
			t.Fatalf("%+v, %v", s, err)
		}
		if next, err := b.TryAcquire(t.Context(), "job"); err != nil || next.Token() != 3 {
			t.Fatal(err)
		}
		<-l.Done()
		wantErr(t, l.Err(), ErrLost)
	})
}

// A jump raises counters and the floor, gives nothing to anybody, and a holder
// goes on under its own token.
//
// SPEC LS12 ST9
func TestJump(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.join(), w.join()
		l := w.acquire(a, "held")
		w.release(w.acquire(a, "free"))
		if n, err := b.JumpAll(t.Context(), 100); err != nil || n != 2 {
			t.Fatalf("raised %d, %v", n, err)
		}
		time.Sleep(3 * ttl)
		if !l.Live() || l.Token() != 1 {
			t.Fatalf("the jump took the lease from its holder: %v", l.Err())
		}
		if s, _ := b.Status(t.Context(), "held"); s.Counter != 100 || s.Token != 1 || s.State != Held {
			t.Fatalf("%+v", s)
		}
		w.release(l)
		for _, name := range []string{"held", "free", "never used before"} {
			if l := w.acquire(b, name); l.Token() != 101 {
				t.Errorf("%s: token %d, want 101", name, l.Token())
			}
		}
		wantErr(t, b.Jump(t.Context(), "absent", 5), ErrNotFound)
		wantErr(t, b.Jump(t.Context(), "free", 0), ErrInvalid)
		wantErr(t, b.Jump(t.Context(), "free", record.MaxJump+1), ErrInvalid)
	})
}

// A client that saw a higher counter than the store shows says so and does not
// act, until somebody jumps.
//
// SPEC LS12
// CASE B46
func TestRegressed(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.join()
		for range 20 {
			w.release(w.acquire(a, "job"))
		}
		o, err := w.st.Get(t.Context(), a.leaseKey("job"), lease.MaxBody)
		if err != nil {
			t.Fatal(err)
		}
		old, _ := lease.Decode(a.leaseKey("job"), "job", o.Body)
		old.Token, old.Counter, old.Recent = 3, 3, nil // an older copy is put back
		body, err := old.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.st.Replace(t.Context(), a.leaseKey("job"), body, o.Version); err != nil {
			t.Fatal(err)
		}
		_, err = a.Acquire(t.Context(), "job")
		wantErr(t, err, ErrRegressed)
		if err := a.Jump(t.Context(), "job", 20); err != nil {
			t.Fatal(err)
		}
		if l := w.acquire(a, "job"); l.Token() != 21 {
			t.Fatalf("token %d after the jump", l.Token())
		}
	})
}

// A release from outside needs the exact owner and token.
//
// SPEC LS5
func TestReleaseByProof(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.join(), w.join()
		l := w.acquire(a, "job")
		wantErr(t, b.ReleaseByProof(t.Context(), "job", 2, l.Owner()), ErrLost)
		wantErr(t, b.ReleaseByProof(t.Context(), "job", 1, newID()), ErrLost)
		if err := b.ReleaseByProof(t.Context(), "job", 1, l.Owner()); err != nil {
			t.Fatal(err)
		}
		<-l.Done()
		wantErr(t, l.Err(), ErrLost)
	})
}

// A hand-over: the successor at once, everyone else after watching the hold.
//
// SPEC LS10
func TestHandOver(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b, c := w.join(), w.join(), w.join()
		l := w.acquire(a, "job")
		wantErr(t, l.ReleaseTo(t.Context(), "beth", 2*ttl), ErrInvalid)
		if err := l.ReleaseTo(t.Context(), "beth", ttl/2); err != nil {
			t.Fatal(err)
		}
		_, err := c.TryAcquire(t.Context(), "job")
		wantErr(t, err, ErrHeld)
		l2, err := b.TryAcquire(t.Context(), "job", As("beth"))
		if err != nil {
			t.Fatal(err)
		}
		if err := l2.ReleaseTo(t.Context(), "nobody", ttl/2); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		w.acquire(c, "job")
		if d := time.Since(start); d < ttl/2 || d > ttl {
			t.Fatalf("acquired %v after a hand-over to somebody else", d)
		}
	})
}

// History: the record carries the last ones, older ones move to archives off
// the hot path, and nothing is lost (or it is counted).
//
// SPEC LS13
func TestHistory(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.join()
		for i := range 50 {
			l := w.acquire(a, "job")
			if i%7 == 0 {
				time.Sleep(ttl)
			}
			w.release(l)
		}
		h, err := a.History(t.Context(), "job")
		if err != nil || len(h.Tenures) != 50 || h.Dropped != 0 {
			t.Fatalf("%d tenures, %d dropped, %v", len(h.Tenures), h.Dropped, err)
		}
		for i, x := range h.Tenures {
			if x.Token != uint64(i+1) || x.How != lease.HowReleased {
				t.Fatalf("tenure %d: %+v", i, x)
			}
		}
		f, err := a.read(t.Context(), "job", time.Second)
		if err != nil || len(f.rec.Recent) > lease.RecentKept+1 {
			t.Fatalf("the record carries %d past tenures, %v", len(f.rec.Recent), err)
		}
		_, err = a.History(t.Context(), "other")
		wantErr(t, err, ErrNotFound)
	})
	t.Run("archiving fails", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			a := w.join(WithRetention(0))
			w.release(w.acquire(a, "job"))
			a.link.set(func(op string) fault {
				if op == "create" {
					return deny
				}
				return pass
			})
			for range 60 {
				w.release(w.acquire(a, "job"))
			}
			h, err := a.History(t.Context(), "job")
			if err != nil || len(h.Tenures) != lease.RecentMost || h.Dropped != 61-lease.RecentMost {
				t.Fatalf("%d tenures, %d dropped, %v", len(h.Tenures), h.Dropped, err)
			}
		})
	})
}

// Retention: released names go after it, their tokens never come back, live
// leases are never touched, and history stays until its own time.
//
// SPEC LS15 ST5
// CASE B60 B64
func TestPrune(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.join(WithRetention(48*time.Hour)), w.join()
		for i := range 60 {
			w.release(w.acquire(a, fmt.Sprint("one-off ", i)))
		}
		for range 9 {
			w.release(w.acquire(a, "busy"))
		}
		live := w.acquire(a, "live", TTL(time.Hour))
		if p, err := b.Prune(t.Context()); err != nil || p.Leases != 0 {
			t.Fatalf("pruned before the retention: %+v, %v", p, err)
		}
		time.Sleep(49 * time.Hour)
		young := w.acquire(a, "young")
		w.release(young)
		p, err := b.Prune(t.Context())
		if err != nil || p.Leases != 61 || p.Kept != 2 || p.Floor != 9 {
			t.Fatalf("%+v, %v", p, err)
		}
		if err := live.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		if l := w.acquire(a, "busy", TTL(time.Hour)); l.Token() != 10 {
			t.Fatalf("token %d after the name was removed: it came back", l.Token())
		}
		h, err := a.History(t.Context(), "busy")
		if err != nil || len(h.Tenures) != 10 {
			t.Fatalf("%d tenures after the prune, %v", len(h.Tenures), err)
		}
		if p.Archives != 0 {
			t.Fatalf("history went with its record: %+v", p)
		}
		time.Sleep(49 * time.Hour)
		if p, err := b.Prune(t.Context()); err != nil || p.Archives == 0 {
			t.Fatalf("no archive was removed: %+v, %v", p, err)
		}
	})
	t.Run("off", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			a := w.join(WithRetention(0))
			_, err := a.Prune(t.Context())
			wantErr(t, err, ErrInvalid)
		})
	})
}

// Pruning in a tight loop beside acquirers never costs a live lease, and a name
// that is removed between the absence and the create still gets a higher token.
//
// SPEC LS15
// CASE B60
func TestPruneBesideUse(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.join(WithRetention(48 * time.Hour))
		last := map[string]uint64{}
		ctx, cancel := context.WithCancel(t.Context())
		pruner := w.join()
		done := make(chan struct{})
		go func() {
			defer close(done)
			for ctx.Err() == nil {
				_, _ = pruner.Prune(ctx)
				time.Sleep(7 * time.Hour)
			}
		}()
		for i := range 400 {
			name := fmt.Sprint("name ", i%5)
			l := w.acquire(a, name)
			if l.Token() <= last[name] {
				t.Fatalf("%s: token %d after %d", name, l.Token(), last[name])
			}
			last[name] = l.Token()
			time.Sleep(ttl)
			if err := l.Check(t.Context()); err != nil {
				t.Fatalf("%s: a live lease was pruned: %v", name, err)
			}
			w.release(l)
			time.Sleep(time.Duration(i%3) * 20 * time.Hour)
		}
		cancel()
		<-done
	})
	t.Run("between absence and create", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			a, b := w.join(WithRetention(48*time.Hour)), w.join()
			a.link.tune(func(k *link) {
				k.after = func(op string) {
					if op == "create" { // the name lived, ended and was removed meanwhile
						if err := b.raiseFloor(t.Context(), 7); err != nil {
							t.Error(err)
						}
						a.link.tune(func(k *link) { k.after = nil })
					}
				}
			})
			if l := w.acquire(a, "job"); l.Token() < 8 {
				t.Fatalf("token %d, the floor is 7", l.Token())
			}
			synctest.Wait()
		})
	})
}

// A short command's observation is continued by the next one, on this boot and
// of exactly this record only.
//
// SPEC LS2
func TestObservationOutlivesACommand(t *testing.T) {
	dir := t.TempDir()
	inWorld(t, func(t *testing.T, w *world) {
		a := w.join()
		w.acquire(a, "job")
		a.die()
		tries, clk := 0, clock.NewVirtual(1) // one machine, so one boot clock
		for start := time.Now(); ; tries++ { // cron, every two seconds
			b := w.join(WithStateDir(dir), WithClock(clk))
			l, err := b.TryAcquire(t.Context(), "job")
			if err == nil {
				if d := time.Since(start); l.Token() != 2 || d < ttl || d > ttl+3*time.Second {
					t.Fatalf("token %d after %v", l.Token(), d)
				}
				break
			}
			wantErr(t, err, ErrHeld)
			if tries > 10 {
				t.Fatal("a dead lease is never taken over by commands that do not wait")
			}
			time.Sleep(2 * time.Second)
		}
	})
}

// The counter of a name is remembered across commands.
//
// SPEC LS12
// CASE B46
func TestSeenCountersOutliveACommand(t *testing.T) {
	dir := t.TempDir()
	inWorld(t, func(t *testing.T, w *world) {
		a := w.join(WithStateDir(dir))
		for range 3 {
			w.release(w.acquire(a, "job"))
		}
		// The whole store is lost and made anew under the same name.
		fresh := &link{Store: w.st, counts: map[string]int{}}
		for key, err := range w.st.List(t.Context(), "", "") {
			if err != nil {
				t.Fatal(err)
			}
			if err := w.st.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
		c, err := New(t.Context(), fresh, WithStateDir(dir), WithClock(a.clk), WithoutProbe())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, err = c.TryAcquire(t.Context(), "job")
		wantErr(t, err, ErrRegressed)
	})
}

// Settings without their leases are made, leases without their settings are a
// fault.
//
// SPEC ST15 LS15
func TestNamespaceSettings(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.join(WithRetention(72 * time.Hour))
		s, err := a.Settings(t.Context())
		if err != nil || s.Retention != 72*time.Hour || s.Level != 1 {
			t.Fatalf("%+v, %v", s, err)
		}
		b := w.join(WithRetention(0)) // exists already: its retention stays
		if s, _ := b.Settings(t.Context()); s.Retention != 72*time.Hour {
			t.Fatalf("the retention changed to %v", s.Retention)
		}
		other := w.join(WithNamespace("other"))
		w.acquire(a, "job")
		if s, err := other.Status(t.Context(), "job"); err != nil || s.State != Absent {
			t.Fatalf("namespaces see each other: %+v, %v", s, err)
		}
		if err := w.st.Delete(t.Context(), a.spaceKey()); err != nil {
			t.Fatal(err)
		}
		_, err = New(t.Context(), w.st, WithoutProbe())
		wantErr(t, err, ErrCorrupt)
		_, err = a.TryAcquire(t.Context(), "new")
		wantErr(t, err, ErrCorrupt)
		c := w.join(WithRecovery(50))
		if s, err := c.Settings(t.Context()); err != nil || s.Floor != 50 {
			t.Fatalf("recovered: %+v, %v", s, err)
		}
		if l := w.acquire(c, "new"); l.Token() != 51 {
			t.Fatalf("token %d after the recovery", l.Token())
		}
	})
}

// Whoever only looks makes nothing.
//
// SPEC LS15
func TestWithoutCreate(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		look := w.join(WithoutCreate())
		if s, err := look.Status(t.Context(), "job"); err != nil || s.State != Absent {
			t.Fatalf("%+v, %v", s, err)
		}
		_, err := look.Settings(t.Context())
		wantErr(t, err, ErrNotFound)
		_, err = look.TryAcquire(t.Context(), "job")
		wantErr(t, err, ErrCorrupt)
		for key := range w.st.List(t.Context(), "", "") {
			t.Errorf("looking made %s", key)
		}
		w.acquire(w.join(), "job")
		if s, err := look.Status(t.Context(), "job"); err != nil || s.State != Held {
			t.Fatalf("%+v, %v", s, err)
		}
	})
}

// A program meets a namespace or record of a newer level: it refuses and touches
// nothing.
//
// SPEC ST15
func TestNewerLevel(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.join()
		key := store.Key("default", "lease", "future")
		if _, err := w.st.Create(t.Context(), key, []byte(`{"v":2,"wonder":true}`)); err != nil {
			t.Fatal(err)
		}
		_, err := a.TryAcquire(t.Context(), "future")
		wantErr(t, err, ErrNewer)
		_, err = a.Steal(t.Context(), "future", StealOptions{Token: 1, Reason: "r"})
		wantErr(t, err, ErrNewer)
		if from, to, err := a.Upgrade(t.Context()); err != nil || from != 1 || to != 1 {
			t.Fatalf("%d to %d, %v", from, to, err)
		}
	})
}
