package slots

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tenure-project/tenure/internal/clock"
	core "github.com/tenure-project/tenure/internal/core/slots"
)

var errAway = errors.New("the store is away")

// fakeRoutes is a table in memory. Epochs come from one counter, as in a real one.
type fakeRoutes struct {
	mu       sync.Mutex
	routes   []Route
	counter  uint64
	away     bool
	deaf     bool                       // changes are not told
	linger   time.Duration              // how long Watch takes to end
	watchers map[chan struct{}]struct{} // one token per change, coalesced
	reads    int                        // calls of Routes
	before   func(ctx context.Context)  // runs in Routes, before the table is read
	after    func(ctx context.Context)  // runs in Routes, once it was
	grants   map[uint64]context.CancelCauseFunc
	lives    map[uint64]context.Context
}

func newFakeRoutes() *fakeRoutes {
	return &fakeRoutes{
		watchers: map[chan struct{}]struct{}{},
		grants:   map[uint64]context.CancelCauseFunc{}, lives: map[uint64]context.Context{},
	}
}

var errMoved = errors.New("the range moved")

// claim gives r to owner under the next epoch, and ends what overlaps.
func (f *fakeRoutes) claim(r core.Range, owner, addr string) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.freeLocked(r)
	f.counter++
	f.routes = append(f.routes, Route{Range: r, Owner: owner, Addr: addr, Epoch: f.counter})
	f.lives[f.counter], f.grants[f.counter] = context.WithCancelCause(context.Background())
	f.tellLocked()
	return f.counter
}

// free ends what overlaps with r.
func (f *fakeRoutes) free(r core.Range) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.freeLocked(r)
	f.tellLocked()
}

func (f *fakeRoutes) freeLocked(r core.Range) {
	var kept []Route
	for _, o := range f.routes {
		if !o.Range.Overlaps(r) {
			kept = append(kept, o)
		} else if end := f.grants[o.Epoch]; end != nil {
			end(errMoved)
		}
	}
	f.routes = kept
}

func (f *fakeRoutes) tellLocked() {
	if f.deaf {
		return
	}
	for w := range f.watchers {
		select {
		case w <- struct{}{}:
		default:
		}
	}
}

func (f *fakeRoutes) set(change func(f *fakeRoutes)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *fakeRoutes) isAway() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.away
}

func (f *fakeRoutes) read() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reads
}

func (f *fakeRoutes) Routes(ctx context.Context) ([]Route, error) {
	f.mu.Lock()
	f.reads++
	before, after := f.before, f.after
	f.mu.Unlock()
	if before != nil {
		before(ctx)
	}
	f.mu.Lock()
	away, routes := f.away, append([]Route(nil), f.routes...)
	f.mu.Unlock()
	if after != nil {
		after(ctx)
	}
	if away {
		return nil, errAway
	}
	return routes, ctx.Err()
}

func (f *fakeRoutes) Watch(ctx context.Context, changed func()) error {
	w := make(chan struct{}, 1)
	f.mu.Lock()
	away := f.away
	f.watchers[w] = struct{}{}
	f.mu.Unlock()
	defer f.set(func(f *fakeRoutes) { delete(f.watchers, w) })
	if away {
		return errAway
	}
	changed()
	for {
		select {
		case <-w:
			if f.isAway() {
				return errAway
			}
			changed()
		case <-ctx.Done():
			clock.Sleep(clock.NewVirtual(1), f.linger, nil)
			return ctx.Err()
		}
	}
}

// fakeServer answers from the table itself: it never serves what it does not own.
type fakeServer struct {
	table *fakeRoutes
	owner string
}

func (h fakeServer) EpochFor(slot uint16) (uint64, bool) {
	_, epoch, ok := h.grant(slot)
	return epoch, ok
}

func (h fakeServer) grant(slot uint16) (context.Context, uint64, bool) {
	h.table.mu.Lock()
	defer h.table.mu.Unlock()
	for _, r := range h.table.routes {
		if r.Range.Contains(slot) && r.Owner == h.owner {
			return h.table.lives[r.Epoch], r.Epoch, true
		}
	}
	return nil, 0, false
}

func mustRouter(t testing.TB, src RouteSource, c RouterConfig) *Router {
	t.Helper()
	r, err := NewRouter(src, c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// freshRouter has read the table once.
func freshRouter(t testing.TB, src RouteSource, c RouterConfig) *Router {
	t.Helper()
	r := mustRouter(t, src, c)
	if err := r.Refresh(context.Background()); err != nil {
		t.Fatal(err)
	}
	return r
}

func slotRange(a, b int) core.Range {
	r, err := core.NewRange(a, b)
	if err != nil {
		panic(fmt.Sprint(err))
	}
	return r
}
