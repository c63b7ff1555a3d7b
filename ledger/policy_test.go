package ledger

import (
	"context"
	"errors"
	"testing"
	"time"

	tenure "github.com/tenure-project/tenure"
	core "github.com/tenure-project/tenure/internal/core/ledger"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

// A host vanished in the middle. While its lease may live nobody touches the run; then
// the policy decides, at once, not after a day.
//
// SPEC EX4 EX3
// CASE B13
func TestUnknownRun(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		_, k := w.leave(at(1), true)
		h := w.host()
		want(t, h.do(at(1)), Busy, 0)
		if r := w.info(at(1)); !r.Running || r.Unknown || r.At != at(1).At {
			t.Errorf("%+v", r)
		}
		out := h.do(at(1), Wait(3*ttl)) // hold
		want(t, out, Held, 1)
		if len(out.Pending) != 1 || out.Pending[0].Key != k || out.Pending[0].Since == 0 {
			t.Errorf("%+v", out.Pending)
		}
		if got := h.used(func() { out = h.do(at(1)) }); got != "get ledger" {
			t.Errorf("a run that is held takes %q", got)
		}
		want(t, out, Held, 1)
		want(t, h.do(at(2)), Ran, 1) // the next occurrence is not held up

		want(t, h.do(at(1), OnUnknown(Retry)), Ran, 2)
		if plain, guarded := w.effects(at(1)); plain != 2 || guarded != 1 {
			t.Errorf("%d effects, %d guarded", plain, guarded)
		}
		r := w.info(at(1))
		if !r.Committed || r.Repeated || len(r.Attempts) != 2 || r.Attempts[0].Abandoned == nil {
			t.Errorf("%+v", r)
		}
	})
}

// A probe settles what it can tell, and holds what it cannot.
//
// SPEC EX4
func TestProbe(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		probe := func(f Finding, err error) OnceOption {
			return WithProbe(func(ctx context.Context, p Pending) (Finding, error) {
				if p.Attempt != 1 || ctx.Err() != nil {
					t.Errorf("%+v, %v", p, ctx.Err())
				}
				return f, err
			})
		}
		boom := errors.New("boom")
		for n, c := range []struct {
			effect  bool
			probe   OnceOption
			state   State
			attempt uint64
			err     error
		}{
			{true, probe(Happened, nil), Done, 1, nil},
			{false, probe(DidNotHappen, nil), Ran, 2, nil},
			{true, probe(CannotSay, nil), Held, 1, nil},
			{true, probe(0, nil), Held, 1, nil},
			{true, probe(Happened, boom), Held, 1, boom},
		} {
			w.leave(at(n), c.effect)
			h := w.host()
			rested(2 * ttl)
			out, err := h.Once(t.Context(), at(n), h.work, c.probe, Wait(3*ttl))
			if want(t, out, c.state, c.attempt); !errors.Is(err, c.err) {
				t.Errorf("%d: %v", n, err)
			}
			if plain, _ := w.effects(at(n)); plain != 1 {
				t.Errorf("%d: %d effects", n, plain)
			}
		}
	})
}

// A host that was stopped within its function goes on after another took over and
// retried: the guard refuses it, its commit makes the run repeated, and that stays.
//
// SPEC EX3 EX4
func TestEffectThatOutlastsItsLease(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		slow, h := w.host(), w.host()
		started, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan Outcome, 1)
		go func() {
			out, err := slow.Once(t.Context(), at(1), func(_ context.Context, a *Attempt) (Result, error) {
				slow.link.SetLink(faultstore.Cut)
				close(started)
				<-goOn // it does not look at its context
				slow.link.SetLink(faultstore.Up)
				if err := w.act(a); !errors.Is(err, errOld) {
					t.Errorf("the guard let an older epoch act: %v", err)
				}
				return Result{}, nil
			}, WithLease(tenure.StopLimit(10*ttl)))
			if err != nil {
				t.Error(err)
			}
			ended <- out
		}()
		<-started
		want(t, h.do(at(1), OnUnknown(Retry), Wait(3*ttl)), Ran, 2)
		close(goOn)
		out := <-ended
		if want(t, out, Ran, 1); out.LeaseErr == nil {
			t.Error("the loss of the lease is not told")
		}
		for range 2 {
			if r := w.info(at(1)); !r.Committed || !r.Repeated {
				t.Errorf("%+v", r)
			}
			if _, err := h.Compact(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if out := h.do(at(1)); !out.Repeated {
			t.Errorf("%+v", out)
		}
	})
}

// A host that was stopped before its check does not act, and says so in the ledger.
//
// SPEC EX4
func TestStoppedBeforeTheCheck(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		h := w.host()
		want(t, h.do(at(0)), Ran, 1)
		heads := 0
		var slow *host
		slow = w.host(func(s *setup) {
			s.link.Trace = func(e faultstore.Event) {
				if e.Done && e.Op == faultstore.OpReplace && e.Key == slow.headKey {
					if heads++; heads == 2 { // the admission
						slow.link.SetLink(faultstore.Cut)
					}
				}
			}
		})
		ended := make(chan error, 1)
		go func() {
			out, err := slow.Once(t.Context(), at(1), slow.work)
			if out.State != NotRun {
				t.Errorf("%+v", out)
			}
			ended <- err
		}()
		rested(time.Second)
		want(t, h.do(at(1), OnUnknown(Retry), Wait(3*ttl)), Ran, 2)
		slow.link.SetLink(faultstore.Up)
		wantErr(t, <-ended, tenure.ErrLost)
		rested(ttl)
		if plain, _ := w.effects(at(1)); plain != 1 {
			t.Errorf("%d effects", plain)
		}
		if r := w.info(at(1)); r.Repeated || r.Unknown || r.Running {
			t.Errorf("%+v", r)
		}
	})
}

// A lease that lost its counter is jumped above every epoch that the ledger knows.
//
// SPEC EX2
func TestLeaseThatLostItsCounter(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for n := range 5 {
			w.host().do(at(n))
		}
		_, k := w.leave(at(5), true)
		before := w.head().Epoch
		key := store.Key("default", "lease", LeaseName(job))
		if err := w.st.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		h := w.host()
		out := h.do(at(6))
		if want(t, out, Ran, 1); out.Epoch <= before || w.head().Epoch != out.Epoch {
			t.Errorf("epoch %d, before %d, head %d", out.Epoch, before, w.head().Epoch)
		}
		want(t, h.do(at(5)), Held, k.Attempt)
		want(t, h.do(at(0)), Done, 1)
	})
}

// A store that was set back is met by who remembers, until it is jumped.
//
// SPEC LS12
func TestLedgerThatWentBack(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		h := w.host()
		h.do(at(1))
		var before store.Object
		h.do2(at(2), func(ctx context.Context, _ *Attempt) (_ Result, err error) {
			before, err = w.st.Get(ctx, h.headKey, core.MaxHead)
			return Result{}, err
		})
		w.set(h.headKey, before.Body) // one write ago
		_, err := h.Did(t.Context(), at(1))
		var fell *tenure.RegressedError
		if !errors.As(err, &fell) || fell.Kind != "ledger" || fell.Name != job {
			t.Fatalf("%v", err)
		}
		if err := w.host().Jump(t.Context(), fell.Seen+1); err != nil {
			t.Fatal(err)
		}
		if ans, err := h.Did(t.Context(), at(1)); err != nil || !ans.Committed {
			t.Errorf("%+v, %v", ans, err)
		}
	})
}

// set replaces what stands at a key.
func (w *world) set(key string, body []byte) {
	w.t.Helper()
	ctx := context.Background()
	o, err := w.st.Get(ctx, key, 1<<20)
	if err == nil {
		_, err = w.st.Replace(ctx, key, body, o.Version)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// A session's lease is as good, and costs no renewal of its own.
//
// SPEC EX1 LS8
func TestUnderASession(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		h := w.host()
		s, err := h.c.Join(t.Context(), "n1")
		if err != nil {
			t.Fatal(err)
		}
		l, err := Open(h.c, job, Under(s))
		if err != nil {
			t.Fatal(err)
		}
		out, err := l.Once(t.Context(), at(1), h.work)
		if err != nil {
			t.Fatal(err)
		}
		want(t, out, Ran, 1)
		_, _ = l.Once(t.Context(), at(2), func(_ context.Context, a *Attempt) (Result, error) {
			h.die()
			return Result{}, ErrUnsettled
		})
		want(t, w.host().do(at(2), Wait(5*ttl), OnUnknown(Retry)), Ran, 2)
		_ = s.Leave(t.Context())
	})
}

// What an operator says is written down, with who and why; a run whose host may be at it
// is refused, one whose host is dead is taken over first.
//
// SPEC EX4
func TestOperatorSettles(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		h, o := w.host(), SettleOptions{By: "ann", Reason: "I looked"}
		_, k := w.leave(at(1), true)
		var running *RunningError
		if err := h.Settle(t.Context(), k, AsCommitted, o); !errors.As(err, &running) || running.Pending.Key != k {
			t.Fatalf("%v", err)
		}
		o.Wait = 3 * ttl
		if err := h.Settle(t.Context(), k, AsCommitted, o); err != nil {
			t.Fatal(err)
		}
		out := h.do(at(1), Replay())
		if want(t, out, Done, 1); out.Saved == nil || out.Saved.Why != "ann: I looked" || out.Saved.Trigger != DefaultTrigger {
			t.Errorf("%+v", out.Saved)
		}
		wantErr(t, h.Settle(t.Context(), k, AsFailed, o), store.ErrConflict)
		if err := h.Settle(t.Context(), k, AsCommitted, o); err != nil {
			t.Errorf("again: %v", err)
		}
		k.Attempt++
		wantErr(t, h.Settle(t.Context(), k, AsCommitted, o), store.ErrNotFound)

		_, k = w.leave(at(2), false)
		if err := h.Settle(t.Context(), k, AsFailed, o); err != nil {
			t.Fatal(err)
		}
		want(t, h.do(at(2)), Ran, 2)

		_, k = w.leave(at(3), false)
		gone, err := h.Retry(t.Context(), at(3), o)
		if err != nil || len(gone) != 1 || gone[0] != k {
			t.Fatalf("%v, %v", gone, err)
		}
		want(t, h.do(at(3)), Ran, 2)
		if r := w.info(at(3)); r.Attempts[0].Abandoned == nil || r.Attempts[0].Abandoned.By != "ann: I looked" {
			t.Errorf("%+v", r)
		}

		_, k = w.leave(at(4), true)
		if err := h.Settle(t.Context(), k, AsAbandoned, SettleOptions{Reason: "the host burned", Vouch: true}); err != nil {
			t.Fatal(err)
		}
		if r := w.info(at(4)); r.Unknown || r.Running || r.Committed {
			t.Errorf("%+v", r)
		}
	})
}

// A holder that lives keeps its run, however long an operator waits.
//
// SPEC EX4
func TestOperatorDoesNotSettleWhatRuns(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		h := w.host()
		out := w.host().do2(at(1), func(_ context.Context, a *Attempt) (Result, error) {
			err := h.Settle(t.Context(), a.Key(), AsFailed, SettleOptions{Reason: "slow", Wait: 3 * ttl})
			wantErr(t, err, ErrRunning)
			return Result{}, w.act(a)
		})
		want(t, out, Ran, 1)
	})
}

// What a dead host left shows as unknown once somebody takes its lease over, without a
// run.
//
// SPEC EX3 EX4
func TestFence(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		h := w.host()
		if got := h.used(func() {
			if err := h.Fence(t.Context(), 0); err != nil {
				t.Error(err)
			}
		}); got != "get ledger" {
			t.Errorf("a ledger that never was takes %q", got)
		}
		_, k := w.leave(at(1), true)
		wantErr(t, h.Fence(t.Context(), 0), tenure.ErrHeld)
		if r := w.info(at(1)); !r.Running {
			t.Errorf("%+v", r)
		}
		if err := h.Fence(t.Context(), 3*ttl); err != nil {
			t.Fatal(err)
		}
		if r := w.info(at(1)); !r.Unknown || r.Attempts[0].Fact.Key != k {
			t.Errorf("%+v", r)
		}
		w.host().do2(at(2), func(context.Context, *Attempt) (Result, error) {
			err := h.Fence(t.Context(), 3*ttl)
			wantErr(t, err, tenure.ErrHeld)
			return Result{}, nil
		})
	})
}

// do2 is do with a function of the test's.
func (h *host) do2(run Run, f Func, opts ...OnceOption) Outcome {
	h.w.t.Helper()
	out, err := h.Once(h.w.t.Context(), run, f, opts...)
	if err != nil {
		h.w.t.Fatalf("once: %v, %v", out.State, err)
	}
	return out
}
