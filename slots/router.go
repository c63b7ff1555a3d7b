package slots

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	tenure "github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/clock"
	"github.com/tenure-project/tenure/store"
)

// RouteSource is where a [Router] learns who serves what. Both methods return soon
// after their context ends.
type RouteSource interface {
	// Routes reads the table: every range that somebody owns, as it was at one instant
	// during the call. Ranges do not overlap; their order does not matter. The Router
	// never has two calls of it at a time, so that a later answer is never the older one.
	Routes(ctx context.Context) ([]Route, error)
	// Watch calls changed as soon as it watches, and after each change of what Routes
	// would answer; a change of nothing but a row's sign of life is none. It may call it
	// too often, and changed may be called from any goroutine. It returns when ctx ends,
	// or an error when it cannot go on. Where nothing can be watched it waits for ctx.
	Watch(ctx context.Context, changed func()) error
}

// RouterConfig says how a [Router] keeps what it knows. The zero value is usable.
type RouterConfig struct {
	// Every is how long the table goes unread at most although no change was told; each
	// time it is half of that or more, at random. Default 10 s.
	// It is also the longest pause between attempts while the table cannot be read.
	Every time.Duration
	// Pause is the least time between the beginnings of two reads. Default 100 ms.
	Pause time.Duration
	// Limit is how long one read may take. Default 5 s.
	Limit time.Duration
	// OnChange is told what moved, in order, right after each read that found a change;
	// the first read moves everything from nobody. It is called by the reader, so it must
	// not block and must not call Refresh. It may look up.
	OnChange func([]RouteMove)
	// Log receives what a person should know later; nil for nothing.
	Log *slog.Logger
	// Clock and Rand (0 to below 1, for jitter) are for tests; nil for the machine's.
	Clock tenure.Clock
	Rand  func() float64
}

// withDefaults is c complete, or ErrInvalid.
func (c RouterConfig) withDefaults() (RouterConfig, error) {
	for _, d := range []struct {
		name  string
		value *time.Duration
		deflt time.Duration
	}{
		{"Every", &c.Every, 10 * time.Second},
		{"Pause", &c.Pause, 100 * time.Millisecond},
		{"Limit", &c.Limit, 5 * time.Second},
	} {
		if *d.value < 0 {
			return c, store.Errorf(store.ErrInvalid, "", "router", "", "%s is %v; give a positive time, or 0 for %v", d.name, *d.value, d.deflt)
		}
		if *d.value == 0 {
			*d.value = d.deflt
		}
	}
	if c.Pause > c.Every {
		return c, store.Errorf(store.ErrInvalid, "", "router", "", "Pause is %v and Every is %v; a pause cannot be longer than what it interrupts", c.Pause, c.Every)
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Clock == nil {
		c.Clock = clock.NewSystem()
	}
	if c.Rand == nil {
		c.Rand = rand.Float64
	}
	return c, nil
}

// Router tells who serves a slot, from a copy of the table in memory (SL9). It is safe
// for concurrent use, and has no goroutine but those of Run.
type Router struct {
	src RouteSource
	c   RouterConfig

	current atomic.Pointer[routeMap] // never nil
	begun   atomic.Uint64            // reads that began
	running atomic.Bool

	turn chan struct{} // held by the one who reads, or waits to
	bell chan struct{} // something may have changed

	mu       sync.Mutex
	watching bool
	last     time.Duration // when the latest read began
	failures int           // in a row
	err      error         // of the latest read
	next     time.Duration // when the next attempt after a failure is due
}

// NewRouter makes a router that knows nothing yet. Run keeps it fresh; without Run it
// learns only by Refresh. A nil source or a bad configuration is ErrInvalid.
func NewRouter(src RouteSource, c RouterConfig) (*Router, error) {
	if src == nil {
		return nil, store.Errorf(store.ErrInvalid, "", "router", "", "the source is nil; give what reads the table")
	}
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	r := &Router{src: src, c: c, turn: make(chan struct{}, 1), bell: make(chan struct{}, 1)}
	r.current.Store(&routeMap{})
	return r, nil
}

// Route returns who serves slot as far as the router knows; false if it knows of
// nobody, or slot is not below 16,384. It answers from memory and does not allocate
// (SL9).
func (r *Router) Route(slot uint16) (Route, bool) { return r.current.Load().route(slot) }

// RouteKey is Route for a text key's slot.
func (r *Router) RouteKey(key string) (Route, bool) { return r.Route(SlotOf(key)) }

// Routes returns all that the router knows, in the order of slots. The slice is the
// caller's.
func (r *Router) Routes() []Route { return append([]Route(nil), r.current.Load().routes...) }

// Age is how long ago the last good read of the table began, time asleep included; all
// that happened before is known. False if there was none yet.
func (r *Router) Age() (time.Duration, bool) {
	m := r.current.Load()
	if m.seq == 0 {
		return 0, false
	}
	return r.c.Clock.Boot() - m.asOf, true
}

// Refresh reads the table, and returns nil once a read that began after the call is in
// the map. Any number of callers share one read, and reads begin at least Pause apart.
// A failure, also one of a moment ago that is not to be tried again yet, is returned
// with its kind, and the old map stays. An ended ctx is ErrUnavailable.
func (r *Router) Refresh(ctx context.Context) error {
	asked := r.begun.Load()
	return r.refresh(ctx, func(m *routeMap) bool { return m.seq > asked })
}

// refresh reads until enough holds, or a read fails.
func (r *Router) refresh(ctx context.Context, enough func(*routeMap) bool) error {
	for {
		done, err := r.step(ctx, enough)
		if done || err != nil {
			return err
		}
	}
}

// step does at most one read, in turn with all others.
func (r *Router) step(ctx context.Context, enough func(*routeMap) bool) (done bool, err error) {
	if enough(r.current.Load()) {
		return true, nil
	}
	select {
	case r.turn <- struct{}{}:
	case <-ctx.Done():
		return false, routerStopped(ctx)
	}
	defer func() { <-r.turn }()
	if enough(r.current.Load()) {
		return true, nil
	}
	if err := r.failedJustNow(); err != nil {
		return false, err
	}
	if err := r.read(ctx); err != nil {
		return false, err
	}
	return enough(r.current.Load()), nil
}

// routerStopped is the error of a caller that did not wait for the end.
func routerStopped(ctx context.Context) error {
	return store.CtxErr(ctx, "", "read the slot table", "")
}

// failedJustNow is the failure after which the next attempt is not due yet. Whoever
// waited for that attempt gets its error instead of making the next.
func (r *Router) failedJustNow() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failures > 0 && r.c.Clock.Boot() < r.next {
		return r.err
	}
	return nil
}

// read waits out the pause, reads, and installs what it read. The caller has the turn:
// reads do not overlap, so that each is of a later instant than the one before it.
func (r *Router) read(ctx context.Context) error {
	if !clock.Sleep(r.c.Clock, r.pauseLeft(), ctx.Done()) {
		return routerStopped(ctx)
	}
	limited, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	limit := r.c.Clock.AfterFunc(r.c.Limit, func() { cancel(context.DeadlineExceeded) })
	defer limit.Stop()
	begun := r.c.Clock.Boot()
	r.mu.Lock()
	r.last = begun
	r.mu.Unlock()
	seq := r.begun.Add(1)
	routes, err := r.src.Routes(limited)
	var m *routeMap
	if err == nil {
		m, err = newRouteMap(routes, seq, begun)
	}
	switch {
	case err == nil:
		r.install(m)
		return nil
	case ctx.Err() != nil: // the caller went away; that says nothing of the store
		return routerStopped(ctx)
	default:
		return r.fail(err)
	}
}

// pauseLeft is how long the next read has to wait.
func (r *Router) pauseLeft() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.begun.Load() == 0 {
		return 0
	}
	return r.last + r.c.Pause - r.c.Clock.Boot()
}

// install makes m what is known, and tells what moved.
func (r *Router) install(m *routeMap) {
	r.mu.Lock()
	back := r.failures > 0
	r.failures, r.err = 0, nil
	r.mu.Unlock()
	old := r.current.Swap(m)
	if back {
		r.c.Log.Info("the slot table can be read again", "routes", len(m.routes))
	}
	if r.c.OnChange == nil {
		return
	}
	if moves := routeMoves(old, m); len(moves) > 0 {
		r.c.OnChange(moves)
	}
}

// fail keeps the old map and sets when the next attempt is due: pauses double up to
// Every, and are spread so that a thousand clients do not come back at once.
func (r *Router) fail(cause error) error {
	err := store.Wrap(store.KindOf(cause), "", "read the slot table", "", cause)
	r.mu.Lock()
	r.failures++
	first := r.failures == 1
	r.err = err
	wait := min(r.c.Pause<<min(r.failures, 20), r.c.Every)
	r.next = r.c.Clock.Boot() + r.spread(wait)
	r.mu.Unlock()
	if first {
		r.c.Log.Warn("the slot table cannot be read; answering from what was known", "err", cause)
	}
	return err
}

// spread is between half of d and d.
func (r *Router) spread(d time.Duration) time.Duration {
	return d/2 + time.Duration(float64(d/2)*r.c.Rand())
}
