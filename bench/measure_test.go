package bench

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-project/tenure/internal/clock"
)

// machine is the clock that all processes of this machine read alike.
var machine = clock.NewSystem()

// sample is how long each of many like operations took.
type sample []time.Duration

// at is the q-quantile of s, 0 of none.
func (s sample) at(q float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

func (s sample) median() time.Duration { return s.at(0.5) }

func (s sample) mean() time.Duration {
	var sum time.Duration
	for _, d := range s {
		sum += d
	}
	return sum / time.Duration(max(len(s), 1))
}

// time adds how long f took.
func (s *sample) time(f func()) {
	start := time.Now()
	f()
	*s = append(*s, time.Since(start))
}

// alternate runs one of ours and one of the floor in turn until the time is up.
// Which comes first changes every time, so that neither always pays for what
// the other leaves to the disk. The first of each, which open and create, do not
// count.
func alternate(b *testing.B, ours, floor func()) (o, f sample) {
	b.Helper()
	ours()
	floor()
	for i := 0; b.Loop(); i++ {
		if i%2 == 0 {
			o.time(ours)
			f.time(floor)
		} else {
			f.time(floor)
			o.time(ours)
		}
	}
	return o, f
}

// compare reports ours beside the floor. The ratios are of medians and of
// means; the second shows what happens only now and then.
func compare(b *testing.B, ours, floor sample) {
	b.Helper()
	hideTime(b)
	b.ReportMetric(micros(ours.median()), "p50-us")
	b.ReportMetric(micros(ours.at(0.99)), "p99-us")
	b.ReportMetric(micros(floor.median()), "floor-p50-us")
	b.ReportMetric(micros(floor.at(0.99)), "floor-p99-us")
	b.ReportMetric(ratio(ours.median(), floor.median()), "ratio")
	b.ReportMetric(ratio(ours.mean(), floor.mean()), "mean-ratio")
}

// hideTime leaves out the time of a whole iteration, which means nothing where
// one holds ours and the floor.
func hideTime(b *testing.B) { b.ReportMetric(0, "ns/op") }

func ratio(a, b time.Duration) float64 { return float64(a) / float64(b) }

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// busy is processor time, of the whole machine and of this process with the
// children that it has waited for.
type busy struct {
	all, own time.Duration
	at       time.Time
}

// look reads it; all is 0 where the system does not say.
func look() busy {
	return busy{all: machineTime(), own: usage(syscall.RUSAGE_SELF) + usage(syscall.RUSAGE_CHILDREN), at: time.Now()}
}

func usage(who int) time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(who, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// machineTime sums what all processors spent on processes (proc(5), /proc/stat:
// user, nice and system, in hundredths of a second).
func machineTime() time.Duration {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(text), "\n")
	f := strings.Fields(line)
	var sum int64
	for _, s := range f[1:min(4, len(f))] {
		n, _ := strconv.ParseInt(s, 10, 64)
		sum += n
	}
	return time.Duration(sum) * 10 * time.Millisecond
}

// others reports, at the end of a benchmark, what else the machine did in the
// meantime, in percent of one processor. A figure taken beside much of it says
// little. It is called first, so that children started later are counted.
func others(b *testing.B) {
	b.Helper()
	start := look()
	b.Cleanup(func() {
		end := look()
		if end.all > 0 {
			rest := (end.all - start.all) - (end.own - start.own)
			b.ReportMetric(100*max(0, ratio(rest, end.at.Sub(start.at))), "others-cpu-%")
		}
	})
}

func check(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}
