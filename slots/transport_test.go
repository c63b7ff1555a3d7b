package slots

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-project/tenure/store"
)

// countedSends counts what each request costs.
type countedSends struct {
	base http.RoundTripper
	all  atomic.Int64
}

type sendsKey struct{}

func (c *countedSends) RoundTrip(r *http.Request) (*http.Response, error) {
	c.all.Add(1)
	if n, ok := r.Context().Value(sendsKey{}).(*atomic.Int64); ok {
		n.Add(1)
	}
	return c.base.RoundTrip(r)
}

// routedHosts is a table, hosts on loopback that serve by it, and a client.
type routedHosts struct {
	t      testing.TB
	table  *fakeRoutes
	router *Router // the client's
	base   *countedSends
	client *http.Client
}

func newRoutedHosts(t testing.TB, c TransportConfig) *routedHosts {
	t.Helper()
	conns := &http.Transport{MaxIdleConnsPerHost: 100}
	t.Cleanup(conns.CloseIdleConnections)
	k := &routedHosts{t: t, table: newFakeRoutes(), base: &countedSends{base: conns}}
	k.router = mustRouter(t, k.table, RouterConfig{Pause: time.Millisecond, Every: time.Minute})
	c.Router, c.Slot, c.Base = k.router, slotOfTest, k.base
	if c.Wait == 0 {
		c.Wait = 20 * time.Second // tests do not give up early on a slow machine
	}
	tr, err := NewTransport(c)
	if err != nil {
		t.Fatal(err)
	}
	k.client = &http.Client{Transport: tr}
	return k
}

// host starts an owner, which serves by the table and answers 421 by a router of its
// own that reads it anew for each refusal.
func (k *routedHosts) host(owner string, next http.Handler) (addr string) {
	router := mustRouter(k.t, k.table, RouterConfig{Pause: 1})
	h := mustServe(k.t, ServeConfig{Host: fakeServer{k.table, owner}, Owner: owner, Router: router, RetryAfter: time.Millisecond}, next)
	return k.server(func(w http.ResponseWriter, r *http.Request) {
		_ = router.Refresh(r.Context())
		h.ServeHTTP(w, r)
	})
}

func (k *routedHosts) server(f http.HandlerFunc) (addr string) {
	s := httptest.NewServer(f)
	k.t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// echoServed answers who served under which epoch, and what came.
func echoServed(owner string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s, _ := SlotFrom(r.Context())
		fmt.Fprintf(w, "%s %d %s %s%s %s", owner, s.Epoch, r.Method, r.URL.RequestURI(), r.Header.Get("Traceparent"), body)
	})
}

// do sends a request for slot, and tells how often it was sent.
func (k *routedHosts) do(method string, slot int, body io.Reader, change ...func(*http.Request)) (status int, text string, sends int64, err error) {
	var n atomic.Int64
	ctx := context.WithValue(context.Background(), sendsKey{}, &n)
	r, err := http.NewRequestWithContext(ctx, method, "http://kv/key?q=1", body)
	if err != nil {
		k.t.Fatal(err)
	}
	r.Header.Set(slotHeader, strconv.Itoa(slot))
	for _, c := range change {
		c(r)
	}
	res, err := k.client.Do(r)
	if err != nil {
		return 0, "", n.Load(), err
	}
	defer res.Body.Close()
	got, err := io.ReadAll(io.LimitReader(res.Body, 1<<16))
	return res.StatusCode, string(got), n.Load(), err
}

// A request goes to its owner, and follows a move once, whatever its method: its body,
// its query and its trace come along.
// SPEC SL9
func TestTransportFollowsAMove(t *testing.T) {
	t.Parallel()
	k := newRoutedHosts(t, TransportConfig{})
	a, b := k.host("a", echoServed("a")), k.host("b", echoServed("b"))
	trace := func(r *http.Request) { r.Header.Set("Traceparent", "T") }
	for i, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
		epoch := k.table.claim(slotRange(0, 99), "a", a)
		if err := k.router.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		status, text, sends, err := k.do(method, 7, strings.NewReader("hello"), trace)
		if want := fmt.Sprintf("a %d %s /key?q=1T hello", epoch, method); status != 200 || text != want || sends != 1 || err != nil {
			t.Errorf("%d: %d %q after %d sends, %v; want %q", i, status, text, sends, err, want)
		}
		epoch = k.table.claim(slotRange(0, 99), "b", "http://"+b)
		status, text, sends, err = k.do(method, 7, strings.NewReader("hello"), trace)
		if want := fmt.Sprintf("b %d %s /key?q=1T hello", epoch, method); status != 200 || text != want || sends != 2 || err != nil {
			t.Errorf("%d: %d %q after %d sends, %v; want %q", i, status, text, sends, err, want)
		}
	}
	if _, text, sends, err := k.do("GET", -1, nil, func(r *http.Request) { r.URL.Host = a; r.Header.Del(slotHeader) }); sends != 1 || !strings.HasPrefix(text, "a 0") {
		t.Errorf("for no slot: %q after %d sends, %v", text, sends, err)
	}
}

// The first request needs no Run: an empty map is read.
// SPEC SL9
func TestTransportWithoutARoute(t *testing.T) {
	t.Parallel()
	k := newRoutedHosts(t, TransportConfig{})
	a := k.host("a", echoServed("a"))
	k.table.claim(slotRange(0, 99), "a", a)
	if status, _, sends, err := k.do("GET", 1, nil); status != 200 || sends != 1 || err != nil {
		t.Errorf("status %d after %d sends, %v", status, sends, err)
	}
	body := &closableBody{Reader: strings.NewReader("x")}
	if _, _, sends, err := k.do("POST", 100, body); !errors.Is(err, store.ErrUnavailable) || sends != 0 || !body.was.Load() {
		t.Errorf("nobody's: %d sends, body closableBody %v, %v", sends, body.was.Load(), err)
	}
	k.table.claim(slotRange(100, 100), "mute", "")
	if _, _, sends, err := k.do("POST", 100, nil); !errors.Is(err, store.ErrInvalid) || sends != 0 {
		t.Errorf("without an address: %d sends, %v", sends, err)
	}
	k.table.set(func(f *fakeRoutes) { f.away = true })
	if _, _, sends, err := k.do("POST", 101, nil); !errors.Is(err, errAway) || sends != 0 {
		t.Errorf("with the store away: %d sends, %v", sends, err)
	}
	if status, _, _, err := k.do("GET", 1, nil); status != 200 || err != nil {
		t.Errorf("a known route with the store away: %d, %v", status, err)
	}
	if _, _, sends, err := k.do("GET", 16384, nil); !errors.Is(err, store.ErrInvalid) || sends != 0 {
		t.Errorf("no slot: %d sends, %v", sends, err)
	}
}

type closableBody struct {
	io.Reader
	was atomic.Bool
}

func (c *closableBody) Close() error { c.was.Store(true); return nil }

// A body is sent again if the request can make it anew or if it is short and of known
// length; else the caller gets the 421.
// SPEC SL9
func TestTransportReplaysBodies(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 5000)
	for _, c := range []struct {
		name   string
		body   func(r *http.Request)
		follow bool
	}{
		{"GetBody", func(r *http.Request) {
			r.ContentLength = int64(len(long))
			r.Body = io.NopCloser(strings.NewReader(long))
			r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(long)), nil }
		}, true},
		{"short", func(r *http.Request) { r.ContentLength = 4; r.Body = &closableBody{Reader: strings.NewReader("body")} }, true},
		{"none", func(r *http.Request) { r.Body = http.NoBody }, true},
		{"long", func(r *http.Request) { r.ContentLength = 5000; r.Body = &closableBody{Reader: strings.NewReader(long)} }, false},
		{"of unknown length", func(r *http.Request) { r.ContentLength = -1; r.Body = &closableBody{Reader: strings.NewReader("body")} }, false},
		{"GetBody fails", func(r *http.Request) {
			r.ContentLength = 4
			r.Body = io.NopCloser(strings.NewReader("body"))
			r.GetBody = func() (io.ReadCloser, error) { return nil, io.ErrUnexpectedEOF }
		}, false},
	} {
		k := newRoutedHosts(t, TransportConfig{Buffer: 1000})
		a, b := k.host("a", echoServed("a")), k.host("b", echoServed("b"))
		k.table.claim(slotRange(0, 99), "a", a)
		_ = k.router.Refresh(t.Context())
		k.table.claim(slotRange(0, 99), "b", b)
		var sent io.ReadCloser
		status, text, sends, err := k.do("POST", 7, nil, c.body, func(r *http.Request) { sent = r.Body })
		want, times := http.StatusMisdirectedRequest, int64(1)
		if c.follow {
			want, times = 200, 2
		}
		if status != want || sends != times || err != nil {
			t.Errorf("%s: %d after %d sends, %v; want %d after %d", c.name, status, sends, err, want, times)
		}
		if !c.follow && !strings.Contains(text, `"owner":"b"`) {
			t.Errorf("%s: the refusal came as %q", c.name, text)
		}
		if own, ok := sent.(*closableBody); ok && !own.was.Load() {
			t.Errorf("%s: the body was not closableBody", c.name)
		}
	}
	k := newRoutedHosts(t, TransportConfig{})
	k.table.claim(slotRange(0, 99), "a", "127.0.0.1:1")
	lie := func(r *http.Request) { r.ContentLength = 9; r.Body = io.NopCloser(strings.NewReader("body")) }
	if _, _, sends, err := k.do("POST", 7, nil, lie); !errors.Is(err, store.ErrInvalid) || sends != 0 {
		t.Errorf("a body shorter than it says: %d sends, %v", sends, err)
	}
}

// A 503 and a lost connection are the caller's: the request may have been begun. Both
// have the map read anew.
// SPEC SL9
func TestTransportRepeatsNothingThatMayHaveBegun(t *testing.T) {
	t.Parallel()
	k := newRoutedHosts(t, TransportConfig{})
	busy := k.server(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	torn := k.server(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, _ := w.(http.Hijacker).Hijack()
		_ = conn.Close()
	})
	k.table.claim(slotRange(0, 9), "busy", busy)
	k.table.claim(slotRange(10, 19), "torn", torn)
	stop := runRouter(t, k.router)
	defer stop()
	for slot, wantErr := range map[int]bool{0: false, 10: true} {
		if err := k.router.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		status, _, sends, err := k.do("POST", slot, strings.NewReader("x"))
		if sends != 1 || (err != nil) != wantErr || !wantErr && status != 503 {
			t.Errorf("slot %d: status %d after %d sends, %v", slot, status, sends, err)
		}
		epoch := k.table.claim(slotRange(slot, slot+9), "new", busy) // told, and rung
		for got, _ := k.router.Route(uint16(slot)); got.Epoch != epoch; got, _ = k.router.Route(uint16(slot)) {
			time.Sleep(time.Millisecond) // poll, bounded by the test's own limit
		}
	}
}

// A 503 alone has the map read anew by Run.
// SPEC SL9
func TestTransportRingsAfterARefusal(t *testing.T) {
	t.Parallel()
	k := newRoutedHosts(t, TransportConfig{})
	busy := k.server(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	k.table.claim(slotRange(0, 9), "busy", busy)
	_ = k.router.Refresh(t.Context())
	if len(k.router.bell) != 0 {
		t.Fatal("the bell rang before")
	}
	_, _, _, _ = k.do("GET", 0, nil)
	if len(k.router.bell) != 1 {
		t.Error("nothing was rung")
	}
}

// A transport without what it needs is refused, and so is an address that is none.
// SPEC SL9
func TestTransportConfigAndAddresses(t *testing.T) {
	t.Parallel()
	r := mustRouter(t, newFakeRoutes(), RouterConfig{})
	for _, c := range []TransportConfig{{Slot: slotOfTest}, {Router: r}, {Router: r, Slot: slotOfTest, Wait: -1}} {
		if _, err := NewTransport(c); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	for _, c := range []struct{ text, scheme, want string }{
		{"h", "http", "http://h"}, {"h:80", "https", "https://h:80"}, {"H.example:1", "HTTP", "http://h.example:1"},
		{"[::1]:80", "http", "http://[::1]:80"}, {"https://h", "http", "https://h"}, {"https://h:1/", "https", "https://h:1"},
		{"http://h", "https", ""}, {"", "http", ""}, {"http://", "http", ""}, {"http:///x", "http", ""}, {"h/x", "http", ""},
		{"h?x", "http", ""}, {"h#x", "http", ""}, {"u@h", "http", ""}, {"ftp://h", "http", ""}, {"h:x", "http", ""},
		{"h\r\nX: y", "http", ""}, {" h", "http", ""}, {"h:80:80", "http", ""}, {":80", "http", ""}, {"javascript:x", "http", ""},
		{"h", "ftp", ""}, {strings.Repeat("h", 1025), "http", ""}, {"[::1", "http", ""},
	} {
		got, err := parseAddress(c.text, c.scheme)
		if c.want == "" && !errors.Is(err, store.ErrInvalid) || c.want != "" && (err != nil || got.address() != c.want) {
			t.Errorf("%q for %s: %v, %v; want %q", c.text, c.scheme, got.address(), err, c.want)
		}
	}
}
