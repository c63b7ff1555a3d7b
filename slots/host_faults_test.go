package slots

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	tenure "github.com/tenure-project/tenure"
	core "github.com/tenure-project/tenure/internal/core/slots"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

// stubborn holds up calls on one row, whatever becomes of their contexts, until it is let
// go: a call that cannot be cancelled.
type stubborn struct {
	row   string
	stuck atomic.Bool
	calls atomic.Int32
	free  chan struct{}
}

func newStubborn(first uint16) *stubborn {
	return &stubborn{row: store.Key("default", kindRow, orders) + "/" + core.RowName(first), free: make(chan struct{})}
}

func (s *stubborn) trace(e faultstore.Event) {
	if e.Done || e.Late || !e.Op.Writes() {
		return
	}
	mine := e.Key == s.row
	for _, c := range e.Changes {
		mine = mine || c.Key == s.row
	}
	if !mine {
		return
	}
	s.calls.Add(1)
	if s.stuck.Load() {
		<-s.free
	}
}

// letGo ends every call that is held up.
func (s *stubborn) letGo() {
	s.stuck.Store(false)
	close(s.free)
}

// twoRanges is a host with two ranges, of which calls on the first can be held up.
func twoRanges(t *testing.T, f func(t *testing.T, w *tableWorld, a *hostProc, s *stubborn)) {
	t.Parallel()
	inTable(t, RowsForm, func(t *testing.T, w *tableWorld) {
		s := newStubborn(0)
		a := w.host("a", []Range{rng(0, 9), rng(10, 19)}, func(h *hostSetup) { h.link.Trace = s.trace })
		f(t, w, a, s)
		if s.stuck.Load() {
			s.letGo()
		}
		synctest.Wait()
	})
}

// A call that hangs makes its own range lapse and no other, is not made again while it
// runs, and is in the health.
//
// SPEC SL5 ST13
func TestStuckRenewal(t *testing.T) {
	twoRanges(t, func(t *testing.T, w *tableWorld, a *hostProc, s *stubborn) {
		a.refresh()
		live, _ := a.EpochFor(15)
		s.stuck.Store(true)
		before := s.calls.Load()
		for range 4 {
			began := time.Now()
			a.refresh().is(t, "renewed 10-19, failed 0-9")
			if took := time.Since(began); took > hostTTL/6+hostTTL/40 {
				t.Errorf("the refresh took %v", took)
			}
			w.pass(hostTTL/4 - time.Since(began))
		}
		a.epoch(15, live)
		a.epoch(3, 0)
		if n := s.calls.Load() - before; n != 1 {
			t.Errorf("%d calls for the stuck range, want 1", n)
		}
		h := a.Health()
		if h.Up || len(h.Held) != 2 || h.Held[0].Serving || !h.Held[1].Serving || len(h.Failed) != 1 || h.Failed[0].Range != rng(0, 9) || h.Busy != 1 {
			t.Errorf("health is %+v", h)
		}
		s.letGo()
		synctest.Wait()
		a.refresh().is(t, "renewed 0-9, renewed 10-19")
		if h := a.Health(); !h.Up || h.Busy != 0 {
			t.Errorf("health is %+v", h)
		}
	})
}

// A claim that hangs holds no other up; the report keeps the configured order; what the
// stuck claim did is adopted.
//
// SPEC SL5
func TestStuckClaim(t *testing.T) {
	twoRanges(t, func(t *testing.T, w *tableWorld, a *hostProc, s *stubborn) {
		s.stuck.Store(true)
		began := time.Now()
		r := a.refresh()
		r.is(t, "claimed 10-19@1, failed 0-9")
		if took := time.Since(began); took > hostTTL/6+hostTTL/40 {
			t.Errorf("the refresh took %v", took)
		}
		a.epoch(15, 1)
		a.epoch(3, 0)
		a.refresh().is(t, "renewed 10-19, failed 0-9")
		s.letGo()
		synctest.Wait()
		r = a.refresh()
		if len(r.Failed) != 0 || len(r.Claimed)+len(r.Renewed) != 2 {
			t.Errorf("%+v", r)
		}
		a.epoch(3, 2)
		if held := a.Health().Held; held[0].Range != rng(0, 9) || held[1].Range != rng(10, 19) {
			t.Errorf("held is out of order: %v", held)
		}
	})
}

// A refresh that is given up leaves its call running, which is then no free range; a fence
// meanwhile and a failure are told apart.
//
// SPEC SL5 SL6
func TestDroppedRefresh(t *testing.T) {
	twoRanges(t, func(t *testing.T, w *tableWorld, a *hostProc, s *stubborn) {
		a.refresh()
		s.stuck.Store(true)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan Report, 1)
		go func() { done <- a.Refresh(ctx) }()
		bubbleSleep(time.Second)
		cancel()
		(<-done).is(t, "renewed 10-19, failed 0-9")
		if h := a.Health(); h.Busy != 1 {
			t.Errorf("health is %+v", h)
		}
		if !a.Lose(15, 9) {
			t.Error("not lost")
		}
		a.refresh().is(t, "claimed 10-19@10, failed 0-9")
		s.letGo()
		synctest.Wait()
		if h := a.Health(); h.Busy != 0 {
			t.Errorf("health is %+v", h)
		}
	})
}

// The next refresh is due a renew interval after the last one began, however long that took,
// or when the first grant lapses.
//
// SPEC SL5
func TestNextWake(t *testing.T) {
	twoRanges(t, func(t *testing.T, w *tableWorld, a *hostProc, s *stubborn) {
		a.refresh()
		if next := a.NextWake(); next != hostTTL/4 {
			t.Errorf("next wake in %v", next)
		}
		s.stuck.Store(true)
		w.pass(hostTTL / 4)
		began := time.Now()
		a.refresh()
		if next, took := a.NextWake(), time.Since(began); next+took != hostTTL/4 {
			t.Errorf("next wake in %v after a refresh of %v", next, took)
		}
		w.pass(hostTTL/4 - time.Since(began))
		began = time.Now()
		a.refresh()
		if due, lapse := a.NextWake(), hostTTL-hostTTL/3-hostTTL/2; due+time.Since(began) != lapse {
			t.Errorf("next wake in %v, but the range lapses in %v", due, lapse)
		}
	})
}

// Cut off, a host stops serving before anyone may claim, and its health says so.
//
// SPEC SL5 SL7 DL4
func TestPartitioned(t *testing.T) {
	inTables(t, func(t *testing.T, w *tableWorld) {
		a, b := w.host("a", []Range{All}), w.host("b", []Range{All})
		a.run()
		synctest.Wait()
		a.epoch(7, 1)
		b.run()
		w.pass(time.Minute)
		a.link.SetLink(faultstore.Cut)
		w.pass(hostTTL - hostTTL/3)
		a.epoch(7, 0)
		if h := a.Health(); h.Up || len(h.Failed) != 1 || h.Held[0].Serving {
			t.Errorf("health is %+v", h)
		}
		b.epoch(7, 0)
		w.pass(hostTTL)
		b.epoch(7, 2)
		a.link.SetLink(faultstore.Up)
		w.pass(hostTTL)
		a.epoch(7, 0)
		if h := a.Health(); !h.Up || len(h.Waiting) != 1 {
			t.Errorf("health is %+v", h)
		}
	})
}

// A renewal that returns after a fence does not bring the range back; the next refresh
// claims above the fence.
//
// SPEC SL6
func TestRenewalAfterFence(t *testing.T) {
	inTables(t, func(t *testing.T, w *tableWorld) {
		var a *hostProc
		var fence atomic.Bool
		a = w.host("a", []Range{All}, func(s *hostSetup) {
			s.link.Trace = func(e faultstore.Event) {
				if e.Op == faultstore.OpReplace && !e.Done && fence.CompareAndSwap(true, false) && !a.Lose(7, 5) {
					w.t.Error("not lost")
				}
			}
		})
		a.refresh().is(t, "claimed 0-16383@1")
		fence.Store(true)
		a.refresh().is(t, "lost 0-16383")
		a.epoch(7, 0)
		a.refresh().is(t, "claimed 0-16383@6")
	})
}

// A claim that returns after a fence is not served under the older epoch either.
//
// SPEC SL6
func TestClaimAfterFence(t *testing.T) {
	inTables(t, func(t *testing.T, w *tableWorld) {
		var a *hostProc
		var fence atomic.Bool
		fence.Store(true)
		a = w.host("a", []Range{All}, func(s *hostSetup) {
			s.link.Trace = func(e faultstore.Event) {
				if (e.Op == faultstore.OpReplace || e.Op == faultstore.OpCommit) && e.Done && fence.CompareAndSwap(true, false) && a.Lose(7, 50) {
					w.t.Error("nothing was held")
				}
			}
		})
		a.refresh().is(t, "lost 0-16383")
		a.epoch(7, 0)
		a.refresh().is(t, "claimed 0-16383@51")
	})
}

// A claim between a rival's reading of the counter and of the rows is no damage, and the
// rival decides on what is there.
//
// SPEC SL4
func TestClaimBetweenTwoReads(t *testing.T) {
	t.Parallel()
	inTable(t, RowsForm, func(t *testing.T, w *tableWorld) {
		a := w.host("a", []Range{rng(0, 9)})
		var once atomic.Bool
		b := w.host("b", []Range{rng(5, 14)}, func(s *hostSetup) {
			s.link.Trace = func(e faultstore.Event) {
				if e.Op == faultstore.OpScan && !e.Done && once.CompareAndSwap(false, true) {
					a.refresh().is(t, "claimed 0-9@1")
				}
			}
		})
		b.refresh().is(t, "waiting 5-14")
	})
}

// A claim between a rival's reading and its writing is found by the counter, also where the
// rival saw no row.
//
// SPEC SL2 SL4
func TestClaimBeforeTheWrite(t *testing.T) {
	inTables(t, func(t *testing.T, w *tableWorld) {
		a := w.host("a", []Range{rng(0, 9)})
		var once atomic.Bool
		b := w.host("b", []Range{rng(5, 14)}, func(s *hostSetup) {
			s.link.Trace = func(e faultstore.Event) {
				if (e.Op == faultstore.OpReplace || e.Op == faultstore.OpCommit) && !e.Done && once.CompareAndSwap(false, true) {
					a.refresh().is(t, "claimed 0-9@1")
				}
			}
		})
		b.refresh().is(t, "waiting 5-14")
		w.check()
	})
}

// Replies that are lost, and writes that land late, are settled: a host goes on from what
// it finds to be its own, and keeps its epoch.
//
// SPEC ST9 SL4
func TestLostReplies(t *testing.T) {
	for name, f := range map[string]faultstore.Fault{
		"reply": faultstore.LoseReply(), "request": faultstore.LoseRequest(), "hang": faultstore.Hang(), "hang applied": faultstore.HangApplied(),
		"late": faultstore.LandLate(time.Second, hostTTL/3), "twice": faultstore.Duplicate(time.Second, hostTTL/3),
	} {
		t.Run(name, func(t *testing.T) {
			inTables(t, func(t *testing.T, w *tableWorld) {
				a := w.host("a", []Range{rng(0, 9)})
				a.run()
				synctest.Wait()
				a.epoch(0, 1)
				a.link.Add(faultstore.Rule{Match: w.onRow(0), Every: 2, Fault: f})
				w.pass(5 * hostTTL)
				a.link.Clear()
				w.pass(hostTTL)
				a.epoch(0, 1)
				for _, err := range a.ended {
					wantKinds(t, err, tenure.ErrExpired)
				}
			})
		})
	}
}

// Lost replies of claims: one row, whose epoch is served.
//
// SPEC ST9 SL3
func TestLostClaims(t *testing.T) {
	for name, f := range map[string]faultstore.Fault{
		"reply": faultstore.LoseReply(), "request": faultstore.LoseRequest(), "hang": faultstore.Hang(), "hang applied": faultstore.HangApplied(),
		"late": faultstore.LandLate(time.Second, hostTTL/3),
	} {
		t.Run(name, func(t *testing.T) {
			inTables(t, func(t *testing.T, w *tableWorld) {
				a := w.host("a", []Range{rng(0, 9), rng(20, 29)})
				a.link.Add(faultstore.Rule{Match: w.onRow(0), Times: 2, Fault: f})
				a.run()
				w.pass(hostTTL)
				for _, r := range w.rows() {
					a.epoch(r.Range.A, r.Epoch)
				}
				if len(a.Held()) != 2 {
					t.Errorf("it holds %v", a.Held())
				}
			})
		})
	}
}

// One hung release delays no other: each is limited, and the range whose call does not end
// is left to lapse.
//
// SPEC SL7
func TestHungRelease(t *testing.T) {
	twoRanges(t, func(t *testing.T, w *tableWorld, a *hostProc, s *stubborn) {
		a.refresh()
		a.link.Add(faultstore.Rule{Match: w.onRow(0), Fault: faultstore.Hang()})
		began := time.Now()
		err := a.Release(t.Context())
		wantKinds(t, err, tenure.ErrUnconfirmed)
		if took := time.Since(began); took > hostTTL/6+time.Second {
			t.Errorf("the release took %v", took)
		}
		rows := w.rows()
		if rows[0].Held() == false || rows[1].Held() {
			t.Errorf("%+v", rows)
		}
	})
}

// At the end a call that runs has one interval to end; then its range lapses, and the others
// are released.
//
// SPEC SL7
func TestStuckCallAtTheEnd(t *testing.T) {
	twoRanges(t, func(t *testing.T, w *tableWorld, a *hostProc, s *stubborn) {
		stop := a.run()
		synctest.Wait()
		s.stuck.Store(true)
		w.pass(hostTTL/4 + time.Second)
		began := time.Now()
		wantKinds(t, stop(), tenure.ErrUnconfirmed)
		if took := time.Since(began); took < hostTTL/4-time.Second || took > hostTTL/2 {
			t.Errorf("the end took %v", took)
		}
		a.epoch(15, 0)
		if rows := w.rows(); !rows[0].Held() || rows[1].Held() {
			t.Errorf("%+v", rows)
		}
	})
}
