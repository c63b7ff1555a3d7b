package ledger

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

// Whatever becomes of any one request of a run (it is lost, its reply is lost, it lands
// late or twice, it hangs), the effect comes once, the run is committed, and nothing is
// left open.
//
// SPEC EX4 ST9
func TestAnyRequestOfARunGoesWrong(t *testing.T) {
	for name, f := range map[string]faultstore.Fault{
		"lost request": faultstore.LoseRequest(), "lost reply": faultstore.LoseReply(), "hangs": faultstore.Hang(),
		"hangs, applied": faultstore.HangApplied(), "lands late": faultstore.LandLate(0, 2*ttl), "comes twice": faultstore.Duplicate(0, 2*ttl),
		"refused": faultstore.Fail(store.ErrUnavailable),
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.host().do(at(0))
				for k := range 14 {
					h := w.host()
					h.link.Add(faultstore.Rule{Skip: k, Times: 1, Fault: f})
					want(t, h.do(at(k+1), Wait(5*ttl)), Ran, 1)
					rested(3 * ttl)
					_ = h.c.Close()
					if r := w.info(at(k + 1)); !r.Committed || r.Unknown || r.Running {
						t.Errorf("request %d: %+v", k, r)
					}
					if plain, _ := w.effects(at(k + 1)); plain != 1 {
						t.Errorf("request %d: %d effects", k, plain)
					}
				}
			})
		})
	}
}

// An admission whose outcome nobody can learn starts nothing, and is taken back as soon
// as the store can be asked again.
//
// SPEC EX4 ST9
func TestAdmissionInDoubtStartsNothing(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.host().do(at(0))
		writes := 0
		var h *host
		h = w.host(func(s *setup) {
			s.link.Trace = func(e faultstore.Event) {
				if !e.Done && e.Op == faultstore.OpReplace && e.Key == h.headKey {
					if writes++; writes == 2 {
						h.link.SetLink(faultstore.Mute) // it takes effect, and nobody hears of it
					}
				}
			}
		})
		out, err := h.Once(t.Context(), at(1), h.work)
		if out.State != NotRun || err == nil {
			t.Fatalf("%+v, %v", out, err)
		}
		if len(w.head().Open) != 1 {
			t.Fatal("the admission did not take effect")
		}
		h.link.SetLink(faultstore.Up)
		rested(ttl)
		if n := len(w.head().Open); n != 0 {
			t.Errorf("%d attempts are open", n)
		}
		want(t, w.host().do(at(1), Wait(3*ttl)), Ran, 2)
		if plain, _ := w.effects(at(1)); plain != 1 {
			t.Errorf("%d effects", plain)
		}
	})
}

// An outcome that the store does not take in time is recorded once it does; until then
// the run is unknown, and its caller is told.
//
// SPEC EX4
func TestOutcomeIsRecordedLater(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		h := w.host()
		out, err := h.Once(t.Context(), at(1), func(_ context.Context, a *Attempt) (Result, error) {
			h.link.SetLink(faultstore.Refused)
			return Result{}, w.act(a)
		}, SettleLimit(ttl))
		wantErr(t, err, ErrUnsettled, store.ErrUnavailable)
		want(t, out, Unsettled, 1)
		want(t, w.host().do(at(1), Wait(3*ttl)), Held, 1)
		h.link.SetLink(faultstore.Up)
		rested(ttl)
		want(t, w.host().do(at(1)), Done, 1)
	})
}

// chaotic is one host that asks for every occurrence as it comes due, through whatever
// its link does, and is replaced by another whenever it dies.
type chaotic struct {
	w      *world
	rng    *rand.Rand
	policy Policy
	guard  bool
	late   time.Duration
	killed int
}

func (c *chaotic) start() *host {
	chaos := faultstore.Chaos(c.rng.Uint64(), 0.3, ttl)
	h := c.w.host(func(s *setup) {
		s.rate = 1 + 0.01*(2*c.rng.Float64()-1)
		s.link = faultstore.Options{Seed: chaos.Seed, Trace: func(faultstore.Event) {}}
	})
	for _, r := range chaos.Rules {
		h.link.Add(r)
	}
	return h
}

// asks does one occurrence after the other, until all are settled or held.
func (c *chaotic) asks(ctx context.Context, occurrences int) {
	h := c.start()
	rested(c.late)
	for n := range occurrences {
		for tries := 0; tries < 3; tries++ {
			rng := rand.New(rand.NewPCG(c.rng.Uint64(), 0)) // the function may go on after the call
			out, _ := h.Once(ctx, at(n), func(_ context.Context, a *Attempt) (Result, error) { return c.act(rng, h, a) },
				OnUnknown(c.policy), Wait(time.Duration(c.rng.IntN(5))*ttl), SettleLimit(2*ttl))
			if h.gone() {
				c.killed++
				h = c.start()
				continue
			}
			if out.State != NotRun && out.State != Busy {
				break
			}
		}
		if c.rng.IntN(3) == 0 {
			limited, cancel := context.WithTimeout(ctx, ttl)
			_, _ = h.Compact(limited)
			cancel()
		}
		rested(time.Duration(c.rng.IntN(2000)) * time.Millisecond)
	}
}

// act is the effect, of a host that may die before or after it, or be stopped.
func (c *chaotic) act(rng *rand.Rand, h *host, a *Attempt) (Result, error) {
	switch rng.IntN(12) {
	case 0:
		h.kill()
		return Result{}, ErrUnsettled
	case 1:
		err := c.affect(a)
		h.kill()
		if err == nil {
			err = ErrUnsettled
		}
		return Result{}, err
	case 2: // stopped, and it does not look at its context afterwards
		h.link.SetLink(faultstore.Cut)
		rested(time.Duration(rng.IntN(4)) * ttl)
		h.link.SetLink(faultstore.Up)
	case 3:
		return Result{}, errors.New("failed without an effect")
	}
	rested(time.Duration(rng.IntN(500)) * time.Millisecond)
	return Result{}, c.affect(a)
}

// affect is the effect: on the thing that refuses an older epoch, which the host is told,
// or on the one that takes everything.
func (c *chaotic) affect(a *Attempt) error {
	err := c.w.act(a)
	if !c.guard {
		err = nil
	}
	return err
}

// kill is die, with a mark for the test.
func (h *host) kill() {
	h.mu.Lock()
	h.sent = []string{"killed"}
	h.mu.Unlock()
	h.die()
}

func (h *host) gone() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.sent) == 1 && h.sent[0] == "killed"
}

// Five hosts with the same schedule, drifting clocks, and everything going wrong at
// once: hosts die and are replaced, are stopped in the middle, and their requests are
// lost, delayed, repeated and land late. With a guard and retry the effect comes exactly
// once per occurrence. Without a guard it comes again only where a run is repeated or had
// an attempt that was given up; and with hold it never does: each occurrence is committed
// with one effect, or listed as unknown.
//
// SPEC EX1 EX3 EX4 EX5 EX6
// CASE B13 B34
func TestChaos(t *testing.T) {
	var killed atomic.Int64
	twice := map[bool]*atomic.Int64{true: {}, false: {}} // runs whose effect came twice, with a guard or not
	t.Cleanup(func() {
		if killed.Load() < 20 || twice[false].Load() == 0 || twice[true].Load() != 0 {
			t.Errorf("%d hosts died; the effect of %d runs came twice, of %d with a guard", killed.Load(), twice[false].Load(), twice[true].Load())
		}
	})
	for _, c := range []chaotic{{policy: Retry, guard: true}, {policy: Hold, guard: true}, {policy: Retry}, {policy: Hold}} {
		for seed := range uint64(6) {
			t.Run(fmt.Sprint(c.policy, c.guard, seed), func(t *testing.T) {
				inWorld(t, func(t *testing.T, w *world) {
					const occurrences = 12
					var hosts []*chaotic
					var wg sync.WaitGroup
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					for i := range uint64(5) {
						c := &chaotic{w: w, policy: c.policy, guard: c.guard, rng: rand.New(rand.NewPCG(seed, i)), late: time.Duration(i) * 200 * time.Millisecond}
						hosts = append(hosts, c)
						wg.Go(func() { c.asks(ctx, occurrences) })
					}
					wg.Wait()
					for _, c := range hosts {
						killed.Add(int64(c.killed))
					}
					rested(10 * ttl) // what is on its way lands
					twice[c.guard].Add(w.reckon(c, occurrences))
				})
			})
		}
	}
}

// reckon compares what happened with what the ledger says.
func (w *world) reckon(c chaotic, occurrences int) (twice int64) {
	w.t.Helper()
	h := w.host()
	c.w = w
	for n := range occurrences {
		run := at(n)
		out := h.do2(run, func(_ context.Context, a *Attempt) (Result, error) { return Result{}, c.affect(a) }, OnUnknown(c.policy), Wait(5*ttl))
		if out.State != Done && out.State != Ran && (out.State != Held || c.policy == Retry) {
			w.t.Errorf("%d: %+v", n, out)
		}
		effects, guarded := w.effects(run)
		if c.guard {
			effects = guarded
		}
		if effects > 1 {
			twice++
		}
		info := w.info(run)
		switch {
		case c.policy == Retry && (effects == 0 || !info.Committed):
			w.t.Errorf("%d: %d effects, %+v", n, effects, info)
		case effects > 1 && (c.policy == Hold || !info.Repeated && !abandoned(info)):
			w.t.Errorf("%d: %d effects, and nothing shows it: %+v", n, effects, info)
		case (effects == 1) != info.Committed && !info.Unknown && effects < 2:
			w.t.Errorf("%d: %d effects, and it is neither committed nor unknown: %+v", n, effects, info)
		}
	}
	return twice
}
