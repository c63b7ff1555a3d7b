package slots

import (
	"testing"

	tenure "github.com/tenure-project/tenure"
)

// A table that is gone is not made anew by who has seen it, until the namespace's floor is
// above all that was seen; then its epochs go on above that.
//
// SPEC SL2 LS12
func TestTableThatIsGone(t *testing.T) {
	inTables(t, func(t *testing.T, w *tableWorld) {
		a := w.host("a", []Range{rng(0, 9)})
		a.refresh().is(t, "claimed 0-9@1")
		if _, err := a.table.Read(t.Context()); err != nil {
			t.Fatal(err)
		}
		a.Close()
		w.restore(nil)
		_, err := Open(t.Context(), a.c, orders)
		wantKinds(t, err, tenure.ErrRegressed)
		_, err = Create(t.Context(), a.c, orders)
		wantKinds(t, err, tenure.ErrRegressed)
		if _, err := a.c.JumpAll(t.Context(), 50); err != nil {
			t.Fatal(err)
		}
		anew, err := Create(t.Context(), a.c, orders)
		if err != nil {
			t.Fatal(err)
		}
		if v, err := anew.Read(t.Context()); err != nil || v.Counter < 50 || len(v.Rows) > 0 {
			t.Fatalf("made anew as %+v, %v", v, err)
		}
	})
}
