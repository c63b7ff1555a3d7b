package slots

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	tenure "github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/store/memstore"
)

// served is a real host behind Serve on loopback. A request with the header X-Hold begins,
// says so, and waits for release or its own end, which is told.
type served struct {
	*Host
	owner   string
	handler *Handler
	begun   chan struct{}
	release chan struct{}
	ends    chan error
}

func (s *served) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("X-Hold") != "" {
		s.begun <- struct{}{}
		select {
		case <-s.release:
		case <-r.Context().Done():
			s.ends <- context.Cause(r.Context())
			w.WriteHeader(http.StatusGone)
			return
		}
	}
	at, _ := SlotFrom(r.Context())
	fmt.Fprintf(w, "%s %d", s.owner, at.Epoch)
}

// service is a table in real time, and what asks its hosts. The TTL is so long that whatever
// happens in time was told, and not found by a look that was due.
type service struct {
	t     *testing.T
	st    *memstore.Store
	opts  []Option
	table *Table // of somebody who only looks
}

func newService(t *testing.T, opts ...Option) *service {
	s := &service{t: t, st: memstore.New(), opts: append(opts, Shards(2))}
	t.Cleanup(func() { _ = s.st.Close() })
	_, s.table = s.open()
	return s
}

func (s *service) open() (*tenure.Client, *Table) {
	s.t.Helper()
	c, err := tenure.New(s.t.Context(), s.st.Peer(), tenure.WithTTL(5*time.Minute), tenure.WithoutProbe(), tenure.WithLogger(noLog))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	t, err := Create(s.t.Context(), c, orders, s.opts...)
	if err != nil {
		s.t.Fatal(err)
	}
	return c, t
}

// router keeps itself fresh if it runs.
func (s *service) router(run bool) *Router {
	s.t.Helper()
	r := mustRouter(s.t, s.table, RouterConfig{Pause: time.Millisecond})
	if err := r.Refresh(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	if run {
		s.background(func(ctx context.Context) { _ = r.Run(ctx) })
	}
	return r
}

func (s *service) background(f func(ctx context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); f(ctx) }()
	s.t.Cleanup(func() { cancel(); <-done })
}

// host starts one; nothing moves but by pins.
func (s *service) host(owner string, drain time.Duration) *served {
	s.t.Helper()
	h := &served{owner: owner, begun: make(chan struct{}, 1), release: make(chan struct{}, 1), ends: make(chan error, 1)}
	c, table := s.open()
	session, err := c.Join(s.t.Context(), owner)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = session.Leave(context.Background()) })
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.handler.ServeHTTP(w, r) }))
	s.t.Cleanup(server.Close)
	h.Host, err = table.Host(HostConfig{
		Owner: owner, Addr: server.Listener.Addr().String(), Session: session, Balanced: true, Balance: Balance{Settle: -1, Burst: -1, Slack: -1},
		DrainLimit: drain,
		Drain:      func(ctx context.Context, g *Grant) error { return h.handler.Drain(ctx, g.Range(), g.Epoch()) },
	})
	if err != nil {
		s.t.Fatal(err)
	}
	h.handler = mustServe(s.t, ServeConfig{Host: h.Host, Owner: owner, Router: s.router(true), Grant: func(slot uint16) (context.Context, uint64, bool) {
		g, ok := h.Grant(slot)
		if !ok {
			return nil, 0, false
		}
		return g.Context(), g.Epoch(), true
	}}, h)
	s.background(func(ctx context.Context) { _ = h.Run(ctx) })
	s.until(owner+" is announced", func() bool {
		all, err := s.table.Announced(s.t.Context())
		return err == nil && slices.ContainsFunc(all, func(a Announced) bool { return a.Host.Owner == owner })
	})
	return h
}

// asker is a client of the service, which counts what it sends.
type asker struct {
	t      *testing.T
	client *http.Client
	sends  *countedSends
}

func (s *service) asker(router *Router) *asker {
	s.t.Helper()
	conns := &http.Transport{}
	s.t.Cleanup(conns.CloseIdleConnections)
	a := &asker{t: s.t, sends: &countedSends{base: conns}}
	tr, err := NewTransport(TransportConfig{Router: router, Slot: slotOfTest, Base: a.sends, Wait: 10 * time.Second})
	if err != nil {
		s.t.Fatal(err)
	}
	a.client = &http.Client{Transport: tr, Timeout: 30 * time.Second}
	return a
}

// ask returns who answered, under which epoch.
func (a *asker) ask(slot int, header ...string) (status int, owner string, epoch uint64) {
	r, err := http.NewRequest(http.MethodPost, "http://orders/x", strings.NewReader("body"))
	if err != nil {
		a.t.Error(err)
		return 0, "", 0
	}
	r.Header.Set(slotHeader, strconv.Itoa(slot))
	for _, h := range header {
		r.Header.Set(h, "1")
	}
	res, err := a.client.Do(r)
	if err != nil {
		return 0, "", 0 // nobody is known to serve it just now
	}
	defer res.Body.Close()
	body, _ := io.ReadAll(res.Body)
	if res.StatusCode == http.StatusOK {
		_, _ = fmt.Sscanf(string(body), "%s %d", &owner, &epoch)
	}
	return res.StatusCode, owner, epoch
}

// until polls in real time.
func (s *service) until(what string, ok func() bool) {
	s.t.Helper()
	for began := time.Now(); !ok(); time.Sleep(10 * time.Millisecond) { // poll
		if time.Since(began) > 20*time.Second {
			s.t.Fatalf("it did not happen: %s", what)
		}
	}
}

func (s *service) servedBy(a *asker, slot int, owner string) (epoch uint64) {
	s.t.Helper()
	s.until(fmt.Sprintf("slot %d is served by %s", slot, owner), func() bool {
		_, who, e := a.ask(slot)
		epoch = e
		return who == owner
	})
	return epoch
}

func inServices(t *testing.T, f func(t *testing.T, s *service)) {
	t.Parallel()
	for _, form := range forms {
		t.Run(string(form), func(t *testing.T) {
			t.Parallel()
			if form == RegisterForm {
				f(t, newService(t, Register()))
			} else {
				f(t, newService(t))
			}
		})
	}
}

// A pin moves a range by a hand-over: a request that runs is finished by the host that gives
// the range away, new ones are put off meanwhile and are the successor's then, under a higher
// epoch; a client that knows of nothing follows the 421.
//
// SPEC SL8 SL9
func TestHostsBehindServeHandOver(t *testing.T) {
	inServices(t, func(t *testing.T, s *service) {
		a := s.host("a", 20*time.Second)
		client := s.asker(s.router(true))
		before := s.servedBy(client, 0, "a")
		s.servedBy(client, 9000, "a")
		late := s.asker(s.router(false))
		s.host("b", time.Second)

		var held atomic.Value
		s.background(func(context.Context) {
			status, owner, epoch := client.ask(0, "X-Hold")
			held.Store(fmt.Sprint(status, owner, epoch))
		})
		<-a.begun
		if _, err := s.table.Pin(t.Context(), rng(0, 8191), "b"); err != nil {
			t.Fatal(err)
		}
		s.until("new requests are put off", func() bool {
			status, owner, _ := client.ask(0)
			if owner == "b" {
				t.Fatal("the range went while a request of it ran")
			}
			return status == http.StatusServiceUnavailable
		})
		if e, ok := a.EpochFor(0); !ok || e != before || held.Load() != nil {
			t.Errorf("while it drains: epoch %d, %v; the request answered %v", e, ok, held.Load())
		}
		a.release <- struct{}{}
		after := s.servedBy(client, 0, "b")
		s.until("the held request is answered", func() bool { return held.Load() != nil })
		if want := fmt.Sprint(http.StatusOK, "a", before); held.Load() != want || after <= before {
			t.Errorf("the held request was answered %v, want %v; then epoch %d", held.Load(), want, after)
		}
		s.until("the first host knows who serves", func() bool {
			route, ok := a.handler.c.Router.Route(0)
			return ok && route.Owner == "b"
		})
		sent := late.sends.all.Load()
		if status, owner, epoch := late.ask(0); status != http.StatusOK || owner != "b" || epoch != after || late.sends.all.Load() != sent+2 {
			t.Errorf("the late client got %d of %q, epoch %d, in %d sends", status, owner, epoch, late.sends.all.Load()-sent)
		}
		s.servedBy(client, 9000, "a")
	})
}

// A request that does not end by the drain's limit is ended, with why, before the successor
// serves; and so is one whose grant is lost to a newer epoch, under which the host claims
// the range anew.
//
// SPEC SL6 SL8 SL9
func TestHostsBehindServeEndWhatRuns(t *testing.T) {
	inServices(t, func(t *testing.T, s *service) {
		a := s.host("a", 50*time.Millisecond)
		client := s.asker(s.router(true))
		s.servedBy(client, 0, "a")
		before := s.servedBy(client, 9000, "a")
		b := s.host("b", time.Second)
		s.background(func(context.Context) { client.ask(0, "X-Hold") })
		<-a.begun
		if _, err := s.table.Pin(t.Context(), rng(0, 8191), "b"); err != nil {
			t.Fatal(err)
		}
		s.servedBy(client, 0, "b")
		if err := <-a.ends; !errors.Is(err, tenure.ErrReleased) {
			t.Errorf("the request ended with %v", err)
		}
		if len(b.Held()) != 1 {
			t.Errorf("b has %v", b.Held())
		}

		s.background(func(context.Context) { client.ask(9000, "X-Hold") })
		<-a.begun
		if !a.Lose(9000, before+10) {
			t.Error("nothing was lost")
		}
		if err := <-a.ends; !errors.Is(err, tenure.ErrLost) {
			t.Errorf("the request ended with %v", err)
		}
		s.until("it is served under a newer epoch", func() bool {
			_, owner, epoch := client.ask(9000)
			if owner != "" && epoch < before+10 {
				t.Fatalf("served by %s under epoch %d", owner, epoch)
			}
			return owner == "a"
		})
	})
}
