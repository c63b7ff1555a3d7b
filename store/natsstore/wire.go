package natsstore

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/tenure-project/tenure/store"
)

var (
	errClosed  = errors.New("the store is closed")
	errLost    = errors.New("the connection broke while the request was under way")
	errOffline = errors.New("there is no connection to a server now")
	errNobody  = errors.New("no server answers for the bucket now: it is missing, electing a leader, or out of reach")
)

// wire sends single requests over one connection. Nothing is sent twice and
// nothing is kept for later: see [Open].
type wire struct {
	nc       *nats.Conn
	own      bool
	identity string

	stop    context.Context
	stopNow context.CancelCauseFunc
	running sync.WaitGroup
	events  chan nats.Status
	before  nats.ErrHandler // the error handler of the connection's owner

	mu      sync.Mutex
	pending map[*call]struct{}
	epoch   context.Context // ends when the connection breaks
	broke   context.CancelCauseFunc
	renewed bool  // connected anew since the bucket was last inspected
	deaf    error // why answers cannot reach us
}

// call is one request under way.
type call struct {
	subject string
	cancel  context.CancelCauseFunc
}

func newWire(nc *nats.Conn, own bool) *wire {
	w := &wire{nc: nc, own: own, identity: scheme, pending: map[*call]struct{}{}}
	w.stop, w.stopNow = context.WithCancelCause(context.Background())
	w.epoch, w.broke = context.WithCancelCause(w.stop)
	w.before = nc.ErrorHandler()
	nc.SetErrorHandler(w.onError)
	w.events = nc.StatusChanged(nats.CONNECTED, nats.RECONNECTING, nats.DISCONNECTED, nats.CLOSED)
	w.running.Go(w.follow)
	return w
}

// follow ends what was under way when the connection breaks: its reply went to
// an inbox that may never see it.
func (w *wire) follow() {
	for {
		select {
		case <-w.stop.Done():
			return
		case status, open := <-w.events:
			if !open {
				return
			}
			w.mu.Lock()
			w.broke(errLost)
			w.epoch, w.broke = context.WithCancelCause(w.stop)
			w.deaf = nil
			w.renewed = true
			if status != nats.CONNECTED {
				for c := range w.pending {
					c.cancel(errLost)
				}
			}
			w.mu.Unlock()
		}
	}
}

// onError hears of missing rights. A message that may not be published is
// dropped by the server without a reply; only this tells.
func (w *wire) onError(nc *nats.Conn, sub *nats.Subscription, err error) {
	if errors.Is(err, nats.ErrPermissionViolation) {
		w.forbid(err)
	}
	if w.before != nil {
		w.before(nc, sub, err)
	}
}

// forbid ends the requests that a violation is about.
func (w *wire) forbid(violation error) {
	text := violation.Error()
	_, subject, _ := strings.Cut(text, `"`)
	subject, _, _ = strings.Cut(subject, `"`)
	denied := &deniedError{action: "publish to " + subject}
	toSubscribe := strings.Contains(strings.ToLower(text), "subscription to")
	if toSubscribe {
		denied.action = "subscribe to " + subject
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	inbox := toSubscribe && strings.HasPrefix(subject, w.nc.Opts.InboxPrefix+".") ||
		toSubscribe && w.nc.Opts.InboxPrefix == "" && strings.HasPrefix(subject, nats.InboxPrefix)
	if inbox {
		denied.replies = true
		w.deaf = denied
	}
	for c := range w.pending {
		if inbox || !toSubscribe && c.subject == subject {
			c.cancel(denied)
		}
	}
}

// deniedError says which right is missing.
type deniedError struct {
	action  string
	replies bool // the request may have been taken, but no reply can come
}

func (e *deniedError) Error() string { return "the rights to " + e.action + " are missing" }

// outcome says how a request ended that brought no reply.
type outcome struct {
	sent bool // it may have been taken
	kind error
	err  error
}

// request sends one message and waits for one reply.
func (w *wire) request(ctx context.Context, subject string, header nats.Header, body []byte) (*nats.Msg, *outcome) {
	limited, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(w.stop, func() { cancel(errClosed) })()
	c := &call{subject: subject, cancel: cancel}
	if o := w.begin(ctx, c); o != nil {
		return nil, o
	}
	defer w.end(c)
	reply, err := w.nc.RequestMsgWithContext(limited, &nats.Msg{Subject: subject, Header: header, Data: body})
	if err == nil {
		return reply, nil
	}
	return nil, w.outcome(limited, err)
}

// begin notes a request, unless it is known that it cannot be sent.
func (w *wire) begin(ctx context.Context, c *call) *outcome {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return &outcome{kind: store.ErrUnavailable, err: context.Cause(ctx)}
	case w.stop.Err() != nil:
		return &outcome{kind: store.ErrUnavailable, err: errClosed}
	case w.deaf != nil:
		return &outcome{kind: store.ErrDenied, err: w.deaf}
	case !w.nc.IsConnected():
		return w.offline()
	}
	w.pending[c] = struct{}{}
	return nil
}

func (w *wire) end(c *call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.pending, c)
}

// outcome judges the client's error. What is not known to have been kept back
// may have been sent.
func (w *wire) outcome(limited context.Context, err error) *outcome {
	var denied *deniedError
	cause := context.Cause(limited)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return &outcome{kind: store.ErrUnavailable, err: errNobody}
	case errors.Is(err, nats.ErrReconnectBufExceeded):
		return w.offline()
	case errors.Is(err, nats.ErrConnectionDraining), errors.Is(err, nats.ErrInvalidConnection):
		return &outcome{kind: store.ErrUnavailable, err: err}
	case errors.Is(err, nats.ErrMaxPayload), errors.Is(err, nats.ErrBadSubject), errors.Is(err, nats.ErrHeadersNotSupported):
		return &outcome{kind: store.ErrInvalid, err: err}
	case errors.As(cause, &denied):
		return &outcome{sent: denied.replies, kind: store.ErrDenied, err: denied}
	case cause != nil:
		return &outcome{sent: true, kind: store.ErrUnavailable, err: cause}
	}
	return &outcome{sent: true, kind: store.ErrUnavailable, err: err}
}

// offline says why there is no connection.
func (w *wire) offline() *outcome {
	last := w.nc.LastError()
	if isAuth(last) {
		return &outcome{kind: store.ErrDenied, err: &deniedError{action: "connect (" + last.Error() + ")"}}
	}
	return &outcome{kind: store.ErrUnavailable, err: errOffline}
}

func isAuth(err error) bool {
	return errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthExpired) ||
		errors.Is(err, nats.ErrAuthRevoked) || errors.Is(err, nats.ErrAccountAuthExpired)
}

// close ends everything that is under way.
func (w *wire) close() {
	w.stopNow(errClosed)
	w.nc.RemoveStatusListener(w.events)
	if w.own {
		w.nc.Close()
	} else {
		w.nc.SetErrorHandler(w.before)
	}
	w.running.Wait()
}

// apiError is what a JetStream server says went wrong.
type apiError struct {
	Code        int    `json:"code"`
	ErrCode     int    `json:"err_code"`
	Description string `json:"description"`
}

func (e *apiError) Error() string { return "the server says: " + e.Description }

// The server's numbers for what went wrong.
const (
	codeAccountResources  = 10002
	codeNoPeers           = 10005
	codeClusterNotAvail   = 10008
	codeInsufficient      = 10023
	codeMemoryResources   = 10028
	codeNoMessage         = 10037
	codeNotEnabledAccount = 10039
	codeStorageResources  = 10047
	codeTooLarge          = 10054
	codeNameInUse         = 10058
	codeNoStream          = 10059
	codeOtherStream       = 10060
	codeWrongLast         = 10071
	codeNotEnabled        = 10076
	codeStoreFailed       = 10077
	codeHeaderTooLarge    = 10097
	codeSealed            = 10109
	codeOffline           = 10118
	codeWrongLastInFlight = 10164
)

// answer decodes the reply of a JetStream server into v, and what it says went
// wrong.
func answer(reply *nats.Msg, v any) (*apiError, error) {
	var e struct {
		Error *apiError `json:"error"`
	}
	if err := json.Unmarshal(reply.Data, &e); err != nil {
		return nil, errors.New("the reply is not what a JetStream server sends")
	}
	if e.Error != nil {
		return e.Error, nil
	}
	if err := json.Unmarshal(reply.Data, v); err != nil {
		return nil, errors.New("the reply is not what a JetStream server sends")
	}
	return nil, nil
}

// query asks the JetStream API something that changes nothing.
func (w *wire) query(ctx context.Context, subject string, request, into any) (*apiError, *outcome) {
	body, err := json.Marshal(request)
	if err != nil {
		return nil, &outcome{kind: store.ErrInvalid, err: err}
	}
	reply, o := w.request(ctx, subject, nil, body)
	if o != nil {
		return nil, o
	}
	e, err := answer(reply, into)
	if err != nil {
		return nil, &outcome{sent: true, kind: store.ErrUnavailable, err: err}
	}
	return e, nil
}
