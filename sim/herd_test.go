package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/clock"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
	"github.com/tenure-project/tenure/store/memstore"
)

// herd is many clients on one store that can neither wake nor line up waiters,
// and when they asked it for something.
type herd struct {
	place *memstore.Store
	began time.Time

	mu      sync.Mutex
	links   []*faultstore.Store
	clients []*tenure.Client
	asked   []time.Duration
}

func newHerd() *herd { return &herd{place: memstore.New(), began: time.Now()} }

// join makes one client with a link of its own.
func (h *herd) join(t *testing.T, opts ...tenure.Option) *tenure.Client {
	link := faultstore.New(h.place.Peer(), faultstore.Options{Info: blind, Trace: h.trace})
	opts = append([]tenure.Option{tenure.WithoutProbe(), tenure.WithRetention(0), tenure.WithClock(clock.NewVirtual(1))}, opts...)
	c, err := tenure.New(t.Context(), link, opts...)
	if err != nil {
		t.Fatal(err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.links, h.clients = append(h.links, link), append(h.clients, c)
	return c
}

func blind(i store.Info) store.Info {
	i.Can &^= store.CanWatch | store.CanQueue
	return i
}

func (h *herd) trace(e faultstore.Event) {
	if !e.Done {
		h.mu.Lock()
		h.asked = append(h.asked, time.Since(h.began))
		h.mu.Unlock()
	}
}

func (h *herd) network(l faultstore.Link) {
	for _, link := range h.links {
		link.SetLink(l)
	}
}

func (h *herd) end() {
	var wg sync.WaitGroup
	for i, c := range h.clients {
		wg.Go(func() { _ = c.Close(); _ = h.links[i].Close() })
	}
	wg.Wait()
}

const bin = 100 * time.Millisecond

// count is how many requests there were from one instant to another, and in the
// fullest bin between them.
func (h *herd) count(from, to time.Duration) (all, peak int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	bins := map[time.Duration]int{}
	for _, at := range h.asked {
		if at >= from && at < to {
			all++
			bins[at/bin]++
		}
	}
	for _, n := range bins {
		peak = max(peak, n)
	}
	return all, peak
}

// Two hundred holders and two hundred waiters live through an outage of ten
// seconds. Requests stay spread: in step with nobody, not more of them while the
// store is down, and no holder loses its lease to a waiter.
//
// SPEC LS4 LS9
// CASE B78 B26
func TestOutageOfAHerd(t *testing.T) {
	for name, down := range map[string]faultstore.Link{"refused": faultstore.Refused, "hung": faultstore.Cut} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const pairs, outage = 200, 10 * time.Second
				h := newHerd()
				defer h.end()
				ctx, cancel := context.WithCancel(t.Context())
				held := make([]*tenure.Lease, pairs)
				var waiters sync.WaitGroup
				for i := range pairs {
					held[i] = h.pair(ctx, t, i, &waiters)
				}
				time.Sleep(10 * time.Second)
				began := time.Since(h.began)
				h.network(down)
				time.Sleep(outage)
				h.network(faultstore.Up)
				time.Sleep(outage)
				before, _ := h.count(began-outage, began)
				during, _ := h.count(began, began+outage)
				after, peak := h.count(began+outage, began+2*outage)
				t.Logf("requests in 10 s: %d before, %d while it was down, %d after with at most %d in %v", before, during, after, peak, bin)
				// Every holder's first renewal is old by now and the next one due at once.
				if mean := after / int(outage/bin); peak > 6*mean {
					t.Errorf("%d requests in one bin of %v after the outage, the mean is %d", peak, bin, mean)
				}
				if during > 2*before || after > 2*before {
					t.Errorf("%d requests before, %d during and %d after the outage", before, during, after)
				}
				for _, l := range held {
					if !l.Live() || l.Token() != 1 {
						t.Errorf("%s was lost: %v", l.Name(), l.Err())
					}
				}
				cancel()
				waiters.Wait()
			})
		})
	}
}

// pair makes a holder of a lease and a waiter for it, some time after the pair
// before.
func (h *herd) pair(ctx context.Context, t *testing.T, i int, waiters *sync.WaitGroup) *tenure.Lease {
	name := fmt.Sprintf("lease-%d", i)
	seeded := func(side uint64) tenure.Option { return tenure.WithRandom(rand.NewPCG(side, uint64(i))) }
	holder, waiter := h.join(t, seeded(1)), h.join(t, seeded(2))
	l, err := holder.Acquire(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	waiters.Go(func() {
		if l, err := waiter.Acquire(ctx, name); err == nil {
			t.Errorf("%s went to a waiter with token %d", name, l.Token())
		}
	})
	time.Sleep(17 * time.Millisecond)
	return l
}

// Ten thousand waiters of one process for one lease ask the store as one, each
// of them can go away at once, and they get it one after the other.
//
// SPEC LS7 LS9
// CASE B78
func TestManyWaitersAskAsOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const many = 10_000
		h := newHerd()
		defer h.end()
		holder, waiter := h.join(t), h.join(t)
		l, err := holder.Acquire(t.Context(), "one")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var patient, impatient sync.WaitGroup
		tokens := make(chan uint64, many)
		for i := range many {
			if i%100 != 0 {
				impatient.Go(func() {
					if _, err := waiter.Acquire(ctx, "one"); err == nil {
						t.Error("a waiter got a held lease")
					}
				})
				continue
			}
			patient.Go(func() { tokens <- takeTurn(t, waiter) })
		}
		time.Sleep(time.Second)
		began := time.Since(h.began)
		time.Sleep(20 * time.Second)
		all, _ := h.count(began, began+20*time.Second)
		t.Logf("%d requests of %d waiters and a holder in 20 s", all, many)
		if all > 60 { // a poll a second, a renewal every three
			t.Errorf("%d requests of %d waiters in 20 s", all, many)
		}
		cancel()
		gone := time.Now()
		impatient.Wait()
		if took := time.Since(gone); took > 0 {
			t.Errorf("waiters needed %v to go away", took)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		patient.Wait()
		close(tokens)
		seen := map[uint64]bool{l.Token(): true}
		for token := range tokens {
			if seen[token] || token > l.Token()+many/100 {
				t.Errorf("token %d was handed out twice, or out of turn", token)
			}
			seen[token] = true
		}
	})
}

func takeTurn(t *testing.T, c *tenure.Client) uint64 {
	l, err := c.Acquire(t.Context(), "one")
	if err != nil {
		t.Errorf("a waiter did not get its turn: %v", err)
		return 0
	}
	defer func() { _ = l.Release(t.Context()) }()
	return l.Token()
}
