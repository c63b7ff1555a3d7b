package s3store

import (
	"context"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/tenure-project/tenure/store"
)

// recorder keeps the requests that reach a handler.
type recorder struct {
	next http.Handler
	mu   sync.Mutex
	seen []*http.Request
}

func (r *recorder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	r.seen = append(r.seen, req)
	r.mu.Unlock()
	r.next.ServeHTTP(w, req)
}

// take returns the requests since the last take.
func (r *recorder) take() []*http.Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.seen
	r.seen = nil
	return out
}

// Each call is one request, whether it succeeds or is refused.
//
// SPEC LS4 ST9
func TestRequestsPerCall(t *testing.T) {
	t.Parallel()
	rec := &recorder{next: newModel()}
	srv := serve(t, rec)
	// By the name of Amazon, whose refusals say all there is to know.
	s := dialing(t, "http://s3.us-east-1.amazonaws.com", func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, srv.Listener.Addr().String())
	})
	var v store.Version
	steps := []struct {
		what string
		call func() error
		want error
	}{
		{"get of nothing", func() error { _, err := s.Get(t.Context(), "k", 100); return err }, notFound},
		{"replace of nothing", func() error { _, err := s.Replace(t.Context(), "k", nil, goodTag); return err }, notFound},
		{"create", func() (err error) { v, err = s.Create(t.Context(), "k", []byte("1")); return err }, none},
		{"second create", func() error { _, err := s.Create(t.Context(), "k", []byte("2")); return err }, exists},
		{"replace", func() (err error) { v, err = s.Replace(t.Context(), "k", []byte("3"), v); return err }, none},
		{"stale replace", func() error { _, err := s.Replace(t.Context(), "k", []byte("4"), goodTag); return err }, conflict},
		{"get", func() error { _, err := s.Get(t.Context(), "k", 100); return err }, none},
		{"list", func() error { return run(t.Context(), s, opList) }, none},
		{"stale delete-if", func() error { return s.DeleteIf(t.Context(), "k", goodTag) }, conflict},
		{"delete-if", func() error { return s.DeleteIf(t.Context(), "k", v) }, none},
		{"delete", func() error { return s.Delete(t.Context(), "k") }, none},
	}
	for _, step := range steps {
		checkAnswer(t, step.what, step.call(), step.want, "")
		if n := len(rec.take()); n != 1 {
			t.Errorf("%s: %d requests, want 1", step.what, n)
		}
	}
}

// A write carries its condition, and nothing that relatives refuse.
//
// SPEC ST14
func TestRequestsArePlain(t *testing.T) {
	t.Parallel()
	rec := &recorder{next: newModel()}
	s := at(t, serve(t, rec).URL)
	v, err := s.Create(t.Context(), "k", []byte("1"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Replace(t.Context(), "k", make([]byte, 3<<20), v); err != nil { // the SDK treats large ones differently
		t.Fatal(err)
	}
	_ = run(t.Context(), s, opGet)
	_ = run(t.Context(), s, opList)
	_ = run(t.Context(), s, opDelete)
	seen := rec.take()
	if h := seen[0].Header; h.Get("If-None-Match") != "*" || h.Get("If-Match") != "" {
		t.Errorf("create has the conditions %q, %q", h.Get("If-None-Match"), h.Get("If-Match"))
	}
	if h := seen[1].Header; h.Get("If-Match") != string(v) || h.Get("If-None-Match") != "" {
		t.Errorf("replace has the conditions %q, %q", h.Get("If-None-Match"), h.Get("If-Match"))
	}
	for _, r := range seen {
		if got := r.Header.Get("Accept-Encoding"); got != "identity" {
			t.Errorf("%s %s: Accept-Encoding is %q", r.Method, r.URL.Path, got)
		}
		if r.ContentLength < 0 || len(r.TransferEncoding) > 0 {
			t.Errorf("%s %s is sent in chunks", r.Method, r.URL.Path)
		}
		for name := range r.Header {
			name = strings.ToLower(name)
			for _, refused := range []string{"x-amz-trailer", "x-amz-sdk-checksum-algorithm", "x-amz-checksum-", "x-amz-checksum-mode", "expect", "content-encoding", "x-tigris-consistent"} {
				if strings.HasPrefix(name, refused) {
					t.Errorf("%s %s has the header %s", r.Method, r.URL.Path, name)
				}
			}
		}
	}
}

// Tigris answers consistently everywhere only if it is asked to.
func TestTigrisIsAskedForConsistency(t *testing.T) {
	t.Parallel()
	rec := &recorder{next: newModel()}
	srv := serve(t, rec)
	s := dialing(t, "http://fly.storage.tigris.dev", func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, srv.Listener.Addr().String())
	})
	_ = run(t.Context(), s, opGet)
	if seen := rec.take(); len(seen) != 1 || seen[0].Header.Get("X-Tigris-Consistent") != "true" {
		t.Errorf("the header is missing in %d requests", len(seen))
	}
}

// A version that no state can have never becomes a condition: If-Match: * would
// overwrite whatever is there.
//
// SPEC ST2 ST14
func TestImpossibleVersionsAreNotSent(t *testing.T) {
	t.Parallel()
	m := newModel()
	rec := &recorder{next: m}
	s := at(t, serve(t, rec).URL)
	if _, err := s.Create(t.Context(), "k", []byte("kept")); err != nil {
		t.Fatal(err)
	}
	rec.take()
	for _, v := range []store.Version{"", "*", `"*"`, `"a", "b"`, "a,b", "W/" + goodTag, "a b", "a\r\nIf-None-Match: *", `"`, `""`, "é"} {
		_, err := s.Replace(t.Context(), "k", []byte("over"), v)
		checkAnswer(t, "replace", err, conflict, "")
		checkAnswer(t, "delete-if", s.DeleteIf(t.Context(), "k", v), conflict, "")
		_, err = s.Replace(t.Context(), "absent", []byte("over"), v)
		checkAnswer(t, "replace of nothing", err, notFound, "")
	}
	for _, r := range rec.take() {
		if r.Method != http.MethodGet {
			t.Errorf("%s %s was sent", r.Method, r.URL.Path)
		}
	}
	if got := m.body("p/k!"); got != "kept" {
		t.Errorf("the object holds %q", got)
	}
}

// The connections of a store are its own, and HTTP/1.1: one that hangs holds up
// one call.
//
// SPEC ST14
func TestOwnConnections(t *testing.T) {
	t.Parallel()
	shared := &http.Transport{}
	o := rawClient("http://127.0.0.1:1", testKey, testSecret).Options()
	for _, c := range []*http.Client{{}, {Transport: shared}, http.DefaultClient} {
		own, _ := ownPool(c)
		tr := own.(*http.Client).Transport.(*http.Transport)
		if tr == shared || tr == http.DefaultTransport || c == own {
			t.Errorf("the transport of %v is shared", c)
		}
		if tr.Protocols.HTTP2() || !tr.Protocols.HTTP1() || !tr.DisableCompression {
			t.Errorf("the transport is not set up: %v", tr.Protocols)
		}
	}
	if own, _ := ownPool(o.HTTPClient); own == o.HTTPClient {
		t.Error("the client's own client is used")
	}
}

// A body stored under a foreign name is no record of ours, and hides none.
//
// SPEC ST6
func TestForeignObjectsAreNotListed(t *testing.T) {
	t.Parallel()
	m := newModel()
	s := at(t, serve(t, m).URL)
	if _, err := s.Create(t.Context(), "a/b", nil); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"p/", "p/a/", "p/a/b", "p/A!", "p/a b!", "p/x/!", "p/!", "q/a!", "pa!"} {
		m.kept[name] = kept{tag: goodTag}
	}
	var got []string
	for k, err := range s.List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, k)
	}
	if len(got) != 1 || got[0] != "a/b" {
		t.Errorf("listed %q, want only a/b", got)
	}
}
