package bench

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/store/sqlstore"
)

// manyLeases is how many leases one session is asked to keep.
const manyLeases = 10_000

// kept is what the order "keep" leaves in a child.
type kept struct {
	store  *counted
	client *tenure.Client
}

// keep joins as a node with a TTL and acquires n leases under that session. Its
// words are "kept" and, for each order "measure", what the process used so far:
// "used", store calls, writes among them, processor time, and resident KiB.
func keep(ctx context.Context, url, node string, n int, ttl time.Duration) (*kept, error) {
	st, _, err := tenure.OpenStore(ctx, url, tenure.WithDrivers(sqlstore.Driver()))
	if err != nil {
		return nil, err
	}
	k := &kept{store: &counted{linedStore: st.(linedStore)}}
	if k.client, err = tenure.New(ctx, k.store, tenure.WithoutProbe(), tenure.WithTTL(ttl)); err != nil {
		return nil, err
	}
	s, err := k.client.Join(ctx, node)
	if err != nil {
		return nil, err
	}
	if err := underSession(ctx, s, 0, n); err != nil {
		return nil, err
	}
	debug.FreeOSMemory()
	fmt.Println("kept")
	return k, nil
}

// atOnce is how many leases are acquired at the same time.
const atOnce = 64

// underSession acquires the leases from number from to number to.
func underSession(ctx context.Context, s *tenure.Session, from, to int) error {
	var all sync.WaitGroup
	errs := make(chan error, to)
	slots := make(chan struct{}, atOnce)
	for i := from; i < to; i++ {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			if _, err := s.Acquire(ctx, numbered(i)); err != nil {
				errs <- err
			}
		})
	}
	all.Wait()
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}

func (k *kept) measure() {
	fmt.Println("used", k.store.calls(), k.store.writes.Load(), int64(usage(syscall.RUSAGE_SELF)), resident())
}

// resident is the memory of this process in KiB, 0 where the system does not say.
func resident() int {
	text, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n, _ := strconv.Atoi(strings.Fields(rest)[0])
			return n
		}
	}
	return 0
}

// BenchmarkSessionKeeps is a process that keeps ten thousand leases under one
// session with the default TTL of 15 s and a renewal every 3 s: its store calls per
// interval (one is the least), its processor time, and its whole resident memory.
// Targets: 1, under 1 % of one core, under 40 MB.
func BenchmarkSessionKeeps(b *testing.B) {
	const window = 30 * time.Second
	for _, p := range places(b) {
		b.Run(fmt.Sprintf("%s/%d", p.kind, manyLeases), func(b *testing.B) {
			others(b)
			child := start(b, p.url)
			child.order("keep n1 %d %d", manyLeases, 15*time.Second)
			child.patient("kept", 5*time.Minute)
			for b.Loop() {
				time.Sleep(15 * time.Second) // past the first look of the clean-up
				child.order("measure")
				before := child.expect("used")
				time.Sleep(window)
				child.order("measure")
				after := child.expect("used")
				b.ReportMetric(float64(after[0]-before[0])/window.Seconds()*3, "calls/interval")
				b.ReportMetric(100*ratio(after[2]-before[2], window), "cpu-%")
				b.ReportMetric(float64(after[3])/1024, "resident-MiB")
			}
			hideTime(b)
			child.kill()
		})
	}
}

// BenchmarkSessionTakeover is how long one session needs to take ten thousand
// leases over from a process that was killed -9: one observation of its identity,
// whatever the number of leases, and one durable write each. The floor is that many
// bare durable writes, as many at the same time.
func BenchmarkSessionTakeover(b *testing.B) {
	const ttl = 3 * time.Second
	for _, p := range places(b) {
		b.Run(fmt.Sprintf("%s/%d", p.kind, manyLeases), func(b *testing.B) {
			others(b)
			child := start(b, p.url)
			child.order("keep n1 %d %d", manyLeases, ttl)
			child.patient("kept", 5*time.Minute)
			st := &counted{linedStore: local(b, p.url)}
			s, err := client(b, st, tenure.WithTTL(ttl)).Join(b.Context(), "n2")
			check(b, err)
			for b.Loop() {
				child.kill()
				began, calls := time.Now(), st.calls()
				l, err := s.Acquire(b.Context(), numbered(0))
				check(b, err)
				observed := time.Since(began)
				check(b, underSession(b.Context(), s, 1, manyLeases))
				all := time.Since(began)
				b.ReportMetric(observed.Seconds(), "first-s")
				b.ReportMetric((all - observed).Seconds(), "rest-s")
				b.ReportMetric(floorWrites(b, p, manyLeases).Seconds(), "floor-s")
				b.ReportMetric(float64(st.calls()-calls)/manyLeases, "calls/lease")
				b.ReportMetric(float64(l.Token()), "token")
			}
			hideTime(b)
		})
	}
}

// floorWrites is how long n bare durable writes take at p, as many at the same time
// as leases are acquired. On SQLite they go one after the other: its writers wait
// for each other.
func floorWrites(b *testing.B, p place, n int) time.Duration {
	b.Helper()
	var all sync.WaitGroup
	workers := atOnce
	if p.kind == "SQLite" {
		workers = 1
	}
	start := time.Now()
	for range workers {
		twice := p.floor(b)
		all.Go(func() {
			for range n / workers / 2 {
				twice()
			}
		})
	}
	all.Wait()
	return time.Since(start)
}
