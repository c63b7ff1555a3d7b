package azurestore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/tenure-project/tenure/store"
)

// reply is one answer of a scripted server. Azure's usual headers are added
// unless bare is set.
type reply struct {
	status int
	code   string // x-ms-error-code
	header map[string]string
	body   string
	bare   bool
	do     func(w http.ResponseWriter, r *http.Request) // instead of all that
}

// script is a server that gives the same answers every time: one to each
// method.
type script struct {
	*httptest.Server
	mu   sync.Mutex
	seen []*http.Request
	by   map[string]reply
}

func newScript(t testing.TB, by map[string]reply) *script {
	t.Helper()
	s := &script{by: by}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Server.Close)
	return s
}

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	s.mu.Lock()
	s.seen = append(s.seen, r)
	a, known := s.by[r.Method]
	s.mu.Unlock()
	switch {
	case !known:
		a = reply{status: http.StatusTeapot, bare: true}
	case a.do != nil:
		a.do(w, r)
		return
	}
	a.write(w)
}

func (a reply) write(w http.ResponseWriter) {
	h := w.Header()
	if !a.bare {
		h.Set("X-Ms-Request-Id", "11111111-2222-3333-4444-555555555555")
		h.Set("X-Ms-Version", "2026-12-06")
	}
	if a.code != "" {
		h.Set("X-Ms-Error-Code", a.code)
	}
	for name, value := range a.header {
		h.Set(name, value)
	}
	w.WriteHeader(a.status)
	_, _ = io.WriteString(w, a.body)
}

// requests are the methods that came in so far.
func (s *script) requests() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for _, r := range s.seen {
		all = append(all, r.Method)
	}
	return strings.Join(all, " ")
}

// Secrets of the tests: what no error and no Info may show.
const (
	secretSig = "c2VjcmV0LXNpZ25hdHVyZQ"
	testSAS   = "?sv=2026-12-06&sr=c&sp=rcwdl&se=2999-01-01T00:00:00Z&sig=" + secretSig
)

// at is a store that talks to a server of the test with a SAS token.
func at(t testing.TB, endpoint string) *Store {
	t.Helper()
	u, err := url.Parse(endpoint + "/scripted")
	if err != nil {
		t.Fatal(err)
	}
	return openAt(t, &config{container: testContainer, prefix: "p/", account: "scripted", endpoint: u, sas: testSAS})
}

const testKey = "ns/lease/a"

// operations call s once each, for tables.
var operations = map[string]func(ctx context.Context, s *Store) error{
	opGet:    func(ctx context.Context, s *Store) error { _, err := s.Get(ctx, testKey, 100); return err },
	opCreate: func(ctx context.Context, s *Store) error { _, err := s.Create(ctx, testKey, []byte("new")); return err },
	opReplace: func(ctx context.Context, s *Store) error {
		_, err := s.Replace(ctx, testKey, []byte("new"), "0x1")
		return err
	},
	opDelete:   func(ctx context.Context, s *Store) error { return s.Delete(ctx, testKey) },
	opDeleteIf: func(ctx context.Context, s *Store) error { return s.DeleteIf(ctx, testKey, "0x1") },
	opList: func(ctx context.Context, s *Store) error {
		for _, err := range s.List(ctx, "ns/lease/", "") {
			if err != nil {
				return err
			}
		}
		return nil
	},
}

var methods = map[string]string{opGet: "GET", opCreate: "PUT", opReplace: "PUT", opDelete: "DELETE", opDeleteIf: "DELETE", opList: "GET"}

var (
	reads  = []string{opGet, opList}
	writes = []string{opCreate, opReplace, opDelete, opDeleteIf}
	every  = append(append([]string{}, reads...), writes...)
)

// checkError fails the test unless err is of kind want, of no other, names what
// it must and shows no secret. A nil kind is a success.
func checkError(t *testing.T, op string, err, want error, says string) {
	t.Helper()
	if want == nil {
		if err != nil {
			t.Errorf("%s: %v, want a success", op, err)
		}
		return
	}
	for _, k := range store.Kinds() {
		if errors.Is(err, k) != (k == want) {
			t.Errorf("%s gave %v (kind %v), want the kind %q and no other", op, err, store.KindOf(err), want)
			return
		}
	}
	text := err.Error()
	if !strings.Contains(text, says) {
		t.Errorf("%s gave %q, which does not say %q", op, text, says)
	}
	if !strings.Contains(text, op) || !strings.Contains(text, scheme) || op != opList && !strings.Contains(text, testKey) {
		t.Errorf("%s gave %q, which does not name store, operation and key", op, text)
	}
	noSecret(t, text)
}

func noSecret(t testing.TB, text string) {
	t.Helper()
	for _, secret := range append([]string{"sig="}, secrets...) {
		if strings.Contains(text, secret) {
			t.Errorf("%q shows the secret %q", text, secret)
		}
	}
}

const (
	secretKey   = "c2VjcmV0LWFjY291bnQta2V5"
	secretToken = "eyJzZWNyZXQtdG9rZW4"
)

var secrets = []string{secretSig, secretKey, secretToken, "hunter2"}

// cut closes the connection instead of an answer, or in the middle of one.
func cut(before string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, buf, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		_, _ = buf.WriteString(before)
		_ = buf.Flush()
		if tcp, ok := conn.(*net.TCPConn); ok && before == "" {
			_ = tcp.SetLinger(0) // a reset
		}
		_ = conn.Close()
	}
}

// record is Azure's answer to a Get of body.
func record(body string) reply {
	return reply{status: 200, body: body, header: map[string]string{
		"Etag": `"0x1"`, "X-Ms-Blob-Type": "BlockBlob", "Last-Modified": "Fri, 27 Nov 2026 10:00:00 GMT",
	}}
}

// with is a with one header changed; an empty value takes it away.
func (a reply) with(name, value string) reply {
	h := map[string]string{name: value}
	for k, v := range a.header {
		if k != name {
			h[k] = v
		}
	}
	if value == "" {
		delete(h, name)
	}
	a.header = h
	return a
}

// page is Azure's answer to a List.
func page(marker string, names ...string) reply {
	var b strings.Builder
	for _, n := range names {
		fmt.Fprintf(&b, "<Blob><Name>%s</Name><Properties><Etag>0x1</Etag></Properties></Blob>", n)
	}
	return reply{status: 200, header: map[string]string{"Content-Type": "application/xml"},
		body: `<?xml version="1.0" encoding="utf-8"?><EnumerationResults ServiceEndpoint="http://x/" ContainerName="suite"><Blobs>` +
			b.String() + "</Blobs><NextMarker>" + marker + "</NextMarker></EnumerationResults>"}
}

func authFailed(detail string) string {
	return `<?xml version="1.0" encoding="utf-8"?><Error><Code>AuthenticationFailed</Code><Message>Server failed to authenticate. sig=` + secretSig +
		`</Message><AuthenticationErrorDetail>` + detail + `</AuthenticationErrorDetail></Error>`
}
