package gcsstore

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/auth"

	"github.com/tenure-project/tenure/store"
)

const secret = "s3cret-t0ken"

type provider func(ctx context.Context) (*auth.Token, error)

func (f provider) Token(ctx context.Context) (*auth.Token, error) { return f(ctx) }

// overTLS puts a server with TLS before the cloud.
func (cl *cloud) overTLS(t testing.TB) *httptest.Server {
	t.Helper()
	front := httptest.NewTLSServer(cl)
	t.Cleanup(front.Close)
	return front
}

// trust makes s accept the server's certificate.
func trust(s *Store, front *httptest.Server) {
	roots := x509.NewCertPool()
	roots.AddCert(front.Certificate())
	s.pool.TLSClientConfig = &tls.Config{RootCAs: roots}
}

// signedStore is a store whose requests are signed with tokens of p.
func signedStore(t testing.TB, cl *cloud, p provider) *Store {
	t.Helper()
	front := cl.overTLS(t)
	s := openStore(t, Config{Bucket: testBucket, Endpoint: front.URL, Credentials: auth.NewCredentials(&auth.CredentialsOptions{
		TokenProvider:          p,
		QuotaProjectIDProvider: auth.CredentialsPropertyFunc(func(context.Context) (string, error) { return "payer", nil }),
	})})
	trust(s, front)
	return s
}

// Every request carries the token, and no error shows it, not even if the
// server does.
//
// SPEC ST8
func TestSecretsStaySecret(t *testing.T) {
	t.Parallel()
	for _, code := range []int{400, 401, 403, 404, 412, 429, 500, 503} {
		for _, op := range operations {
			cl := newCloud(t, func(w http.ResponseWriter, r *http.Request) bool {
				if r.Header.Get("Authorization") != "Bearer "+secret || r.Header.Get("X-Goog-User-Project") != "payer" {
					t.Errorf("%s has the headers %q", r.URL, r.Header)
				}
				echo := fmt.Sprint(r.Header)
				if code%2 == 0 {
					refuse(w, code, "echo "+secret, echo)
				} else {
					http.Error(w, echo, code)
				}
				return true
			})
			s := signedStore(t, cl, func(context.Context) (*auth.Token, error) { return &auth.Token{Value: secret}, nil })
			err := op.call(t.Context(), s, "7")
			if err == nil || shows(err, secret) {
				t.Errorf("%s, answer %d: the error is %v", op.name, code, err)
			}
			if strings.Contains(fmt.Sprintf("%+v", s.Info()), secret) {
				t.Errorf("Info shows the token")
			}
		}
	}
}

// shows reports whether err or anything that it wraps shows text.
func shows(err error, text string) bool {
	for ; err != nil; err = errors.Unwrap(err) {
		if strings.Contains(fmt.Sprintf("%v %+v", err, err), text) {
			return true
		}
	}
	return false
}

// Without a token nothing is sent: refused credentials are ErrDenied, and a
// token server that cannot be reached is ErrUnavailable.
//
// SPEC ST8 ST13
// CASE B65
func TestNoToken(t *testing.T) {
	t.Parallel()
	answered := func(code int, body string) error {
		return &auth.Error{Response: &http.Response{StatusCode: code}, Body: []byte(body)}
	}
	for name, c := range map[string]struct {
		err, want error
		says      string
	}{
		"refused":   {answered(400, `{"error":"invalid_grant","error_description":"Token has been expired or revoked."}`), store.ErrDenied, "expired or revoked"},
		"forbidden": {answered(403, "no"), store.ErrDenied, "403"},
		"down":      {answered(503, "later"), store.ErrUnavailable, "503"},
		"throttled": {answered(429, "later"), store.ErrUnavailable, "429"},
		"network":   {&net.OpError{Op: "dial", Err: errors.New("no route to host")}, store.ErrUnavailable, "no route"},
		"no file":   {os.ErrNotExist, store.ErrDenied, "not exist"},
		"empty":     {nil, store.ErrDenied, "empty token"},
	} {
		cl := newCloud(t, nil)
		s := signedStore(t, cl, func(context.Context) (*auth.Token, error) { return &auth.Token{}, c.err })
		for _, op := range operations {
			err := op.call(t.Context(), s, "7")
			is(t, err, c.want)
			if err != nil && (!strings.Contains(err.Error(), c.says) || c.want == store.ErrDenied && !strings.Contains(err.Error(), "storage.objects.")) {
				t.Errorf("%s, %s: the message is %q", name, op.name, err)
			}
		}
		if got := cl.requests(); len(got) != 0 {
			t.Errorf("%s: the requests %q were sent without a token", name, got)
		}
	}
}

// A token server that hangs holds no call beyond its context.
//
// SPEC ST13
func TestHungTokenServer(t *testing.T) {
	t.Parallel()
	cl := newCloud(t, nil)
	asked := make(chan struct{}, 10)
	s := signedStore(t, cl, func(ctx context.Context) (*auth.Token, error) {
		asked <- struct{}{}
		<-ctx.Done() // until the store is closed
		return nil, ctx.Err()
	})
	for _, op := range operations {
		ctx, cancel := context.WithCancel(t.Context())
		if op.name == "get" {
			go func() { <-asked; cancel() }()
		} else {
			cancel()
		}
		start := time.Now()
		is(t, op.call(ctx, s, "7"), store.ErrUnavailable)
		if took := time.Since(start); took > tokenLimit/2 {
			t.Errorf("%s took %v", op.name, took)
		}
	}
}

// Application default credentials are found, used over TLS, and lost in mid-hold
// they are ErrDenied.
//
// CASE B65
func TestDefaultCredentials(t *testing.T) {
	var refuseTokens atomic.Bool
	var scopes atomic.Value
	tokenServer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		scopes.Store(r.Form.Get("assertion"))
		w.Header().Set("Content-Type", "application/json")
		if refuseTokens.Load() {
			w.WriteHeader(400)
			_, _ = io.WriteString(w, `{"error":"invalid_grant","error_description":"Invalid JWT Signature."}`)
			return
		}
		_, _ = fmt.Fprintf(w, `{"access_token":%q,"expires_in":1,"token_type":"Bearer"}`, secret)
	}))
	defer tokenServer.Close()
	cl := newCloud(t, nil)
	cl.put(testKey, present)
	cl.script = func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Authorization") != "Bearer "+secret {
			t.Errorf("the request has the authorization %q", r.Header.Get("Authorization"))
		}
		return false
	}
	front := cl.overTLS(t)
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", keyFile(t, tokenServer.URL))
	s := openStore(t, Config{Bucket: testBucket, Endpoint: front.URL})
	trust(s, front)
	for _, op := range operations {
		if op.name == "get" || op.name == "list" {
			is(t, op.call(t.Context(), s, "7"), nil)
		}
	}
	if got := cl.requests(); !slices.Equal(got, []string{"download", "list"}) {
		t.Errorf("the requests were %q", got)
	}
	if claims := claimsOf(t, scopes.Load().(string)); claims["scope"] != scopeReadWrite {
		t.Errorf("the scope asked for is %v, want only %s", claims["scope"], scopeReadWrite)
	}
	refuseTokens.Store(true)
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); { // the last token lives for a second
		if _, err := s.Get(t.Context(), testKey, 10); err != nil {
			break
		}
		time.Sleep(50 * time.Millisecond) // poll
	}
	for _, op := range operations {
		err := op.call(t.Context(), s, "7")
		is(t, err, store.ErrDenied)
		if err != nil && (!strings.Contains(err.Error(), "Invalid JWT Signature") || shows(err, secret)) {
			t.Errorf("%s: the message is %q", op.name, err)
		}
	}
}

// A file of credentials that cannot be used is ErrDenied, and its content stays
// out of the message.
func TestBadCredentials(t *testing.T) {
	for name, content := range map[string]string{
		"text":    secret,
		"json":    `{"private_key":"` + secret + `"`,
		"type":    `{"type":"` + "other" + `","private_key":"` + secret + `"}`,
		"key":     `{"type":"service_account","client_email":"a@b","private_key":"` + secret + `","token_uri":"http://127.0.0.1:1"}`,
		"missing": "",
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "key.json")
			if content != "" {
				if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", path)
			s, err := Open(t.Context(), Config{Bucket: testBucket, Endpoint: "https://127.0.0.1:1"})
			if err == nil {
				_, err = s.Get(t.Context(), testKey, 10)
				_ = s.Close()
			}
			is(t, err, store.ErrDenied)
			if shows(err, secret) {
				t.Errorf("the message shows the key: %v", err)
			}
		})
	}
}

// Credentials are never sent over plain http, nor silently left unused.
func TestCredentialsNeedTLS(t *testing.T) {
	t.Parallel()
	creds := auth.NewCredentials(&auth.CredentialsOptions{TokenProvider: provider(func(context.Context) (*auth.Token, error) {
		t.Error("a token was asked for")
		return &auth.Token{Value: secret}, nil
	})})
	for _, cfg := range []Config{
		{Bucket: testBucket, Credentials: creds, Endpoint: "http://127.0.0.1:1"},
		{Bucket: testBucket, Credentials: creds, Endpoint: "https://127.0.0.1:1", Anonymous: true},
		{Bucket: testBucket, Credentials: creds, Endpoint: "https://127.0.0.1:1", HTTPClient: &http.Client{}},
	} {
		_, err := Open(t.Context(), cfg)
		is(t, err, store.ErrInvalid)
	}
}

// claimsOf reads a signed request for a token.
func claimsOf(t testing.TB, assertion string) map[string]any {
	t.Helper()
	parts := strings.Split(assertion, ".")
	if len(parts) != 3 {
		t.Fatalf("%q is no assertion", assertion)
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	var claims map[string]any
	if err := json.Unmarshal(text, &claims); err != nil {
		t.Fatal(err)
	}
	return claims
}

// keyFile writes the key of a service account that asks url for tokens.
func keyFile(t testing.TB, url string) string {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	content, err := json.Marshal(map[string]string{
		"type": "service_account", "client_email": "leases@example.iam.gserviceaccount.com", "private_key_id": "1", "token_uri": url,
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
	})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "key.json")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
