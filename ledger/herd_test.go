package ledger

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

// herd is how n hosts that ask for one run at the same instant come by the answer, each
// request taking some time: how long after the function's end the last host knew, and
// how many writes of the lease there were.
func herd(t *testing.T, w *world, n int, per time.Duration, can store.Power, fails bool) (last time.Duration, leases, ran int) {
	t.Helper()
	var mu sync.Mutex
	var over time.Time
	var wg sync.WaitGroup
	for range n {
		h := w.host(func(s *setup) {
			s.link.Info = func(i store.Info) store.Info { i.Can &= can; return i }
			s.link.Trace = func(e faultstore.Event) {
				if e.Done || e.Late || e.Op == faultstore.OpWatch {
					return
				}
				time.Sleep(per) // bubble time: what a request takes
				mu.Lock()
				defer mu.Unlock()
				if e.Op == faultstore.OpReplace && strings.Contains(e.Key, "/lease/") {
					leases++
				}
			}
		})
		wg.Go(func() {
			out, err := h.Once(t.Context(), at(1), func(context.Context, *Attempt) (Result, error) {
				rested(2 * time.Second)
				mu.Lock()
				defer mu.Unlock()
				over = time.Now()
				return Result{Failed: fails, Exit: 3}, nil
			}, Wait(time.Hour), MaxFailed(1))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				t.Error(err)
			case out.State == Ran, out.State == Failed:
				ran++
			case fails && out.State != GaveUp, !fails && out.State != Done, out.Attempt.Attempt != 1:
				t.Errorf("a host got %v of attempt %d", out.State, out.Attempt.Attempt)
			}
			last = time.Since(over)
		})
	}
	wg.Wait()
	return last, leases, ran
}

// Fifty hosts that wait for one run all know within a request or two after its outcome
// was written, and do not take the lease in turn for that; where the store cannot
// watch, within a look.
//
// SPEC EX6
func TestHerdKnowsAtOnce(t *testing.T) {
	t.Parallel()
	const all = ^store.Power(0)
	const per = 20 * time.Millisecond
	for name, c := range map[string]struct {
		can   store.Power
		fails bool
		last  time.Duration
		taken int
	}{
		"watch":            {all, false, 5 * per, 6},
		"failed":           {all, true, 5 * per, 6},
		"polls, no queue":  {^(store.CanWatch | store.CanQueue | store.CanClock | store.CanProve), false, 2 * time.Second, 100},
		"watches, no line": {^store.CanQueue, false, 5 * per, 6},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				last, leases, ran := herd(t, w, 50, per, c.can, c.fails)
				t.Logf("the last host knew after %v, %d writes of the lease", last, leases)
				if ran != 1 || last > c.last || leases > c.taken {
					t.Errorf("%d hosts ran it, the last knew after %v, %d writes of the lease", ran, last, leases)
				}
			})
		})
	}
}

// Hosts that wait for one that died in the middle all learn from the first that has the
// lease that the run is held, and do not take it in turn.
//
// SPEC EX4 EX6
func TestHerdKnowsThatARunIsHeld(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		_, k := w.leave(at(1), true)
		var wg sync.WaitGroup
		for range 20 {
			h := w.host()
			wg.Go(func() {
				out, err := h.Once(t.Context(), at(1), h.work, Wait(time.Hour))
				if err != nil || out.State != Held || out.Attempt != k || len(out.Pending) != 1 {
					t.Errorf("%+v, %v", out, err)
				}
			})
		}
		wg.Wait()
		if e := w.head().Epoch; e > 4 {
			t.Errorf("the lease was taken %d times", e)
		}
	})
}
