package slots

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	tenure "github.com/tenure-project/tenure"
	core "github.com/tenure-project/tenure/internal/core/slots"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
	"github.com/tenure-project/tenure/store/memstore"
)

// Fences that come while refreshes run: once Lose has returned, no epoch below is answered
// again, and a newer one that was claimed meanwhile is not dropped.
//
// SPEC SL6
func TestFencesAndRefreshesRace(t *testing.T) {
	t.Parallel()
	for _, form := range forms {
		t.Run(string(form), func(t *testing.T) {
			t.Parallel()
			c, err := tenure.New(t.Context(), memstore.New(), tenure.WithoutProbe(), tenure.WithLogger(noLog))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			opts := []Option{}
			if form == RegisterForm {
				opts = append(opts, Register())
			}
			table, err := Create(t.Context(), c, orders, opts...)
			if err != nil {
				t.Fatal(err)
			}
			h, err := table.Host(HostConfig{Owner: "a", Ranges: []Range{rng(0, 9), rng(10, 19)}})
			if err != nil {
				t.Fatal(err)
			}
			defer h.Close()
			var stop atomic.Bool
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() {
					for !stop.Load() {
						h.Refresh(t.Context())
					}
				})
			}
			for newer := uint64(1); newer < 300; newer++ {
				h.Lose(3, newer)
				if e, ok := h.EpochFor(3); ok && e < newer {
					t.Errorf("epoch %d is answered after %d was seen", e, newer)
				}
				if newer%3 == 0 { // let a claim through
					for e, ok := h.EpochFor(3); !ok || e < newer; e, ok = h.EpochFor(3) {
						h.Refresh(t.Context())
					}
				}
			}
			stop.Store(true)
			wg.Wait()
		})
	}
}

// Reading takes no write lock: it writes nothing, and is done while a write hangs.
//
// SPEC SL4
func TestReadingLocksNothing(t *testing.T) {
	inTables(t, func(t *testing.T, w *tableWorld) {
		a := w.host("a", []Range{rng(0, 9)})
		a.refresh()
		reader := w.client("reader", nil)
		table, err := Open(t.Context(), reader.c, orders)
		if err != nil {
			t.Fatal(err)
		}
		a.link.Add(faultstore.Rule{Match: w.onRow(0), Fault: faultstore.Hang()})
		go a.Refresh(context.Background())
		bubbleSleep(time.Second)
		began := time.Now()
		calls := reader.used(func() {
			v, err := table.Read(t.Context())
			if err != nil || len(v.Rows) != 1 || v.Counter != 1 || v.Rows[0].Host.Addr != "a:80" {
				t.Errorf("%+v, %v", v, err)
			}
		})
		want := map[Form]string{RowsForm: "scan slots-row, get slots, get slots-plan, scan slots-host", RegisterForm: "get slots, get slots-plan, scan slots-host"}
		if calls != want[w.form] || time.Since(began) > 0 {
			t.Errorf("reading took %q and %v", calls, time.Since(began))
		}
		bubbleSleep(hostTTL)
	})
}

// A wall clock that is far ahead lets nobody claim early.
//
// SPEC LS2 ST12
func TestWallClocksDecideNothing(t *testing.T) {
	inTables(t, func(t *testing.T, w *tableWorld) {
		a, b := w.host("a", []Range{rng(0, 9)}), w.host("b", []Range{rng(0, 9)})
		b.clk.StepWall(100 * time.Hour)
		a.run()
		synctest.Wait()
		b.run()
		w.pass(5 * time.Minute)
		a.epoch(0, 1)
		b.clk.StepWall(-200 * time.Hour)
		a.clk.StepWall(50 * time.Hour)
		w.pass(5 * time.Minute)
		a.epoch(0, 1)
	})
}

// Clocks that run within the bound: the slow holder stops before the fast rival starts,
// which pass checks.
//
// SPEC DL5 LS2
func TestClocksWithinTheBound(t *testing.T) {
	inTables(t, func(t *testing.T, w *tableWorld) {
		a := w.host("a", []Range{rng(0, 9)}, func(s *hostSetup) { s.rate = 0.99 })
		b := w.host("b", []Range{rng(0, 9)}, func(s *hostSetup) { s.rate = 1.01 })
		a.run()
		synctest.Wait()
		b.run()
		w.pass(time.Minute)
		a.link.SetLink(faultstore.Cut)
		w.pass(2 * hostTTL)
		b.epoch(0, 2)
	})
}

// A counter below a row's epoch, and a negative one, are damage: nobody claims, renews on
// nothing that was read, or reads past it.
//
// SPEC SL4
func TestCounterThatFell(t *testing.T) {
	for name, counter := range map[string]string{"below a row": `"counter":1`, "negative": `"counter":-3`} {
		t.Run(name, func(t *testing.T) {
			inTables(t, func(t *testing.T, w *tableWorld) {
				a := w.host("a", []Range{rng(0, 9), rng(10, 19)})
				a.refresh()
				key := store.Key("default", kindTable, orders)
				o, err := w.st.Get(t.Context(), key, core.MaxTable)
				if err != nil {
					t.Fatal(err)
				}
				body := strings.Replace(string(o.Body), `"counter":2`, counter, 1)
				if _, err := w.st.Replace(t.Context(), key, []byte(body), o.Version); err != nil || body == string(o.Body) {
					t.Fatal(err)
				}
				c := w.client("b", nil)
				table, err := Open(t.Context(), c.c, orders)
				if err == nil {
					_, err = table.Read(t.Context())
				}
				wantKinds(t, err, store.ErrCorrupt)
				if table != nil {
					b, err := table.Host(HostConfig{Owner: "b", Ranges: []Range{rng(0, 19)}})
					if err != nil {
						t.Fatal(err)
					}
					defer b.Close()
					for range 3 {
						wantKinds(t, b.Refresh(t.Context()).Failed[0].Err, store.ErrCorrupt)
						bubbleSleep(hostTTL)
					}
				}
			})
		})
	}
}

// Trust counts from before the first send, however long the answer takes; one that comes
// after what it grants is none.
//
// SPEC DL4
func TestTrustCountsFromTheSend(t *testing.T) {
	inTables(t, func(t *testing.T, w *tableWorld) {
		a := w.host("a", []Range{rng(0, 9)})
		a.link.Add(faultstore.Rule{Match: w.onRow(0), Times: 1, Fault: faultstore.DelayReply(4*time.Second, 4*time.Second)})
		sent := a.clk.Boot()
		a.refresh().is(t, "claimed 0-9@1")
		g, _ := a.Grant(0)
		if at, ok := g.Deadline(); !ok || at != sent+hostTTL-hostTTL/3 {
			t.Errorf("live until %v, sent at %v", at, sent)
		}
		w.pass(hostTTL/4 - 4*time.Second)
		a.link.Add(faultstore.Rule{Match: w.onRow(0), Times: 1, Fault: faultstore.DelayReply(4*time.Second, 4*time.Second)})
		sent = a.clk.Boot()
		a.refresh().is(t, "renewed 0-9")
		if at, ok := g.Deadline(); !ok || at != sent+hostTTL-hostTTL/3 {
			t.Errorf("live until %v, sent at %v", at, sent)
		}
	})
}

// A machine that slept past the end answers for nothing when it wakes.
//
// SPEC DL3 SL6
func TestSuspended(t *testing.T) {
	inTables(t, func(t *testing.T, w *tableWorld) {
		a := w.host("a", []Range{rng(0, 9)})
		a.refresh()
		a.clk.Suspend(hostTTL)
		a.epoch(0, 0)
	})
}
