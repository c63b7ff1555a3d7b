package bench

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/slots"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

// BenchmarkHundredHosts is a hundred hosts with ten ranges each in one process, for three
// TTLs and more, while the writes of one hang, one gets its answers late, and one is cut
// off. Everybody else must keep everything: it fails if not.
func BenchmarkHundredHosts(b *testing.B) {
	for _, sub := range []struct {
		name     string
		place    int
		register bool
	}{{"SQLite/rows", 1, false}, {"SQLite/register", 1, true}, {"File/register", 0, true}} {
		b.Run(sub.name, func(b *testing.B) {
			others(b)
			hideTime(b)
			hundredHosts(b, local(b, places(b)[sub.place].url), sub.register)
		})
	}
}

const fleetTTL = 9 * time.Second

// fleetHost is one of the hundred.
type fleetHost struct {
	*slots.Host
	link   *faultstore.Store
	ranges []slots.Range
	ended  atomic.Int64
}

func hundredHosts(b *testing.B, st store.Store, register bool) {
	const hosts, ranges, each = 100, 10, 16
	stuck, slow, cut := 17, 42, 77
	var requests atomic.Int64
	var table *slots.Table
	all := make([]*fleetHost, hosts)
	ctx, cancel := context.WithCancel(context.Background())
	for i := range all {
		all[i] = newFleetHost(b, ctx, st, &requests, i, equalRanges(i*ranges*each, ranges, each), register, &table)
	}
	b.Cleanup(cancel)                                                           // first of all: it ends them
	for began := time.Now(); !holdAll(all); time.Sleep(20 * time.Millisecond) { // poll
		if time.Since(began) > 2*time.Minute {
			b.Fatal("not everything is held after two minutes")
		}
	}
	claiming := requests.Load()
	all[stuck].link.Add(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpReplace, faultstore.OpCommit}, Fault: faultstore.Hang()})
	all[slow].link.Add(faultstore.Rule{Fault: faultstore.DelayReply(200*time.Millisecond, 900*time.Millisecond)})
	all[cut].link.SetLink(faultstore.Cut)
	began := time.Now()
	for time.Since(began) < 4*fleetTTL {
		time.Sleep(100 * time.Millisecond) // poll
	}
	kept := requests.Load() - claiming
	lapses := int64(0)
	for i, h := range all {
		ill := i == stuck || i == cut
		for _, r := range h.ranges {
			if _, ok := h.EpochFor(r.A); ok == ill {
				b.Errorf("host %d serves %v: %v", i, r, ok)
			}
		}
		if n := h.ended.Load(); !ill && n > 0 {
			b.Errorf("host %d: %d of its grants ended", i, n)
		}
		lapses += h.ended.Load()
	}
	v, err := table.Read(b.Context())
	check(b, err)
	moves := 0
	for i := range v.Rows {
		moves += len(v.Rows[i].From)
	}
	b.ReportMetric(float64(moves), "moves")
	b.ReportMetric(float64(lapses), "lapses")
	b.ReportMetric(float64(claiming), "requests-to-claim")
	b.ReportMetric(float64(kept)/(4*fleetTTL).Seconds(), "requests/s")
}

func newFleetHost(b *testing.B, ctx context.Context, st store.Store, requests *atomic.Int64, i int, ranges []slots.Range, register bool, table **slots.Table) *fleetHost {
	h := &fleetHost{ranges: ranges}
	h.link = faultstore.New(st, faultstore.Options{Trace: func(e faultstore.Event) {
		if !e.Done {
			requests.Add(1)
		}
	}})
	c := client(b, h.link, tenure.WithTTL(fleetTTL), tenure.WithLogger(slog.New(slog.DiscardHandler)), tenure.WithLabel(fmt.Sprint("h", i)))
	cfg := slots.HostConfig{Owner: fmt.Sprintf("h%02d", i), Ranges: ranges, TTL: fleetTTL, OnLoss: func(*slots.Grant, error) { h.ended.Add(1) }}
	var opts []slots.Option
	if register {
		s, err := c.Join(b.Context(), "node-"+cfg.Owner)
		check(b, err)
		cfg.Session, cfg.TTL = s, 0
		opts = append(opts, slots.Register())
	}
	t, err := slots.Create(b.Context(), c, "orders", opts...)
	check(b, err)
	*table = t
	h.Host, err = t.Host(cfg)
	check(b, err)
	go func() { _ = h.Run(ctx) }()
	b.Cleanup(h.Close)
	return h
}

func holdAll(all []*fleetHost) bool {
	for _, h := range all {
		if len(h.Held()) < len(h.ranges) {
			return false
		}
	}
	return true
}
