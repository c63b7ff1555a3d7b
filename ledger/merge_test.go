package ledger

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tenure-project/tenure/store"
)

// Filling the head compacts it, in the background and in nobody's way; nothing that was
// committed is lost, and an answer stays two requests and 64 KiB.
//
// SPEC EX7 EX3
func TestCompactionByItself(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		h := w.host()
		const runs = 700
		for n := range runs {
			want(t, h.do(at(n)), Ran, 1)
		}
		if err := h.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		x, err := h.Load(t.Context())
		if err != nil || x.Counts.Committed != runs || x.Blocks == 0 || len(w.head().Facts) == runs {
			t.Fatalf("%+v, %v", x, err)
		}
		before := x.Blocks
		for { // one by one, as it would be in a year
			done, err := h.Compact(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if done.Facts == 0 {
				break
			}
		}
		for n := range runs {
			ans, err := h.Did(t.Context(), at(n))
			if err != nil || !ans.Committed || ans.Requests > 2 || ans.Bytes > 64<<10 {
				t.Fatalf("run %d: %+v, %v", n, ans, err)
			}
			want(t, h.do(at(n)), Done, 1)
		}
		if n := len(w.head().Facts); n != 0 || before < 1 {
			t.Errorf("%d facts are left in the head", n)
		}
	})
}

// A head that nobody compacted in the background is compacted by the run that needs the
// room.
//
// SPEC EX7
func TestFullHeadMakesRoom(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for n := range 300 {
			h := w.host()
			want(t, h.do(at(n)), Ran, 1)
			h.die() // with whatever it has in the background
		}
		x, err := w.host().Load(t.Context())
		if err != nil || x.Counts.Committed != 300 {
			t.Fatalf("%+v, %v", x, err)
		}
	})
}

// Two sites that could not reach each other merge: nothing that either committed runs
// again, what both did is shown as repeated, what is open there is unknown here, in any
// order of the merge.
//
// SPEC EX7
func TestMergeOfSites(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		lyon := &world{t: t, st: newStore(t), plain: map[RunID]int{}, runs: map[RunID]int{}}
		here, there := w.host(), lyon.host(func(s *setup) { s.opts = []Option{Site("lyon")} })
		here.do(at(1))
		there.do(at(2))
		here.do(at(3))
		there.do(at(3))
		_, open := lyon.leave(at(4), true)
		var logs [2]bytes.Buffer
		for i, h := range []*host{here, there} {
			if err := h.Export(t.Context(), &logs[i]); err != nil {
				t.Fatal(err)
			}
		}
		var merged []string
		for _, order := range [][]int{{0, 1}, {1, 0}, {1, 0, 1, 1}} {
			g := NewLog()
			for _, i := range order {
				if err := g.ReadFrom(fmt.Sprint(i), bytes.NewReader(logs[i].Bytes())); err != nil {
					t.Fatal(err)
				}
			}
			var out bytes.Buffer
			if _, err := g.WriteTo(&out); err != nil {
				t.Fatal(err)
			}
			merged = append(merged, out.String())
			var c Counts
			for r := range g.Runs(job) {
				c.add(r)
			}
			if c != (Counts{Committed: 3, Repeated: 1, Unknown: 1}) {
				t.Errorf("%+v", c)
			}
			if e := g.Epochs(job); e["main"] == 0 || e["lyon"] == 0 {
				t.Errorf("%v", e)
			}
		}
		if merged[0] != merged[1] || merged[1] != merged[2] {
			t.Errorf("the order matters:\n%s\n%s\n%s", merged[0], merged[1], merged[2])
		}
		g := NewLog()
		if err := g.ReadFrom("lyon", &logs[1]); err != nil {
			t.Fatal(err)
		}
		for range 2 { // importing twice is as good as once
			done, err := here.Import(t.Context(), g)
			if err != nil || len(done.Opens) != 1 || done.Opens[0].Key != open {
				t.Fatalf("%+v, %v", done, err)
			}
		}
		want(t, here.do(at(1)), Done, 1)
		want(t, here.do(at(2)), Done, 1)
		if out := here.do(at(3)); out.State != Done || !w.info(at(3)).Repeated {
			t.Errorf("%+v", out)
		}
		if plain, _ := w.effects(at(2)); plain != 0 {
			t.Error("a run that another site committed ran again")
		}
		want(t, here.do(at(4), OnUnknown(Retry)), Held, 1) // nobody here knows whether lyon is at it
		_, err := here.Retry(t.Context(), at(4), SettleOptions{Reason: "x"})
		wantErr(t, err, ErrRunning)
		if _, err := here.Retry(t.Context(), at(4), SettleOptions{Reason: "lyon is gone", Vouch: true}); err != nil {
			t.Fatal(err)
		}
		want(t, here.do(at(4)), Ran, 1)
		x, err := here.Load(t.Context())
		if err != nil || !slices.Equal(x.Sites, []string{"lyon"}) || x.Counts != (Counts{Committed: 4, Repeated: 1}) {
			t.Errorf("%+v, %v", x, err)
		}
	})
}

// An import into a store where nothing ever ran begins the ledger; the log of another
// job is refused; a damaged log is, too, and a torn last line is dropped.
//
// SPEC EX7
func TestImport(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.host().do(at(1))
		var log bytes.Buffer
		if err := w.host().Export(t.Context(), &log); err != nil {
			t.Fatal(err)
		}
		g := NewLog()
		if err := g.ReadFrom("log", strings.NewReader(log.String()+"0123")); err != nil || g.Torn != 1 || g.Lines == 0 {
			t.Fatalf("%+v, %v", g, err)
		}
		bad := strings.Replace(log.String(), `"committed"`, `"committee"`, 1)
		wantErr(t, NewLog().ReadFrom("bad", strings.NewReader(bad)), store.ErrCorrupt)

		fresh := &world{t: t, st: newStore(t), plain: map[RunID]int{}, runs: map[RunID]int{}}
		h := fresh.host()
		if _, err := h.Import(t.Context(), g); err != nil {
			t.Fatal(err)
		}
		want(t, h.do(at(1)), Done, 1)
		want(t, h.do(at(2)), Ran, 1)
		other := fresh.host(func(s *setup) { s.agent = "other" })
		_, err := other.Import(t.Context(), g)
		wantErr(t, err, store.ErrNotFound)
		elsewhere := fresh.host(func(s *setup) { s.opts = []Option{Site("lyon")} })
		_, err = elsewhere.Did(t.Context(), at(1))
		wantErr(t, err, store.ErrInvalid)
		var names []string
		for name, err := range List(t.Context(), h.c) {
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, name)
		}
		if !slices.Equal(names, []string{job}) {
			t.Errorf("%q", names)
		}
	})
}
