package slots

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/tenure-project/tenure/store"
)

// A body that does not come does not outlive its request: who keeps it to send it again lets
// go when the caller does, and nothing is sent.
//
// SPEC SL9
func TestTransportDoesNotWaitForABodyForEver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		table := newFakeRoutes()
		table.claim(All, "a", "127.0.0.1:1")
		router := freshRouter(t, table, RouterConfig{})
		base := &countedSends{base: http.DefaultTransport}
		tr, err := NewTransport(TransportConfig{Router: router, Slot: func(*http.Request) (uint16, bool, error) { return 7, true, nil }, Base: base})
		if err != nil {
			t.Fatal(err)
		}
		body, feed := io.Pipe()
		defer feed.Close()
		ctx, cancel := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://x/7", body)
		if err != nil {
			t.Fatal(err)
		}
		r.ContentLength = 10
		done := make(chan error, 1)
		go func() {
			res, err := tr.RoundTrip(r)
			if err == nil {
				_ = res.Body.Close()
			}
			done <- err
		}()
		synctest.Wait()
		cancel()
		synctest.Wait()
		select {
		case err := <-done:
			if !errors.Is(err, context.Canceled) || store.KindOf(err) != store.ErrUnavailable {
				t.Errorf("%v, want that it was cancelled", err)
			}
		default:
			t.Error("it waits for the body although the request was given up")
			_ = feed.CloseWithError(io.ErrUnexpectedEOF)
			<-done
		}
		if n := base.all.Load(); n != 0 {
			t.Errorf("%d requests were sent", n)
		}
	})
}
