package memstore_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/memstore"
	"github.com/tenure-project/tenure/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func harness() storetest.Harness {
	return storetest.Harness{
		Open: func(testing.TB) store.Store { return memstore.New() },
		Peer: func(_ testing.TB, s store.Store) store.Store { return s.(*memstore.Store).Peer() },
	}
}

func TestContract(t *testing.T) { storetest.Run(t, harness()) }

func TestContractWithLosses(t *testing.T) { storetest.Lost(t, harness()) }

func BenchmarkStore(b *testing.B) { storetest.Bench(b, harness()) }

// The contract leaves no property of this store open to a probe either.
//
// SPEC ST10
func TestProbe(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	r, err := store.Probe(t.Context(), s, store.ProbeOptions{Prefix: store.Prefix("n", "probe"), Deep: true})
	if err != nil || !r.Sound || !r.DeleteIfSound || r.RepeatsVersions {
		t.Errorf("%v, %+v", err, r)
	}
}

// SPEC UI4
func TestDriver(t *testing.T) {
	t.Parallel()
	open := func(raw string) (store.Store, error) {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		return memstore.Driver().Open(t.Context(), u)
	}
	a, err := open("mem:")
	if err != nil {
		t.Fatal(err)
	}
	b, err := open("mem:")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Create(t.Context(), "k", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Get(t.Context(), "k", 0); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("two opens share a store: %v", err)
	}
	for _, raw := range []string{"mem:name", "mem://host", "mem:/path", "mem:?size=3", "mem:#part", "mem://user@"} {
		if _, err := open(raw); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("opening %s: %v, want ErrInvalid", raw, err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := memstore.Driver().Open(ended, &url.URL{Scheme: "mem"}); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("opening with an ended context: %v", err)
	}
}

// A handle that is closed answers nothing, and its peers do not mind.
func TestClosedHandle(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	p := s.Peer()
	if _, err := s.Create(t.Context(), "k", nil); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	calls := map[string]error{}
	_, calls["get"] = s.Get(t.Context(), "k", 0)
	_, calls["create"] = s.Create(t.Context(), "l", nil)
	_, calls["replace"] = s.Replace(t.Context(), "k", nil, "1")
	calls["delete"] = s.Delete(t.Context(), "k")
	calls["delete-if"] = s.DeleteIf(t.Context(), "k", "1")
	calls["watch"] = s.Watch(t.Context(), "k", "1")
	_, calls["now"] = s.Now(t.Context())
	_, calls["enqueue"] = s.Enqueue(t.Context(), "k")
	_, calls["waiting"] = s.Waiting(t.Context(), "k")
	for _, err := range s.List(t.Context(), "", "") {
		calls["list"] = err
	}
	if len(calls) != 10 {
		t.Errorf("%d calls were checked, want 10", len(calls))
	}
	for op, err := range calls {
		if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "closed") {
			t.Errorf("%s on a closed store: %v", op, err)
		}
	}
	if _, err := p.Get(t.Context(), "k", 0); err != nil {
		t.Errorf("a peer of a closed store: %v", err)
	}
}

// All waiting is durable blocking for a bubble: its clock runs on, and a
// deadlock would be found.
//
// SPEC LS9
func TestInABubble(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		first, err := s.Enqueue(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		var wg sync.WaitGroup
		// Each waits a second for each ticket before it that does not use its chance.
		for i := 1; i <= 3; i++ {
			ticket, err := s.Enqueue(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			wg.Go(func() {
				if err := ticket.Wait(t.Context(), time.Second); err != nil {
					t.Errorf("ticket %d: %v", i, err)
				}
				if d := time.Since(start); d != time.Duration(i)*time.Second {
					t.Errorf("ticket %d was let through after %v", i, d)
				}
			})
		}
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			if err := s.Watch(ctx, "k", ""); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Watch: %v", err)
			}
		})
		wg.Wait()
		if err := first.Wait(t.Context(), 0); err != nil {
			t.Errorf("the first ticket: %v", err)
		}
		before, _ := s.Now(t.Context())
		time.Sleep(time.Minute)
		if after, err := s.Now(t.Context()); err != nil || after.Time.Sub(before.Time) != time.Minute {
			t.Errorf("the clock moved by %v in a minute (%v)", after.Time.Sub(before.Time), err)
		}
	})
}

// Patience begins anew when somebody before the ticket leaves: the next one has
// its chance first.
func TestPatienceBeginsAnew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		tickets := make([]store.Ticket, 3)
		for i := range tickets {
			var err error
			if tickets[i], err = s.Enqueue(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
		}
		time.AfterFunc(1500*time.Millisecond, tickets[0].Leave)
		start := time.Now()
		if err := tickets[2].Wait(t.Context(), time.Second); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); d != 2500*time.Millisecond {
			t.Errorf("the third ticket was let through after %v, want 1 s after the first had left", d)
		}
		tickets[1].Leave()
		if err := tickets[1].Wait(t.Context(), 0); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("Wait after Leave: %v", err)
		}
	})
}

// Closing a store ends its waits, and the lines forget it.
func TestCloseInABubble(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		p := s.Peer()
		head, err := p.Enqueue(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		behind, err := p.Enqueue(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		third, err := s.Enqueue(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 2)
		go func() { ended <- behind.Wait(t.Context(), 0) }()
		go func() { ended <- p.Watch(t.Context(), "k", "") }()
		turn := make(chan error, 1)
		go func() { turn <- third.Wait(t.Context(), 0) }()
		synctest.Wait()
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := <-ended; !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("a wait on a closed store: %v", err)
			}
		}
		if err := <-turn; err != nil {
			t.Errorf("the ticket behind a closed store: %v", err)
		}
		head.Leave()
		third.Leave()
		if waiting, err := s.Waiting(t.Context(), "k"); waiting || err != nil {
			t.Errorf("somebody still stands in line: %v, %v", waiting, err)
		}
	})
}

// SPEC ST6
func TestListAcrossPages(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	for i := range 5000 {
		if _, err := s.Create(t.Context(), fmt.Sprintf("k/%05d", i*7919%5000), nil); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	for k, err := range s.List(t.Context(), "k/", "k/00009") {
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("k/%05d", n+10); k != want {
			t.Fatalf("key number %d is %s, want %s", n, k, want)
		}
		n++
		// Also the key that ends a page may go while the listing stands on it.
		if err := s.Delete(t.Context(), k); err != nil {
			t.Fatal(err)
		}
	}
	if n != 4990 {
		t.Errorf("%d keys were listed, want 4990", n)
	}
}
