package bench

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/clock"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
	"github.com/tenure-project/tenure/store/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Percentiles are nearest ranks: figures that really occurred.
func TestPercentiles(t *testing.T) {
	t.Parallel()
	hundred := Times{}
	for i := range 100 {
		hundred = append(hundred, time.Duration(i+1))
	}
	for _, c := range []struct {
		times Times
		p     float64
		want  time.Duration
	}{
		{nil, 50, 0}, {Times{7}, 50, 7}, {Times{7}, 99, 7}, {Times{1, 9}, 50, 1}, {Times{1, 9}, 51, 9},
		{Times{1, 2, 3}, 50, 2}, {Times{1, 2, 3, 4}, 90, 4},
		{hundred, 50, 50}, {hundred, 90, 90}, {hundred, 99, 99}, {hundred, 100, 100}, {hundred, 0.1, 1},
	} {
		if got := c.times.Percentile(c.p); got != c.want {
			t.Errorf("%v of %d: %d, want %d", c.p, len(c.times), got, c.want)
		}
	}
	if hundred.Max() != 100 || (Times{}).Max() != 0 {
		t.Error("the longest is wrong")
	}
}

// options are those of a small run.
func options(rounds int) Options {
	return Options{Namespace: "team a", Rounds: rounds, Concurrency: 1, Limit: 20 * time.Second, CleanUp: 5 * time.Second}
}

// keys are all that the store holds.
func keys(t *testing.T, st store.Store) []string {
	t.Helper()
	out := []string{}
	for k, err := range st.List(context.Background(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, k)
	}
	return out
}

func byName(r Report) map[string]Step {
	out := map[string]Step{}
	for _, s := range r.Steps {
		out[s.Name] = s
	}
	return out
}

// Every step is measured as often as asked, with exactly the store calls that
// the library promises, and nothing is left behind. Others' keys stand.
//
// SPEC LS4 LS5
func TestCountsAndCleanUp(t *testing.T) {
	t.Parallel()
	for _, at := range []int{1, 4} {
		st := &bare{Store: memstore.New()}
		for _, k := range []string{"team=20a/lease/job", "team=20a/probe/other"} {
			if _, err := st.Create(t.Context(), k, []byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		o := options(10)
		o.Concurrency = at
		r, err := Run(t.Context(), st, o)
		if err != nil || r.Ended != EndedRounds || r.Left != 0 || r.LeftWhy != nil || r.Took <= 0 {
			t.Fatalf("%+v, %v", r, err)
		}
		if !strings.HasPrefix(r.Prefix, "team=20a/probe/bench-") {
			t.Errorf("the keys begin with %s", r.Prefix)
		}
		if got := keys(t, st); !slices.Equal(got, []string{"team=20a/lease/job", "team=20a/probe/other"}) {
			t.Errorf("the store holds %q", got)
		}
		steps := byName(r)
		for name, want := range map[string]map[string]float64{
			StepCreate: {"create": 1}, StepGet: {"get": 1}, StepReplace: {"replace": 1}, StepList: {"list": 1}, StepDelete: {"delete": 1},
			StepAcquireNew: {"get": 2, "create": 1}, StepAcquireKnown: {"get": 1, "replace": 1},
			StepRenew: {"replace": 1}, StepRelease: {"replace": 1},
		} {
			n := 10
			if name == StepRelease {
				n = 20
			}
			s := steps[name]
			if len(s.Times) != n || s.Failed != 0 || !maps.Equal(s.Calls, want) || !slices.IsSorted(s.Times) {
				t.Errorf("%d at once, %s: %d times, %d failed, calls %v, want %v", at, name, len(s.Times), s.Failed, s.Calls, want)
			}
		}
		if len(r.Steps) != len(order) {
			t.Errorf("%d steps are reported", len(r.Steps))
		}
	}
}

// bare has no optional powers, like an object store; it counts calls on keys
// that are not of the run, and keeps the times of writes.
type bare struct {
	*memstore.Store
	rate float64

	mu    sync.Mutex
	wrote map[string][]time.Time
}

func (b *bare) Info() store.Info {
	i := b.Store.Info()
	i.Can, i.WritesPerSecond = 0, b.rate
	return i
}

func (b *bare) note(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.wrote == nil {
		b.wrote = map[string][]time.Time{}
	}
	b.wrote[key] = append(b.wrote[key], time.Now())
}

func (b *bare) Create(ctx context.Context, key string, body []byte) (store.Version, error) {
	b.note(key)
	return b.Store.Create(ctx, key, body)
}

func (b *bare) Replace(ctx context.Context, key string, body []byte, v store.Version) (store.Version, error) {
	b.note(key)
	return b.Store.Replace(ctx, key, body, v)
}

func (b *bare) Delete(ctx context.Context, key string) error {
	b.note(key)
	return b.Store.Delete(ctx, key)
}

// A store that takes one write per key and second gets no more, the clean-up
// included, and is still measured many times within the time.
//
// SPEC ST14
func TestPacing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := &slow{bare: &bare{Store: memstore.New(), rate: 1}, by: 50 * time.Millisecond}
		o := options(40)
		o.Limit, o.CleanUp = 20*time.Second, 10*time.Second
		o.Client = []tenure.Option{tenure.WithClock(clock.NewVirtual(1))}
		r, err := Run(t.Context(), st, o)
		if err != nil || r.Left != 0 {
			t.Fatalf("%+v, %v", r, err)
		}
		for key, times := range st.wrote {
			for i := 1; i < len(times); i++ {
				if gap := times[i].Sub(times[i-1]); gap < time.Second {
					t.Errorf("%s was written twice within %v", key, gap)
				}
			}
		}
		for name, s := range byName(r) {
			if len(s.Times) < 10 {
				t.Errorf("%s was measured only %d times", name, len(s.Times))
			}
		}
		if got := keys(t, st.bare); len(got) > 0 {
			t.Errorf("left behind: %q", got)
		}
	})
}

// slow takes its time for every call.
type slow struct {
	*bare
	by time.Duration
}

func (s *slow) Get(ctx context.Context, key string, limit int) (store.Object, error) {
	rest(ctx, s.by)
	return s.bare.Get(ctx, key, limit)
}

func (s *slow) Create(ctx context.Context, key string, body []byte) (store.Version, error) {
	rest(ctx, s.by)
	return s.bare.Create(ctx, key, body)
}

func (s *slow) Replace(ctx context.Context, key string, body []byte, v store.Version) (store.Version, error) {
	rest(ctx, s.by)
	return s.bare.Replace(ctx, key, body, v)
}

// The time limit ends the measuring, what was measured stands, and the figures
// are right: every call takes exactly 50 ms of virtual time.
func TestTimeLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := &slow{bare: &bare{Store: memstore.New()}, by: 50 * time.Millisecond}
		o := options(1_000_000)
		o.Limit = 10 * time.Second
		o.Client = []tenure.Option{tenure.WithClock(clock.NewVirtual(1))}
		began := time.Now()
		r, err := Run(t.Context(), st, o)
		if err != nil || r.Ended != EndedLimit || r.Left != 0 {
			t.Fatalf("ended by %s, %d left, %v", r.Ended, r.Left, err)
		}
		if took := time.Since(began); took < 9*time.Second || took > 12*time.Second {
			t.Errorf("it took %v", took)
		}
		for name, want := range map[string]time.Duration{StepCreate: 50, StepReplace: 50, StepAcquireNew: 150, StepAcquireKnown: 100, StepRelease: 50, StepRenew: 50} {
			s := byName(r)[name]
			if want *= time.Millisecond; len(s.Times) < 5 || s.Times[0] != want || s.Times.Max() != want {
				t.Errorf("%s: %d times, from %v to %v, want %v", name, len(s.Times), s.Times.Percentile(1), s.Times.Max(), want)
			}
		}
	})
}

// A caller who goes away gets the clean-up all the same.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	st := &bare{Store: memstore.New()}
	ctx, cancel := context.WithCancel(t.Context())
	fault := faultstore.New(st, faultstore.Options{Trace: func(e faultstore.Event) {
		if strings.Contains(e.Key, "lease-3") {
			cancel()
		}
	}})
	r, err := Run(ctx, fault, options(1000))
	if err != nil || r.Ended != EndedCaller || r.Left != 0 {
		t.Errorf("ended by %s, %d left, %v", r.Ended, r.Left, err)
	}
	if got := keys(t, st); len(got) > 0 {
		t.Errorf("left behind: %q", got)
	}
	if n := len(byName(r)[StepCreate].Times); n < 3 || n > 100 {
		t.Errorf("%d rounds", n)
	}
}

// Without the right to delete everything else is measured, and what is left
// behind is counted.
func TestNoRightToDelete(t *testing.T) {
	t.Parallel()
	st := memstore.New()
	fault := faultstore.New(st, faultstore.Options{Rules: []faultstore.Rule{{Ops: []faultstore.Op{faultstore.OpDelete}, Fault: faultstore.Fail(store.ErrDenied)}}})
	r, err := Run(t.Context(), fault, options(5))
	if err != nil || !errors.Is(r.LeftWhy, store.ErrDenied) {
		t.Fatalf("%v, %v", err, r.LeftWhy)
	}
	if got := keys(t, st); len(got) != r.Left || len(got) == 0 {
		t.Errorf("%d keys are left, %d were told", len(got), r.Left)
	}
	steps := byName(r)
	if len(steps[StepDelete].Times) != 0 || len(steps[StepReplace].Times) != 5 || len(steps[StepRenew].Times) != 5 {
		t.Errorf("%+v", r.Steps)
	}
}

// Trouble now and then is counted; a store that does not work is an error of its
// kind, and what may be there is removed.
//
// SPEC ST8
func TestTrouble(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rule   faultstore.Rule
		kind   error
		failed int
	}{
		"a create now and then": {faultstore.Rule{Ops: []faultstore.Op{faultstore.OpCreate}, Match: on("op=2f"), Times: 3, Fault: faultstore.Fail(store.ErrUnavailable)}, nil, 3},
		"no create":             {faultstore.Rule{Ops: []faultstore.Op{faultstore.OpCreate}, Fault: faultstore.Fail(store.ErrUnavailable)}, store.ErrUnavailable, 0},
		"no right to create":    {faultstore.Rule{Ops: []faultstore.Op{faultstore.OpCreate}, Fault: faultstore.Fail(store.ErrDenied)}, store.ErrDenied, 0},
		"no renewal":            {faultstore.Rule{Ops: []faultstore.Op{faultstore.OpReplace}, Match: on("renewed-"), Fault: faultstore.Fail(store.ErrDenied)}, store.ErrDenied, 0},
		"nothing":               {faultstore.Rule{Fault: faultstore.Hang()}, store.ErrUnavailable, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := memstore.New()
			o := options(20)
			o.Limit, o.CleanUp = 2*time.Second, time.Second
			r, err := Run(t.Context(), faultstore.New(st, faultstore.Options{Rules: []faultstore.Rule{c.rule}}), o)
			if store.KindOf(err) != c.kind {
				t.Fatalf("%v, want %v", err, c.kind)
			}
			if got := byName(r)[StepCreate].Failed; err == nil && got != c.failed {
				t.Errorf("%d failed creates are told, want %d", got, c.failed)
			}
			if got := keys(t, st); len(got) > 0 {
				t.Errorf("left behind: %q", got)
			}
		})
	}
}

func on(part string) func(faultstore.Call) bool {
	return func(c faultstore.Call) bool { return strings.Contains(c.Key, part) }
}

// A tap with a prefix is a whole store of its own beside the other keys, with the
// powers of the one under it.
func TestTap(t *testing.T) {
	t.Parallel()
	st := memstore.New()
	if _, err := st.Create(t.Context(), "x/probe/other", nil); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var seen []string
	tap := NewTap(st, "x/probe/b-", func(_ context.Context, c Call) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, c.Op+" "+c.Key)
	})
	ctx := t.Context()
	v, err := tap.Create(ctx, "ns/lease/a=20b", []byte("1"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tap.Create(ctx, "ns/lease/a=20b", []byte("2")); !errors.Is(err, store.ErrExists) {
		t.Error(err)
	}
	if o, err := st.Get(ctx, "x/probe/b-ns=2flease=2fa=20b", 10); err != nil || string(o.Body) != "1" {
		t.Errorf("%q, %v", o.Body, err)
	}
	var listed []string
	for k, err := range tap.List(ctx, "ns/lease/", "") {
		if err != nil {
			t.Fatal(err)
		}
		listed = append(listed, k)
	}
	if !slices.Equal(listed, []string{"ns/lease/a=20b"}) {
		t.Errorf("listed %q", listed)
	}
	clocked, ok := store.AsClocker(tap)
	if !ok || tap.Info().Can != st.Info().Can {
		t.Fatal("the tap lacks powers")
	}
	if r, err := clocked.Now(ctx); err != nil || r.Time.IsZero() {
		t.Error(r, err)
	}
	if w := tap.Written(); len(w) != 1 {
		t.Errorf("written: %v", w)
	}
	if d, _ := store.AsConditionalDeleter(tap); d.DeleteIf(ctx, "ns/lease/a=20b", v) != nil || len(tap.Written()) != 0 {
		t.Errorf("it is still there: %v", tap.Written())
	}
	want := []string{"create ns/lease/a=20b", "create ns/lease/a=20b", "list ns/lease/", "clock ", "delete-if ns/lease/a=20b"}
	if !slices.Equal(seen, want) {
		t.Errorf("seen %q", seen)
	}
}
