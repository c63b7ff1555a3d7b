package azurestore

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
)

// authorizer puts credentials on requests. Its methods are safe for concurrent
// use.
//
// The SDK's own policy for access tokens is not used: a caller that waits there
// for another's token request outlives its own context (ST13), and it repeats
// requests.
type authorizer interface {
	// authorize waits for credentials no longer than the request's context.
	authorize(req *http.Request) error
	// refused learns that the server did not accept a request, so that the next
	// one goes with newer credentials, if there are any (CASE B65).
	refused(resp *http.Response)
	// expired says since when the credentials have run out by their own word and
	// this machine's clock, "" if they have not.
	expired() string
	// close ends what runs in the background.
	close()
}

// authPolicy is an authorizer as a step of the SDK's pipeline.
type authPolicy struct{ authorizer }

// Do implements policy.Policy.
func (p authPolicy) Do(req *policy.Request) (*http.Response, error) {
	if err := p.authorize(req.Raw()); err != nil {
		return nil, err
	}
	return req.Next()
}

// deniedError says that there are no credentials. Nothing was sent.
type deniedError struct{ why string }

func (e *deniedError) Error() string { return e.why }

// signature is a SAS token, from the environment or from a file that somebody
// renews.
type signature struct {
	file string // "" if the token cannot change
	now  func() time.Time

	mu     sync.Mutex
	token  url.Values
	stale  bool      // the server refused it
	readAt time.Time // when the file was read last
}

const (
	sasReread = time.Second // how often the file is read at most
	sasAhead  = time.Minute // how long before its end a token is replaced
)

func newSignature(token, file string) (*signature, error) {
	s := &signature{file: file, now: time.Now}
	if file == "" {
		var err error
		s.token, err = parseSAS(token, envSAS+" or "+envConnection)
		return s, err
	}
	return s, s.read()
}

// read reads the file. An error leaves the old token in place.
func (s *signature) read() error {
	s.readAt = s.now()
	text, err := os.ReadFile(s.file)
	if err != nil {
		return invalid("sas-file: %v", err)
	}
	token, err := parseSAS(string(text), "the file "+s.file)
	if err != nil {
		return err
	}
	s.token, s.stale = token, false
	return nil
}

func (s *signature) authorize(req *http.Request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file != "" && (s.stale || s.ending()) && s.now().Sub(s.readAt) >= sasReread {
		_ = s.read() // the server judges the old one
	}
	q := req.URL.Query()
	for name, values := range s.token {
		q[name] = values
	}
	req.URL.RawQuery = strings.ReplaceAll(q.Encode(), "+", "%20")
	return nil
}

// ending reports that the token says it ends soon.
func (s *signature) ending() bool {
	end := s.until()
	return !end.IsZero() && s.now().Add(sasAhead).After(end)
}

// until is when the token ends; zero if it does not say.
func (s *signature) until() time.Time {
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04Z", "2006-01-02"} {
		if end, err := time.Parse(layout, s.token.Get("se")); err == nil {
			return end
		}
	}
	return time.Time{}
}

func (s *signature) expired() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	end := s.until()
	if end.IsZero() || s.now().Before(end) {
		return ""
	}
	why := "the SAS token has expired at " + end.UTC().Format(time.RFC3339) + "; "
	if s.file == "" {
		return why + "start again with a new one, or give it in a file (sas-file)"
	}
	return why + "no newer one is in " + s.file
}

func (s *signature) refused(*http.Response) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stale = true
}

func (s *signature) close() {}

// tokens are the access tokens of one credential. One request for a token runs
// at a time, in the background while the present one still works.
type tokens struct {
	cred azcore.TokenCredential
	now  func() time.Time
	life context.Context // ends when the store is closed
	end  context.CancelFunc
	asks sync.WaitGroup

	mu     sync.Mutex
	closed bool
	token  azcore.AccessToken
	stale  bool   // the server refused it
	claims string // what a new one must say, by the server's word
	tried  time.Time
	fetch  *fetch // under way; nil if none
}

// fetch is a request for a token. err is set when done is closed.
type fetch struct {
	done chan struct{}
	err  error
}

const (
	audience   = "https://storage.azure.com/.default"
	tokenLimit = 30 * time.Second // for one request for a token
	tokenAhead = 5 * time.Minute  // how long before its end a token is replaced, unless it says itself
	tokenPause = 30 * time.Second // between early requests that fail
)

func newTokens(cred azcore.TokenCredential) *tokens {
	t := &tokens{cred: cred, now: time.Now}
	t.life, t.end = context.WithCancel(context.Background())
	return t
}

func (t *tokens) close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.end()
	t.asks.Wait()
}

func (t *tokens) authorize(req *http.Request) error {
	token, err := t.get(req.Context())
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	return nil
}

func (t *tokens) get(ctx context.Context) (string, error) {
	for {
		t.mu.Lock()
		now := t.now()
		usable := t.token.Token != "" && !t.stale && now.Before(t.token.ExpiresOn)
		if !usable || t.due(now) {
			t.start(now)
		}
		token, f := t.token.Token, t.fetch
		t.mu.Unlock()
		if usable {
			return token, nil
		}
		if f == nil {
			return "", errClosed
		}
		select {
		case <-f.done:
			if f.err != nil {
				return "", f.err
			}
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// due reports that a token that still works should be replaced.
func (t *tokens) due(now time.Time) bool {
	at := t.token.RefreshOn
	if at.IsZero() {
		at = t.token.ExpiresOn.Add(-tokenAhead)
	}
	return now.After(at) && now.Sub(t.tried) >= tokenPause
}

// start asks for a token, unless somebody does already. The lock is held.
func (t *tokens) start(now time.Time) {
	if t.fetch != nil || t.closed {
		return
	}
	f := &fetch{done: make(chan struct{})}
	t.fetch, t.tried = f, now
	o := policy.TokenRequestOptions{Scopes: []string{audience}, EnableCAE: true, Claims: t.claims}
	t.asks.Go(func() { t.ask(f, o) })
}

func (t *tokens) ask(f *fetch, o policy.TokenRequestOptions) {
	ctx, cancel := context.WithTimeout(t.life, tokenLimit)
	defer cancel()
	token, err := t.cred.GetToken(ctx, o)
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case err != nil:
		f.err = tokenError(ctx, err)
	case !t.now().Before(token.ExpiresOn):
		f.err = errors.New("the access token that was handed out has expired already; check the clock of this machine")
	default:
		t.token, t.stale, t.claims = token, false, ""
	}
	t.fetch = nil
	close(f.done)
}

// tokenError tells credentials that are wrong or missing from a service that
// cannot be reached.
func tokenError(ctx context.Context, err error) error {
	why := "no access token: " + brief(err)
	var failed *azidentity.AuthenticationFailedError
	switch {
	case ctx.Err() != nil:
		return errors.New(why)
	case errors.As(err, &failed):
		if r := failed.RawResponse; r == nil || r.StatusCode >= 500 || r.StatusCode == http.StatusTooManyRequests ||
			r.StatusCode == http.StatusRequestTimeout || r.StatusCode == http.StatusGone {
			return errors.New(why)
		}
	}
	return &deniedError{why}
}

// brief is the text of err in one line of bearable length, without its URLs'
// queries.
func brief(err error) string {
	text := strings.Join(strings.Fields(anyQuery.ReplaceAllString(err.Error(), "$1")), " ")
	if len(text) > 600 {
		text = text[:600] + "..."
	}
	return text
}

var (
	anyQuery = regexp.MustCompile(`(https?://[^\s?"]+)\?[^\s"]*`)
	anyClaim = regexp.MustCompile(`error="insufficient_claims".*claims="([^"]+)"|claims="([^"]+)".*error="insufficient_claims"`)
)

// expired is "": a token that has run out is never sent.
func (t *tokens) expired() string { return "" }

// refused makes the next request wait for a new token if the server did not
// know this one, and notes what the server wants it to say.
func (t *tokens) refused(resp *http.Response) {
	if resp.StatusCode != http.StatusUnauthorized {
		return // the token is good, the rights are missing
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stale = true
	if m := anyClaim.FindStringSubmatch(resp.Header.Get("Www-Authenticate")); m != nil {
		if claims, err := base64.StdEncoding.DecodeString(m[1] + m[2]); err == nil {
			t.claims = string(claims)
		}
	}
}
