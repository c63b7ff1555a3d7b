package tenure

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tenure-project/tenure/internal/clock"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is one store in one bubble of virtual time, with any number of clients,
// each behind a link of its own.
type world struct {
	t  *testing.T
	st *memstore.Store
}

const ttl = 10 * time.Second

// inWorld runs f with virtual time. Every client must be closed at its end.
func inWorld(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, st: memstore.New()}
		f(t, w)
		if err := w.st.Close(); err != nil {
			t.Error(err)
		}
	})
}

// peer is a client with its link and clock.
type peer struct {
	*Client
	link *link
	clk  *clock.Virtual
}

// join makes a client, which is closed with the test.
func (w *world) join(opts ...Option) *peer {
	w.t.Helper()
	l := &link{Store: w.st, counts: map[string]int{}}
	clk := clock.NewVirtual(1)
	opts = append([]Option{WithTTL(ttl), WithClock(clk), WithoutProbe()}, opts...)
	c, err := New(w.t.Context(), l, opts...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.Close() })
	return &peer{Client: c, link: l, clk: clk}
}

// die ends everything that p does without a release, as kill -9 would.
func (p *peer) die() { p.link.set(func(string) fault { return hang }) }

func (w *world) acquire(p *peer, name string, opts ...AcquireOption) *Lease {
	w.t.Helper()
	l, err := p.Acquire(w.t.Context(), name, opts...)
	if err != nil {
		w.t.Fatalf("acquire %q: %v", name, err)
	}
	return l
}

func (w *world) release(l *Lease) {
	w.t.Helper()
	if err := l.Release(w.t.Context()); err != nil {
		w.t.Fatalf("release: %v", err)
	}
}

// wantErr fails the test unless err is of every kind.
func wantErr(t *testing.T, err error, kinds ...error) {
	t.Helper()
	for _, k := range kinds {
		if !errors.Is(err, k) {
			t.Fatalf("error %v, want one of kind %q", err, k)
		}
	}
}

// fault is what a link does to one call.
type fault int

const (
	pass      fault = iota
	hang            // no effect, no answer
	lose            // takes effect, no answer
	refuse          // no effect, ErrUnavailable at once
	deny            // no effect, ErrDenied
	failReply       // takes effect, ErrUnknown at once
)

// link is one client's way to the store.
type link struct {
	*memstore.Store
	mu     sync.Mutex
	decide func(op string) fault
	after  func(op string) // called after the effect, before the reply
	delay  time.Duration   // of every reply
	counts map[string]int
	sent   time.Time // when the last write that got an answer was sent
}

// tune changes the link under its lock.
func (l *link) tune(f func(l *link)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f(l)
}

func (l *link) set(decide func(op string) fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.decide = decide
}

func (l *link) heal() { l.set(nil) }

func (l *link) take() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.counts
	l.counts = map[string]int{}
	return c
}

func (l *link) call(ctx context.Context, op, key string, write bool, do func() error) error {
	l.mu.Lock()
	f := pass
	if l.decide != nil {
		f = l.decide(op)
	}
	l.counts[op]++
	after, delay := l.after, l.delay
	l.mu.Unlock()
	kind := store.ErrUnavailable
	if write {
		kind = store.ErrUnknown
	}
	switch f {
	case hang:
		<-ctx.Done()
		return store.Wrap(kind, "link", op, key, context.Cause(ctx))
	case refuse:
		return store.Errorf(store.ErrUnavailable, "link", op, key, "refused by the test")
	case deny:
		return store.Errorf(store.ErrDenied, "link", op, key, "refused by the test")
	}
	began := time.Now()
	err := do()
	if after != nil {
		after(op)
	}
	if f == lose {
		<-ctx.Done()
		return store.Wrap(kind, "link", op, key, context.Cause(ctx))
	}
	if f == failReply {
		return store.Errorf(store.ErrUnknown, "link", op, key, "reply lost by the test")
	}
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return store.Wrap(kind, "link", op, key, context.Cause(ctx))
		}
	}
	if write && err == nil {
		l.tune(func(l *link) { l.sent = began })
	}
	return err
}

func (l *link) Get(ctx context.Context, key string, limit int) (o store.Object, err error) {
	err = l.call(ctx, "get", key, false, func() (e error) { o, e = l.Store.Get(ctx, key, limit); return e })
	return o, err
}

func (l *link) Create(ctx context.Context, key string, body []byte) (v store.Version, err error) {
	err = l.call(ctx, "create", key, true, func() (e error) { v, e = l.Store.Create(ctx, key, body); return e })
	return v, err
}

func (l *link) Replace(ctx context.Context, key string, body []byte, over store.Version) (v store.Version, err error) {
	err = l.call(ctx, "replace", key, true, func() (e error) { v, e = l.Store.Replace(ctx, key, body, over); return e })
	return v, err
}
