package bench

import (
	"testing"
	"time"
)

// batch is how many calls are timed at once where one takes less than reading
// the clock twice.
const batch = 2000

// BenchmarkLive puts Live, which a holder asks before every step, beside one
// time.Now, and beside the clock that counts suspend, which it would have to
// read if it did not look for disagreement of the cheap ones. Target: at most
// 1.3 times time.Now, no allocation.
func BenchmarkLive(b *testing.B) {
	l, err := openMem(b).Acquire(b.Context(), "job")
	check(b, err)
	live := func() {
		for range batch {
			if !l.Live() {
				b.Fatal("the lease ended")
			}
		}
	}
	b.Run("Now", func(b *testing.B) {
		others(b)
		o, f := alternate(b, live, func() {
			for range batch {
				now = time.Now()
			}
		})
		reportCalls(b, o, f)
		b.ReportMetric(testing.AllocsPerRun(batch, func() { l.Live() }), "allocs")
	})
	b.Run("Boot", func(b *testing.B) {
		others(b)
		o, f := alternate(b, live, func() {
			for range batch {
				boot = machine.Boot()
			}
		})
		reportCalls(b, o, f)
	})
}

// What the floors read, so that no compiler may leave it out.
var (
	now  time.Time
	boot time.Duration
)

// reportCalls is compare for batches.
func reportCalls(b *testing.B, ours, floor sample) {
	b.Helper()
	hideTime(b)
	b.ReportMetric(float64(ours.median())/batch, "p50-ns")
	b.ReportMetric(float64(floor.median())/batch, "floor-p50-ns")
	b.ReportMetric(ratio(ours.median(), floor.median()), "ratio")
}
