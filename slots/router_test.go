package slots

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-project/tenure/internal/clock"
	core "github.com/tenure-project/tenure/internal/core/slots"
	"github.com/tenure-project/tenure/store"
)

// A router answers what the table had, and nothing else.
// SPEC SL9
func TestRouterAnswersFromTheTable(t *testing.T) {
	t.Parallel()
	table := newFakeRoutes()
	table.claim(slotRange(100, 199), "b", "b:80")
	table.claim(slotRange(0, 99), "a", "a:80")
	table.claim(slotRange(16383, 16383), "c", "c:80")
	r := mustRouter(t, table, RouterConfig{})
	if _, ok := r.Route(0); ok {
		t.Error("it knows an owner before it read anything")
	}
	if _, ok := r.Age(); ok || r.Health().Ready {
		t.Error("it has an age before it read anything")
	}
	if err := r.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	for slot := range 1 << 16 {
		want := ""
		switch {
		case slot < 100:
			want = "a"
		case slot < 200:
			want = "b"
		case slot == 16383:
			want = "c"
		}
		got, ok := r.Route(uint16(slot))
		if got.Owner != want || ok != (want != "") {
			t.Fatalf("slot %d: %v, %v; want owner %q", slot, got, ok, want)
		}
	}
	key := "customer-17"
	table.claim(slotRange(int(core.SlotOf(key)), int(core.SlotOf(key))), "k", "k:80")
	if err := r.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, _ := r.RouteKey(key); got.Owner != "k" || got.Epoch != 4 {
		t.Errorf("the key's route is %v", got)
	}
	if h := r.Health(); !h.Ready || h.Running || h.Err != nil || h.Routes != len(r.Routes()) {
		t.Errorf("health %+v", h)
	}
}

// A table that breaks its own rules is not used; what was known stays.
// SPEC SL9 SL2
func TestRouterRefusesABrokenTable(t *testing.T) {
	t.Parallel()
	good := Route{Range: slotRange(0, 9), Owner: "a", Addr: "a:80", Epoch: 1}
	for name, bad := range map[string]Route{
		"overlap":   {Range: slotRange(9, 12), Owner: "b", Epoch: 2},
		"no owner":  {Range: slotRange(10, 12), Epoch: 2},
		"no epoch":  {Range: slotRange(10, 12), Owner: "b"},
		"big epoch": {Range: slotRange(10, 12), Owner: "b", Epoch: 1 << 53},
		"upside":    {Range: core.Range{A: 12, B: 10}, Owner: "b", Epoch: 2},
		"beyond":    {Range: core.Range{A: 12, B: 16384}, Owner: "b", Epoch: 2},
	} {
		table := newFakeRoutes()
		table.routes = []Route{good}
		r := freshRouter(t, table, RouterConfig{Pause: time.Microsecond})
		table.set(func(f *fakeRoutes) { f.routes = []Route{bad, good} })
		if err := r.Refresh(t.Context()); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
		if got, _ := r.Route(5); got != good {
			t.Errorf("%s: what was known is now %v", name, got)
		}
	}
}

// Rows come in any order; an overlap is found whatever lies between.
// SPEC SL9 SL2
func TestRouteMapSorts(t *testing.T) {
	t.Parallel()
	at := func(a, b int, epoch uint64) Route { return Route{Range: slotRange(a, b), Owner: "o", Epoch: epoch} }
	m, err := newRouteMap([]Route{at(50, 59, 1), at(0, 9, 2), at(20, 29, 3)}, 1, 0)
	if err != nil || m.routes[0].Epoch != 2 || m.routes[1].Epoch != 3 || m.routes[2].Epoch != 1 || m.slots != 30 {
		t.Errorf("%v, %v", m.routes, err)
	}
	if _, err := newRouteMap([]Route{at(5, 6, 1), at(100, 200, 2), at(0, 9, 3)}, 1, 0); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("an overlap: %v", err)
	}
}

// A router with bad settings is refused before anything happens.
func TestRouterConfig(t *testing.T) {
	t.Parallel()
	table := newFakeRoutes()
	for _, c := range []RouterConfig{{Every: -1}, {Pause: -1}, {Limit: -1}, {Every: time.Second, Pause: time.Minute}} {
		if _, err := NewRouter(table, c); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if _, err := NewRouter(nil, RouterConfig{}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("no source: %v", err)
	}
}

// A storm of a hundred refreshes is one read if they come together, and at most one for
// each pause if they go on coming; each is answered by a read that began after it.
// SPEC SL9
func TestRefreshIsSharedAndPaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		table := newFakeRoutes()
		table.before = func(ctx context.Context) { clock.Sleep(clock.NewVirtual(1), 30*time.Millisecond, ctx.Done()) }
		r := mustRouter(t, table, RouterConfig{Clock: clock.NewVirtual(1)})
		start := time.Now()
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 10 * time.Millisecond)
				owner := string(rune('a' + i%26))
				epoch := table.claim(slotRange(i, i), owner, owner+":80")
				if err := r.Refresh(t.Context()); err != nil {
					t.Error(err)
				}
				if got, _ := r.Route(uint16(i)); got.Epoch != epoch {
					t.Errorf("%d: the answer is older than the question: %v, want epoch %d", i, got, epoch)
				}
			})
		}
		wg.Wait()
		if most := 2 + int(time.Since(start)/(100*time.Millisecond)); table.read() > most {
			t.Errorf("%d reads in %v, at most %d", table.read(), time.Since(start), most)
		}
		time.Sleep(time.Second)
		before := table.read()
		for range 100 {
			wg.Go(func() { _ = r.Refresh(t.Context()) })
		}
		wg.Wait()
		if n := table.read() - before; n > 2 { // those that asked after the read began share the next
			t.Errorf("100 refreshes at one time made %d reads", n)
		}
	})
}

// Who leaves does not make the others fail, and counts as no failure.
// SPEC SL9
func TestRefreshOutlivesItsFirstCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		table := newFakeRoutes()
		table.claim(slotRange(0, 9), "a", "a:80")
		var once sync.Once
		table.before = func(ctx context.Context) { once.Do(func() { <-ctx.Done() }) }
		r := mustRouter(t, table, RouterConfig{Clock: clock.NewVirtual(1)})
		ctx, leave := context.WithCancel(t.Context())
		first, others := make(chan error), make(chan error)
		go func() { first <- r.Refresh(ctx) }()
		synctest.Wait()
		for range 3 {
			go func() { others <- r.Refresh(t.Context()) }()
		}
		synctest.Wait()
		leave()
		if err := <-first; !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, context.Canceled) {
			t.Errorf("the first: %v", err)
		}
		for range 3 {
			if err := <-others; err != nil {
				t.Errorf("another: %v", err)
			}
		}
		if h := r.Health(); h.Failures != 0 || h.Routes != 1 {
			t.Errorf("health %+v", h)
		}
	})
}

// A read that hangs is given up at its limit.
// SPEC SL9
func TestRefreshHasALimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		table := newFakeRoutes()
		table.before = func(ctx context.Context) { <-ctx.Done() }
		r := mustRouter(t, table, RouterConfig{Clock: clock.NewVirtual(1), Limit: 3 * time.Second})
		start := time.Now()
		if err := r.Refresh(t.Context()); !errors.Is(err, store.ErrUnavailable) {
			t.Error(err)
		}
		if took := time.Since(start); took < 3*time.Second || took > 4*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// runRouter starts Run, and ends it with the test.
func runRouter(t *testing.T, r *Router) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- r.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
}

// Changes are known within a pause where they are told, and within Every where not.
// SPEC SL9
func TestRunFollowsTheTable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		table := newFakeRoutes()
		table.linger = time.Second
		var moves []RouteMove
		r := mustRouter(t, table, RouterConfig{Clock: clock.NewVirtual(1), OnChange: func(m []RouteMove) { moves = append(moves, m...) }})
		stop := runRouter(t, r)
		if err := func() error { synctest.Wait(); return r.Run(t.Context()) }(); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("a second Run: %v", err)
		}
		for i, owner := range []string{"a", "b", "c"} {
			time.Sleep(time.Second)
			epoch := table.claim(slotRange(0, 99), owner, owner+":80")
			time.Sleep(150 * time.Millisecond)
			if got, _ := r.Route(50); got.Owner != owner || got.Epoch != epoch {
				t.Errorf("told change %d: %v", i, got)
			}
		}
		if h := r.Health(); !h.Watching || !h.Running {
			t.Errorf("health %+v", h)
		}
		table.set(func(f *fakeRoutes) { f.deaf = true })
		table.free(slotRange(0, 99))
		time.Sleep(11 * time.Second)
		if got, ok := r.Route(50); ok {
			t.Errorf("an untold change is not known after Every: %v", got)
		}
		stop()
		if n := len(table.watchers); n != 0 {
			t.Errorf("%d watches outlive Run", n)
		}
		whole := slotRange(0, 99)
		if len(moves) != 4 {
			t.Fatalf("moves %v", moves)
		}
		for i, want := range []struct{ from, to string }{{"", "a"}, {"a", "b"}, {"b", "c"}, {"c", ""}} {
			if m := moves[i]; m.Range != whole || m.From.Owner != want.from || m.To.Owner != want.to {
				t.Errorf("move %d is %v, want %v", i, m, want)
			}
		}
	})
}

// While the store is away the last map answers, its age is told, attempts are few, and
// the way back is found within Every.
// SPEC SL9
func TestRunOutlastsTheStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		table, clk := newFakeRoutes(), clock.NewVirtual(1)
		table.claim(slotRange(0, 99), "a", "a:80")
		r := mustRouter(t, table, RouterConfig{Clock: clk})
		stop := runRouter(t, r)
		defer stop()
		time.Sleep(time.Second)
		if h := r.Health(); !h.Watching {
			t.Errorf("health before %+v", h)
		}
		table.set(func(f *fakeRoutes) { f.away = true; f.tellLocked() })
		time.Sleep(10 * time.Second)
		before, away := table.read(), 10*time.Minute
		for range 600 {
			time.Sleep(away / 600)
			r.ring() // as refused requests do
			if err := r.Refresh(t.Context()); !errors.Is(err, errAway) {
				t.Fatalf("refresh: %v", err)
			}
		}
		if n, most := table.read()-before, int(away/(5*time.Second))+2; n > most || n < 50 {
			t.Errorf("%d reads in %v of absence, want 50 to %d", n, away, most)
		}
		clk.Suspend(time.Hour)
		h := r.Health()
		if h.Watching || h.Failures == 0 || !errors.Is(h.Err, errAway) || h.Age < away+time.Hour {
			t.Errorf("health %+v", h)
		}
		if got, ok := r.Route(7); !ok || got.Owner != "a" {
			t.Errorf("the last map is gone: %v", got)
		}
		table.set(func(f *fakeRoutes) { f.away = false })
		table.claim(slotRange(0, 99), "b", "b:80")
		time.Sleep(10*time.Second + time.Second)
		if got, _ := r.Route(7); got.Owner != "b" {
			t.Errorf("the way back was not found: %v", got)
		}
		if h := r.Health(); !h.Watching || h.Failures != 0 || h.Err != nil || h.Age > 11*time.Second {
			t.Errorf("health afterwards %+v", h)
		}
	})
}

// After one failure the next attempt comes soon, not only after Every.
// SPEC SL9
func TestRunComesBackSoon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		table := newFakeRoutes()
		table.claim(slotRange(0, 99), "a", "a:80")
		r := mustRouter(t, table, RouterConfig{Clock: clock.NewVirtual(1)})
		stop := runRouter(t, r)
		defer stop()
		time.Sleep(time.Second)
		table.set(func(f *fakeRoutes) { f.away, f.deaf = true, true })
		r.ring()
		time.Sleep(50 * time.Millisecond)
		if h := r.Health(); h.Failures != 1 {
			t.Fatalf("health %+v", h)
		}
		table.set(func(f *fakeRoutes) { f.away = false })
		epoch := table.claim(slotRange(0, 99), "b", "b:80")
		time.Sleep(200 * time.Millisecond)
		if got, _ := r.Route(7); got.Epoch != epoch {
			t.Errorf("it did not come back: %v, %+v", got, r.Health())
		}
	})
}

// An answer that comes late never replaces a newer one: reads do not overlap.
// SPEC SL9
func TestReadsDoNotOverlap(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		table, clk := newFakeRoutes(), clock.NewVirtual(1)
		var mu sync.Mutex
		inside, n := 0, 0
		table.after = func(ctx context.Context) {
			mu.Lock()
			inside++
			n++
			if inside > 1 {
				t.Error("two reads at a time")
			}
			slow := time.Duration(n%3) * 70 * time.Millisecond
			mu.Unlock()
			clock.Sleep(clk, slow, ctx.Done())
			mu.Lock()
			inside--
			mu.Unlock()
		}
		r := mustRouter(t, table, RouterConfig{Clock: clk})
		stop := runRouter(t, r)
		defer stop()
		var last uint64
		for i := range 200 {
			table.claim(slotRange(0, 99), "a", "a:80")
			if i%2 == 0 {
				_ = r.Refresh(t.Context())
			}
			time.Sleep(17 * time.Millisecond)
			got, _ := r.Route(3)
			if got.Epoch < last {
				t.Fatalf("epoch %d after %d", got.Epoch, last)
			}
			last = got.Epoch
		}
	})
}

// What moved is what differs, slot by slot, in as few runs as can be told apart.
// SPEC SL9
func TestRouteMoves(t *testing.T) {
	t.Parallel()
	a := Route{Range: slotRange(0, 99), Owner: "a", Epoch: 1}
	b := Route{Range: slotRange(100, 199), Owner: "b", Epoch: 2}
	split := Route{Range: slotRange(50, 149), Owner: "c", Epoch: 3}
	left := Route{Range: slotRange(0, 49), Owner: "a", Epoch: 4}
	old, err1 := newRouteMap([]Route{a, b}, 1, 0)
	now, err2 := newRouteMap([]Route{left, split}, 2, 0)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	want := []RouteMove{
		{slotRange(0, 49), a, left}, {slotRange(50, 99), a, split}, {slotRange(100, 149), b, split}, {slotRange(150, 199), b, Route{}},
	}
	got := routeMoves(old, now)
	if len(got) != len(want) {
		t.Fatalf("moves %v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("move %d is %v, want %v", i, got[i], want[i])
		}
	}
	if same := routeMoves(now, now); len(same) != 0 {
		t.Errorf("nothing moved, but %v", same)
	}
}
