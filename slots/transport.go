package slots

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	core "github.com/tenure-project/tenure/internal/core/slots"
	"github.com/tenure-project/tenure/store"
)

// TransportConfig says how a [Transport] sends.
type TransportConfig struct {
	// Router knows the owners. Needed. Without its Run the map is only read when it is
	// empty or was found wrong.
	Router *Router
	// Slot returns the slot that a request is for; false sends it where its URL says; an
	// error sends nothing. It must not read the body. Needed.
	Slot func(*http.Request) (slot uint16, ok bool, err error)
	// Base sends one request to one host. Default http.DefaultTransport.
	Base http.RoundTripper
	// Allow says whether an address that only a 421 named may be asked: scheme "http" or
	// "https", and host. An address that the table names needs no leave. Default: no
	// other. A request goes there without Authorization, Proxy-Authorization and Cookie;
	// a secret in another header, in the URL or in the body goes along.
	Allow func(scheme, host string) bool
	// Buffer is how long a body may be that is kept to be sent again, if its length is
	// known and the request has no GetBody. Longer bodies are sent once. Default 64 KiB,
	// negative for none.
	Buffer int64
	// Wait is how long a refused request waits for a newer map. Default 2 s.
	Wait time.Duration
}

// Transport is an http.RoundTripper that sends each request to the owner of its slot
// (SL9). A request's URL needs only path and query: scheme and host become the owner's
// (the scheme stays if the owner's address has none).
//
// A request that is answered by 421 is sent once more if the table, read anew, or the
// answer itself names another owner or a newer epoch, and the body can be sent again:
// 421 says that it was not begun, so that this holds for every method. Else, and of the
// second answer, the caller gets what came. No request is ever sent a third time.
// Errors and 503 are returned as they are, since a request may have been begun; they
// only have the map read anew.
//
// It trusts the table: whoever can write it decides who gets the requests. A request
// for https is never sent to an address that says http.
type Transport struct{ c TransportConfig }

// NewTransport makes a Transport. A bad configuration is ErrInvalid.
func NewTransport(c TransportConfig) (*Transport, error) {
	bad := func(format string, args ...any) error {
		return store.Errorf(store.ErrInvalid, "", "slot transport", "", format, args...)
	}
	switch {
	case c.Router == nil:
		return nil, bad("Router is nil; give what knows the owners")
	case c.Slot == nil:
		return nil, bad("Slot is nil; give what finds a request's slot")
	case c.Wait < 0:
		return nil, bad("Wait is %v; give a positive time, or 0 for 2s", c.Wait)
	}
	if c.Base == nil {
		c.Base = http.DefaultTransport
	}
	if c.Buffer == 0 {
		c.Buffer = 64 << 10
	}
	if c.Wait == 0 {
		c.Wait = 2 * time.Second
	}
	return &Transport{c}, nil
}

// CloseIdleConnections closes those of Base.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.c.Base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// RoundTrip sends the request to its slot's owner, at most twice (SL9). An error of its
// own, before anything was sent, is ErrUnavailable if nobody is known to serve the slot
// and ErrInvalid if the request or the owner's address is of no use.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	slot, ok, err := t.c.Slot(r)
	if err == nil && ok && slot > core.Last {
		err = store.Errorf(store.ErrInvalid, "", "send", r.URL.Path, "the request was given the slot %d; the last is %d", slot, core.Last)
	}
	if err != nil {
		closeBody(r)
		return nil, err
	}
	if !ok {
		return t.c.Base.RoundTrip(r)
	}
	asked, first, err := t.first(r, slot)
	if err != nil {
		closeBody(r)
		return nil, err
	}
	again, err := t.replay(r)
	if err != nil {
		closeBody(r)
		return nil, err
	}
	res, err := t.send(r, first, again.first)
	if err != nil || res.StatusCode != http.StatusMisdirectedRequest {
		return t.told(res, err)
	}
	if again.second == nil {
		return t.told(res, nil)
	}
	second, ok := t.second(r, slot, asked, first, res)
	if !ok {
		return res, nil
	}
	body, err := again.second()
	if err != nil {
		return res, nil
	}
	// Not drained: a host that answers for ever must not hold the request up. A
	// connection is lost, once for a move.
	_ = res.Body.Close()
	return t.told(t.send(r, second, body))
}

func closeBody(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
}

// told has the map read anew if the answer casts doubt on it.
func (t *Transport) told(res *http.Response, err error) (*http.Response, error) {
	if err != nil || res.StatusCode == http.StatusServiceUnavailable || res.StatusCode == http.StatusMisdirectedRequest {
		t.c.Router.ring()
	}
	return res, err
}

// first finds the owner, with one read of the table if the map knows of none.
func (t *Transport) first(r *http.Request, slot uint16) (*routeMap, routeDest, error) {
	m := t.c.Router.current.Load()
	route, ok := m.route(slot)
	if !ok {
		ctx, cancel := context.WithTimeout(r.Context(), t.c.Wait)
		defer cancel()
		if err := t.c.Router.Refresh(ctx); err != nil {
			return nil, routeDest{}, err
		}
		m = t.c.Router.current.Load()
		if route, ok = m.route(slot); !ok {
			return nil, routeDest{}, store.Errorf(store.ErrUnavailable, "", "send", fmt.Sprintf("slot %d", slot), "nobody serves it now; try again")
		}
	}
	to, err := routeTarget(route, r.URL.Scheme)
	return m, to, err
}

// second finds where a refused request goes: to what the map says by now if that is
// news, else to where the answer points if that is allowed and newer. It reads the table
// until it knows more than when the request was sent.
func (t *Transport) second(r *http.Request, slot uint16, asked *routeMap, first routeDest, res *http.Response) (routeDest, bool) {
	router := t.c.Router
	answered := router.begun.Load()
	ctx, cancel := context.WithTimeout(r.Context(), t.c.Wait)
	defer cancel()
	// An error is no matter: the answer may still point somewhere.
	_ = router.refresh(ctx, func(m *routeMap) bool {
		route, ok := m.route(slot)
		return m.seq > answered || m.seq > asked.seq && ok && route.Epoch > first.epoch
	})
	m := router.current.Load()
	if route, ok := m.route(slot); ok {
		to, err := routeTarget(route, r.URL.Scheme)
		if err == nil && (to.epoch > first.epoch || to.address() != first.address()) {
			return to, true
		}
	}
	return t.hint(r, slot, m, first, res)
}

// hint is where a 421 points, if one may follow it. Whoever answers can write there what
// he likes; so it counts only for this slot, under a newer epoch than the one that was
// asked for, and for an address that the table knows or the caller allowed.
func (t *Transport) hint(r *http.Request, slot uint16, m *routeMap, first routeDest, res *http.Response) (routeDest, bool) {
	h := res.Header
	epoch, err := knownEpoch(h)
	if err != nil || epoch <= first.epoch || h.Get(HeaderSlot) != strconv.Itoa(int(slot)) {
		return routeDest{}, false
	}
	if route, ok := m.route(slot); ok && epoch < route.Epoch {
		return routeDest{}, false
	}
	to, err := parseAddress(h.Get(HeaderOwnerAddress), r.URL.Scheme)
	if err != nil || to.address() == first.address() {
		return routeDest{}, false
	}
	to.epoch = epoch
	for _, route := range m.routes {
		if known, err := parseAddress(route.Addr, r.URL.Scheme); err == nil && known.address() == to.address() {
			return to, true
		}
	}
	to.stranger = true
	return to, t.c.Allow != nil && t.c.Allow(to.scheme, to.host)
}

// send sends one copy of the request; the caller's is not changed.
func (t *Transport) send(r *http.Request, to routeDest, body io.ReadCloser) (*http.Response, error) {
	out := r.Clone(r.Context())
	out.URL.Scheme, out.URL.Host = to.scheme, to.host
	if r.Host == r.URL.Host {
		out.Host = "" // then it is the owner's; another one is a virtual host's, and stays
	}
	out.Body = body
	if out.Header == nil {
		out.Header = http.Header{}
	}
	if out.Header.Get(HeaderEpoch) == "" && to.epoch > 0 {
		out.Header.Set(HeaderEpoch, strconv.FormatUint(to.epoch, 10))
	}
	if to.stranger {
		out.URL.User = nil
		for _, secret := range []string{"Authorization", "Proxy-Authorization", "Cookie"} {
			out.Header.Del(secret)
		}
	}
	return t.c.Base.RoundTrip(out)
}

// bodyReplay is a body that can perhaps be sent twice; second is nil if not.
type bodyReplay struct {
	first  io.ReadCloser
	second func() (io.ReadCloser, error)
}

// replay keeps a short body, so that it can be sent again.
func (t *Transport) replay(r *http.Request) (bodyReplay, error) {
	switch {
	case r.Body == nil || r.Body == http.NoBody:
		return bodyReplay{r.Body, func() (io.ReadCloser, error) { return r.Body, nil }}, nil
	case r.GetBody != nil:
		return bodyReplay{r.Body, r.GetBody}, nil
	case r.ContentLength <= 0 || r.ContentLength > t.c.Buffer:
		return bodyReplay{first: r.Body}, nil
	}
	stop := context.AfterFunc(r.Context(), func() { closeBody(r) }) // as net/http does: a read may hang
	kept, err := io.ReadAll(io.LimitReader(r.Body, r.ContentLength+1))
	if !stop() {
		return bodyReplay{}, store.CtxErr(r.Context(), "", "read the request's body", r.URL.Path)
	}
	if err == nil && int64(len(kept)) != r.ContentLength {
		err = fmt.Errorf("it is not %d bytes long, as the request says", r.ContentLength)
	}
	if err != nil {
		return bodyReplay{}, store.Wrap(store.ErrInvalid, "", "read the request's body", r.URL.Path, err)
	}
	closeBody(r)
	fresh := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(kept)), nil }
	first, _ := fresh()
	return bodyReplay{first, fresh}, nil
}
