package slots

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// storm is a few hosts, each with a handler of its own, whose ranges move while many
// clients write.
type storm struct {
	t      *testing.T
	table  *fakeRoutes
	hosts  []string // addresses
	serve  []*Handler
	ended  sync.Map // epochs that were drained to their end
	tick   chan struct{}
	begun  atomic.Int64
	status [600]atomic.Int64
	slow   atomic.Int64 // the longest request, in ns
}

const stormWidth = 1024 // slots of a range; 16 ranges

func newStorm(t *testing.T, hosts int) *storm {
	s := &storm{t: t, table: newFakeRoutes(), tick: make(chan struct{}, 1)}
	for i := range hosts {
		owner := "h" + strconv.Itoa(i)
		router := mustRouter(t, s.table, RouterConfig{Pause: 10 * time.Millisecond, Every: time.Second})
		t.Cleanup(runRouter(t, router))
		host := fakeServer{s.table, owner}
		h := mustServe(t, ServeConfig{Host: host, Owner: owner, Router: router, Grant: host.grant, RetryAfter: time.Millisecond}, http.HandlerFunc(s.work))
		server := httptest.NewServer(h)
		t.Cleanup(server.Close)
		s.hosts, s.serve = append(s.hosts, server.Listener.Addr().String()), append(s.serve, h)
	}
	for r := range 16 {
		s.give(r, r%hosts)
	}
	return s
}

func (s *storm) give(r, host int) uint64 {
	return s.table.claim(slotRange(r*stormWidth, (r+1)*stormWidth-1), "h"+strconv.Itoa(host), s.hosts[host])
}

// work is what the hosts do: nothing may run under an epoch that was drained.
func (s *storm) work(w http.ResponseWriter, r *http.Request) {
	served, ok := SlotFrom(r.Context())
	if !ok {
		s.t.Error("a request without a slot")
	}
	body, err := io.ReadAll(r.Body)
	if err != nil || string(body) != "value" {
		s.t.Errorf("the body came as %q, %v", body, err)
	}
	s.begun.Add(1)
	if _, drained := s.ended.Load(served.Epoch); drained {
		s.t.Errorf("slot %d ran under epoch %d, which was drained", served.Slot, served.Epoch)
	}
	fmt.Fprint(w, served.Epoch)
}

// move moves one range, sometimes with a drain first, sometimes with a gap.
func (s *storm) move(ctx context.Context, rnd *rand.Rand) {
	r := rnd.IntN(16)
	at, _ := s.table.routeOf(uint16(r * stormWidth))
	whole := slotRange(r*stormWidth, (r+1)*stormWidth-1)
	if from, err := strconv.Atoi(strings.TrimPrefix(at.Owner, "h")); err == nil && rnd.IntN(2) == 0 {
		if err := s.serve[from].Drain(ctx, whole, at.Epoch); err != nil {
			s.t.Error(err)
		}
		s.ended.Store(at.Epoch, true)
	}
	if rnd.IntN(4) == 0 {
		s.table.free(whole)
	}
	s.give(r, rnd.IntN(len(s.hosts)))
}

func (f *fakeRoutes) routeOf(slot uint16) (Route, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.routes {
		if r.Range.Contains(slot) {
			return r, true
		}
	}
	return Route{}, false
}

// write is one client: each of its requests ends, after at most two sends.
func (s *storm) write(client *http.Client, rnd *rand.Rand, n int) {
	for i := range n {
		if i%5 == 0 {
			select {
			case s.tick <- struct{}{}:
			default:
			}
		}
		var sends atomic.Int64
		ctx := context.WithValue(context.Background(), sendsKey{}, &sends)
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://kv/", strings.NewReader("value"))
		if err != nil {
			s.t.Error(err)
			return
		}
		r.Header.Set(slotHeader, strconv.Itoa(rnd.IntN(16*stormWidth)))
		asked := time.Now()
		res, err := client.Do(r)
		for took := int64(time.Since(asked)); ; {
			if was := s.slow.Load(); took <= was || s.slow.CompareAndSwap(was, took) {
				break
			}
		}
		if err != nil {
			if sends.Load() != 0 || !strings.Contains(err.Error(), "nobody serves it now") {
				s.t.Errorf("after %d sends: %v", sends.Load(), err)
			}
			s.status[0].Add(1)
			continue
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		s.status[res.StatusCode].Add(1)
		if n := sends.Load(); n < 1 || n > 2 {
			s.t.Errorf("a request was sent %d times", n)
		}
	}
}

// A hundred clients write while ranges move: every request ends at an owner or is told
// that it was not begun, and once it is calm all are served.
// SPEC SL9
func TestClientsWhileRangesMove(t *testing.T) {
	t.Parallel()
	s := newStorm(t, 4)
	router := mustRouter(t, s.table, RouterConfig{Pause: 5 * time.Millisecond, Every: time.Second})
	t.Cleanup(runRouter(t, router))
	conns := &http.Transport{MaxIdleConnsPerHost: 100}
	t.Cleanup(conns.CloseIdleConnections)
	base := &countedSends{base: conns}
	tr, err := NewTransport(TransportConfig{Router: router, Slot: slotOfTest, Base: base, Wait: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: tr}
	var wg, movers sync.WaitGroup
	moves := 0
	movers.Go(func() {
		rnd := rand.New(rand.NewPCG(1, 1))
		for range s.tick {
			s.move(t.Context(), rnd)
			moves++
		}
	})
	const clients, each = 100, 20
	for i := range clients {
		wg.Go(func() { s.write(client, rand.New(rand.NewPCG(2, uint64(i))), each) })
	}
	wg.Wait()
	close(s.tick)
	movers.Wait()
	served := s.status[200].Load()
	refused := s.status[421].Load() + s.status[503].Load() + s.status[0].Load()
	t.Logf("%d moves; %d requests, %d sends: %d served, %d at the wrong host twice, %d told to come back, %d with nobody to ask; the slowest took %v",
		moves, clients*each, base.all.Load(), served, s.status[421].Load(), s.status[503].Load(), s.status[0].Load(), time.Duration(s.slow.Load()))
	if served+refused != clients*each || served != s.begun.Load() {
		t.Errorf("%d served and %d refused of %d; %d were begun", served, refused, clients*each, s.begun.Load())
	}
	if moves < 20 || served == 0 {
		t.Errorf("%d moves and %d served requests show little", moves, served)
	}
	if err := router.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.tick = make(chan struct{})
	s.write(client, rand.New(rand.NewPCG(3, 3)), 100)
	if n := s.status[200].Load() - served; n != 100 {
		t.Errorf("in the calm %d of 100 requests were served", n)
	}
}
