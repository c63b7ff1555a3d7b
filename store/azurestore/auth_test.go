package azurestore

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/tenure-project/tenure/store"
)

// A SAS token that ran out in mid-hold is replaced by the newer one in its file,
// and the hold goes on; without a newer one the cause is told.
//
// SPEC ST8
// CASE B65
func TestExpiredSASIsReadAgain(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "sas")
	put := func(sig string) {
		t.Helper()
		if err := os.WriteFile(file, []byte("sv=2026-12-06&sp=rcwdl&sig="+sig), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("old")
	srv := newScript(t, map[string]reply{"PUT": {do: func(w http.ResponseWriter, r *http.Request) {
		if sig := r.URL.Query().Get("sig"); sig != "new" {
			reply{status: 403, code: "AuthenticationFailed", body: authFailed("Signature not valid in the specified time frame")}.write(w)
			return
		}
		reply{status: 201, header: map[string]string{"Etag": `"0x2"`}}.write(w)
	}}})
	u, err := url.Parse(srv.URL + "/scripted")
	if err != nil {
		t.Fatal(err)
	}
	s := openAt(t, &config{container: testContainer, account: "scripted", endpoint: u, sasFile: file})
	clock := time.Now()
	s.auth.(*signature).now = func() time.Time { clock = clock.Add(2 * sasReread); return clock }
	for range 2 {
		checkError(t, opReplace, operations[opReplace](t.Context(), s), store.ErrDenied, "expired")
	}
	put("new")
	checkError(t, opReplace, operations[opReplace](t.Context(), s), nil, "")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	checkError(t, opReplace, operations[opReplace](t.Context(), s), nil, "")
}

// A token that says itself that it ends is replaced before it does.
//
// CASE B65
func TestEndingSASIsReadAhead(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "sas")
	put := func(sig, end string) {
		t.Helper()
		if err := os.WriteFile(file, []byte("?sv=1&se="+end+"&sig="+sig), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("old", "2026-11-29T10:00:00Z")
	s, err := newSignature("", file)
	if err != nil {
		t.Fatal(err)
	}
	sent := func(now string) string {
		t.Helper()
		at, err := time.Parse(time.RFC3339, now)
		if err != nil {
			t.Fatal(err)
		}
		s.now = func() time.Time { return at }
		r := httptest.NewRequest("GET", "http://x/y?comp=list", nil)
		if err := s.authorize(r); err != nil || r.URL.Query().Get("comp") != "list" {
			t.Fatalf("%v, %v", r.URL, err)
		}
		return r.URL.Query().Get("sig")
	}
	s.readAt = time.Time{}
	put("new", "2026-11-29T12:00Z")
	if got := sent("2026-11-29T09:58:00Z"); got != "old" {
		t.Errorf("the token %q was sent two minutes before the old one's end", got)
	}
	if why := s.expired(); why != "" {
		t.Errorf("before its end: %s", why)
	}
	if got := sent("2026-11-29T09:59:30Z"); got != "new" {
		t.Errorf("the token %q was sent in the last minute of the old one", got)
	}
	if got := sent("2026-11-29T12:00:00Z"); got != "new" || !strings.Contains(s.expired(), "12:00:00Z; no newer one is in "+file) {
		t.Errorf("after the end: %q, %s", got, s.expired())
	}
}

// wallet is a credential of the test.
type wallet struct {
	mu    sync.Mutex
	asked []policy.TokenRequestOptions
	give  func(ctx context.Context, n int) (azcore.AccessToken, error)
}

func (w *wallet) GetToken(ctx context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	w.mu.Lock()
	w.asked = append(w.asked, o)
	n := len(w.asked)
	w.mu.Unlock()
	return w.give(ctx, n)
}

func (w *wallet) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.asked)
}

func forAnHour(_ context.Context, n int) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: secretToken + strings.Repeat("x", n), ExpiresOn: time.Now().Add(time.Hour)}, nil
}

// tokenStore is a store at srv that shows w's tokens. The URL rules forbid that
// without TLS, so the test builds it.
func tokenStore(t testing.TB, srv *script, w azcore.TokenCredential) *Store {
	t.Helper()
	u, err := url.Parse(srv.URL + "/scripted")
	if err != nil {
		t.Fatal(err)
	}
	s, err := (&config{container: testContainer, account: "scripted", endpoint: u}).openWith(newTokens(w))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// One token serves many calls; one that the server does not know any more is
// replaced for the next call, with the claims that the server asked for.
//
// CASE B65
func TestTokens(t *testing.T) {
	t.Parallel()
	claims := base64.StdEncoding.EncodeToString([]byte(`{"access_token":{}}`))
	var revoked sync.Map
	srv := newScript(t, map[string]reply{"PUT": {do: func(w http.ResponseWriter, r *http.Request) {
		if _, bad := revoked.Load(r.Header.Get("Authorization")); bad {
			reply{status: 401, code: "InvalidAuthenticationInfo", header: map[string]string{
				"Www-Authenticate": `Bearer realm="", authorization_uri="https://login.example.org", error="insufficient_claims", claims="` + claims + `"`,
			}}.write(w)
			return
		}
		reply{status: 201, header: map[string]string{"Etag": `"0x2"`}}.write(w)
	}}})
	w := &wallet{give: forAnHour}
	s := tokenStore(t, srv, w)
	for range 3 {
		checkError(t, opCreate, operations[opCreate](t.Context(), s), nil, "")
	}
	if w.count() != 1 {
		t.Errorf("%d tokens for three calls", w.count())
	}
	revoked.Store("Bearer "+secretToken+"x", true)
	checkError(t, opCreate, operations[opCreate](t.Context(), s), store.ErrDenied, "credentials")
	checkError(t, opCreate, operations[opCreate](t.Context(), s), nil, "")
	if w.count() != 2 || w.asked[1].Claims != `{"access_token":{}}` || w.asked[0].Scopes[0] != audience {
		t.Errorf("asked for %+v", w.asked)
	}
	if got := srv.requests(); got != "PUT PUT PUT PUT PUT" {
		t.Errorf("sent %q", got)
	}
}

// A caller waits for a token no longer than its context lives, also if another
// caller asked for it, and nothing was sent.
//
// SPEC ST13
func TestHungCredential(t *testing.T) {
	t.Parallel()
	srv := newScript(t, nil)
	asked := make(chan struct{})
	w := &wallet{give: func(ctx context.Context, _ int) (azcore.AccessToken, error) {
		close(asked)
		<-ctx.Done() // the store's end
		return azcore.AccessToken{}, ctx.Err()
	}}
	s := tokenStore(t, srv, w)
	first := make(chan error, 1)
	go func() { first <- operations[opReplace](t.Context(), s) }()
	<-asked
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	checkError(t, opReplace, operations[opReplace](ctx, s), store.ErrUnavailable, "deadline exceeded")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	checkError(t, opReplace, <-first, store.ErrUnavailable, "was closed")
	if got := srv.requests(); got != "" || w.count() != 1 {
		t.Errorf("sent %q after %d questions", got, w.count())
	}
}

// A token is replaced in the background before it ends; a failure of that harms
// nobody while it still works.
func TestTokenIsRefreshedAhead(t *testing.T) {
	t.Parallel()
	answers := make(chan error)
	start := time.Now()
	w := &wallet{give: func(ctx context.Context, n int) (azcore.AccessToken, error) {
		if err := <-answers; err != nil {
			return azcore.AccessToken{}, err
		}
		return azcore.AccessToken{Token: strings.Repeat("x", n), ExpiresOn: start.Add(time.Duration(n) * time.Hour)}, nil
	}}
	tk := newTokens(w)
	defer tk.close()
	clock := start
	tk.now = func() time.Time { return clock }
	go func() { answers <- nil }()
	expect := func(want string) {
		t.Helper()
		if got, err := tk.get(t.Context()); got != want || err != nil {
			t.Fatalf("%q, %v; want %q", got, err, want)
		}
	}
	expect("x")
	clock = start.Add(56 * time.Minute)
	expect("x") // and asks
	answers <- errors.New("no answer from hunter2")
	settled := func() { // until that request is over
		tk.asks.Wait()
	}
	settled()
	expect("x") // too early to ask again
	clock = clock.Add(tokenPause)
	expect("x")
	answers <- nil
	settled()
	expect("xxx")
}

// Credentials that are wrong or missing are told from a service that cannot be
// reached, in one line, without secrets.
//
// SPEC ST8
func TestTokenErrors(t *testing.T) {
	t.Parallel()
	status := func(code int) error {
		return &azidentity.AuthenticationFailedError{RawResponse: &http.Response{
			StatusCode: code, Request: httptest.NewRequest("POST", "https://login.example.org/t?sig="+secretSig, nil), Body: http.NoBody,
		}}
	}
	for _, row := range []struct {
		err  error
		want error
	}{
		{status(400), store.ErrDenied},
		{status(401), store.ErrDenied},
		{status(429), store.ErrUnavailable},
		{status(503), store.ErrUnavailable},
		{&azidentity.AuthenticationFailedError{}, store.ErrUnavailable},
		{azidentity.NewCredentialUnavailableError("nobody signed in\nsee https://x/y?sig=" + secretSig), store.ErrDenied},
	} {
		srv := newScript(t, nil)
		s := tokenStore(t, srv, &wallet{give: func(context.Context, int) (azcore.AccessToken, error) { return azcore.AccessToken{}, row.err }})
		err := operations[opReplace](t.Context(), s)
		checkError(t, opReplace, err, row.want, "no access token")
		if strings.Contains(err.Error(), "\n") || srv.requests() != "" {
			t.Errorf("%q, sent %q", err, srv.requests())
		}
	}
}
