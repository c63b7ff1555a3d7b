package bench

import (
	"bytes"
	"context"
	"flag"
	"io/fs"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	core "github.com/tenure-project/tenure/internal/core/ledger"
	"github.com/tenure-project/tenure/ledger"
	"github.com/tenure-project/tenure/store/faultstore"
)

var ledgerRuns = flag.Int("runs", 1_000_000, "how many committed runs the ledger of BenchmarkMillionRuns has")

const bigJob = "nightly"

// occurrence is the n-th run of the big job.
func occurrence(b *testing.B, n int) ledger.Run {
	r, err := ledger.Occurrence(bigJob, ledger.DefaultTrigger, time.UnixMilli(int64(n)*60_000))
	check(b, err)
	return r
}

// committedRuns are the lines of a log in which the runs from one number to another
// happened.
func committedRuns(b *testing.B, from, to int) *ledger.Log {
	var lines []byte
	for n := from; n < to; n++ {
		i := core.Intent{V: 1, Agent: bigJob, Key: core.Key{Run: occurrence(b, n).ID, Site: ledger.DefaultSite, Attempt: 1}, Status: core.Committed, Epoch: 1}
		var err error
		lines, err = core.AppendLine(lines, &i)
		check(b, err)
	}
	g := ledger.NewLog()
	check(b, g.ReadFrom("past", bytes.NewReader(lines)))
	return g
}

// BenchmarkMillionRuns is a ledger with a million committed runs on files: what it takes
// on disk, and what an answer, a whole new run, a compaction and a listing of all of it
// take in time and requests. A ledger with a thousand runs is the floor.
func BenchmarkMillionRuns(b *testing.B) {
	for _, size := range []int{1000, *ledgerRuns} {
		b.Run(byCount(size), func(b *testing.B) { bigLedger(b, size) })
	}
}

func byCount(n int) string {
	if n >= 1_000_000 {
		return "Million"
	}
	return "Few"
}

func bigLedger(b *testing.B, size int) {
	others(b)
	dir := filepath.Join(b.TempDir(), "store")
	link := faultstore.New(local(b, "file://"+dir), faultstore.Options{})
	var requests atomic.Int64
	link.Add(faultstore.Rule{Fault: faultstore.Hang(), Match: func(faultstore.Call) bool { requests.Add(1); return false }})
	c := client(b, link)
	l, err := ledger.Open(c, bigJob)
	check(b, err)
	began := time.Now()
	_, err = l.Import(b.Context(), committedRuns(b, 0, size))
	check(b, err)
	imported, bytesPerRun := time.Since(began), float64(onDisk(b, dir))/float64(size)

	var did, ran, compacted sample
	var sent [3]int64
	next, n := size, int64(0)
	for b.Loop() {
		n++
		did.time(func() { sent[0] += during(&requests, func() { bigDid(b, l, int(n*7919)%size) }) })
		ran.time(func() { sent[1] += during(&requests, func() { bigRun(b, l, next) }) })
		next++
		for range 20 {
			bigRun(b, l, next)
			next++
		}
		compacted.time(func() {
			sent[2] += during(&requests, func() { _, err := l.Compact(b.Context()); check(b, err) })
		})
	}
	hideTime(b)
	b.ReportMetric(imported.Seconds(), "s/import")
	b.ReportMetric(bytesPerRun, "B/run")
	for i, what := range []struct {
		name string
		s    sample
	}{{"did", did}, {"run", ran}, {"compact21", compacted}} {
		b.ReportMetric(float64(what.s.median().Microseconds())/1000, "ms/"+what.name)
		b.ReportMetric(float64(sent[i])/float64(n), "requests/"+what.name)
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	began = time.Now()
	x, err := l.Load(b.Context())
	check(b, err)
	b.ReportMetric(time.Since(began).Seconds(), "s/load")
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(size), "heapB/run")
	if x.Counts.Committed != next {
		b.Errorf("%d runs are committed, want %d", x.Counts.Committed, next)
	}
}

// bigDid asks for a run that happened, and for one that did not.
func bigDid(b *testing.B, l *ledger.Ledger, n int) {
	for _, n := range []int{n, -1 - n} {
		id := occurrence(b, max(n, 0))
		if n < 0 {
			var err error
			id, err = ledger.Named(bigJob, "no such run")
			check(b, err)
		}
		ans, err := l.Did(b.Context(), id)
		check(b, err)
		if ans.Committed != (n >= 0) || ans.Requests > 2 || ans.Bytes > 64<<10 {
			b.Fatalf("%+v", ans)
		}
	}
}

func bigRun(b *testing.B, l *ledger.Ledger, n int) {
	out, err := l.Once(b.Context(), occurrence(b, n), func(context.Context, *ledger.Attempt) (ledger.Result, error) { return ledger.Result{}, nil })
	check(b, err)
	if out.State != ledger.Ran {
		b.Fatalf("%+v", out)
	}
}

// during is how many requests f made.
func during(requests *atomic.Int64, f func()) int64 {
	before := requests.Load()
	f()
	return requests.Load() - before
}

// onDisk is how many bytes the files below dir have.
func onDisk(b *testing.B, dir string) (n int64) {
	check(b, filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			n += info.Size()
		}
		return err
	}))
	return n
}
