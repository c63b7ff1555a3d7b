package faultstore_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

// CASE B21
func TestIgnoredConditions(t *testing.T) {
	t.Parallel()
	w := newWorld(t, faultstore.Options{})
	v := w.create("one")
	w.s.Add(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpCreate}, Fault: faultstore.IgnoreCondition()})
	if _, err := w.s.Create(w.ctx, k, []byte("two")); err != nil {
		t.Errorf("Create that ignores its condition: %v", err)
	}
	w.holds("two")
	_, err := w.s.Replace(w.ctx, k, []byte("three"), v)
	is(t, err, store.ErrConflict)

	w.s.Clear()
	w.s.Add(faultstore.Rule{Fault: faultstore.IgnoreCondition(), Every: 3, Skip: 1})
	wins := []int{}
	for i := range 8 {
		if _, err := w.s.Replace(w.ctx, k, []byte("x"), v); err == nil {
			wins = append(wins, i)
		}
	}
	if !slices.Equal(wins, []int{1, 4, 7}) {
		t.Errorf("of 8 stale writes, numbers %v won; want every third after the first", wins)
	}
	if n := w.s.Fired()["ignore condition"]; n != 4 {
		t.Errorf("the fault fired %d times in all, want 4", n)
	}
	w.s.Clear()
	w.s.Add(faultstore.Rule{Fault: faultstore.IgnoreCondition()})
	if err := w.s.DeleteIf(w.ctx, k, v); err != nil {
		t.Errorf("DeleteIf that ignores its condition: %v", err)
	}
	w.holds("")
	if _, err := w.s.Replace(w.ctx, k, []byte("four"), v); err != nil {
		t.Errorf("Replace that ignores its condition: %v", err)
	}
	w.holds("four")
}

// A torn condition holds for one caller at a time, and not for racers.
func TestTornConditions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, faultstore.Options{Rules: []faultstore.Rule{{Fault: faultstore.TearCondition(time.Second)}}})
		v := w.create("one")
		_, err := w.s.Create(w.ctx, k, nil)
		is(t, err, store.ErrExists)
		_, err = w.s.Replace(w.ctx, k, nil, "stale")
		is(t, err, store.ErrConflict)
		_, err = w.s.Replace(w.ctx, "n/lease/none", nil, v)
		is(t, err, store.ErrNotFound)
		results := make(chan error)
		for range 3 {
			go func() {
				_, err := w.s.Replace(w.ctx, k, []byte("racer"), v)
				results <- err
			}()
		}
		for range 3 {
			if err := <-results; err != nil {
				t.Errorf("a racer within the gap: %v", err)
			}
		}
	})
}

func TestDamage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, faultstore.Options{Seed: 1})
	v := w.create("0123456789")
	if _, err := w.s.Create(w.ctx, "n/lease/other", []byte("other")); err != nil {
		t.Fatal(err)
	}
	read := func(f faultstore.Fault, limit int) (store.Object, error) {
		w.s.Clear()
		w.s.Add(faultstore.Rule{Fault: f})
		return w.s.Get(w.ctx, k, limit)
	}
	for _, c := range []struct {
		fault faultstore.Fault
		want  string
	}{
		{faultstore.Truncate(3), "012"}, {faultstore.Truncate(30), "0123456789"},
		{faultstore.AppendBytes("!!"), "0123456789!!"}, {faultstore.SwapBody("n/lease/other"), "other"},
	} {
		if o, err := read(c.fault, 100); err != nil || string(o.Body) != c.want || o.Version != v {
			t.Errorf("%v: the body is %q at %q (%v), want %q at %q", c.fault, o.Body, o.Version, err, c.want, v)
		}
	}
	o, err := read(faultstore.FlipBit(), 100)
	if err != nil || len(o.Body) != 10 || bits(string(o.Body), "0123456789") != 1 {
		t.Errorf("flip bit: the body is %q (%v), want one bit flipped", o.Body, err)
	}
	_, err = read(faultstore.AppendBytes("!!"), 11)
	is(t, err, store.ErrCorrupt)
	_, err = read(faultstore.SwapBody("n/lease/none"), 100)
	is(t, err, store.ErrNotFound)
	w.holds("0123456789")
}

// bits counts the bits in which two strings of one length differ.
func bits(a, b string) int {
	n := 0
	for i := range len(a) {
		for x := a[i] ^ b[i]; x != 0; x &= x - 1 {
			n++
		}
	}
	return n
}

func TestContentVersions(t *testing.T) {
	t.Parallel()
	w := newWorld(t, faultstore.Options{ContentVersions: true})
	a := w.create("A")
	b, err := w.s.Replace(w.ctx, k, []byte("B"), a)
	if err != nil {
		t.Fatal(err)
	}
	again, err := w.s.Replace(w.ctx, k, []byte("A"), b)
	if err != nil || again != a || a == b {
		t.Errorf("A, B, A have the versions %q, %q, %q (%v)", a, b, again, err)
	}
	_, err = w.s.Replace(w.ctx, k, []byte("C"), b)
	is(t, err, store.ErrConflict)
	_, err = w.s.Replace(w.ctx, "n/lease/none", []byte("C"), b)
	is(t, err, store.ErrNotFound)
	is(t, w.s.DeleteIf(w.ctx, k, b), store.ErrConflict)
	if err := w.s.DeleteIf(w.ctx, k, a); err != nil {
		t.Errorf("DeleteIf at the version of the content: %v", err)
	}
	if w.s.Info().Can.Has(store.CanWatch) {
		t.Error("the wrapper declares a watch whose versions it does not translate")
	}
}
