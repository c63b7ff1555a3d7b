package azurestore

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/tenure-project/tenure/store"
)

// call is one call of the store: one request, or two where a refusal has to be
// explained.
type call struct {
	s      *Store
	op     string
	need   string // the operation whose rights the present request needs
	key    string
	ctx    context.Context
	cancel context.CancelCauseFunc
	detach func() bool
}

// begin checks what can be checked without I/O. The caller ends the call.
func (s *Store) begin(ctx context.Context, op, key string) (*call, error) {
	if err := store.CtxErr(ctx, s.identity, op, key); err != nil {
		return nil, err
	}
	if !s.enter() {
		return nil, store.Wrap(store.ErrUnavailable, s.identity, op, key, errClosed)
	}
	c := &call{s: s, op: op, need: op, key: key}
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	c.detach = context.AfterFunc(s.life, func() { c.cancel(errClosed) })
	return c, nil
}

// beginKey is begin for a call that concerns one key.
func (s *Store) beginKey(ctx context.Context, op, key string) (*call, error) {
	if err := store.CheckKey(key); err != nil {
		return nil, store.Wrap(store.ErrInvalid, s.identity, op, key, err)
	}
	return s.begin(ctx, op, key)
}

func (c *call) end() {
	c.detach()
	c.cancel(nil)
	c.s.running.Done()
}

func (c *call) errorf(kind error, format string, args ...any) error {
	return store.Errorf(kind, c.s.identity, c.op, c.key, format, args...)
}

// exchange is one request and what is known of its way.
type exchange struct {
	ctx  context.Context
	resp *http.Response // as far as it came; nil if no answer did

	traced    atomic.Bool // a transport that reports asked for a connection
	connected atomic.Bool // ... and got one, so the request may have left
}

// exchange prepares the context of one request. It switches off every repeat of
// the SDK and asks for the bytes as they are: a proxy that compresses would
// change ETags.
func (c *call) exchange() *exchange {
	x := &exchange{}
	ctx := httptrace.WithClientTrace(c.ctx, &httptrace.ClientTrace{
		GetConn: func(string) { x.traced.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { x.connected.Store(true) },
	})
	ctx = policy.WithRetryOptions(ctx, policy.RetryOptions{MaxRetries: -1})
	ctx = policy.WithHTTPHeader(ctx, http.Header{
		"Accept-Encoding": {"identity"},
		"Cache-Control":   {"no-store"},
	})
	x.ctx = policy.WithCaptureResponse(ctx, &x.resp)
	return x
}

// done frees what an answer holds. The SDK leaves a body open in some cases.
func (x *exchange) done() {
	if x.resp != nil && x.resp.Body != nil {
		_ = x.resp.Body.Close()
	}
}

// left reports whether the request may have reached the network. Only a
// transport that reported its search for a connection, and found none, proves
// that it did not.
func (c *call) left(x *exchange, err error) bool {
	var never interface{ NonRetriable() } // the SDK's mark of a failure to authorize
	switch {
	case x.connected.Load():
		return true
	case c.s.own, x.traced.Load():
		return false
	}
	return !errors.As(err, &never)
}

// noAnswer is the error of a request without an answer.
func (c *call) noAnswer(x *exchange, err error, write bool) error {
	kind := store.ErrUnavailable
	var denied *deniedError
	switch {
	case write && c.left(x, err):
		kind = store.ErrUnknown
	case errors.As(err, &denied):
		kind = store.ErrDenied
	}
	if c.ctx.Err() != nil {
		err = context.Cause(c.ctx)
	}
	return store.Wrap(kind, c.s.identity, c.op, c.key, withoutURL(err))
}

// withoutURL takes the error out of one that quotes the request's URL, in which
// a client may have put a signature.
func withoutURL(err error) error {
	if e := (*url.Error)(nil); errors.As(err, &e) {
		return withoutURL(e.Err)
	}
	return err
}
