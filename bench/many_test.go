package bench

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/store/memstore"
)

// footprint is what a process has in use.
type footprint struct {
	heap, stacks uint64
	goroutines   int
}

func measure() footprint {
	runtime.GC()
	runtime.GC() // the first may leave what finalizers held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return footprint{heap: m.HeapAlloc, stacks: m.StackInuse, goroutines: runtime.NumGoroutine()}
}

// each reports what n of something added to f, for one of them.
func (f footprint) each(b *testing.B, n int, of string) {
	b.Helper()
	now := measure()
	b.ReportMetric((float64(now.heap)-float64(f.heap))/float64(n), "heap-B/"+of)
	b.ReportMetric((float64(now.stacks)-float64(f.stacks))/float64(n), "stack-B/"+of)
	b.ReportMetric(float64(now.goroutines-f.goroutines)/float64(n), "goroutines/"+of)
}

// BenchmarkWaiters lets many callers in one process wait for one lease that
// somebody else holds, with a TTL of a second, so that waiters look again often.
// They ask the store as one does, and cost a goroutine, the caller's own, each.
func BenchmarkWaiters(b *testing.B) {
	const window = 3 * time.Second
	for _, p := range places(b) {
		for _, n := range []int{1, 10_000} {
			b.Run(fmt.Sprintf("%s/%d", p.kind, n), func(b *testing.B) {
				others(b)
				holder := client(b, local(b, p.url), tenure.WithTTL(time.Second))
				l, err := holder.Acquire(b.Context(), "job")
				check(b, err)
				st := &counted{linedStore: local(b, p.url)}
				for b.Loop() {
					waiters(b, st, n, window)
				}
				hideTime(b)
				check(b, l.Release(b.Context()))
			})
		}
	}
}

func waiters(b *testing.B, st *counted, n int, window time.Duration) {
	b.Helper()
	c := client(b, st, tenure.WithTTL(time.Second))
	ctx, cancel := context.WithCancel(b.Context())
	before := measure()
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			if _, err := c.Acquire(ctx, "job"); err == nil {
				b.Error("a waiter got a lease that is held")
			}
		})
	}
	standsInLine(b, st)
	calls, cpu := st.calls(), usage(syscall.RUSAGE_SELF)
	time.Sleep(window)
	b.ReportMetric(float64(st.calls()-calls)/window.Seconds(), "calls/s")
	b.ReportMetric(100*ratio(usage(syscall.RUSAGE_SELF)-cpu, window), "cpu-%")
	if n > 1 { // of one, it would be what the store keeps
		before.each(b, n, "waiter")
	}
	cancel()
	all.Wait()
}

// BenchmarkRenewals is a process that holds many leases with the default TTL of
// 15 s: the store calls that a lease costs per renewal interval (3 s; one is the
// least), the processor time (on files beside that of as many bare durable
// writes), the memory, and the least that was left of a lease when its renewal
// came back. In memory it is the client's own cost, and that of the store.
func BenchmarkRenewals(b *testing.B) {
	b.Run("File/1000", func(b *testing.B) {
		others(b)
		bare := bareWriteCPU(b)
		perSecond := renewals(b, local(b, filePlace(b)), 1000, 3)
		b.ReportMetric(100*perSecond*bare.Seconds(), "floor-cpu-%")
	})
	b.Run("Mem/10000", func(b *testing.B) {
		others(b)
		renewals(b, memstore.New(), 10_000, 6) // more than a TTL: all timers run
	})
}

// renewals holds n leases on st for some intervals, and returns how many
// renewals there were per second.
func renewals(b *testing.B, st linedStore, n, intervals int) (perSecond float64) {
	b.Helper()
	window := time.Duration(intervals) * 3 * time.Second
	count, seen := &counted{linedStore: st}, &renewed{}
	seen.margin.Store(int64(time.Hour))
	c := client(b, count, tenure.WithObserver(seen))
	before := measure()
	hold(b, c, n)
	for b.Loop() {
		calls, renewed, cpu := count.calls(), seen.n.Load(), usage(syscall.RUSAGE_SELF)
		time.Sleep(window)
		perSecond = float64(seen.n.Load()-renewed) / window.Seconds()
		b.ReportMetric(100*ratio(usage(syscall.RUSAGE_SELF)-cpu, window), "cpu-%")
		b.ReportMetric(float64(count.calls()-calls)/float64(n*intervals), "calls/interval")
		b.ReportMetric(perSecond, "renewals/s")
	}
	before.each(b, n, "lease")
	b.ReportMetric(float64(seen.margin.Load())/float64(time.Second), "least-left-s")
	b.ReportMetric(float64(seen.lost.Load()), "lost")
	hideTime(b)
	return perSecond
}

// bareWriteCPU is the processor time of a bare durable write, while this process
// does nothing else.
func bareWriteCPU(b *testing.B) time.Duration {
	b.Helper()
	f, start := newFileFloor(b), usage(syscall.RUSAGE_SELF)
	for range rounds {
		f.write()
	}
	return (usage(syscall.RUSAGE_SELF) - start) / rounds
}

// hold acquires n leases, some at a time.
func hold(b *testing.B, c *tenure.Client, n int) {
	b.Helper()
	var all sync.WaitGroup
	slots := make(chan struct{}, 64)
	for i := range n {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			if _, err := c.Acquire(b.Context(), numbered(i)); err != nil {
				b.Error(err)
			}
		})
	}
	all.Wait()
}

// renewed counts what becomes of leases.
type renewed struct{ n, lost, margin atomic.Int64 }

func (r *renewed) Observe(e tenure.Event) {
	switch e.Kind {
	case tenure.EventLost:
		r.lost.Add(1)
	case tenure.EventRenewed:
		r.n.Add(1)
		for old := r.margin.Load(); int64(e.Margin) < old && !r.margin.CompareAndSwap(old, int64(e.Margin)); {
			old = r.margin.Load()
		}
	}
}
