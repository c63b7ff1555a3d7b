package ledger

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	tenure "github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

// A run is done once, whoever asks later, and the answer is exact and cheap: at most
// two requests and 64 KiB, no lease (EX6).
//
// SPEC EX3 EX6 EX7
func TestRunIsDoneOnce(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.host(), w.host()
		want(t, a.do(at(1)), Ran, 1)
		var out Outcome
		if got := b.used(func() { out = b.do(at(1)) }); got != "get ledger" {
			t.Errorf("a run that is done takes %q", got)
		}
		want(t, out, Done, 1)
		if plain, guarded := w.effects(at(1)); plain != 1 || guarded != 1 {
			t.Errorf("%d effects, %d at the guard", plain, guarded)
		}
		if _, err := b.Compact(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := b.used(func() { out = b.do(at(1)) }); got != "get ledger, get block" {
			t.Errorf("a run that is done and compacted takes %q", got)
		}
		want(t, out, Done, 1)
		for run, yes := range map[Run]bool{at(1): true, at(2): false} {
			ans, err := b.Did(t.Context(), run)
			if err != nil || ans.Committed != yes || ans.Requests > 2 || ans.Bytes > 64<<10 {
				t.Errorf("%+v, %v", ans, err)
			}
		}
	})
}

// What a fresh run costs: twelve requests, and a look at the line where the store has
// one. The check is two of them. Without retention the floor is not read.
//
// SPEC EX1 EX4
func TestRequestsOfARun(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		h := w.host()
		h.do(at(1))
		if _, err := h.Compact(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := h.used(func() { want(t, h.do(at(2)), Ran, 1) })
		const fresh = "get ledger, get block, " + // look
			"get lease, waiting lease, get meta, replace lease, " + // the lease: a look, the line, the floor, the write
			"replace ledger, " + // raise
			"replace ledger, " + // admit
			"get ledger, get lease, " + // check
			"replace ledger, " + // outcome
			"replace lease" // release
		if got != fresh {
			t.Errorf("a fresh run takes\n%s, want\n%s", got, fresh)
		}
	})
}

// A job of a millisecond on hosts 200 ms apart runs once per occurrence: the lease is
// free again each time, the ledger knows.
//
// SPEC EX6
// CASE B34
func TestShortJobOnHostsThatTickApart(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var hosts []*host
		for range 5 {
			hosts = append(hosts, w.host())
		}
		const occurrences = 20
		var wg sync.WaitGroup
		var mu sync.Mutex
		states := map[State]int{}
		for i, h := range hosts {
			wg.Go(func() {
				rested(time.Duration(i) * 200 * time.Millisecond)
				for n := range occurrences {
					out, err := h.Once(t.Context(), at(n), func(ctx context.Context, a *Attempt) (Result, error) {
						rested(time.Millisecond)
						return Result{}, w.act(a)
					})
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					states[out.State]++
					mu.Unlock()
					rested(time.Second)
				}
			})
		}
		wg.Wait()
		for n := range occurrences {
			if plain, _ := w.effects(at(n)); plain != 1 {
				t.Errorf("occurrence %d: %d effects", n, plain)
			}
		}
		if states[Ran] != occurrences || states[Done] != 4*occurrences {
			t.Errorf("%v", states)
		}
	})
}

// One lease keeps hosts that ask at the same instant apart; who does not wait is told
// who is at it, who waits finds the run done.
//
// SPEC EX1 EX4
func TestSameInstant(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b, c := w.host(), w.host(), w.host()
		running, end := make(chan struct{}), make(chan struct{})
		ended := make(chan Outcome, 2)
		go func() {
			out, err := a.Once(t.Context(), at(1), func(ctx context.Context, x *Attempt) (Result, error) {
				close(running)
				<-end
				return Result{}, w.act(x)
			})
			if err != nil {
				t.Error(err)
			}
			ended <- out
		}()
		<-running
		out := b.do(at(1))
		want(t, out, Busy, 0)
		if out.HeldBy == nil || out.HeldBy.Label != "host-1" {
			t.Errorf("held by %v", out.HeldBy)
		}
		out = b.do(at(1), Wait(time.Second))
		want(t, out, Busy, 0)
		if out.HeldBy == nil || out.HeldBy.Label != "host-1" {
			t.Errorf("after a wait: held by %v", out.HeldBy)
		}
		go func() { ended <- c.do(at(1), Wait(time.Minute)) }()
		rested(3 * ttl) // a run longer than the TTL goes on, its lease is renewed
		close(end)
		got := map[State]bool{(<-ended).State: true, (<-ended).State: true}
		if plain, _ := w.effects(at(1)); !got[Ran] || !got[Done] || plain != 1 {
			t.Errorf("%v, %d effects", got, plain)
		}
	})
}

// A failed run is tried again as the next attempt, up to a bound if there is one, which
// needs no lease to be found; an operator lets it go on. A commit with an exit code is a
// commit.
//
// SPEC EX3
func TestFailures(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		h := w.host()
		boom := errors.New("boom")
		fail := func(context.Context, *Attempt) (Result, error) { return Result{Output: []byte("so far")}, boom }
		for n := range 3 {
			out, err := h.Once(t.Context(), at(1), fail, MaxFailed(3))
			wantErr(t, err, boom)
			want(t, out, Failed, uint64(n+1))
		}
		var out Outcome
		if got := h.used(func() { out = h.do(at(1), MaxFailed(3), Replay()) }); strings.Contains(got, "lease") {
			t.Errorf("a run that is given up takes %q", got)
		}
		want(t, out, GaveUp, 3)
		if s := out.Saved; s == nil || !s.Failed || s.Why != "boom" || string(s.Output) != "so far" || s.Exit != 1 {
			t.Errorf("the result is %+v", s)
		}
		gone, err := h.Retry(t.Context(), at(1), SettleOptions{By: "ann", Reason: "the disk was full"})
		if err != nil || len(gone) != 1 {
			t.Fatalf("%v, %v", gone, err)
		}
		out, err = h.Once(t.Context(), at(1), func(context.Context, *Attempt) (Result, error) { return Result{Exit: 7}, nil }, MaxFailed(3))
		if err != nil {
			t.Fatal(err)
		}
		want(t, out, Ran, 4)
		want(t, h.do(at(1), Replay()), Done, 4)
		_, err = h.Retry(t.Context(), at(1), SettleOptions{Reason: "again"})
		wantErr(t, err, ErrCommitted)
	})
}

// A late caller gets the exit code and the output, as far as they were kept.
//
// SPEC EX6
func TestReplay(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		h := w.host()
		long := strings.Repeat("x", 100<<10)
		out, err := h.Once(t.Context(), at(1), func(context.Context, *Attempt) (Result, error) {
			return Result{Exit: 3, Output: []byte(long)}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		want(t, out, Ran, 1)
		out = w.host().do(at(1), Replay())
		s := out.Saved
		if s == nil || s.Exit != 3 || s.Failed || !s.Cut() || len(s.Output) != 64<<10 || s.OutputBytes != 100<<10 || !s.At.Equal(at(1).At) || s.Trigger != DefaultTrigger {
			t.Fatalf("%+v", s)
		}
		rested(time.Hour)
		h.do2(at(2), func(context.Context, *Attempt) (Result, error) { return Result{Exit: 4}, nil })
		swept, err := h.Sweep(t.Context(), time.Minute)
		if err != nil || swept.Results != 1 {
			t.Fatalf("%+v, %v", swept, err)
		}
		out = h.do(at(1), Replay())
		if want(t, out, Done, 1); out.Saved != nil {
			t.Error("a result was removed and is there")
		}
		if out = h.do(at(2), Replay()); out.Saved == nil || out.Saved.Exit != 4 {
			t.Errorf("a result of this minute is not there: %+v", out)
		}
	})
}

// The function's context ends in time for the next holder, with its caller, and at its
// time limit; what it reports is recorded all the same.
//
// SPEC EX4 DL5
func TestFunctionEndsInTime(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		ended := func(ctx context.Context, a *Attempt) (Result, error) {
			<-ctx.Done()
			return Result{}, context.Cause(ctx)
		}
		h := w.host()
		out, err := h.Once(t.Context(), at(1), ended, TimeLimit(time.Minute))
		wantErr(t, err, context.DeadlineExceeded)
		want(t, out, Failed, 1)

		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, cancel)
		out, err = h.Once(ctx, at(2), ended)
		wantErr(t, err, tenure.ErrShutdown)
		want(t, out, Failed, 1)

		began := time.Now()
		out, err = h.Once(t.Context(), at(3), func(ctx context.Context, a *Attempt) (Result, error) {
			h.link.SetLink(faultstore.Cut)
			defer h.link.SetLink(faultstore.Up)
			<-ctx.Done()
			if d := time.Since(began); d > ttl-2*time.Second+time.Millisecond {
				t.Errorf("the work ended %v after the last renewal", d)
			}
			return Result{}, nil
		}, WithLease(tenure.Stop(time.Second)))
		if err != nil {
			t.Fatal(err)
		}
		want(t, out, Ran, 1)
		wantErr(t, out.LeaseErr, tenure.ErrExpired)
	})
}

// A function that panics, or says that it does not know, leaves its run unknown; one
// that leaves something behind keeps the lease, too.
//
// SPEC EX4
func TestFunctionThatCannotSay(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		h, other := w.host(), w.host()
		func() {
			defer func() {
				if p := recover(); p != "oh" {
					t.Errorf("panic %v", p)
				}
			}()
			_, _ = h.Once(t.Context(), at(1), func(context.Context, *Attempt) (Result, error) { panic("oh") })
		}()
		want(t, other.do(at(1)), Held, 1)

		out, err := h.Once(t.Context(), at(2), func(context.Context, *Attempt) (Result, error) {
			return Result{}, fmt.Errorf("a process is left: %w", tenure.ErrOverlap)
		}, WithLease(tenure.StopLimit(time.Second)))
		wantErr(t, err, tenure.ErrOverlap)
		want(t, out, Unsettled, 1)
		want(t, other.do(at(2), Wait(3*ttl)), Busy, 0)
		if err := h.c.Close(); err == nil {
			t.Log("the client closed without a word")
		}
		want(t, other.do(at(2), Wait(3*ttl)), Held, 1)
	})
}

// Bad input is refused before anything happens.
//
// SPEC EX5 ST11
func TestBadInput(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		h := w.host()
		foreign, _ := Occurrence("other", DefaultTrigger, time.UnixMilli(0))
		for name, f := range map[string]func() error{
			"foreign run": func() error { _, err := h.Once(t.Context(), foreign, h.work); return err },
			"no run":      func() error { _, err := h.Did(t.Context(), Run{}); return err },
			"no function": func() error { _, err := h.Once(t.Context(), at(1), nil); return err },
			"policy":      func() error { _, err := h.Once(t.Context(), at(1), h.work, OnUnknown("maybe")); return err },
			"no probe":    func() error { _, err := h.Once(t.Context(), at(1), h.work, OnUnknown(Probe)); return err },
			"wait":        func() error { _, err := h.Once(t.Context(), at(1), h.work, Wait(-1)); return err },
			"site":        func() error { _, err := Open(h.c, job, Site(" ")); return err },
			"job":         func() error { _, err := Open(h.c, ""); return err },
			"instant":     func() error { _, err := Occurrence(job, DefaultTrigger, time.Unix(0, 1)); return err },
			"no reason": func() error {
				return h.Settle(t.Context(), Key{Run: at(1).ID, Site: "main", Attempt: 1}, AsFailed, SettleOptions{})
			},
		} {
			if got := h.used(func() { wantErr(t, f(), store.ErrInvalid) }); got != "" {
				t.Errorf("%s: %q", name, got)
			}
		}
		for _, agent := range []string{"x", strings.Repeat("é", 64)} {
			if err := store.CheckName("lease", LeaseName(agent)); err != nil {
				t.Error(err)
			}
		}
	})
}

// Who waited for a host that did the run finds it done, and writes nothing into the
// ledger.
//
// SPEC EX6
func TestWaitersLookFirst(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.host(), w.host()
		a.do2(at(1), func(_ context.Context, x *Attempt) (Result, error) {
			var wg sync.WaitGroup
			w.t.Cleanup(wg.Wait)
			wg.Go(func() {
				var out Outcome
				got := b.used(func() { out = b.do(at(1), Wait(time.Minute)) })
				if want(t, out, Done, 1); strings.Contains(got, "replace ledger") {
					t.Errorf("a waiter sends %q", got)
				}
			})
			rested(ttl)
			return Result{}, w.act(x)
		})
		rested(2 * ttl)
	})
}

// One process, one ledger, many goroutines: each run once.
//
// SPEC EX4
func TestManyGoroutines(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		h := w.host()
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				if out := h.do(at(i%5), Wait(time.Hour)); out.State != Ran && out.State != Done {
					t.Errorf("%+v", out)
				}
			})
			wg.Go(func() {
				if _, err := h.Did(t.Context(), at(i%5)); err != nil {
					t.Error(err)
				}
				if _, err := h.Compact(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		for n := range 5 {
			if plain, _ := w.effects(at(n)); plain != 1 {
				t.Errorf("run %d: %d effects", n, plain)
			}
		}
	})
}

// A function that does not stop when it is asked to: its caller is told that work may
// overlap, the run is unknown until it returns, and then it is settled.
//
// SPEC EX4 LS6
func TestFunctionThatDoesNotStop(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		h, end := w.host(), make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		began := time.Now()
		out, err := h.Once(ctx, at(1), func(_ context.Context, a *Attempt) (Result, error) {
			<-end
			return Result{}, w.act(a)
		}, WithLease(tenure.StopLimit(3*time.Second)))
		wantErr(t, err, tenure.ErrOverlap)
		if want(t, out, Unsettled, 1); out.Epoch == 0 || time.Since(began) > 5*time.Second {
			t.Errorf("%+v after %v", out, time.Since(began))
		}
		want(t, w.host().do(at(1), Wait(3*ttl)), Held, 1)
		close(end)
		rested(time.Second)
		want(t, w.host().do(at(1)), Done, 1)
	})
}
