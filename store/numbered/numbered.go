package numbered

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tenure-project/tenure/store"
)

// Parameter and Value turn the adapter on in a store URL: ?register=numbered.
const (
	Parameter = "register"
	Value     = "numbered"
)

// tuning are the numbers of the protocol; tests make them small.
type tuning struct {
	keep      uint64        // how many states stay at least, the present one included; at least 1 (N2)
	every     uint64        // how many writes there are from one clean-up to the next
	keepMarks int           // how many marks stay: the checks of others rest on them (N3)
	remember  int           // how many nonces a state carries; keep+every leave no gap between marks
	fresh     time.Duration // how long the present state is believed without looking
	tidy      time.Duration // how long a clean-up may take
	rewatch   time.Duration // how long a watch goes without looking
}

var usual = tuning{
	keep: 8, every: 16, keepMarks: 16, remember: 24,
	fresh: time.Minute, tidy: time.Second, rewatch: 2 * time.Second,
}

// Store is a handle to a numbered register. All methods are safe for concurrent
// use. It has the watch, the clock and the modification times that the store
// below declares, and no conditional delete.
type Store struct {
	inner store.Store
	info  store.Info
	t     tuning

	mu      sync.Mutex
	known   map[string]seen
	guarded map[string]struct{}
}

var (
	_ store.Store   = (*Store)(nil)
	_ store.Watcher = (*Store)(nil)
	_ store.Clocker = (*Store)(nil)
)

// New gives the contract of package store over inner, of which it uses only
// Create, Get, List, Delete and, where inner declares them, Watch and Now (ST17).
// It owns inner from now on: Close closes it.
//
// Its identity and driver differ from inner's, so that what is remembered of the
// one is not taken for the other.
func New(inner store.Store) store.Store { return newStore(inner, usual) }

func newStore(inner store.Store, t tuning) *Store {
	i := inner.Info()
	i.Identity += "#" + Value
	if i.Place != "" {
		i.Place += "#" + Value
	}
	i.Driver = "numbered/1 over " + i.Driver
	i.Can &= store.CanWatch | store.CanClock | store.CanModTime
	i.ContentVersions = false
	i.WritesPerSecond = 0 // it bounds the writes of one object, and each is written once
	i.MaxBody -= maxHeader
	return &Store{inner: inner, info: i, t: t, known: map[string]seen{}, guarded: map[string]struct{}{}}
}

// Info describes the register.
func (s *Store) Info() store.Info { return s.info }

// Close closes the store below.
func (s *Store) Close() error { return s.inner.Close() }

// Now reads the clock of the store below (ST12).
func (s *Store) Now(ctx context.Context) (store.Reading, error) {
	c, ok := store.AsClocker(s.inner)
	if !ok {
		return store.Reading{}, s.fail(store.ErrInvalid, "now", "", "the store below has no clock")
	}
	r, err := c.Now(ctx)
	return r, s.pass("now", "", err)
}

// Watch waits until key may be at another version than v: the next state takes
// the next number, so it waits for that object to appear. One that came and went
// again before the watch below was in place is noticed a little later.
func (s *Store) Watch(ctx context.Context, key string, v store.Version) error {
	const op = "watch"
	if err := s.check(ctx, op, key, nil); err != nil {
		return err
	}
	w, ok := store.AsWatcher(s.inner)
	if !ok {
		return s.fail(store.ErrInvalid, op, key, "the store below does not watch")
	}
	for {
		at, _, err := s.find(ctx, key, s.info.MaxBody)
		if err != nil {
			return s.pass(op, key, err)
		}
		if at.version() != v {
			return nil
		}
		limited, cancel := context.WithTimeout(ctx, s.t.rewatch)
		err = w.Watch(limited, stateKey(key, at.number+1), "")
		again := limited.Err() != nil && ctx.Err() == nil
		cancel()
		switch {
		case err == nil:
			return nil
		case !again:
			return s.pass(op, key, err)
		}
	}
}

// check is what every call with a key does before anything else.
func (s *Store) check(ctx context.Context, op, key string, body []byte) error {
	if err := store.CheckKey(key); err != nil {
		return store.Wrap(store.ErrInvalid, s.info.Identity, op, key, err)
	}
	if len(body) > s.info.MaxBody {
		return s.fail(store.ErrInvalid, op, key, "the body has %d bytes, at most %d are accepted", len(body), s.info.MaxBody)
	}
	return store.CtxErr(ctx, s.info.Identity, op, key)
}

func (s *Store) fail(kind error, op, key, format string, args ...any) error {
	return store.Errorf(kind, s.info.Identity, op, key, format, args...)
}

// pass makes an error of the store below one of this call, of the same kind.
func (s *Store) pass(op, key string, err error) error {
	if err == nil {
		return nil
	}
	return store.Wrap(store.KindOf(err), s.info.Identity, op, key, err)
}

// nothing is the error of a write that failed while it prepared: its own write
// was never sent, so its outcome is not unknown.
func (s *Store) nothing(ctx context.Context, op, key string, err error) error {
	if !errors.Is(err, store.ErrUnknown) && !errors.Is(err, store.ErrNotFound) {
		return s.pass(op, key, err)
	}
	return s.blur(ctx, store.ErrUnavailable, op, key, "the write was not sent", err)
}

// blur is an error of another kind than its cause has, which it therefore only
// quotes: nobody may take the cause's kind for the answer.
func (s *Store) blur(ctx context.Context, kind error, op, key, what string, err error) error {
	return &store.Error{Kind: kind, Store: s.info.Identity, Op: op, Key: key, Detail: what + ": " + err.Error(), Cause: context.Cause(ctx)}
}
