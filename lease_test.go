package tenure

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-project/tenure/internal/core/lease"
)

// A new name gets token 1, a released one the next token at once, a held one is
// refused with everything that a person needs.
//
// SPEC LS1
func TestTokensRise(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.join(WithLabel("host-a")), w.join()
		l := w.acquire(a, "job", Note("nightly"))
		if l.Token() != 1 || !l.Live() {
			t.Fatalf("token %d, live %v", l.Token(), l.Live())
		}
		_, err := b.TryAcquire(t.Context(), "job")
		var held *HeldError
		if !errors.As(err, &held) {
			t.Fatalf("want a HeldError, got %v", err)
		}
		if held.Owner != l.Owner() || held.Label != "host-a" || held.Token != 1 || held.Note != "nightly" || held.Since.IsZero() {
			t.Fatalf("the refusal says %+v", held)
		}
		_, err = a.TryAcquire(t.Context(), "job")
		wantErr(t, err, ErrHeld) // a second handle is never the same owner
		w.release(l)
		for want := uint64(2); want < 6; want++ {
			l := w.acquire(b, "job")
			if l.Token() != want {
				t.Fatalf("token %d, want %d", l.Token(), want)
			}
			w.release(l)
		}
	})
}

// A silent holder is replaced after a full TTL of the candidate's own
// observation, stretched by the clock-rate bound, and not before; the former
// holder has stopped by then.
//
// SPEC LS2 LS4 LS7 DL5
func TestTakeoverAfterObservation(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.join(), w.join()
		old := w.acquire(a, "job")
		time.Sleep(3 * ttl) // it is renewed all the while
		a.die()
		start := time.Now()
		l := w.acquire(b, "job")
		took := time.Since(start)
		if l.Token() != 2 {
			t.Fatalf("token %d, want 2", l.Token())
		}
		if least := lease.Stretch(ttl, 0.01); took < least || took > least+time.Second+ttl/5 {
			t.Fatalf("taken over after %v, want about %v", took, least)
		}
		if old.Live() || old.Context().Err() == nil {
			t.Fatal("two holders: the old one is still live")
		}
		wantErr(t, context.Cause(old.Context()), ErrExpired, ErrLost)
		h, err := b.History(t.Context(), "job")
		if err != nil || len(h.Tenures) != 2 || h.Tenures[0].How != lease.HowObserved {
			t.Fatalf("history %+v, %v", h, err)
		}
	})
}

// A holder that goes on renewing is never replaced, however long one watches.
//
// SPEC LS2 LS4
// CASE B61
func TestLiveHolderIsSafe(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.join()
		l := w.acquire(a, "job")
		for range 5 {
			b := w.join()
			ctx, cancel := context.WithTimeout(t.Context(), 4*ttl)
			_, err := b.Acquire(ctx, "job")
			cancel()
			wantErr(t, err, context.DeadlineExceeded)
		}
		if !l.Live() {
			t.Fatal("the holder lost its lease")
		}
	})
}

// A renewal whose reply is lost after it took effect is found by reading back:
// the holder goes on with the same token, and trust counts from the send.
//
// SPEC ST9 LS4 DL4
// CASE B02
func TestRenewalReplyLost(t *testing.T) {
	for name, f := range map[string]fault{"timeout": lose, "error": failReply} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				a := w.join()
				l := w.acquire(a, "job")
				var lost atomic.Int32
				a.link.set(func(op string) fault {
					if op == "replace" && lost.Add(1)%2 == 1 {
						return f
					}
					return pass
				})
				time.Sleep(3 * ttl)
				if !l.Live() || l.Token() != 1 || lost.Load() < 4 {
					t.Fatalf("live %v, token %d after %d renewals", l.Live(), l.Token(), lost.Load())
				}
				a.link.heal()
			})
		})
	}
}

// The holder's trust is counted from before the send, not from the reply, and a
// grant whose reply comes after its own end is never handed out.
//
// SPEC DL4 LS7
// CASE B04 B05
func TestSlowRepliesDoNotStretchTrust(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.join(WithAttemptLimit(3*time.Second), WithRenewEvery(2*time.Second)), w.join()
		l := w.acquire(a, "job")
		a.link.tune(func(l *link) { l.delay = 2500 * time.Millisecond })
		time.Sleep(2 * ttl)
		if !l.Live() {
			t.Fatalf("slow replies alone ended the lease: %v", l.Err())
		}
		a.die()
		<-l.Done()
		var sent time.Time
		a.link.tune(func(l *link) { sent = l.sent })
		if d := time.Since(sent); d > ttl-ttl/10+time.Millisecond {
			t.Fatalf("the holder stopped %v after its last renewal was sent, later than TTL - margin", d)
		}
		next := w.acquire(b, "job")
		if l.Live() || !next.Live() {
			t.Fatal("not exactly one holder")
		}
	})
}

// CASE B04: the first grant held back longer than the TTL.
//
// SPEC DL4
// CASE B40
func TestLateGrantIsNone(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.join(), w.join()
		var late atomic.Int32
		a.link.after = func(op string) {
			if op != "get" && late.Add(1) <= 3 {
				time.Sleep(2 * ttl) // the reply (or the whole process) is stuck
			}
		}
		l := w.acquire(a, "job")
		if l.Token() < 2 || !l.Live() || late.Load() < 3 {
			t.Fatalf("token %d, live %v after %d late replies: a late grant was handed out", l.Token(), l.Live(), late.Load())
		}
		w.release(l)
		if _, err := b.TryAcquire(t.Context(), "job"); err != nil {
			t.Fatalf("a late grant was not freed: %v", err)
		}
	})
}

// A store that hangs for good ends the context on time all the same.
//
// SPEC LS7 ST13
// CASE B05
func TestHungStoreEndsInTime(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.join()
		l := w.acquire(a, "job")
		a.die()
		start := time.Now()
		<-l.Done()
		if d := time.Since(start); d > ttl-ttl/10+time.Millisecond {
			t.Fatalf("the context ended %v after the store hung", d)
		}
		wantErr(t, l.Err(), ErrExpired)
	})
}

// An outage shorter than what is left does not disturb the holder; a definite
// answer that another holds the lease ends it at once.
//
// SPEC LS4
// CASE B26 B80
func TestOutageIsNotLoss(t *testing.T) {
	for name, f := range map[string]fault{"refused": refuse, "hung": hang, "denied": deny} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				a := w.join()
				l := w.acquire(a, "job")
				for range 4 {
					a.link.set(func(string) fault { return f })
					time.Sleep(4 * ttl / 10)
					a.link.heal()
					time.Sleep(ttl / 2)
				}
				if !l.Live() || l.Err() != nil {
					t.Fatalf("an outage of 0.4 TTL ended the lease: %v", l.Err())
				}
			})
		})
	}
	t.Run("writes fail, reads show the old record", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			a := w.join()
			l := w.acquire(a, "job")
			a.link.set(func(op string) fault {
				if op == "get" {
					return pass
				}
				return refuse
			})
			time.Sleep(ttl)
			if l.Live() {
				t.Fatal("a hold was prolonged by reads")
			}
		})
	})
	t.Run("definite", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			a, b := w.join(), w.join()
			l := w.acquire(a, "job")
			if _, err := b.Steal(t.Context(), "job", StealOptions{Token: 1, Reason: "test", By: "op"}); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			<-l.Done()
			if d := time.Since(start); d > ttl/5 {
				t.Fatalf("the loss was noticed after %v, later than the next renewal", d)
			}
			wantErr(t, l.Err(), ErrLost)
		})
	})
}

// Requests are counted: 3 for a new name (absence, floor, create), 2 for a known
// one, 1 for a renewal, a check and a release, 2 for a takeover after watching,
// and no list anywhere (retention off).
//
// SPEC LS4 LS5
func TestRequests(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.join(WithRetention(0)), w.join()
		expect := func(p *peer, what string, want map[string]int) {
			t.Helper()
			got := p.link.take()
			for _, op := range []string{"get", "create", "replace"} {
				if got[op] != want[op] {
					t.Fatalf("%s: %d x %s, want %d (all: %v)", what, got[op], op, want[op], got)
				}
			}
		}
		a.link.take()
		l := w.acquire(a, "job")
		expect(a, "acquire of a new name", map[string]int{"get": 2, "create": 1})
		time.Sleep(ttl / 5)
		expect(a, "one renewal", map[string]int{"replace": 1})
		time.Sleep(10 * ttl)
		if n := a.link.take()["replace"]; n < 48 || n > 60 {
			t.Fatalf("%d renewals in 10 TTL, want about 52", n)
		}
		if err := l.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		expect(a, "check", map[string]int{"get": 1})
		w.release(l)
		expect(a, "release", map[string]int{"replace": 1})
		l = w.acquire(a, "job")
		expect(a, "acquire of a known name", map[string]int{"get": 1, "replace": 1})
		a.die()
		b.link.take()
		_ = w.acquire(b, "job")
		expect(b, "takeover: one look to begin, then 2", map[string]int{"get": 2, "replace": 1})
		if l.Live() {
			t.Fatal("two holders")
		}
	})
}

// What limits the waiting does not limit the hold.
//
// SPEC LS9
// CASE B27
func TestAcquireContextIsForWaitingOnly(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.join()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		l, err := a.Acquire(ctx, "job")
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		time.Sleep(5 * ttl)
		if !l.Live() {
			t.Fatalf("the hold ended with the context of its acquisition: %v", l.Err())
		}
	})
}

// A suspend of the machine ends the lease at once on resume.
//
// SPEC DL3
// CASE B12
func TestSuspendEndsTheLease(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.join()
		l := w.acquire(a, "job")
		a.clk.Suspend(time.Hour)
		if l.Live() {
			t.Fatal("live right after a suspend")
		}
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		wantErr(t, l.Err(), ErrExpired)
	})
}

// Leases are renewed from their first moment, whatever callbacks do, and also
// when one was released just before.
//
// SPEC LS4
// CASE B75
func TestNoRenewalGap(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.join()
		slow := raiserFunc(func(context.Context, uint64) error { time.Sleep(2 * ttl); return nil })
		l := w.acquire(a, "slow", Guards(slow))
		if !l.Live() {
			t.Fatal("not renewed while a guard was slow")
		}
		for i := range 20 {
			l := w.acquire(a, "one")
			w.release(l)
			time.Sleep(time.Duration(i) * time.Millisecond * 5 / 2)
			l = w.acquire(a, "two")
			time.Sleep(3 * ttl)
			if !l.Live() {
				t.Fatalf("round %d: lapsed: %v", i, l.Err())
			}
			w.release(l)
		}
		leases := make([]*Lease, 500)
		for i := range leases {
			leases[i] = w.acquire(a, "many"+time.Duration(i).String())
		}
		time.Sleep(3 * ttl)
		for _, l := range leases {
			if !l.Live() {
				t.Fatalf("%s lapsed: %v", l.Name(), l.Err())
			}
		}
	})
}

type raiserFunc func(context.Context, uint64) error

func (f raiserFunc) Raise(ctx context.Context, token uint64) error { return f(ctx, token) }

// A guard that refuses ends the acquisition and frees the lease.
//
// SPEC GD1
func TestGuardRefusal(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.join()
		boom := errors.New("boom")
		_, err := a.Acquire(t.Context(), "job", Guards(raiserFunc(func(context.Context, uint64) error { return boom })))
		wantErr(t, err, boom)
		if l := w.acquire(a, "job"); l.Token() != 2 {
			t.Fatalf("token %d", l.Token())
		}
	})
}

// A lease that ends because its credentials ran out says so, and one whose
// credentials come back in time goes on.
//
// SPEC LS4 ST8
// CASE B65
func TestCredentialsThatRunOut(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.join()
		l := w.acquire(p, "job")
		p.link.set(func(string) fault { return deny })
		time.Sleep(ttl / 2)
		p.link.heal()
		time.Sleep(2 * ttl)
		if !l.Live() {
			t.Fatalf("the lease ended although the credentials came back: %v", l.Err())
		}
		p.link.set(func(string) fault { return deny })
		<-l.Done()
		wantErr(t, l.Err(), ErrExpired, ErrLost, ErrDenied)
		p.link.heal()
	})
}
