package azurestore

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/tenure-project/tenure/store"
)

// relay passes requests on to the emulator, counts them, and loses what the
// test tells it to.
type relay struct {
	*httptest.Server
	to string // the emulator's scheme and host

	mu        sync.Mutex
	count     map[string]int
	headers   []http.Header
	dropReply bool // of writes, after they were passed on
	strip     bool // the conditions of writes
}

func newRelay(t testing.TB, endpoint string) *relay {
	t.Helper()
	r := &relay{to: endpoint[:strings.LastIndexByte(endpoint, '/')], count: map[string]int{}}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Server.Close)
	return r
}

func (r *relay) ServeHTTP(w http.ResponseWriter, in *http.Request) {
	r.mu.Lock()
	r.count[in.Method]++
	r.headers = append(r.headers, in.Header.Clone())
	drop := r.dropReply && (in.Method == http.MethodPut || in.Method == http.MethodDelete)
	r.mu.Unlock()
	body, _ := io.ReadAll(in.Body)
	out, err := http.NewRequest(in.Method, r.to+in.URL.RequestURI(), bytes.NewReader(body))
	if err != nil {
		panic(err)
	}
	out.Header = in.Header.Clone()
	if r.strip {
		out.Header.Del("If-Match")
		out.Header.Del("If-None-Match")
	}
	resp, err := (&http.Transport{DisableKeepAlives: true, DisableCompression: true}).RoundTrip(out)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer resp.Body.Close()
	if drop {
		panic(http.ErrAbortHandler)
	}
	for name, values := range resp.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(resp.StatusCode)
	_, _ = io.Copy(w, resp.Body)
}

// sent takes the counts since the last time.
func (r *relay) sent() (counts map[string]int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	counts, r.count = r.count, map[string]int{}
	return counts
}

func (r *relay) lose(replies bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropReply = replies
}

func expectSent(t *testing.T, r *relay, what string, want map[string]int) {
	t.Helper()
	got := r.sent()
	if len(got) != len(want) {
		t.Errorf("%s sent %v, want %v", what, got, want)
	}
	for method, n := range want {
		if got[method] != n {
			t.Errorf("%s sent %v, want %v", what, got, want)
		}
	}
}

// Each call is one request, and asks for bytes as they are.
//
// SPEC LS4
func TestRequestsPerCall(t *testing.T) {
	t.Parallel()
	c := place(t)
	r := newRelay(t, c.endpoint.String())
	s := openAt(t, keyed(r.URL+c.endpoint.Path, azurite(t), c.prefix))
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	expectSent(t, r, "opening", map[string]int{})
	v, err := s.Create(t.Context(), testKey, []byte("1"))
	must(err)
	expectSent(t, r, "Create", map[string]int{"PUT": 1})
	v, err = s.Replace(t.Context(), testKey, []byte("2"), v)
	must(err)
	expectSent(t, r, "Replace", map[string]int{"PUT": 1})
	_, err = s.Get(t.Context(), testKey, 100)
	must(err)
	expectSent(t, r, "Get", map[string]int{"GET": 1})
	for range s.List(t.Context(), "", "") {
	}
	expectSent(t, r, "List", map[string]int{"GET": 1})
	_, err = s.Create(t.Context(), testKey, []byte("3"))
	kindIs(t, err, store.ErrExists, "a second Create")
	expectSent(t, r, "a second Create", map[string]int{"PUT": 1})
	_, err = s.Replace(t.Context(), testKey, []byte("3"), "0x123")
	kindIs(t, err, store.ErrConflict, "a stale Replace")
	expectSent(t, r, "a stale Replace", map[string]int{"PUT": 1, "HEAD": 1})
	must(s.DeleteIf(t.Context(), testKey, v))
	expectSent(t, r, "DeleteIf", map[string]int{"DELETE": 1})
	must(s.Delete(t.Context(), testKey))
	expectSent(t, r, "Delete", map[string]int{"DELETE": 1})
	for _, h := range r.headers {
		if h.Get("Accept-Encoding") != "identity" || h.Get("Cache-Control") != "no-store" || h.Get("Expect") != "" {
			t.Errorf("a request went out with the headers %v", h)
		}
	}
}

// A write whose reply is lost is sent once, is unknown, and is there.
//
// SPEC ST9
// CASE B02
func TestLostReplies(t *testing.T) {
	t.Parallel()
	c := place(t)
	r := newRelay(t, c.endpoint.String())
	s := openAt(t, keyed(r.URL+c.endpoint.Path, azurite(t), c.prefix))
	holds := func(want string) store.Version {
		t.Helper()
		r.lose(false)
		o, err := s.Get(t.Context(), testKey, 100)
		if err != nil || string(o.Body) != want {
			t.Fatalf("found %q, %v; want %q", o.Body, err, want)
		}
		r.sent()
		r.lose(true)
		return o.Version
	}
	r.lose(true)
	_, err := s.Create(t.Context(), testKey, []byte("1"))
	kindIs(t, err, store.ErrUnknown, "Create whose reply was lost")
	expectSent(t, r, "Create", map[string]int{"PUT": 1})
	v := holds("1")
	_, err = s.Replace(t.Context(), testKey, []byte("2"), v)
	kindIs(t, err, store.ErrUnknown, "Replace whose reply was lost")
	expectSent(t, r, "Replace", map[string]int{"PUT": 1})
	v = holds("2")
	kindIs(t, s.DeleteIf(t.Context(), testKey, v), store.ErrUnknown, "DeleteIf whose reply was lost")
	expectSent(t, r, "DeleteIf", map[string]int{"DELETE": 1})
	r.lose(false)
	_, err = s.Get(t.Context(), testKey, 100)
	kindIs(t, err, store.ErrNotFound, "Get after that DeleteIf")
}

// A gateway that drops conditions on the way is found by the probe.
//
// SPEC ST10
// CASE B21
func TestProbeFindsDroppedConditions(t *testing.T) {
	t.Parallel()
	c := place(t)
	r := newRelay(t, c.endpoint.String())
	r.strip = true
	file := filepath.Join(t.TempDir(), "sas") // a key would sign the conditions
	sasFile(t, file, time.Hour)
	through := keyed(r.URL+c.endpoint.Path, azurite(t), c.prefix)
	through.key, through.sasFile = "", file
	_, err := store.Probe(t.Context(), openAt(t, through), store.ProbeOptions{Prefix: store.Prefix("ns", "probe")})
	var lacks *store.ProbeError
	if !errors.As(err, &lacks) || lacks.Property != store.CreateRefuses {
		t.Errorf("the probe said %v", err)
	}
}

// Where not even a connection came about, nothing happened.
//
// SPEC ST8
func TestNoConnection(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	for what, endpoint := range map[string]string{"refused": "http://" + addr, "no TLS there": "https://" + newScript(t, nil).Listener.Addr().String()} {
		s := at(t, endpoint)
		for op, call := range operations {
			err := call(t.Context(), s)
			checkError(t, op, err, store.ErrUnavailable, "")
			if err != nil && !strings.Contains(err.Error(), "refused") && !strings.Contains(err.Error(), "tls:") {
				t.Errorf("%s, %s: %v", what, op, err)
			}
		}
	}
}

// A server that does not answer holds a call no longer than its context lives.
// What was sent may have happened.
//
// SPEC ST13
// CASE B05
func TestHungServer(t *testing.T) {
	t.Parallel()
	for op := range operations {
		t.Run(op, func(t *testing.T) {
			t.Parallel()
			arrived, release := make(chan struct{}), make(chan struct{})
			srv := newScript(t, map[string]reply{methods[op]: {do: func(http.ResponseWriter, *http.Request) {
				close(arrived)
				<-release
			}}})
			s := at(t, srv.URL)
			ctx, cancel := context.WithCancelCause(t.Context())
			go func() {
				<-arrived
				cancel(errors.New("the caller lost patience"))
			}()
			start := time.Now()
			err := operations[op](ctx, s)
			want := store.ErrUnknown
			if op == opGet || op == opList {
				want = store.ErrUnavailable
			}
			checkError(t, op, err, want, "lost patience")
			if d := time.Since(start); d > 5*time.Second {
				t.Errorf("%s took %v", op, d)
			}
			close(release)
		})
	}
}

// A context that ends while a body comes ends the read.
//
// SPEC ST13
func TestHungBody(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	srv := newScript(t, map[string]reply{"GET": {do: func(w http.ResponseWriter, _ *http.Request) {
		for name, value := range record("").header {
			w.Header().Set(name, value)
		}
		_, _ = io.WriteString(w, "half")
		w.(http.Flusher).Flush()
		<-release
	}}})
	defer close(release)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	checkError(t, opGet, operations[opGet](ctx, at(t, srv.URL)), store.ErrUnavailable, "deadline exceeded")
}

// Close ends calls in flight and says what they were; later ones do nothing.
//
// SPEC ST13
// CASE B73
func TestCloseEndsCalls(t *testing.T) {
	t.Parallel()
	arrived, release := make(chan struct{}), make(chan struct{})
	srv := newScript(t, map[string]reply{"PUT": {do: func(http.ResponseWriter, *http.Request) {
		close(arrived)
		<-release
	}}})
	defer close(release)
	s := at(t, srv.URL)
	failed := make(chan error, 1)
	go func() { failed <- operations[opReplace](t.Context(), s) }()
	<-arrived
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	checkError(t, opReplace, <-failed, store.ErrUnknown, "was closed")
	for op, call := range operations {
		checkError(t, op, call(t.Context(), s), store.ErrUnavailable, "was closed")
	}
}

// A store may be closed in the middle of a listing, by the one that lists.
//
// SPEC ST13
func TestCloseInAListing(t *testing.T) {
	t.Parallel()
	s := at(t, newScript(t, map[string]reply{"GET": page("more", "p/ns/lease/a")}).URL)
	var last error
	for _, err := range s.List(t.Context(), "", "") {
		if last = err; err == nil {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	checkError(t, opList, last, store.ErrUnavailable, "was closed")
}

// A write goes where it was addressed, or nowhere.
func TestNoRedirects(t *testing.T) {
	t.Parallel()
	other := newScript(t, map[string]reply{"PUT": {status: 201, header: map[string]string{"Etag": `"0x2"`}}})
	srv := newScript(t, map[string]reply{"PUT": {status: 307, header: map[string]string{"Location": other.URL}}})
	checkError(t, opReplace, operations[opReplace](t.Context(), at(t, srv.URL)), store.ErrUnknown, "HTTP 307")
	if got := other.requests(); got != "" {
		t.Errorf("the write went on to another server: %s", got)
	}
}

// A client of the program's own, with the SDK's default retries and transport,
// sends each request once all the same.
//
// SPEC ST9
func TestForeignClient(t *testing.T) {
	t.Parallel()
	srv := newScript(t, map[string]reply{
		"PUT": {status: 500, code: "InternalError"}, "DELETE": {do: cut("")}, "GET": {status: 503, code: "ServerBusy"},
	})
	hc := &http.Client{Transport: &http.Transport{}}
	defer hc.CloseIdleConnections()
	// Another signature than the tests look for in the log: the SDK itself shows
	// it there when a connection of such a client breaks.
	token := strings.Replace(testSAS, secretSig, "foreign", 1)
	cc, err := container.NewClientWithNoCredential(srv.URL+"/acct/suite"+token, &container.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: hc}})
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(cc, "p")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	noSecret(t, s.Info().Identity)
	checkError(t, opReplace, operations[opReplace](t.Context(), s), store.ErrUnknown, "InternalError")
	checkError(t, opDelete, operations[opDelete](t.Context(), s), store.ErrUnknown, "")
	checkError(t, opGet, operations[opGet](t.Context(), s), store.ErrUnavailable, "ServerBusy")
	if got := srv.requests(); got != "PUT DELETE GET" {
		t.Errorf("sent %q", got)
	}
	srv.Server.Close()
	hc.CloseIdleConnections() // a broken old connection says nothing about a request
	for op, call := range operations {
		err := call(t.Context(), s)
		checkError(t, op, err, store.ErrUnavailable, "refused")
	}
	if _, err := New(nil, ""); store.KindOf(err) != store.ErrInvalid {
		t.Errorf("New without a client: %v", err)
	}
}
