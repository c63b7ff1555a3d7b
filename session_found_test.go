package tenure

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tenure-project/tenure/internal/clock"
	"github.com/tenure-project/tenure/store"
)

// What was found by trying to break sessions, each told as a scene.

// inTime fails the test unless f returns within d.
func inTime(t *testing.T, d time.Duration, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(d): // virtual
		t.Errorf("%s hangs", what)
	}
}

// Work does not begin under a lease that was given up between its grant and its
// beginning.
//
// SPEC LS6 PL8
func TestNoWorkUnderADeadLease(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.join(), w.join()
		s := w.session(a, "n1")
		l := w.under(s, "job") // what Do does first
		w.leave(s)             // by another goroutine
		w.acquire(b, "job")
		err := l.do(t.Context(), func(context.Context, *Lease) error { t.Error("the work ran"); return nil })
		wantErr(t, err, ErrShutdown)
		self := w.acquire(a, "self")
		a.die()
		<-self.Done()
		err = self.do(t.Context(), func(context.Context, *Lease) error { t.Error("the work ran"); return nil })
		wantErr(t, err, ErrExpired)
	})
}

// An overlap is told, whatever else ended a candidacy.
//
// SPEC LS6
func TestElectTellsAnOverlap(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.join()
		s := w.session(a, "n1")
		gate := make(chan struct{})
		defer close(gate)
		ctx, cancel := context.WithCancel(t.Context())
		err := s.Elect(ctx, "job", func(context.Context, *Lease) error { cancel(); <-gate; return nil }, StopLimit(time.Second))
		wantErr(t, err, ErrOverlap)
	})
}

// Who waits in line behind the session's own lease, or in a guard, does not keep the
// session from leaving, nor does a lost session keep who waits.
//
// SPEC PL8 LS9
func TestWaitersDoNotHoldALeave(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.join(), w.join()
		s1, s2 := w.session(a, "n1"), w.session(a, "n2")
		w.under(s1, "job")
		got := make(chan error, 3)
		go func() { _, err := s1.Acquire(t.Context(), "job"); got <- err }()
		go func() { _, err := s2.Acquire(t.Context(), "job"); got <- err }()
		go func() { _, err := s1.Acquire(t.Context(), "guarded", Guards(hungGuard{})); got <- err }()
		time.Sleep(time.Second)
		if err := b.ForceNode(t.Context(), s2.Proof(), StealOptions{Reason: "test"}); err != nil {
			t.Fatal(err)
		}
		wantErr(t, <-got, ErrLost) // the one under s2
		inTime(t, 10*ttl, "Leave", func() { _ = s1.Leave(t.Context()) })
		for range 2 {
			if err := <-got; err == nil {
				t.Error("acquired")
			}
		}
	})
}

type hungGuard struct{}

func (hungGuard) Raise(ctx context.Context, _ uint64) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// noWatch is a store that has to be polled.
type noWatch struct{ store.Store }

// slow is a client that has to poll, and whose calls take delay each.
func (w *world) slow(delay time.Duration) *Client {
	l := &link{Store: w.st, counts: map[string]int{}}
	c, err := New(w.t.Context(), noWatch{l}, WithTTL(ttl), WithClock(clock.NewVirtual(1)), WithoutProbe())
	if err != nil {
		w.t.Fatal(err)
	}
	l.tune(func(l *link) { l.delay = delay })
	w.t.Cleanup(func() {
		l.tune(func(l *link) { l.delay = 0 })
		_ = c.Close()
	})
	return c
}

// To end a dead session takes more calls than a waiter makes between two looks at
// its lease, and than one who does not wait makes for a lease: on a slow store, too,
// it comes to its end.
//
// SPEC LS8 LS9 PL4
func TestSlowTakeover(t *testing.T) {
	for _, try := range []bool{false, true} {
		t.Run(fmt.Sprintf("try=%v", try), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				a := w.join(WithRetention(0))
				w.leave(w.session(a, "n1"))
				w.under(w.session(a, "n1"), "job") // of a second term: its certificate has to be sealed
				b := w.slow(600 * time.Millisecond)
				a.die()
				began := time.Now()
				var err error
				if try {
					for range 4 {
						if _, err = b.TryAcquire(t.Context(), "job"); err == nil {
							break
						}
						time.Sleep(ttl)
					}
				} else {
					_, err = b.Acquire(t.Context(), "job")
				}
				if took := time.Since(began); err != nil || took > 5*ttl {
					t.Errorf("after %v: %v", took, err)
				}
			})
		})
	}
}

// In an outage a leave takes a few release limits, however many leases there are.
//
// SPEC PL8
func TestLeaveInAnOutage(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.join(WithRetention(0))
		s := w.session(a, "n1")
		for i := range 300 {
			w.under(s, fmt.Sprint("job-", i))
		}
		a.die()
		began := time.Now()
		wantErr(t, s.Leave(t.Context()), ErrUnconfirmed)
		if took, limit := time.Since(began), a.releaseLimit(a.timing.Defaults()); took > 4*limit {
			t.Errorf("left after %v, the release limit is %v", took, limit)
		}
	})
}

// Grants that are refused, or come to nothing, leave nothing with the session.
//
// SPEC LS8
func TestRefusedGrantsLeaveNothing(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.join(WithRetention(0))
		s := w.session(a, "n1")
		for i := range 20 {
			a.link.set(func(op string) fault {
				if op == "create" {
					return refuse
				}
				return pass
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if _, err := s.Acquire(ctx, fmt.Sprint("job-", i)); err == nil {
				t.Fatal("acquired")
			}
			cancel()
			a.link.heal()
		}
		time.Sleep(time.Second)
		if n := s.m.Deadline().Children(); n != 0 {
			t.Errorf("%d deadlines are left behind", n)
		}
	})
}

// Work that ran past the end of its lease is told so, though it had been asked to
// stop before; and so is the leave of its session.
//
// SPEC LS6
func TestLapseWhileStopping(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.join()
		s := w.session(a, "n1")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan error, 1)
		go func() {
			done <- s.Do(ctx, "job", func(ctx context.Context, l *Lease) error {
				<-ctx.Done()
				time.Sleep(2 * ttl) // virtual
				return nil
			}, StopLimit(5*ttl))
		}()
		time.Sleep(time.Second)
		cancel()
		a.die()
		<-s.Lost()
		wantErr(t, s.Leave(t.Context()), ErrExpired, ErrUnconfirmed)
		a.link.heal()
		wantErr(t, <-done, ErrLost)
	})
}

// Where the record of the holder's session is gone, an operator who vouches for its
// end frees the lease, and one who does not is told why not.
//
// SPEC LS11
func TestStealWithoutIdentity(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.join(), w.join()
		w.under(w.session(a, "n1"), "job")
		a.die()
		if err := w.st.Delete(t.Context(), store.Key(a.namespace, "identity", "n1")); err != nil {
			t.Fatal(err)
		}
		_, err := b.Steal(t.Context(), "job", StealOptions{Token: 1, Reason: "restored"})
		wantErr(t, err, ErrMissingEvidence)
		if _, err = b.Steal(t.Context(), "job", StealOptions{Token: 1, Reason: "restored", Vouch: true}); err != nil {
			t.Error(err)
		}
	})
}

// A label that a history could not hold is refused before anything happens.
//
// SPEC ST11
func TestLabelIsChecked(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		_, err := New(t.Context(), w.st, WithoutProbe(), WithLabel(strings.Repeat("\x01", 128)))
		wantErr(t, err, ErrInvalid)
	})
}
