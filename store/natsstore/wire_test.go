package natsstore

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tenure-project/tenure/store"
)

// tap counts what arrives at a server for a bucket, taken or not.
type tap struct{ writes, gets, others atomic.Int64 }

func newTap(t testing.TB, url, bucket string) *tap {
	t.Helper()
	c := &tap{}
	nc := dial(t, url)
	for subject, counter := range map[string]*atomic.Int64{
		"$KV." + bucket + ".>":                        &c.writes,
		"$JS.API.STREAM.MSG.GET.KV_" + bucket:         &c.gets,
		"$JS.API.STREAM.INFO.KV_" + bucket:            &c.others,
		"$JS.API.STREAM.PURGE.KV_" + bucket:           &c.others,
		"$JS.API.CONSUMER.CREATE.KV_" + bucket + ".>": &c.others,
	} {
		if _, err := nc.Subscribe(subject, func(*nats.Msg) { counter.Add(1) }); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *tap) reset() {
	c.writes.Store(0)
	c.gets.Store(0)
	c.others.Store(0)
}

// expect waits until the counts are as they should be, and looks whether they
// stay so for a moment.
func (c *tap) expect(t testing.TB, what string, writes, gets, others int64) {
	t.Helper()
	same := func() bool { return c.writes.Load() == writes && c.gets.Load() == gets && c.others.Load() == others }
	for i := 0; i < 200 && !same(); i++ {
		time.Sleep(5 * time.Millisecond) // poll
	}
	time.Sleep(20 * time.Millisecond) // poll: nothing more may come
	if !same() {
		t.Errorf("%s sent %d writes, %d reads and %d other requests, want %d, %d and %d", what, c.writes.Load(), c.gets.Load(), c.others.Load(), writes, gets, others)
	}
	c.reset()
}

// SPEC ST9 ST14
func TestRequestsAtTheServer(t *testing.T) {
	t.Parallel()
	s := freshStore(t)
	c := newTap(t, shared.ClientURL(), s.cfg.Bucket)
	ctx := within(t, 20*time.Second)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	v, err := s.Create(ctx, key("k"), []byte("0"))
	must(err)
	c.expect(t, "Create", 1, 0, 0)
	_, err = s.Get(ctx, key("k"), 100)
	must(err)
	c.expect(t, "Get", 0, 1, 0)
	w, err := s.Replace(ctx, key("k"), []byte("1"), v)
	must(err)
	c.expect(t, "Replace", 1, 0, 0)
	if _, err := s.Replace(ctx, key("k"), []byte("2"), v); !errors.Is(err, store.ErrConflict) {
		t.Errorf("a stale Replace gave %v", err)
	}
	c.expect(t, "a stale Replace", 1, 1, 0)
	if _, err := s.Create(ctx, key("k"), []byte("2")); !errors.Is(err, store.ErrExists) {
		t.Errorf("a second Create gave %v", err)
	}
	c.expect(t, "a second Create", 1, 1, 0)
	must(s.DeleteIf(ctx, key("k"), w))
	c.expect(t, "DeleteIf", 1, 0, 0)
	must(s.Delete(ctx, key("k")))
	c.expect(t, "Delete of an absent key", 0, 1, 0)
	_, err = s.Create(ctx, key("k"), []byte("3"))
	must(err)
	c.expect(t, "Create over a marker", 2, 1, 0)
	must(s.Delete(ctx, key("k")))
	c.expect(t, "Delete", 1, 1, 0)
	_, err = s.Create(ctx, key("other"), []byte("4"))
	must(err)
	c.expect(t, "Create", 1, 0, 0)
	for _, err := range s.List(ctx, "", "") {
		must(err)
	}
	c.expect(t, "List of one written once and one that changed", 0, 1, 1)
}

// The reply to a write gets lost on its way: the outcome is unknown, the write
// is there, and it was sent once.
//
// SPEC ST9 ST13
// CASE B02
func TestALostReply(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"the context ends", "the connection breaks"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			p := newProxy(t, shared.Addr().String())
			bucket := newBucket()
			s := openAt(t, p.url()+"/"+bucket)
			direct := openAt(t, shared.ClientURL()+"/"+bucket)
			c := newTap(t, shared.ClientURL(), bucket)
			v, err := s.Create(within(t, 10*time.Second), key("k"), []byte("before"))
			if err != nil {
				t.Fatal(err)
			}
			c.expect(t, "Create", 1, 0, 0)
			ops := map[string]func(context.Context) error{
				"Create":  func(ctx context.Context) error { _, err := s.Create(ctx, key("new"), []byte("after")); return err },
				"Replace": func(ctx context.Context) error { _, err := s.Replace(ctx, key("k"), []byte("after"), v); return err },
			}
			for _, op := range []string{"Create", "Replace"} {
				p.silence(true)
				ctx, cancel := context.WithCancel(within(t, 10*time.Second))
				result := make(chan error, 1)
				go func() { result <- ops[op](ctx) }()
				eventually(t, "write at the server", func() bool { return c.writes.Load() > 0 })
				if end == "the context ends" {
					cancel()
				} else {
					p.cut()
				}
				if err := <-result; !sameKind(err, store.ErrUnknown) {
					t.Errorf("%s whose reply was lost gave %v of kind %v, want %v", op, err, store.KindOf(err), store.ErrUnknown)
				}
				cancel()
				p.silence(false)
				p.cut() // a reply that was dropped in the middle leaves the stream of bytes torn
				k := map[string]string{"Create": key("new"), "Replace": key("k")}[op]
				eventually(t, "write in the bucket", func() bool {
					o, err := direct.Get(within(t, 10*time.Second), k, 100)
					return err == nil && string(o.Body) == "after"
				})
				settled(t, s, k)
				if n := c.writes.Load(); n != 1 {
					t.Errorf("%s was sent %d times, want once", op, n)
				}
				c.reset()
			}
		})
	}
}

// settled waits until the store has a new connection, has seen that it is new,
// and reads over it.
func settled(t *testing.T, s *Store, k string) {
	t.Helper()
	calm := 0
	eventually(t, "new connection", func() bool {
		_, err := s.Get(within(t, time.Second), k, 100)
		if calm++; err != nil || !s.w.nc.IsConnected() || len(s.w.events) > 0 || s.w.isRenewed() {
			calm = 0
		}
		return calm >= 10
	})
}

// What cannot be sent at once is not sent later either, behind the caller's
// back.
//
// SPEC ST8 ST9
func TestNothingIsSentAfterAReconnect(t *testing.T) {
	t.Parallel()
	p := newProxy(t, shared.Addr().String())
	bucket := newBucket()
	s := openAt(t, p.url()+"/"+bucket)
	direct := openAt(t, shared.ClientURL()+"/"+bucket)
	c := newTap(t, shared.ClientURL(), bucket)
	p.refuse(true)
	p.cut()
	eventually(t, "broken connection", func() bool { return !s.w.nc.IsConnected() })
	for range 20 {
		if _, err := s.Create(within(t, 10*time.Second), key("k"), []byte("x")); !sameKind(err, store.ErrUnavailable) {
			t.Fatalf("Create without a connection gave %v of kind %v, want %v", err, store.KindOf(err), store.ErrUnavailable)
		}
	}
	p.refuse(false)
	eventually(t, "connection", func() bool { return s.w.nc.IsConnected() })
	if _, err := s.Get(within(t, 10*time.Second), key("k"), 100); !sameKind(err, store.ErrNotFound) {
		t.Errorf("Get after the reconnection gave %v, want %v", err, store.ErrNotFound)
	}
	if n := c.writes.Load(); n != 0 {
		t.Errorf("%d writes arrived after the reconnection, want none", n)
	}
	if _, err := direct.Create(within(t, 10*time.Second), key("k"), []byte("x")); err != nil {
		t.Error(err)
	}
}

// SPEC ST13
func TestAHungServer(t *testing.T) {
	t.Parallel()
	p := newProxy(t, shared.Addr().String())
	bucket := newBucket()
	s := openAt(t, p.url()+"/"+bucket)
	v, err := s.Create(within(t, 10*time.Second), key("k"), []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	p.stall(true)
	defer p.stall(false)
	for name, op := range map[string]struct {
		call func(context.Context) error
		want error
	}{
		"Get":     {func(ctx context.Context) error { _, err := s.Get(ctx, key("k"), 100); return err }, store.ErrUnavailable},
		"Create":  {func(ctx context.Context) error { _, err := s.Create(ctx, key("n"), nil); return err }, store.ErrUnknown},
		"Replace": {func(ctx context.Context) error { _, err := s.Replace(ctx, key("k"), nil, v); return err }, store.ErrUnknown},
		"Delete":  {func(ctx context.Context) error { return s.Delete(ctx, key("k")) }, store.ErrUnavailable},
		"Watch":   {func(ctx context.Context) error { return s.Watch(ctx, key("k"), v) }, store.ErrUnavailable},
		"List": {func(ctx context.Context) error {
			for _, err := range s.List(ctx, "", "") {
				return err
			}
			return nil
		}, store.ErrUnavailable},
	} {
		start := time.Now()
		err := op.call(within(t, 100*time.Millisecond))
		if took := time.Since(start); took > 2*time.Second || !sameKind(err, op.want) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s at a hung server took %v and gave %v of kind %v, want %v by its deadline", name, took, err, store.KindOf(err), op.want)
		}
	}
	begin := time.Now()
	if _, err := openWithin(t, 100*time.Millisecond, p.url()+"/"+bucket); !sameKind(err, store.ErrUnavailable) || time.Since(begin) > 2*time.Second {
		t.Errorf("opening at a hung server took %v and gave %v, want %v", time.Since(begin), err, store.ErrUnavailable)
	}
}

// What was under way when a server stopped is unknown, what comes after is
// refused cleanly.
//
// SPEC ST8
func TestAServerThatStops(t *testing.T) {
	t.Parallel()
	srv := ownServer(t, nil)
	s := openAt(t, srv.ClientURL()+"/leases")
	v, err := s.Create(within(t, 10*time.Second), key("k"), []byte("0"))
	if err != nil {
		t.Fatal(err)
	}
	go srv.Shutdown()
	clean := false
	for n := 0; !clean && n < 100_000; n++ {
		next, err := s.Replace(within(t, time.Second), key("k"), []byte("1"), v)
		switch {
		case err == nil:
			v = next
		case errors.Is(err, store.ErrUnavailable):
			clean = true
		case !errors.Is(err, store.ErrUnknown):
			t.Fatalf("a write while the server stops gave %v of kind %v", err, store.KindOf(err))
		}
	}
	if !clean {
		t.Error("no write was refused after the server had stopped")
	}
	srv.WaitForShutdown()
}

// SPEC ST8
func TestCloseEndsWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	c := newScript(t)
	arrived := make(chan struct{}, 1)
	c.ack = func(*nats.Msg) string { arrived <- struct{}{}; return "" }
	s := c.open("")
	result := make(chan error, 1)
	go func() {
		_, err := s.Create(within(t, 10*time.Second), key("k"), nil)
		result <- err
	}()
	<-arrived
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := <-result; !sameKind(err, store.ErrUnknown) {
		t.Errorf("a Create that was under way at Close gave %v of kind %v, want %v", err, store.KindOf(err), store.ErrUnknown)
	}
	if _, err := s.Create(within(t, 10*time.Second), key("k"), nil); !sameKind(err, store.ErrUnavailable) {
		t.Errorf("a Create after Close gave %v, want %v", err, store.ErrUnavailable)
	}
}
