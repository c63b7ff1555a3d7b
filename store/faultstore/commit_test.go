package faultstore_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
	"github.com/tenure-project/tenure/store/memstore"
)

const k2 = "n/lease/second"

// both is the scan of everything that a test makes.
var both = store.ScanRange{To: "z", Most: 10, Limit: 100}

// shown is a scan in short: "key=body key=body", in the order of the answer.
func shown(t *testing.T, s store.Committer, r store.ScanRange) string {
	t.Helper()
	found, err := s.Scan(t.Context(), r)
	if err != nil {
		return store.KindOf(err).Error()
	}
	out := []string{}
	for _, o := range found {
		out = append(out, fmt.Sprintf("%s=%s", strings.TrimPrefix(o.Key, "n/lease/"), o.Body))
	}
	return strings.Join(out, " ")
}

// pair makes both keys with one body, without faults.
func (w *world) pair(body string) []store.Change {
	w.t.Helper()
	changes := []store.Change{{Key: k, Body: []byte(body)}, {Key: k2, Body: []byte(body)}}
	made, err := w.sound.Commit(w.ctx, changes)
	if err != nil {
		w.t.Fatal(err)
	}
	return []store.Change{{Key: k, Over: made[0], Body: []byte("new")}, {Key: k2, Over: made[1], Body: []byte("new")}}
}

// Every fault of the network meets a commit, which happens as a whole or not at
// all; those of the backend break exactly what they say.
//
// SPEC SL4 ST9
func TestCommitFaults(t *testing.T) {
	t.Parallel()
	name := strings.TrimPrefix(k, "n/lease/")
	old, fresh := name+"=old second=old", name+"=new second=new"
	for _, c := range []struct {
		fault      faultstore.Fault
		kind       error
		now, later string
	}{
		{faultstore.Fail(store.ErrUnavailable), store.ErrUnavailable, old, old},
		{faultstore.Fail(store.ErrDenied), store.ErrDenied, old, old},
		{faultstore.LoseReply(), store.ErrUnknown, fresh, fresh},
		{faultstore.LoseRequest(), store.ErrUnknown, old, old},
		{faultstore.LandLate(time.Second, 30*time.Second), store.ErrUnknown, old, fresh},
		{faultstore.Hang(), store.ErrUnknown, old, old},
		{faultstore.HangApplied(), store.ErrUnknown, fresh, fresh},
		{faultstore.Delay(time.Minute, time.Minute), store.ErrUnknown, old, old},
		{faultstore.DelayReply(time.Minute, time.Minute), store.ErrUnknown, fresh, fresh},
		{faultstore.RetrySelf(), store.ErrConflict, fresh, fresh},
		{faultstore.Duplicate(time.Second, time.Second), nil, fresh, fresh},
		{faultstore.HalveCommit(), store.ErrUnknown, name + "=new second=old", name + "=new second=old"},
		{faultstore.UnrollCommit(time.Second), nil, fresh, fresh},
		{faultstore.TearCondition(time.Second), nil, fresh, fresh},
		{faultstore.IgnoreCondition(), nil, fresh, fresh},
	} {
		t.Run(c.fault.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, faultstore.Options{Rules: []faultstore.Rule{{Ops: []faultstore.Op{faultstore.OpCommit}, Fault: c.fault}}})
				changes := w.pair("old")
				ctx, cancel := context.WithTimeout(w.ctx, 5*time.Second)
				defer cancel()
				made, err := w.s.Commit(ctx, changes)
				if c.kind != nil {
					is(t, err, c.kind)
				} else if err != nil || len(made) != 2 {
					t.Fatalf("Commit: %q, %v", made, err)
				}
				changes[0].Body[0] = 'X' // what is on its way is its own
				if got := shown(t, w.sound, both); got != c.now {
					t.Errorf("then the store holds %s, want %s", got, c.now)
				}
				time.Sleep(time.Minute)
				if got := shown(t, w.sound, both); got != c.later {
					t.Errorf("in the end the store holds %s, want %s", got, c.later)
				}
			})
		})
	}
}

// Commits whose condition is torn or ignored all win; one that is a row of commits
// is seen in part.
func TestBrokenCommits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, faultstore.Options{})
		changes := w.pair("old")
		w.s.Add(faultstore.Rule{Fault: faultstore.TearCondition(time.Second)})
		results := make(chan error)
		for range 2 {
			go func() {
				_, err := w.s.Commit(w.ctx, changes)
				results <- err
			}()
		}
		for range 2 {
			if err := <-results; err != nil {
				t.Errorf("a racer within the gap: %v", err)
			}
		}
		_, err := w.s.Commit(w.ctx, changes)
		is(t, err, store.ErrConflict) // alone it behaves
		w.s.Clear()
		w.s.Add(faultstore.Rule{Fault: faultstore.IgnoreCondition()})
		gone := []store.Change{{Key: k, Over: "stale", Do: store.Remove}, {Key: "n/lease/none", Over: "stale", Do: store.Remove}, {Key: k2, Do: store.Keep}, {Key: "n/lease/made", Over: "stale"}}
		made, err := w.s.Commit(w.ctx, gone)
		if err != nil || len(made) != 4 || made[3] == "" || made[0]+made[1]+made[2] != "" {
			t.Errorf("Commit that ignores its conditions: %q, %v", made, err)
		}
		if got := shown(t, w.sound, both); got != "made= second=new" {
			t.Errorf("it left %s", got)
		}
		w.s.Clear()
		w.s.Add(faultstore.Rule{Fault: faultstore.UnrollCommit(time.Second)})
		go func() {
			_, err := w.s.Commit(w.ctx, []store.Change{{Key: "n/lease/a"}, {Key: "n/lease/b"}})
			results <- err
		}()
		synctest.Wait()
		if got := shown(t, w.sound, both); got != "a= made= second=new" {
			t.Errorf("in its midst the store holds %s", got)
		}
		if err := <-results; err != nil {
			t.Error(err)
		}
	})
}

// Scans meet faults: lost, stale, damaged, and a range is picked by the keys in it.
//
// SPEC SL4 ST7
func TestScanFaults(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, faultstore.Options{Seed: 1})
		name := strings.TrimPrefix(k, "n/lease/")
		first, err := w.s.Commit(w.ctx, []store.Change{{Key: k, Body: []byte("1")}, {Key: "n/lease/b", Body: []byte("1")}})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if _, err := w.s.Commit(w.ctx, []store.Change{{Key: k, Over: first[0], Do: store.Remove}, {Key: "n/lease/b", Over: first[1], Body: []byte("2")}, {Key: k2, Body: []byte("2")}}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.sound.Create(w.ctx, "n/lease/z", []byte("unheard")); err != nil {
			t.Fatal(err)
		}
		back := both
		back.Backwards = true
		one := both
		one.Most = 1
		for _, c := range []struct {
			fault faultstore.Fault
			r     store.ScanRange
			want  string
		}{
			{faultstore.Delay(time.Second, time.Second), both, "b=2 second=2 z=unheard"},
			{faultstore.LoseReply(), both, "store unavailable"},
			{faultstore.Fail(store.ErrDenied), both, "denied"},
			{faultstore.StaleRead(1), both, name + "=1 b=1 z=unheard"},
			{faultstore.StaleRead(1), back, "z=unheard b=1 " + name + "=1"},
			{faultstore.StaleRead(1), one, name + "=1"},
			{faultstore.LaggingRead(30 * time.Second), both, name + "=1 b=1 z=unheard"},
			{faultstore.AppendBytes("!"), both, "b=2! second=2! z=unheard!"},
			{faultstore.AppendBytes(strings.Repeat("!", 100)), both, "corrupt"},
			{faultstore.Truncate(0), both, "b= second= z="},
			{faultstore.SwapBody("n/lease/z"), both, "b=unheard second=unheard z=unheard"},
			{faultstore.AnswerBody("page"), both, "b=page second=page z=page"},
		} {
			w.s.Clear()
			w.s.Add(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpScan}, Fault: c.fault})
			if got := shown(t, w.s, c.r); got != c.want {
				t.Errorf("%v: %s, want %s", c.fault, got, c.want)
			}
		}
		w.s.Clear()
		w.s.Add(faultstore.Rule{Key: k2, Fault: faultstore.Fail(store.ErrUnavailable)})
		if got := shown(t, w.s, store.ScanRange{From: k2, To: k2 + "0", Most: 1, Limit: 9}); got != "store unavailable" {
			t.Errorf("a scan over the key of the rule gave %s", got)
		}
		if got := shown(t, w.s, store.ScanRange{To: k2, Most: 1, Limit: 9}); got != "b=2" {
			t.Errorf("a scan beside the key of the rule gave %s", got)
		}
		_, err = w.s.Commit(w.ctx, []store.Change{{Key: "n/lease/c"}, {Key: k2, Do: store.Keep}})
		is(t, err, store.ErrUnavailable)
		if n := w.s.Counts(); n[faultstore.OpCommit] != 3 || n[faultstore.OpScan] != 14 {
			t.Errorf("the counts are %v", n)
		}
	})
}

// A frozen node shows a range for ever as it was, and commits nothing.
//
// CASE B80
func TestFrozenNodeScansTheLastValues(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, faultstore.Options{})
		changes := w.pair("old")
		name := strings.TrimPrefix(k, "n/lease/")
		if _, err := w.s.Get(w.ctx, k, 100); err != nil { // the node heard of this one
			t.Fatal(err)
		}
		w.s.SetLink(faultstore.Frozen)
		if _, err := w.sound.Commit(w.ctx, changes); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			// What it had not heard of is as it was at the first look.
			if got, want := shown(t, w.s, both), name+"=old second=new"; got != want {
				t.Errorf("the frozen node shows %s, want %s", got, want)
			}
			if o, err := w.sound.Get(w.ctx, k2, 100); err != nil {
				t.Fatal(err)
			} else if _, err := w.sound.Replace(w.ctx, k2, []byte("newer"), o.Version); err != nil {
				t.Fatal(err)
			}
			if o, err := w.s.Get(w.ctx, k2, 100); err != nil || string(o.Body) != "new" {
				t.Errorf("the frozen node reads %q (%v)", o.Body, err)
			}
		}
		_, err := w.s.Commit(w.ctx, changes)
		is(t, err, store.ErrUnavailable)
		w.s.SetLink(faultstore.Up)
		if got, want := shown(t, w.s, both), name+"=new second=newer"; got != want {
			t.Errorf("the thawed node shows %s, want %s", got, want)
		}
	})
}

// What is not declared is not reachable, and bad arguments count as no call.
func TestCommitPowerAndTrace(t *testing.T) {
	t.Parallel()
	bare := faultstore.New(memstore.New(), faultstore.Options{Info: func(i store.Info) store.Info { i.Can &^= store.CanCommit; return i }})
	defer bare.Close()
	if _, ok := store.AsCommitter(bare); ok {
		t.Error("a power that was taken away can be reached")
	}
	twice := faultstore.New(bare, faultstore.Options{})
	_, err := twice.Commit(t.Context(), []store.Change{{Key: k}})
	is(t, err, store.ErrInvalid)
	_, err = twice.Scan(t.Context(), both)
	is(t, err, store.ErrInvalid)

	var seen []string
	w := newWorld(t, faultstore.Options{Trace: func(e faultstore.Event) {
		seen = append(seen, fmt.Sprintf("%s %s %d %d", e.Op, e.Key, len(e.Changes), len(e.Made)))
	}})
	if _, err := w.s.Commit(w.ctx, []store.Change{{Key: k}, {Key: k2, Do: store.Keep}}); err != nil {
		t.Fatal(err)
	}
	_, err = w.s.Commit(w.ctx, nil)
	is(t, err, store.ErrInvalid)
	_, err = w.s.Scan(w.ctx, store.ScanRange{})
	is(t, err, store.ErrInvalid)
	if want := []string{"commit " + k + " 2 0", "commit " + k + " 2 2"}; strings.Join(seen, ", ") != strings.Join(want, ", ") {
		t.Errorf("the trace is %q, want %q", seen, want)
	}
}

// Chaos lets a commit arrive twice only if it can take effect once: one that
// changes no version could happen again after its keys were removed.
//
// SPEC SL4
func TestChaosDuplicatesOnlyWhatHappensOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, faultstore.Chaos(3, 1, time.Second))
		version := store.Version("")
		twice := map[bool]int{}
		for n := range 600 {
			changes := []store.Change{{Key: fmt.Sprintf("n/lease/%d", n)}}
			if n%2 == 0 {
				changes = append(changes, store.Change{Key: k, Over: version, Body: []byte("x")})
			}
			before := w.s.Fired()[faultstore.Duplicate(0, 0).String()]
			ctx, cancel := context.WithTimeout(w.ctx, time.Second)
			_, _ = w.s.Commit(ctx, changes)
			cancel()
			time.Sleep(2 * time.Second)
			twice[n%2 == 0 && version != ""] += w.s.Fired()[faultstore.Duplicate(0, 0).String()] - before
			if o, err := w.sound.Get(w.ctx, k, 10); err == nil {
				version = o.Version
			}
		}
		if twice[true] == 0 || twice[false] != 0 {
			t.Errorf("commits that change a version were doubled %d times, others %d times", twice[true], twice[false])
		}
	})
}
