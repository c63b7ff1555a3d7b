package slots

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	core "github.com/tenure-project/tenure/internal/core/slots"
)

// routerTable cuts the slots into n ranges.
func routerTable(n int) *fakeRoutes {
	table := newFakeRoutes()
	for i := range n {
		a, b := i*core.Count/n, (i+1)*core.Count/n-1
		table.counter++
		table.routes = append(table.routes, Route{Range: slotRange(a, b), Owner: fmt.Sprintf("host-%d", i%100), Addr: fmt.Sprintf("10.0.0.%d:80", i%100), Epoch: table.counter})
	}
	return table
}

// A look-up does not allocate.
// SPEC SL9
func TestRouteDoesNotAllocate(t *testing.T) {
	r := freshRouter(t, routerTable(1000), RouterConfig{})
	slot := uint16(0)
	if n := testing.AllocsPerRun(1000, func() {
		slot = (slot + 7919) & core.Last
		if _, ok := r.Route(slot); !ok {
			t.Error("a slot without a route")
		}
		_, _ = r.RouteKey("customer-17")
	}); n != 0 {
		t.Errorf("%v allocations for a look-up", n)
	}
}

// BenchmarkRoute is a look-up, beside one in a plain map.
func BenchmarkRoute(b *testing.B) {
	for _, n := range []int{1000, core.Count} {
		table := routerTable(n)
		r := freshRouter(b, table, RouterConfig{})
		plain := make(map[uint16]Route, core.Count)
		for _, route := range table.routes {
			for s := int(route.Range.A); s <= int(route.Range.B); s++ {
				plain[uint16(s)] = route
			}
		}
		b.Run(fmt.Sprintf("slot/ranges=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for slot, missing := uint16(0), 0; b.Loop(); slot = (slot + 7919) & core.Last {
				if _, ok := r.Route(slot); !ok {
					missing++
					b.Fatal(missing)
				}
			}
		})
		b.Run(fmt.Sprintf("plainmap/ranges=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for slot := uint16(0); b.Loop(); slot = (slot + 7919) & core.Last {
				if _, ok := plain[slot]; !ok {
					b.Fatal(slot)
				}
			}
		})
		b.Run(fmt.Sprintf("key/ranges=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, ok := r.RouteKey("customer-00017"); !ok {
					b.Fatal()
				}
			}
		})
	}
}

// BenchmarkRefresh is one read of a table of so many ranges, without the store's time.
func BenchmarkRefresh(b *testing.B) {
	for _, n := range []int{1000, core.Count} {
		b.Run(fmt.Sprintf("ranges=%d", n), func(b *testing.B) {
			table := routerTable(n)
			r := mustRouter(b, table, RouterConfig{Pause: 1})
			for b.Loop() {
				if err := r.Refresh(context.Background()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

type anyEpoch struct{}

func (anyEpoch) EpochFor(uint16) (uint64, bool) { return 7, true }

type quietWriter struct{ h http.Header }

func (q *quietWriter) Header() http.Header         { return q.h }
func (q *quietWriter) Write(p []byte) (int, error) { return len(p), nil }
func (q *quietWriter) WriteHeader(int)             {}

// BenchmarkServe is what Serve costs a request that is served, with and without a
// grant's context, and one that is refused; bare is the handler alone.
func BenchmarkServe(b *testing.B) {
	done := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	slot := func(*http.Request) (uint16, bool, error) { return 5, true, nil }
	live, end := context.WithCancel(context.Background())
	defer end()
	router := freshRouter(b, routerTable(1000), RouterConfig{})
	config := ServeConfig{Host: anyEpoch{}, Owner: "me", Slot: slot, Router: router}
	granted, refused := config, config
	granted.Grant = func(uint16) (context.Context, uint64, bool) { return live, 7, true }
	refused.Grant = func(uint16) (context.Context, uint64, bool) { return nil, 0, false }
	for _, c := range []struct {
		name  string
		serve *ServeConfig
	}{{"bare", nil}, {"served", &config}, {"served-until-the-grant-ends", &granted}, {"refused", &refused}} {
		b.Run(c.name, func(b *testing.B) {
			h := http.Handler(done)
			if c.serve != nil {
				var err error
				if h, err = Serve(*c.serve, done); err != nil {
					b.Fatal(err)
				}
			}
			r, w := httptest.NewRequest("GET", "/x", nil), &quietWriter{http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				h.ServeHTTP(w, r)
			}
		})
	}
}
