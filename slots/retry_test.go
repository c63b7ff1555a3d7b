package slots

import (
	"testing"
	"time"

	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

// A call that failed is made again soon, and not first at the next renewal; while the store
// is away a host does not storm it.
//
// SPEC LS4 SL5
func TestFailedCallsAreTriedSoon(t *testing.T) {
	inTables(t, func(t *testing.T, w *tableWorld) {
		a := w.host("a", []Range{rng(0, 9), rng(20, 29)})
		b := w.host("b", []Range{rng(40, 49)}, as("n2"))
		for _, h := range []*hostProc{a, b} {
			h.link.Add(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpGet}, Key: h.tableKey, Times: 2, Fault: faultstore.Fail(store.ErrUnavailable)})
			h.run()
		}
		until(t, 3*time.Second, func() bool { return len(a.Held()) == 2 && len(b.Held()) == 1 })
		bubbleSleep(time.Second)
		for _, h := range []*hostProc{a, b} {
			h.Lose(h.cfg.Ranges[0].A, 100)
			h.link.Add(faultstore.Rule{Fault: faultstore.Fail(store.ErrUnavailable), Match: func(c faultstore.Call) bool { return c.Op != faultstore.OpWatch && c.Key != "" }, Ops: []faultstore.Op{faultstore.OpGet}, Key: h.tableKey})
		}
		const span = 5 * time.Minute
		bubbleSleep(20 * time.Second)
		calls := map[*hostProc]int{a: a.calls(), b: b.calls()}
		bubbleSleep(span)
		for h, before := range calls {
			n := h.calls() - before
			if most := 6 * int(span/(hostTTL/4)); n > most {
				t.Errorf("%s made %d calls in %v, want at most %d", h.Owner(), n, span, most)
			}
			t.Logf("%s: %d calls in %v", h.Owner(), n, span)
		}
	})
}

// What no repetition mends is not tried more often.
//
// SPEC SL5
func TestRefusalsAreNotTriedSoon(t *testing.T) {
	t.Parallel()
	inTable(t, RowsForm, func(t *testing.T, w *tableWorld) {
		a := w.host("a", []Range{rng(0, 9)})
		a.link.Add(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpGet}, Key: a.tableKey, Fault: faultstore.Fail(store.ErrDenied)})
		if r := a.refresh(); len(r.Failed) != 1 || a.NextWake() != hostTTL/4 {
			t.Errorf("%+v, then %v", r, a.NextWake())
		}
	})
}
