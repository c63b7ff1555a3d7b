package faultstore_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
	"github.com/tenure-project/tenure/store/memstore"
	"github.com/tenure-project/tenure/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const k = "n/lease/a"

// handle is a faulty handle that remembers its place, so that it can have
// peers.
type handle struct {
	*faultstore.Store
	place *memstore.Store
}

func harness(o faultstore.Options) storetest.Harness {
	return storetest.Harness{
		Open: func(testing.TB) store.Store {
			place := memstore.New()
			return &handle{faultstore.New(place.Peer(), o), place}
		},
		Peer: func(_ testing.TB, s store.Store) store.Store {
			place := s.(*handle).place
			return &handle{faultstore.New(place.Peer(), o), place}
		},
	}
}

// A wrapper without faults is the store that it wraps: a test that uses it
// tests the program and not the wrapper.
func TestTransparent(t *testing.T) { storetest.Run(t, harness(faultstore.Options{})) }

// Delays and harmless duplicates keep the whole contract.
func TestSlowNetworkKeepsTheContract(t *testing.T) {
	h := harness(faultstore.Options{Seed: 3, Rules: []faultstore.Rule{
		{Odds: 0.2, Fault: faultstore.Delay(0, time.Millisecond)},
		{Odds: 0.2, Fault: faultstore.DelayReply(0, time.Millisecond)},
		{Odds: 0.2, Ops: []faultstore.Op{faultstore.OpReplace, faultstore.OpDeleteIf}, Fault: faultstore.Duplicate(0, time.Millisecond)},
	}})
	h.Slow = true
	storetest.Run(t, h)
}

// world is one place, a faulty handle to it and a sound one.
type world struct {
	t     *testing.T
	ctx   context.Context
	s     *faultstore.Store
	sound *memstore.Store
}

func newWorld(t *testing.T, o faultstore.Options) *world {
	w := &world{t: t, ctx: t.Context(), sound: memstore.New()}
	w.s = faultstore.New(w.sound.Peer(), o)
	t.Cleanup(func() {
		if err := w.s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return w
}

func (w *world) create(body string) store.Version {
	w.t.Helper()
	v, err := w.s.Create(w.ctx, k, []byte(body))
	if err != nil {
		w.t.Fatalf("Create: %v", err)
	}
	return v
}

// holds checks what is really stored; "" is an absent key.
func (w *world) holds(body string) {
	w.t.Helper()
	o, err := w.sound.Get(context.Background(), k, 1<<20)
	if body == "" {
		if !errors.Is(err, store.ErrNotFound) {
			w.t.Errorf("the store holds %q (%v), want nothing", o.Body, err)
		}
		return
	}
	if err != nil || string(o.Body) != body {
		w.t.Errorf("the store holds %q (%v), want %q", o.Body, err, body)
	}
}

// is checks that err is of exactly one kind.
func is(t *testing.T, err, kind error) {
	t.Helper()
	for _, other := range store.Kinds() {
		if errors.Is(err, other) != (other == kind) {
			t.Errorf("the error %v is of kind %v, want %v and no other", err, store.KindOf(err), kind)
			return
		}
	}
}

// SPEC ST9
// CASE B02 B20 B24
func TestWriteFaults(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name  string
		fault faultstore.Fault
		kind  error
		now   string // what is stored when the write returns
		later string // and what after a minute
	}{
		{"fail", faultstore.Fail(store.ErrUnavailable), store.ErrUnavailable, "old", "old"},
		{"denied", faultstore.Fail(store.ErrDenied), store.ErrDenied, "old", "old"},
		{"lose reply", faultstore.LoseReply(), store.ErrUnknown, "new", "new"},
		{"lose request", faultstore.LoseRequest(), store.ErrUnknown, "old", "old"},
		{"land late", faultstore.LandLate(time.Second, 30*time.Second), store.ErrUnknown, "old", "new"},
		{"hang", faultstore.Hang(), store.ErrUnknown, "old", "old"},
		{"hang applied", faultstore.HangApplied(), store.ErrUnknown, "new", "new"},
		{"delay beyond the context", faultstore.Delay(time.Minute, time.Minute), store.ErrUnknown, "old", "old"},
		{"delay reply beyond the context", faultstore.DelayReply(time.Minute, time.Minute), store.ErrUnknown, "new", "new"},
		{"retry self", faultstore.RetrySelf(), store.ErrConflict, "new", "new"},
		{"duplicate", faultstore.Duplicate(time.Second, time.Second), nil, "new", "new"},
		{"delay", faultstore.Delay(time.Second, time.Second), nil, "new", "new"},
		{"delay reply", faultstore.DelayReply(time.Second, time.Second), nil, "new", "new"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, faultstore.Options{Rules: []faultstore.Rule{{Ops: []faultstore.Op{faultstore.OpReplace}, Fault: c.fault}}})
				v := w.create("old")
				ctx, cancel := context.WithTimeout(w.ctx, 5*time.Second)
				defer cancel()
				_, err := w.s.Replace(ctx, k, []byte("new"), v)
				if c.kind == nil && err != nil {
					t.Fatalf("Replace: %v", err)
				}
				if c.kind != nil {
					is(t, err, c.kind)
				}
				w.holds(c.now)
				time.Sleep(time.Minute)
				w.holds(c.later)
			})
		})
	}
}

// A late landing still obeys its condition, and one that comes after its
// caller's context ended comes all the same.
func TestLateLandingKeepsItsCondition(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, faultstore.Options{Rules: []faultstore.Rule{{Ops: []faultstore.Op{faultstore.OpReplace}, Times: 2, Fault: faultstore.LandOnCall()}}})
		v := w.create("old")
		ctx, cancel := context.WithCancel(w.ctx)
		body := []byte("late 1")
		_, err := w.s.Replace(ctx, k, body, v)
		is(t, err, store.ErrUnknown)
		copy(body, "XXXXXX") // the caller's slice is its own again
		_, err = w.s.Replace(ctx, k, []byte("late 2"), v)
		is(t, err, store.ErrUnknown)
		cancel()
		if n := w.s.InFlight(); n != 2 {
			t.Errorf("%d writes are in flight, want 2", n)
		}
		w.holds("old")
		if n := w.s.Land(); n != 2 {
			t.Errorf("Land let %d writes arrive, want 2", n)
		}
		w.holds("late 1")
		if n := w.s.Land(); n != 0 {
			t.Errorf("a second Land let %d writes arrive", n)
		}
	})
}

func TestCloseDropsWhatIsOnItsWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		place := memstore.New()
		s := faultstore.New(place.Peer(), faultstore.Options{Rules: []faultstore.Rule{
			{Ops: []faultstore.Op{faultstore.OpCreate}, Fault: faultstore.LandLate(time.Second, time.Second)},
			{Ops: []faultstore.Op{faultstore.OpGet}, Fault: faultstore.Hang()},
		}})
		_, err := s.Create(t.Context(), k, nil)
		is(t, err, store.ErrUnknown)
		hung := make(chan error)
		go func() {
			_, err := s.Get(t.Context(), k, 0)
			hung <- err
		}()
		synctest.Wait()
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		is(t, <-hung, store.ErrUnavailable)
		time.Sleep(time.Minute)
		if _, err := place.Get(t.Context(), k, 0); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("a write arrived after Close: %v", err)
		}
	})
}

// CASE B82
func TestStaleReads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := faultstore.NewHistory()
		place := memstore.New()
		get := func(f faultstore.Fault) string {
			s := faultstore.New(place.Peer(), faultstore.Options{History: h, Rules: []faultstore.Rule{{Fault: f}}})
			defer s.Close()
			o, err := s.Get(t.Context(), k, 100)
			if errors.Is(err, store.ErrNotFound) {
				return "absent"
			}
			if err != nil {
				t.Fatalf("Get: %v", err)
			}
			return string(o.Body) + " at " + string(o.Version)
		}
		writer := faultstore.New(place.Peer(), faultstore.Options{History: h})
		defer writer.Close()
		v, err := writer.Create(t.Context(), k, []byte("one"))
		time.Sleep(2 * time.Second)
		w, err2 := writer.Replace(t.Context(), k, []byte("two"), v)
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		one, two := "one at "+string(v), "two at "+string(w)
		for _, c := range []struct {
			fault faultstore.Fault
			want  string
		}{
			{faultstore.StaleRead(0), two}, {faultstore.StaleRead(1), one}, {faultstore.StaleRead(2), "absent"}, {faultstore.StaleRead(9), "absent"},
			{faultstore.LaggingRead(0), two}, {faultstore.LaggingRead(time.Second), one}, {faultstore.LaggingRead(time.Minute), "absent"},
		} {
			if got := get(c.fault); got != c.want {
				t.Errorf("a read gives %q, want %q", got, c.want)
			}
		}
		time.Sleep(time.Second)
		if got := get(faultstore.LaggingRead(time.Second)); got != two {
			t.Errorf("a lagging read that caught up gives %q, want %q", got, two)
		}
		if err := writer.Delete(t.Context(), k); err != nil {
			t.Fatal(err)
		}
		if got := get(faultstore.StaleRead(1)); got != two {
			t.Errorf("a stale read of a deleted key gives %q, want %q", got, two)
		}
	})
}

func TestStaleLists(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, faultstore.Options{})
		for _, key := range []string{"n/lease/b", "n/lease/c", "n/lease/a"} {
			if _, err := w.s.Create(w.ctx, key, nil); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if err := w.s.Delete(w.ctx, "n/lease/b"); err != nil {
			t.Fatal(err)
		}
		lists := func(f faultstore.Fault, want string) {
			t.Helper()
			w.s.Clear()
			w.s.Add(faultstore.Rule{Fault: f})
			got := []string{}
			for key, err := range w.s.List(w.ctx, "n/lease/", "") {
				if err != nil {
					is(t, err, store.ErrUnavailable)
					key = "error"
				}
				got = append(got, strings.TrimPrefix(key, "n/lease/"))
			}
			if strings.Join(got, " ") != want {
				t.Errorf("%v: the listing gives %q, want %q", f, got, want)
			}
		}
		lists(faultstore.ListWithoutNewest(), "c")
		lists(faultstore.LaggingList(500*time.Millisecond), "a b c")
		lists(faultstore.LaggingList(1500*time.Millisecond), "b c")
		lists(faultstore.BreakList(1), "a error")
		lists(faultstore.BreakList(0), "error")
		lists(faultstore.BreakList(2), "a c")
		lists(faultstore.LoseReply(), "error")
		lists(faultstore.Delay(time.Second, time.Second), "a c")
	})
}

func TestPowersFollowTheDeclaration(t *testing.T) {
	t.Parallel()
	w := newWorld(t, faultstore.Options{Info: func(i store.Info) store.Info {
		i.Can &^= store.CanWatch
		i.WritesPerSecond = 1
		return i
	}})
	if _, ok := store.AsWatcher(w.s); ok {
		t.Error("a power that was taken away can be reached")
	}
	if _, ok := store.AsQueuer(w.s); !ok {
		t.Error("a power of the inner store cannot be reached")
	}
	if got := w.s.Info().WritesPerSecond; got != 1 {
		t.Errorf("WritesPerSecond is %v, want 1", got)
	}
	bare := faultstore.New(faultstore.New(memstore.New(), faultstore.Options{Info: func(i store.Info) store.Info { i.Can = 0; return i }}), faultstore.Options{})
	defer bare.Close()
	is(t, bare.Watch(t.Context(), k, ""), store.ErrInvalid)
	is(t, bare.DeleteIf(t.Context(), k, ""), store.ErrInvalid)
}

func TestBadRulesPanic(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rule faultstore.Rule
		says string
	}{
		{faultstore.Rule{}, "no fault"},
		{faultstore.Rule{Odds: 2, Fault: faultstore.Hang()}, "odds"},
		{faultstore.Rule{Skip: -1, Fault: faultstore.Hang()}, "negative"},
		{faultstore.Rule{Ops: []faultstore.Op{faultstore.OpGet}, Fault: faultstore.LandLate(0, 0)}, `"land late" does not apply to "get"`},
	} {
		func() {
			defer func() {
				if p, _ := recover().(string); !strings.Contains(p, c.says) || !strings.Contains(p, "rule number 0") {
					t.Errorf("New with a bad rule panics with %q, want a message with %q", p, c.says)
				}
			}()
			faultstore.New(memstore.New(), faultstore.Options{Rules: []faultstore.Rule{c.rule}})
		}()
	}
}

func TestCountsAndTrace(t *testing.T) {
	t.Parallel()
	var seen []string
	w := newWorld(t, faultstore.Options{
		Rules: []faultstore.Rule{{Ops: []faultstore.Op{faultstore.OpReplace}, Fault: faultstore.LoseReply()}},
		Trace: func(e faultstore.Event) {
			line := string(e.Op) + " " + string(e.Body)
			if e.Done {
				line += " done"
			}
			if e.Err != nil {
				line += " " + store.KindOf(e.Err).Error()
			}
			seen = append(seen, line+" "+strings.Join(e.Faults, ","))
		},
	})
	v := w.create("one")
	_, _ = w.s.Replace(w.ctx, k, []byte("two"), v)
	ended, cancel := context.WithCancel(w.ctx)
	cancel()
	_, err := w.s.Get(ended, k, 10)
	is(t, err, store.ErrUnavailable)
	_, err = w.s.Get(w.ctx, "Bad", 10)
	is(t, err, store.ErrInvalid)
	for range w.s.List(w.ctx, "", "") {
	}
	want := []string{"create one ", "create one done ", "replace two lose reply", "replace two done outcome unknown lose reply", "list  ", "list  done "}
	if !slices.Equal(seen, want) {
		t.Errorf("the trace is %q, want %q", seen, want)
	}
	counts := w.s.Counts()
	if counts[faultstore.OpCreate] != 1 || counts[faultstore.OpReplace] != 1 || counts[faultstore.OpList] != 1 || counts[faultstore.OpGet] != 0 {
		t.Errorf("the counts are %v", counts)
	}
}
