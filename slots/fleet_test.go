package slots

import (
	"fmt"
	"testing"
	"time"

	"github.com/tenure-project/tenure/store/faultstore"
)

// A hundred hosts with ten ranges each keep everything renewed, with one whose store is
// stuck, one whose store is slow, and one that is cut off: the first and the last alone
// lose ranges. In a register they live by sessions, as they should there.
//
// SPEC SL5 SL7
func TestHundredHosts(t *testing.T) {
	inTables(t, func(t *testing.T, w *tableWorld) {
		const hosts, ranges, each = 100, 10, 16
		stuck, slow, cut := 17, 42, 77
		all := make([]*hostProc, hosts)
		edit := func(string) func(*hostSetup) { return func(*hostSetup) {} }
		if w.form == RegisterForm {
			edit = as
		}
		for i := range all {
			var mine []Range
			for k := range ranges {
				first := uint16((i*ranges + k) * each)
				mine = append(mine, rng(first, first+each-1))
			}
			all[i] = w.host(fmt.Sprintf("h%02d", i), mine, edit(fmt.Sprintf("n%02d", i)))
			all[i].run()
		}
		until(t, 2*time.Minute, func() bool {
			for _, h := range all {
				if len(h.Held()) < ranges {
					return false
				}
			}
			return true
		})
		w.check()
		requests := func() (n int) {
			for _, h := range all {
				n += h.calls()
			}
			return n
		}
		claiming, began := requests(), time.Now()
		writes := []faultstore.Op{faultstore.OpReplace, faultstore.OpCommit}
		all[stuck].link.Add(faultstore.Rule{Ops: writes, Fault: faultstore.Hang()})
		all[slow].link.Add(faultstore.Rule{Fault: faultstore.DelayReply(time.Second, 3*time.Second)})
		all[cut].link.SetLink(faultstore.Cut)
		const span = 2 * time.Minute
		for time.Since(began) < span {
			bubbleSleep(span / 10)
			w.check()
		}
		lapses := 0
		for i, h := range all {
			ill := i == stuck || i == cut
			for _, r := range h.cfg.Ranges {
				if _, ok := h.EpochFor(r.A); ok == ill {
					t.Errorf("host %d: served is %v", i, ok)
				}
			}
			h.mu.Lock()
			if !ill && len(h.ended) > 0 {
				t.Errorf("host %d: %d of its grants ended", i, len(h.ended))
			}
			lapses += len(h.ended)
			h.mu.Unlock()
		}
		moves := 0
		for _, r := range w.rows() {
			moves += len(r.From)
		}
		if moves != 0 || lapses != 2*ranges {
			t.Errorf("%d moves and %d lapses, want 0 and %d", moves, lapses, 2*ranges)
		}
		t.Logf("%s: %d moves, %d lapses, %d requests to claim %d ranges, %d in %v to keep them (%.2f per range and renewal)",
			w.form, moves, lapses, claiming, hosts*ranges, requests()-claiming, span, float64(requests()-claiming)/(hosts*ranges)/float64(span/(hostTTL/4)))
	})
}

// until lets bubble time pass until ok, for at most so long.
func until(t *testing.T, most time.Duration, ok func() bool) {
	t.Helper()
	for began := time.Now(); !ok(); bubbleSleep(100 * time.Millisecond) {
		if time.Since(began) > most {
			t.Fatalf("it did not happen within %v", most)
		}
	}
}
