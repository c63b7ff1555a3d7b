package tenure

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A jump ends the session, and its name is free at once.
//
// SPEC LS12
func TestJumpEndsTheSession(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.join(), w.join()
		s := w.session(a, "n1")
		l := w.under(s, "job")
		if n, err := b.JumpAll(t.Context(), 100); n != 2 || err != nil {
			t.Fatal(n, err)
		}
		<-l.Done()
		wantErr(t, l.Err(), ErrLost)
		s2 := w.session(b, "n1")
		if s2.Proof().Term != 101 {
			t.Errorf("term %d", s2.Proof().Term)
		}
		if l := w.under(s2, "job"); l.Token() != 101 {
			t.Errorf("token %d", l.Token())
		}
		w.leave(s2)
	})
}

// A steal from a session is told to it first; the lease ends at the session's next
// renewal, and everyone watches it for the superseded TTL. The session lives on.
//
// SPEC LS11
func TestStealFromASession(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.join(), w.join()
		s := w.session(a, "n1")
		l, other := w.under(s, "job"), w.under(s, "other")
		st, err := b.Steal(t.Context(), "job", StealOptions{Token: 1, Reason: "stuck", By: "anna"})
		if err != nil || st.EndedHow != "revoked" || st.FreeAfter != ttl {
			t.Fatalf("%+v, %v", st, err)
		}
		began := time.Now()
		if n, err := b.Node(t.Context(), "n1"); err != nil || len(n.Revocations) != 1 || n.Revocations[0] != (Revocation{"job", 1}) {
			t.Fatalf("%+v, %v", n, err)
		}
		<-l.Done()
		if took := time.Since(began); took > ttl/5 {
			t.Errorf("told after %v", took)
		}
		wantErr(t, l.Err(), ErrLost)
		wantErr(t, l.Release(t.Context()), ErrLost)
		time.Sleep(ttl / 5)
		if n, err := b.Node(t.Context(), "n1"); err != nil || len(n.Revocations) != 0 {
			t.Fatalf("not acknowledged: %+v, %v", n, err)
		}
		if !other.Live() || !s.Live() {
			t.Error("the session ended with the lease")
		}
		got := w.acquire(b, "job")
		if took := time.Since(began); took < ttl || got.Token() != 3 {
			t.Errorf("taken after %v with token %d", took, got.Token())
		}
	})
}

// A thief that dies between its two writes leaves nothing stuck: the session frees,
// a TTL later, what it does not hold any more, and others watch that as a steal.
//
// SPEC LS11
func TestThiefDiesHalfway(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b, c := w.join(), w.join(), w.join()
		s := w.session(a, "n1")
		l := w.under(s, "job")
		replaced := false
		b.link.set(func(op string) fault { // the second replace is the lease's own
			if op == "replace" && !replaced {
				replaced = true
				return pass
			}
			if replaced {
				return hang
			}
			return pass
		})
		if _, err := b.Steal(t.Context(), "job", StealOptions{Token: 1, Reason: "stuck"}); err == nil {
			t.Fatal("stolen")
		}
		<-l.Done()
		got := w.acquire(c, "job")
		if got.Token() != 3 {
			t.Errorf("token %d", got.Token())
		}
		if h, err := c.History(t.Context(), "job"); err != nil || h.Tenures[0].How != "revoked" {
			t.Errorf("%+v, %v", h, err)
		}
		w.leave(s)
	})
}

// A steal from a session that is over needs nobody to be told.
//
// SPEC LS11
func TestStealFromADeadSession(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.join(), w.join()
		s := w.session(a, "n1")
		w.under(s, "job")
		dead := s.Proof()
		a.die()
		if _, err := b.FenceIncarnation(t.Context(), "n1", dead.Incarnation, 5*ttl); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Steal(t.Context(), "job", StealOptions{Token: 1, Reason: "dead", Vouch: true}); err != nil {
			t.Fatal(err)
		}
		l, err := b.TryAcquire(t.Context(), "job")
		if err != nil || l.Token() != 3 {
			t.Fatal(err)
		}
	})
}

// A lease whose work overran is stuck until the work returns, and is freed then; if
// the session leaves meanwhile, its name lapses rather than being released.
//
// SPEC LS6
// SPEC LS8
// SPEC PL8
func TestStuckWork(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.join(), w.join()
		s := w.session(a, "n1")
		gate := make(chan struct{})
		overrun := func() error {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			return s.Do(ctx, "job", func(context.Context, *Lease) error { cancel(); <-gate; return nil }, StopLimit(time.Second))
		}
		err := overrun()
		wantErr(t, err, ErrOverlap, ErrShutdown)
		if h := s.Health(); h.Stuck != 1 || h.Leases != 1 {
			t.Fatalf("%+v", h)
		}
		time.Sleep(3 * ttl)
		_, err = b.TryAcquire(t.Context(), "job")
		wantErr(t, err, ErrHeld)
		close(gate)
		synctest.Wait()
		if h := s.Health(); h.Stuck != 0 || h.Leases != 0 {
			t.Fatalf("%+v", h)
		}
		l, err := b.TryAcquire(t.Context(), "job")
		if err != nil {
			t.Fatal(err)
		}
		w.release(l)

		gate = make(chan struct{})
		defer close(gate)
		wantErr(t, overrun(), ErrOverlap)
		wantErr(t, s.Leave(t.Context()), ErrOverlap, ErrUnconfirmed)
		_, err = b.TryJoin(t.Context(), "n1")
		wantErr(t, err, ErrHeld)
		w.leave(w.session(b, "n1"))
	})
}

// A drain stops all work at once, hands each lease to its successor, and leaves.
//
// SPEC LS10
// SPEC LS6
func TestDrain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b, c := w.join(), w.join(), w.join()
		s1, s2, s3 := w.session(a, "n1"), w.session(b, "n2"), w.session(c, "n3")
		var wg sync.WaitGroup
		started := make(chan struct{}, 3)
		for i := range 3 {
			wg.Go(func() {
				err := s1.Do(t.Context(), fmt.Sprint("job-", i), func(ctx context.Context, l *Lease) error {
					started <- struct{}{}
					<-ctx.Done()
					time.Sleep(time.Second) // virtual: the work takes its time to stop
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		for range 3 {
			<-started
		}
		raw := w.under(s1, "raw")
		wg.Go(func() { <-raw.Done(); w.release(raw) })
		began := time.Now()
		err := s1.Drain(t.Context(), DrainOptions{Hold: 5 * time.Second, Successor: func(name string) string {
			if name == "job-2" {
				return ""
			}
			return "n2"
		}})
		if took := time.Since(began); err != nil || took != time.Second {
			t.Fatalf("drained in %v: %v", took, err)
		}
		wg.Wait()
		wantErr(t, s1.Err(), ErrReleased)
		_, err = s1.Acquire(t.Context(), "more")
		wantErr(t, err, ErrShutdown)
		for _, name := range []string{"job-0", "raw"} {
			_, err = s3.TryAcquire(t.Context(), name)
			wantErr(t, err, ErrHeld)
		}
		for _, name := range []string{"job-0", "job-1", "job-2", "raw"} {
			if _, err := s2.TryAcquire(t.Context(), name); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		w.leave(w.session(c, "n1"))
	})
}

// A drain does not release what still works.
//
// SPEC LS6
func TestDrainOverrun(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.join(), w.join()
		s := w.session(a, "n1")
		l := w.under(s, "job")
		wantErr(t, s.Drain(t.Context(), DrainOptions{Hold: 2 * ttl}), ErrInvalid)
		wantErr(t, s.Drain(t.Context(), DrainOptions{Limit: time.Second}), ErrOverlap, ErrUnconfirmed)
		if l.Live() {
			t.Error("live after the drain")
		}
		_, err := b.TryAcquire(t.Context(), "job")
		wantErr(t, err, ErrHeld)
		if got := w.acquire(b, "job"); got.Token() != 2 {
			t.Errorf("token %d", got.Token())
		}
	})
}

// Closing a client lets its sessions leave.
//
// SPEC PL8
func TestCloseLeaves(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.join(), w.join()
		s := w.session(a, "n1")
		l := w.under(s, "job")
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		wantErr(t, l.Err(), ErrShutdown)
		wantErr(t, s.Err(), ErrReleased)
		if _, err := b.TryAcquire(t.Context(), "job"); err != nil {
			t.Error(err)
		}
		if _, err := b.TryJoin(t.Context(), "n1"); err != nil {
			t.Error(err)
		}
		_, err := a.Join(t.Context(), "n1")
		wantErr(t, err, ErrClosed)
	})
}

// What a package of this module attached to a session ends with it, and an end that
// fails keeps the name from being given up.
//
// SPEC PL8 DL6
func TestAttachedEndsWithTheSession(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.join(), w.join()
		s := w.session(a, "n1")
		ended := 0
		end := func(context.Context) error { ended++; return nil }
		if _, err := s.Kit().Attach(end); err != nil {
			t.Fatal(err)
		}
		detach, err := s.Kit().Attach(end)
		if err != nil {
			t.Fatal(err)
		}
		detach()
		w.leave(s)
		if ended != 1 {
			t.Errorf("ended %d times", ended)
		}
		_, err = s.Kit().Attach(end)
		wantErr(t, err, ErrShutdown)

		s = w.session(b, "n1")
		stuck := fmt.Errorf("a leader still works: %w", ErrOverlap)
		if _, err := s.Kit().Attach(func(context.Context) error { return stuck }); err != nil {
			t.Fatal(err)
		}
		wantErr(t, s.Leave(t.Context()), ErrUnconfirmed, ErrOverlap)
		_, err = a.TryJoin(t.Context(), "n1")
		wantErr(t, err, ErrHeld)
	})
}
