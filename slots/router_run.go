package slots

import (
	"context"
	"time"

	"github.com/tenure-project/tenure/internal/clock"
	"github.com/tenure-project/tenure/store"
)

// Run reads the table at once, after each change, and every Every, until ctx ends; then
// it returns nil, with no goroutine left. While the table cannot be read it tries again
// after growing pauses, and look-ups are answered from the last map. A second Run at the
// same time is ErrInvalid (SL9).
func (r *Router) Run(ctx context.Context) error {
	if !r.running.CompareAndSwap(false, true) {
		return store.Errorf(store.ErrInvalid, "", "router", "", "it runs already; one Run keeps it fresh for everybody")
	}
	defer r.running.Store(false)
	watched := make(chan struct{})
	inner, stop := context.WithCancel(ctx)
	go func() {
		defer close(watched)
		r.watch(inner)
	}()
	defer func() {
		stop()
		<-watched
	}()
	for ctx.Err() == nil {
		r.rest(ctx, r.attempt(ctx))
	}
	return nil
}

// attempt reads once, unless somebody else's failure is not to be repeated yet.
func (r *Router) attempt(ctx context.Context) error {
	select {
	case r.turn <- struct{}{}:
	case <-ctx.Done():
		return nil
	}
	defer func() { <-r.turn }()
	if err := r.failedJustNow(); err != nil {
		return err
	}
	return r.read(ctx)
}

// rest waits until the next read is due. A bell does not shorten the pause after a
// failure: refused requests ring it, and there are many of them while a store is away.
func (r *Router) rest(ctx context.Context, failed error) {
	if failed != nil {
		r.mu.Lock()
		left := r.next - r.c.Clock.Boot()
		r.mu.Unlock()
		clock.Sleep(r.c.Clock, max(left, 1), ctx.Done())
		return
	}
	due := make(chan struct{})
	t := r.c.Clock.AfterFunc(r.spread(r.c.Every), func() { close(due) })
	defer t.Stop()
	select {
	case <-due:
	case <-r.bell:
	case <-ctx.Done():
	}
}

// watch rings the bell for changes until ctx ends. Losing the watch only costs
// freshness: the table is read every Every as well.
func (r *Router) watch(ctx context.Context) {
	for wait := r.c.Pause; ctx.Err() == nil; wait = min(2*wait, r.c.Every) {
		began := r.c.Clock.Boot()
		err := r.src.Watch(ctx, func() {
			r.setWatching(true)
			r.ring()
		})
		r.setWatching(false)
		if ctx.Err() != nil {
			return
		}
		if r.c.Clock.Boot()-began >= r.c.Every { // it worked for a while
			wait = r.c.Pause
		}
		r.c.Log.Info("the watch of the slot table ended; it begins anew", "err", err, "after", wait)
		clock.Sleep(r.c.Clock, r.spread(wait), ctx.Done())
	}
}

func (r *Router) setWatching(now bool) {
	r.mu.Lock()
	r.watching = now
	r.mu.Unlock()
}

// ring makes Run read soon. It never waits; without Run it does nothing.
func (r *Router) ring() {
	select {
	case r.bell <- struct{}{}:
	default: // it rang already, and nobody came yet
	}
}

// RouterHealth says how good a router's knowledge is.
type RouterHealth struct {
	// Ready: the table was read at least once. Age is how long ago the last good read
	// began, time asleep included.
	Ready bool
	Age   time.Duration
	// Routes is how many ranges have an owner, Slots how many slots do.
	Routes, Slots int
	// Running: Run keeps it fresh. Watching: changes are being told, so that Age can grow
	// up to Every with nothing missed.
	Running, Watching bool
	// Failures is how many reads in a row failed, Err the last one's error; nil while
	// reads succeed.
	Failures int
	Err      error
}

// Health reports how good the router's knowledge is, from memory (SL9).
func (r *Router) Health() RouterHealth {
	m := r.current.Load()
	r.mu.Lock()
	h := RouterHealth{Watching: r.watching, Failures: r.failures, Err: r.err}
	r.mu.Unlock()
	h.Running = r.running.Load()
	h.Routes, h.Slots = len(m.routes), m.slots
	h.Age, h.Ready = r.Age()
	return h
}
