package bench

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/memstore"
)

// BenchmarkThroughput is how often per second one client takes and frees one
// lease, and 64 clients of one process each a lease of its own, on each store.
func BenchmarkThroughput(b *testing.B) {
	const window = 1500 * time.Millisecond
	for _, n := range []int{1, 64} {
		for _, p := range append(places(b), place{kind: "Mem"}) {
			b.Run(fmt.Sprintf("%s/%d", p.kind, n), func(b *testing.B) {
				others(b)
				var st store.Store = memstore.New()
				if p.kind != "Mem" {
					st = local(b, p.url)
				}
				var work []func() bool
				for i := range n {
					c := client(b, st)
					work = append(work, func() bool { return acquireRelease(b, c, numbered(i)) })
				}
				for b.Loop() {
					b.ReportMetric(rate(work, window), "cycles/s")
				}
				hideTime(b)
			})
		}
	}
	// The floor of 64 at once on files; that of one is in BenchmarkAcquireRelease.
	b.Run("Floor/File/64", func(b *testing.B) {
		others(b)
		var work []func() bool
		for range 64 {
			f := newFileFloor(b)
			work = append(work, func() bool { f.twice(); return !b.Failed() })
		}
		for b.Loop() {
			b.ReportMetric(rate(work, window), "cycles/s")
		}
		hideTime(b)
	})
}

// rate runs each of work in a goroutine, again and again, and counts how often
// per second they got done together. The first time of each does not count.
func rate(work []func() bool, window time.Duration) float64 {
	var all sync.WaitGroup
	var n atomic.Int64
	warm := sync.WaitGroup{}
	warm.Add(len(work))
	begin := make(chan struct{})
	var end time.Time
	for _, f := range work {
		all.Go(func() {
			ok := f()
			warm.Done()
			<-begin
			for ok && time.Now().Before(end) {
				if ok = f(); ok {
					n.Add(1)
				}
			}
		})
	}
	warm.Wait()
	start := time.Now()
	end = start.Add(window)
	close(begin)
	all.Wait()
	return float64(n.Load()) / time.Since(start).Seconds()
}

func numbered(i int) string { return fmt.Sprintf("job-%d", i) }
