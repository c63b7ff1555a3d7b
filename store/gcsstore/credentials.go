package gcsstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"cloud.google.com/go/auth"
	"cloud.google.com/go/auth/credentials"

	"github.com/tenure-project/tenure/store"
)

// scopeReadWrite is the least OAuth scope that can read and write objects.
const scopeReadWrite = "https://www.googleapis.com/auth/devstorage.read_write"

// tokenLimit bounds one attempt to get an access token.
const tokenLimit = 20 * time.Second

// signer puts an access token on each request.
type signer struct {
	base   http.RoundTripper
	tokens *tokens
	quota  string // the project that quota is counted for; may be empty
}

// detect finds the application default credentials. Where they come from is the
// choice of the client library: GOOGLE_APPLICATION_CREDENTIALS, the login of
// gcloud, workload identity, the metadata server.
func detect(ctx context.Context, identity string) (*auth.Credentials, error) {
	type found struct {
		creds *auth.Credentials
		err   error
	}
	done := make(chan found, 1)
	go func() { // the search takes no context; it ends by itself within seconds
		creds, err := credentials.DetectDefault(&credentials.DetectOptions{Scopes: []string{scopeReadWrite}, Logger: silent})
		done <- found{creds, err}
	}()
	select {
	case f := <-done:
		if f.err != nil {
			return nil, store.Errorf(store.ErrDenied, identity, opOpen, "", "no usable credentials were found: %s", clean(f.err.Error(), ""))
		}
		return f.creds, nil
	case <-ctx.Done():
		return nil, store.CtxErr(ctx, identity, opOpen, "")
	}
}

func newSigner(ctx, stop context.Context, creds *auth.Credentials, base http.RoundTripper) *signer {
	s := &signer{base: base, tokens: &tokens{provider: auth.NewCachedTokenProvider(creds, nil), stop: stop}}
	s.quota, _ = creds.QuotaProjectID(ctx) // optional
	return s
}

// RoundTrip adds the token and sends the request. Without a token nothing is
// sent, and the error is a *tokenError.
func (s *signer) RoundTrip(req *http.Request) (*http.Response, error) {
	t, err := s.tokens.get(req.Context())
	if err != nil {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, &tokenError{err}
	}
	req = req.Clone(req.Context())
	kind := t.Type
	if kind == "" {
		kind = "Bearer"
	}
	req.Header.Set("Authorization", kind+" "+t.Value)
	if s.quota != "" {
		req.Header.Set("X-Goog-User-Project", s.quota)
	}
	return s.base.RoundTrip(req)
}

// tokens lets callers wait for an access token no longer than their contexts
// live. The provider below remembers a token and renews it before it ends, but
// those who wait for it wait in a queue that knows no contexts.
type tokens struct {
	provider auth.TokenProvider
	stop     context.Context

	mu   sync.Mutex
	next *fetch
}

type fetch struct {
	done  chan struct{}
	token *auth.Token
	err   error
}

func (t *tokens) get(ctx context.Context) (*auth.Token, error) {
	t.mu.Lock()
	f := t.next
	if f == nil {
		f = &fetch{done: make(chan struct{})}
		t.next = f
		go t.run(f)
	}
	t.mu.Unlock()
	select {
	case <-f.done:
		return f.token, f.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (t *tokens) run(f *fetch) {
	ctx, cancel := context.WithTimeout(t.stop, tokenLimit)
	defer cancel()
	f.token, f.err = t.provider.Token(ctx)
	if f.err == nil && (f.token == nil || f.token.Value == "") {
		f.err = errors.New("the credentials gave an empty token")
	}
	t.mu.Lock()
	t.next = nil
	t.mu.Unlock()
	close(f.done)
}

// tokenError says that no access token could be had. Its text does not repeat
// what was sent to the token server.
type tokenError struct{ cause error }

// Error says what the token server answered, as far as that is known.
func (e *tokenError) Error() string {
	if answer := (*auth.Error)(nil); errors.As(e.cause, &answer) && answer.Response != nil {
		return fmt.Sprintf("no access token: the token server answered %d: %s", answer.Response.StatusCode, clean(string(answer.Body), ""))
	}
	return "no access token: " + clean(plain(e.cause).Error(), "")
}

// Unwrap returns the cause.
func (e *tokenError) Unwrap() error { return e.cause }

// denied tells refused credentials from a token server that cannot be reached.
func (e *tokenError) denied() bool {
	if answer := (*auth.Error)(nil); errors.As(e.cause, &answer) && answer.Response != nil {
		code := answer.Response.StatusCode
		return code >= 400 && code < 500 && code != http.StatusTooManyRequests && code != http.StatusRequestTimeout
	}
	var network net.Error
	return !errors.As(e.cause, &network) && !errors.Is(e.cause, context.Canceled) && !errors.Is(e.cause, context.DeadlineExceeded)
}
