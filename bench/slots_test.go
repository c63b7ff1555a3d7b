package bench

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/slots"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
	"github.com/tenure-project/tenure/store/memstore"
)

// lookups is how many look-ups one sample has: one alone is less than a reading of the clock
// that times it.
const lookups = 10_000

// equalRanges cuts the slots from first on into n ranges of that many slots.
func equalRanges(first, n, each int) (all []slots.Range) {
	for i := range n {
		all = append(all, slots.Range{A: uint16(first + i*each), B: uint16(first + (i+1)*each - 1)})
	}
	return all
}

// served is a host that serves the ranges, renewed by itself or under a session.
func served(b *testing.B, t *slots.Table, cfg slots.HostConfig) *slots.Host {
	b.Helper()
	h, err := t.Host(cfg)
	check(b, err)
	b.Cleanup(h.Close)
	for len(h.Held()) < len(cfg.Ranges) {
		for _, f := range h.Refresh(b.Context()).Failed {
			b.Logf("%v: %v", f.Range, f.Err)
		}
	}
	return h
}

// perLookup reports what one of ours takes beside one of the floor, in nanoseconds.
func perLookup(b *testing.B, ours, floor sample) {
	b.Helper()
	hideTime(b)
	o, f := float64(ours.median())/lookups, float64(floor.median())/lookups
	b.ReportMetric(o, "ns/lookup")
	b.ReportMetric(f, "floor-ns")
	b.ReportMetric(o-f, "extra-ns")
	b.ReportMetric(o/f, "ratio")
}

// BenchmarkEpochFor is the answer whether a slot may be served, on a host with 1,000
// ranges that is refreshed a hundred times as often as it must, beside one time.Now.
func BenchmarkEpochFor(b *testing.B) {
	for _, kind := range []string{"Self", "Session"} {
		b.Run(kind, func(b *testing.B) {
			others(b)
			c := openMem(b)
			t, err := slots.Create(b.Context(), c, "orders")
			check(b, err)
			cfg := slots.HostConfig{Owner: "a", Ranges: equalRanges(0, 1000, 16)}
			if kind == "Session" {
				cfg.Session, err = c.Join(b.Context(), "n1")
				check(b, err)
			}
			h := served(b, t, cfg)
			ctx, cancel := context.WithCancel(b.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				for tick := time.NewTicker(75 * time.Millisecond); ctx.Err() == nil; {
					h.Refresh(ctx)
					select {
					case <-tick.C:
					case <-ctx.Done():
					}
				}
			}()
			b.Cleanup(func() { cancel(); <-done })
			slot, last := uint16(0), time.Time{}
			o, f := alternate(b, func() {
				for range lookups {
					if _, ok := h.EpochFor(slot % 16000); !ok {
						b.Fatal("not served")
					}
					slot += 7
				}
			}, func() {
				for range lookups {
					last = time.Now()
				}
			})
			if last.IsZero() {
				b.Fatal("no floor")
			}
			perLookup(b, o, f)
		})
	}
}

// BenchmarkRoute is one look-up in a router that follows a table of 1,000 ranges, by slot
// and by key, beside one in a plain map.
func BenchmarkRoute(b *testing.B) {
	c := openMem(b)
	t, err := slots.Create(b.Context(), c, "orders")
	check(b, err)
	served(b, t, slots.HostConfig{Owner: "a", Addr: "10.0.0.1:80", Ranges: equalRanges(0, 1000, 16)})
	r, err := slots.NewRouter(t, slots.RouterConfig{})
	check(b, err)
	check(b, r.Refresh(b.Context()))
	plain := map[uint16]slots.Route{}
	for s := range uint16(16000) {
		plain[s], _ = r.Route(s)
	}
	for _, by := range []string{"Slot", "Key"} {
		b.Run(by, func(b *testing.B) {
			others(b)
			slot, missing := uint16(0), 0
			o, f := alternate(b, func() {
				for range lookups {
					ok := false
					if by == "Slot" {
						_, ok = r.Route(slot % 16000)
					} else {
						_, ok = r.RouteKey("customer-00017")
					}
					if !ok {
						missing++
					}
					slot += 7919
				}
			}, func() {
				for range lookups {
					if _, ok := plain[slot%16000]; !ok {
						missing++
					}
					slot += 7919
				}
			})
			if missing > 0 {
				b.Fatalf("%d without an owner", missing)
			}
			perLookup(b, o, f)
		})
	}
}

// BenchmarkClaimAmongMany is a claim of one range in a table of 4,096 rows that others
// hold, on SQLite, beside one bare transaction that changes a row.
func BenchmarkClaimAmongMany(b *testing.B) {
	others(b)
	const rows, free = 4096, 128
	st := local(b, places(b)[1].url)
	c := client(b, st)
	t, err := slots.Create(b.Context(), c, "orders")
	check(b, err)
	s, err := c.Join(b.Context(), "n1")
	check(b, err)
	served(b, t, slots.HostConfig{Session: s, Ranges: equalRanges(0, rows, 3)})
	want := equalRanges(3*rows, free, 3)
	n := 0
	var claims sample
	o, f := alternate(b, func() {
		h, err := t.Host(slots.HostConfig{Owner: "b", Ranges: want[n%free : n%free+1]})
		check(b, err)
		claims.time(func() {
			if r := h.Refresh(b.Context()); len(r.Claimed) != 1 {
				b.Fatalf("%+v", r)
			}
		})
		check(b, h.Release(b.Context()))
		n++
	}, newSQLFloor(b).write)
	if len(o) > len(claims) {
		b.Fatal("claims were missed")
	}
	compare(b, claims[1:], f)
	v, err := t.Read(b.Context())
	check(b, err)
	b.ReportMetric(float64(len(v.Rows)), "rows")
}

// linkOf is one process's link to a store, which counts the writes to tables.
func linkOf(st store.Store, writes *atomic.Int64) store.Store {
	return faultstore.New(st, faultstore.Options{Trace: func(e faultstore.Event) {
		if !e.Done && e.Op.Writes() && (strings.Contains(e.Key, "/slots/") || strings.Contains(e.Key, "/slots-row/")) {
			writes.Add(1)
		}
	}})
}

// BenchmarkHandOverOfRange moves one range to and fro between two hosts that follow a plan, and
// reports for how long nobody serves it, how long a move takes from the pin on, and how
// many writes to the table one takes. The floor is two bare SQLite transactions, or two
// writes to memory.
func BenchmarkHandOverOfRange(b *testing.B) {
	for _, kind := range []string{"Memory", "SQLite"} {
		for _, register := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/register=%v", kind, register), func(b *testing.B) {
				others(b)
				peer := memoryPeers()
				if kind == "SQLite" {
					url := places(b)[1].url
					peer = func() store.Store { return local(b, url) }
				}
				handOvers(b, peer, register)
			})
		}
	}
}

// memoryPeers are handles to one place in memory.
func memoryPeers() func() store.Store {
	m := memstore.New()
	return func() store.Store { return m.Peer() }
}

// turn is when a host began to serve the range, or ended.
type turn struct {
	owner string
	at    time.Time
}

func handOvers(b *testing.B, peer func() store.Store, register bool) {
	var writes atomic.Int64
	begun, ended := make(chan turn, 100), make(chan turn, 100)
	var table *slots.Table
	owners := []string{"a", "b"}
	shard := slots.Range{A: 0, B: slots.Count/2 - 1}
	for _, owner := range owners {
		c := client(b, linkOf(peer(), &writes), tenure.WithLabel(owner))
		opts := []slots.Option{slots.Shards(2)}
		if register {
			opts = append(opts, slots.Register())
		}
		var err error
		table, err = slots.Create(b.Context(), c, "orders", opts...)
		check(b, err)
		s, err := c.Join(b.Context(), "node-"+owner)
		check(b, err)
		note := func(to chan turn, g *slots.Grant) {
			if at := time.Now(); g.Range() == shard {
				to <- turn{owner, at}
			}
		}
		h, err := table.Host(slots.HostConfig{Session: s, Owner: owner, Balanced: true,
			Balance: slots.Balance{Settle: time.Second, Window: time.Second, Burst: -1, MaxMoves: 4}, // only pins move
			OnClaim: func(g *slots.Grant) { note(begun, g) }, OnLoss: func(g *slots.Grant, _ error) { note(ended, g) }})
		check(b, err)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- h.Run(ctx) }()
		b.Cleanup(func() { cancel(); <-done })
	}
	last := (<-begun).owner
	var gaps, moves, written sample // the last in writes
	move := func() {
		to := owners[0]
		if last == to {
			to = owners[1]
		}
		before, began := writes.Load(), time.Now()
		_, err := table.Pin(b.Context(), shard, to)
		check(b, err)
		e, s := <-ended, <-begun
		if e.owner != last || s.owner != to {
			b.Fatalf("%s ended and %s began, want %s and %s", e.owner, s.owner, last, to)
		}
		last = to
		gaps, moves, written = append(gaps, s.at.Sub(e.at)), append(moves, time.Since(began)), append(written, time.Duration(writes.Load()-before))
	}
	move() // until the hosts know each other
	move()
	gaps, moves, written = nil, nil, nil
	for b.Loop() {
		move()
	}
	hideTime(b)
	b.ReportMetric(micros(gaps.median()), "gap-p50-us")
	b.ReportMetric(micros(gaps.at(0.99)), "gap-p99-us")
	b.ReportMetric(micros(moves.median())/1000, "move-p50-ms")
	b.ReportMetric(float64(written.median()), "writes/move")
}
