package slots

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

// Who reads the counter, then the rows, and meets a claim in between, reads again. That
// this fails, or that it happens every time, is no damage of the table.
//
// SPEC SL4 ST13
func TestClaimsWhileATableIsRead(t *testing.T) {
	t.Parallel()
	for name, fails := range map[string]bool{"the second look fails": true, "there is one each time": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inTable(t, RowsForm, func(t *testing.T, w *tableWorld) {
				a, b := w.host("a", []Range{rng(0, 9)}), w.host("b", []Range{rng(0, 19)})
				key, meddling := store.Key("default", kindTable, orders), true
				looks := 0
				b.link.Add(faultstore.Rule{Fault: faultstore.Fail(store.ErrUnavailable), Match: func(c faultstore.Call) bool {
					switch {
					case !meddling:
					case c.Op == faultstore.OpGet && c.Key == key:
						looks++
						return fails && looks%2 == 0
					case c.Op == faultstore.OpScan && looks%2 == 1 || !fails:
						a.Lose(0, w.view().Counter+1) // a claims anew
						a.Refresh(t.Context())
					}
					return false
				}})
				r := b.Refresh(t.Context())
				if len(r.Failed) != 1 || store.KindOf(r.Failed[0].Err) != store.ErrUnavailable {
					t.Errorf("%+v", r)
				}
				meddling = false
				b.refresh().is(t, "waiting 0-19")
			})
		})
	}
}

// A renewal that is on its way while the host reads its row, and goes on from what it
// finds, lands before the next one: the host knows it for its own.
//
// SPEC ST9 SL4
func TestRenewalOnItsWayIsNotForgotten(t *testing.T) {
	inTables(t, func(t *testing.T, w *tableWorld) {
		a := w.host("a", []Range{rng(0, 9)})
		a.refresh().is(t, "claimed 0-9@1")
		once := func(f faultstore.Fault) {
			a.link.Add(faultstore.Rule{Match: w.onRow(0), Times: 1, Fault: f})
		}
		bubbleSleep(hostTTL / 4)
		once(faultstore.LandLate(7*time.Second, 7*time.Second))
		a.link.Add(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpGet}, Fault: faultstore.Fail(store.ErrUnavailable)})
		a.refresh().is(t, "failed 0-9")
		a.link.Clear()
		once(faultstore.Delay(3*time.Second, 3*time.Second))
		a.refresh().is(t, "renewed 0-9")
		if r := w.rows()[0]; r.Renewal != 2 || len(a.ended) > 0 {
			t.Errorf("renewal %d, %d grants ended", r.Renewal, len(a.ended))
		}
	})
}

// A hand-over whose release is in doubt, and which the plan takes back, does not leave the
// host serving under an epoch that the release, when it lands, frees for another.
//
// SPEC SL8 LS10 ST9
func TestHandOverInDoubtIsTakenBack(t *testing.T) {
	inTables(t, func(t *testing.T, w *tableWorld) {
		table := w.shardsOf(2)
		pinned := func(s *hostSetup) { s.cfg.Balance.Burst = -1 } // nothing moves but by pins
		a, b := w.balanced("a", pinned), w.balanced("b", pinned)
		pin := func(owner string) {
			if _, err := table.Pin(t.Context(), rng(0, 8191), owner); err != nil {
				t.Fatal(err)
			}
		}
		b.run() // leads
		w.shared(2, time.Minute, "b")
		a.run()
		bubbleSleep(20 * time.Second)
		pin("a")
		w.shared(2, time.Minute, "a", "b")
		var sent atomic.Bool
		a.link.Add(faultstore.Rule{Match: w.onRow(0), Times: 1, Fault: faultstore.LandLate(20*time.Second, 20*time.Second)})
		a.link.Add(faultstore.Rule{Fault: faultstore.Fail(store.ErrUnavailable), Match: func(c faultstore.Call) bool {
			return sent.Load() && strings.Contains(c.Key, "/slots/") || sent.Load() && strings.Contains(c.Key, "/slots-row/") || w.onRow(0)(c) && sent.Swap(true)
		}})
		pin("b")
		until(t, time.Minute, func() bool { _, ok := a.EpochFor(0); return !ok })
		bubbleSleep(6 * time.Second)
		pin("a")
		bubbleSleep(time.Second)
		a.link.Clear()
		for range 600 {
			bubbleSleep(100 * time.Millisecond)
			r := w.rows()[0]
			if e, ok := a.EpochFor(0); ok && (!r.Held() || r.Epoch != e) {
				t.Fatalf("a serves slot 0 under epoch %d, and its row is %+v", e, r)
			}
		}
		if _, ok := a.EpochFor(0); !ok {
			t.Error("a serves slot 0 no more")
		}
	})
}
