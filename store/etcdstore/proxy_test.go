package etcdstore

import (
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-project/tenure/store"
)

// proxy passes bytes on between a client and a server, and can lose those that
// come back, or all.
type proxy struct {
	target    string
	endpoint  string
	loseReply atomic.Bool
	loseAll   atomic.Bool

	mu    sync.Mutex
	conns map[net.Conn]bool
	down  bool
}

func newProxy(t testing.TB, endpoint string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{target: strings.TrimPrefix(endpoint, "http://"), endpoint: "http://" + l.Addr().String(), conns: map[net.Conn]bool{}}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { p.serve(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		p.mu.Lock()
		p.down = true
		p.mu.Unlock()
		p.cut()
		wg.Wait()
	})
	return p
}

func (p *proxy) serve(c net.Conn) {
	up, err := net.Dial("tcp", p.target)
	if err != nil {
		_ = c.Close()
		return
	}
	p.mu.Lock()
	if p.down {
		_, _ = c.Close(), up.Close()
		p.mu.Unlock()
		return
	}
	p.conns[c], p.conns[up] = true, true
	p.mu.Unlock()
	var wg sync.WaitGroup
	wg.Go(func() { p.copy(up, c, &p.loseAll, nil) })
	wg.Go(func() { p.copy(c, up, &p.loseAll, &p.loseReply) })
	wg.Wait()
	p.mu.Lock()
	delete(p.conns, c)
	delete(p.conns, up)
	p.mu.Unlock()
}

func (p *proxy) copy(to, from net.Conn, lose, loseToo *atomic.Bool) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && !lose.Load() && (loseToo == nil || !loseToo.Load()) {
			if _, werr := to.Write(buf[:n]); werr != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// cut resets all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		if t, ok := c.(*net.TCPConn); ok {
			_ = t.SetLinger(0)
		}
		_ = c.Close()
	}
}

// A write whose reply is lost took effect once, was sent once, and its outcome
// is unknown, whether the connection is reset or the caller gives up.
//
// SPEC ST9
// CASE B02
func TestReplyIsLost(t *testing.T) {
	t.Parallel()
	n := shared.node(t)
	for _, how := range []string{"reset", "timeout"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			p, prefix := newProxy(t, n.endpoint), fresh()
			direct := openAt(t, prefix, n.endpoint)
			s := openAt(t, prefix, p.endpoint)
			old, err := s.Create(t.Context(), "n/k/replaced", []byte("old"))
			if err != nil {
				t.Fatal(err)
			}
			gone, err := s.Create(t.Context(), "n/k/deleted", []byte("old"))
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range []struct {
				key, method string
				from        store.Version
				call        func(ctx context.Context, key string) error
			}{
				{"n/k/created", "Txn", "", func(ctx context.Context, key string) error {
					_, err := s.Create(ctx, key, []byte("new"))
					return err
				}},
				{"n/k/replaced", "Txn", old, func(ctx context.Context, key string) error {
					_, err := s.Replace(ctx, key, []byte("new"), old)
					return err
				}},
				{"n/k/deleted", "Txn", gone, func(ctx context.Context, key string) error { return s.DeleteIf(ctx, key, gone) }},
				{"n/k/committed", "Txn", "", func(ctx context.Context, key string) error {
					_, err := s.Commit(ctx, []store.Change{{Key: key, Body: []byte("new")}, {Key: key + "-too", Body: []byte("new")}})
					return err
				}},
			} {
				if _, err := s.Get(t.Context(), "n/k/other", 10); store.KindOf(err) != store.ErrNotFound {
					t.Fatalf("before the write: %v", err) // connected
				}
				sent := n.wire.countKey(w.method, prefix+"/records/"+w.key)
				p.loseReply.Store(true)
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- w.call(ctx, w.key) }()
				if err := direct.Watch(t.Context(), w.key, w.from); err != nil {
					t.Fatal(err)
				}
				if how == "reset" {
					p.cut()
				} else {
					cancel()
				}
				kindIs(t, <-ended, store.ErrUnknown, w.key)
				cancel()
				p.loseReply.Store(false)
				p.cut()
				if d := n.wire.countKey(w.method, prefix+"/records/"+w.key) - sent; d != 1 {
					t.Errorf("%s: the write was sent %d times", w.key, d)
				}
				reconnect(t, s)
			}
			if o, err := direct.Get(t.Context(), "n/k/created", 10); string(o.Body) != "new" {
				t.Errorf("created: %q, %v", o.Body, err)
			}
			if o, err := direct.Get(t.Context(), "n/k/replaced", 10); string(o.Body) != "new" {
				t.Errorf("replaced: %q, %v", o.Body, err)
			}
			if found, err := direct.Scan(t.Context(), store.ScanRange{From: "n/k/committed", To: "n/k/committed0", Most: 9, Limit: 10}); len(found) != 2 {
				t.Errorf("committed: %v, %v", found, err)
			}
			_, err = direct.Get(t.Context(), "n/k/deleted", 10)
			kindIs(t, err, store.ErrNotFound, "Get of the deleted key")
		})
	}
}

// reconnect waits until s answers again.
func reconnect(t testing.TB, s *Store) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for {
		_, err := s.Get(ctx, "n/k/other", 10)
		if store.KindOf(err) == store.ErrNotFound {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("no connection again: %v", err)
		}
		sleep(ctx, 5*time.Millisecond) // poll
	}
}

// Each call is one request.
//
// SPEC ST9
func TestOneRequestPerCall(t *testing.T) {
	t.Parallel()
	n := shared.node(t)
	prefix := fresh()
	s := openAt(t, prefix, n.endpoint)
	at := prefix + "/records/" + key
	var v store.Version
	for _, row := range []struct {
		name, method, key string
		call              func() error
	}{
		{"create", "Txn", at, func() (err error) { v, err = s.Create(t.Context(), key, []byte("1")); return err }},
		{"create again", "Txn", at, func() error { _, err := s.Create(t.Context(), key, []byte("1")); return err }},
		{"replace", "Txn", at, func() (err error) { v, err = s.Replace(t.Context(), key, []byte("2"), v); return err }},
		{"stale replace", "Txn", at, func() error { _, err := s.Replace(t.Context(), key, []byte("2"), someVersion); return err }},
		{"get", "Range", at, func() error { _, err := s.Get(t.Context(), key, 10); return err }},
		{"list", "Range", prefix + "/records/suite/", func() error {
			for range s.List(t.Context(), "suite/", "") {
			}
			return nil
		}},
		{"commit", "Txn", at, func() error {
			made, err := s.Commit(t.Context(), []store.Change{{Key: key, Over: v}, {Key: key + "2"}})
			if err == nil {
				v = made[0]
			}
			return err
		}},
		{"refused commit", "Txn", at, func() error {
			_, err := s.Commit(t.Context(), []store.Change{{Key: key, Over: v}, {Key: key + "2"}})
			return err
		}},
		{"scan", "Range", prefix + "/records/suite/", func() error {
			_, err := s.Scan(t.Context(), store.ScanRange{From: "suite/", To: "suite0", Most: 9, Limit: 9})
			return err
		}},
		{"delete if", "Txn", at, func() error { return s.DeleteIf(t.Context(), key, v) }},
		{"delete", "DeleteRange", at, func() error { return s.Delete(t.Context(), key) }},
		{"waiting", "Range", prefix + "/lines/" + key + "//", func() error { _, err := s.Waiting(t.Context(), key); return err }},
	} {
		before := map[string]int{}
		for _, m := range []string{"Txn", "Range", "DeleteRange"} {
			before[m] = n.wire.countKey(m, row.key)
		}
		if err := row.call(); err != nil && store.KindOf(err) != store.ErrExists && store.KindOf(err) != store.ErrConflict {
			t.Errorf("%s: %v", row.name, err)
		}
		for m, b := range before {
			want := 0
			if m == row.method {
				want = 1
			}
			if d := n.wire.countKey(m, row.key) - b; d != want {
				t.Errorf("%s: %d requests %s, want %d", row.name, d, m, want)
			}
		}
	}
}
