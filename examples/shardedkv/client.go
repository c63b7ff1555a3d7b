package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/slots"
	"github.com/tenure-project/tenure/store"
)

// errNotDone: the service did nothing, and says so. It is worth asking again. What has
// neither this kind nor is a success may have been done.
var errNotDone = errors.New("not done")

// answer is what the service said.
type answer struct {
	found bool
	value string
	owner string // who served it, under which epoch
	epoch uint64
}

// client asks the service.
type client struct {
	http *http.Client
	base string // of the URLs; the transport puts the owner in place of the host
}

// newClient asks whoever the router says, and follows one 421.
func newClient(router *slots.Router, base http.RoundTripper, wait time.Duration) (*client, error) {
	t, err := slots.NewTransport(slots.TransportConfig{Router: router, Slot: slotOfRequest, Base: base, Wait: wait})
	if err != nil {
		return nil, err
	}
	return &client{http: &http.Client{Transport: t}, base: "http://kv"}, nil
}

func (c *client) put(ctx context.Context, key, value string) (answer, error) {
	return c.do(ctx, http.MethodPut, key, "", value)
}

func (c *client) delete(ctx context.Context, key string) (answer, error) {
	return c.do(ctx, http.MethodDelete, key, "", "")
}

// get reads; confirmed, the answer rests on no clock.
func (c *client) get(ctx context.Context, key string, confirmed bool) (answer, error) {
	query := ""
	if confirmed {
		query = "?confirm=1"
	}
	return c.do(ctx, http.MethodGet, key, query, "")
}

func (c *client) do(ctx context.Context, method, key, query, body string) (answer, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.base+kvPath+url.PathEscape(key)+query, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	res, err := c.http.Do(r)
	if err != nil {
		return answer{}, unanswered(method, err)
	}
	defer res.Body.Close() //nolint:errcheck // it was read
	text, err := io.ReadAll(io.LimitReader(res.Body, maxValue+1))
	if err != nil {
		return answer{}, unanswered(method, err)
	}
	a := answer{owner: res.Header.Get(slots.HeaderOwner)}
	a.epoch, _ = strconv.ParseUint(res.Header.Get(slots.HeaderEpoch), 10, 64)
	switch res.StatusCode {
	case http.StatusOK:
		a.found, a.value = true, string(text)
		return a, nil
	case http.StatusNoContent, http.StatusNotFound:
		return a, nil
	case http.StatusMisdirectedRequest, http.StatusServiceUnavailable:
		return answer{}, fmt.Errorf("%w: %s: %s", errNotDone, res.Status, strings.TrimSpace(string(text)))
	}
	return answer{}, fmt.Errorf("%s: %s", res.Status, strings.TrimSpace(string(text)))
}

// unanswered is the error of a request without a whole answer. A read does nothing, and
// neither does a request that was not sent: the transport's own errors say so, and those
// of a connection that was never made.
func unanswered(method string, err error) error {
	dial := (*net.OpError)(nil)
	if method == http.MethodGet || errors.Is(err, store.ErrUnavailable) || errors.As(err, &dial) && dial.Op == "dial" {
		return fmt.Errorf("%w: %w", errNotDone, err)
	}
	return err
}

// reading gives f the table, which somebody served before.
func reading(ctx context.Context, c config, f func(t *slots.Table) error) (err error) {
	cl, err := tenure.Open(ctx, c.url, tenure.WithDrivers(c.drivers...), tenure.WithoutCreate())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cl.Close()) }()
	t, err := slots.Open(ctx, cl, c.tableName)
	if errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("there is no table %q in this store: start a process with `shardedkv serve` first", c.tableName)
	}
	if err != nil {
		return err
	}
	return f(t)
}

// asking gives f a client. What was not done is tried again for as long as wait.
func asking(ctx context.Context, c config, wait time.Duration, f func(ctx context.Context, c *client) error) error {
	return reading(ctx, c, func(t *slots.Table) error {
		router, err := slots.NewRouter(t, slots.RouterConfig{})
		if err != nil {
			return err
		}
		base := http.DefaultTransport.(*http.Transport).Clone()
		defer base.CloseIdleConnections()
		cl, err := newClient(router, base, 0)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		for {
			err := f(ctx, cl)
			if !errors.Is(err, errNotDone) || ctx.Err() != nil {
				return err
			}
			pause(ctx, pauseAfterError)
			if router.Refresh(ctx) != nil && ctx.Err() != nil {
				return err
			}
		}
	})
}
