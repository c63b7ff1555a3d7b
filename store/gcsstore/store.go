package gcsstore

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"cloud.google.com/go/storage"

	"github.com/tenure-project/tenure/store"
)

// closeLimit is how long Close waits for the calls in flight, which it has told
// to end.
const closeLimit = 5 * time.Second

// Store keeps records in one bucket. All methods are safe for concurrent use.
// It implements store.Store and store.ConditionalDeleter.
type Store struct {
	client   *storage.Client
	bucket   *storage.BucketHandle
	pool     *http.Transport // nil if the caller brought a client
	name     string          // of the bucket
	prefix   string          // of every object's name
	identity string

	stop    context.Context // ends when Close begins
	stopNow context.CancelFunc

	mu      sync.Mutex // guards closed, and running against Close
	closed  bool
	running sync.WaitGroup
}

var (
	_ store.Store              = (*Store)(nil)
	_ store.ConditionalDeleter = (*Store)(nil)
)

// Info describes the store (ST14). An object takes one write per second, which
// makes two seconds the shortest interval between renewals.
func (s *Store) Info() store.Info {
	return store.Info{
		Scheme:          scheme,
		Identity:        s.identity,
		Driver:          "gcsstore/1",
		Can:             store.CanDeleteIf,
		WritesPerSecond: 1,
		MaxBody:         MaxBody,
	}
}

// Close ends the calls in flight and closes the connections. It may be called
// again.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.stopNow()
	done := make(chan struct{})
	go func() {
		s.running.Wait()
		if s.pool != nil {
			s.pool.CloseIdleConnections()
		}
		close(done)
	}()
	limit := time.NewTimer(closeLimit)
	defer limit.Stop()
	select {
	case <-done:
		return nil
	case <-limit.C:
		return store.Errorf(store.ErrUnavailable, s.identity, "close", "", "a call did not end within %v", closeLimit)
	}
}

// enter counts a call in, unless the store is closed; leave counts it out.
func (s *Store) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.running.Add(1)
	}
	return !s.closed
}

func (s *Store) leave() { s.running.Done() }

// call is one operation on one key.
type call struct {
	s       *Store
	op, key string
	write   bool            // it changes the store
	caller  context.Context // the caller's own
	ctx     context.Context // ends also with the store
}

// begin checks a call before anything is sent. The function that it returns
// ends the call.
func (s *Store) begin(ctx context.Context, op, key string, write bool) (*call, func(), error) {
	if err := store.CheckKey(key); err != nil {
		return nil, nil, store.Wrap(store.ErrInvalid, s.identity, op, key, err)
	}
	if err := store.CtxErr(ctx, s.identity, op, key); err != nil {
		return nil, nil, err
	}
	if !s.enter() {
		return nil, nil, s.errClosed(op, key)
	}
	c, end := s.call(ctx, op, key, write)
	return c, func() { end(); s.leave() }, nil
}

func (s *Store) call(ctx context.Context, op, key string, write bool) (*call, func()) {
	inner, cancel := context.WithCancel(ctx)
	release := context.AfterFunc(s.stop, cancel)
	c := &call{s: s, op: op, key: key, write: write, caller: ctx, ctx: inner}
	return c, func() { release(); cancel() }
}

func (s *Store) errClosed(op, key string) error {
	return store.Errorf(store.ErrUnavailable, s.identity, op, key, "the store is closed")
}

// object is the object that holds the call's key.
func (c *call) object() *storage.ObjectHandle { return c.s.bucket.Object(c.s.prefix + c.key) }

// fail makes the call's error.
func (c *call) fail(kind error, detail string, cause error) error {
	e := store.Wrap(kind, c.s.identity, c.op, c.key, cause)
	e.Detail = detail
	return e
}

// failed makes the error of a call whose request sh failed with err. write says
// whether that request was one that changes the store.
func (c *call) failed(sh *shot, write bool, err error) error {
	op := c.op
	if c.write && !write {
		op = "get" // the look after a refusal
	}
	if a := answerOf(err, sh.hidden()); a != nil {
		return c.fail(a.kind(write), a.advice(op), a)
	}
	kind, detail := store.ErrUnavailable, ""
	if write && sh.sent.Load() {
		kind, detail = store.ErrUnknown, "the request was sent and no answer came that can be trusted"
	}
	switch {
	case c.caller.Err() != nil:
		return c.fail(kind, detail, context.Cause(c.caller))
	case c.s.stop.Err() != nil:
		return c.fail(kind, "the store was closed during the call", nil)
	}
	if t := (*tokenError)(nil); errors.As(err, &t) {
		if t.denied() {
			return c.fail(store.ErrDenied, "needed is "+rights[op], t)
		}
		return c.fail(store.ErrUnavailable, "", t)
	}
	return c.fail(kind, detail, errors.New(clean(plain(err).Error(), sh.hidden())))
}
