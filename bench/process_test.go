package bench

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tenure-project/tenure/store"
)

// limit is how long a benchmark waits for anything at all.
const limit = 20 * time.Second

// process is a child and what it says.
type process struct {
	b     *testing.B
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan []string // closed at its end
}

// start starts a child and waits until it has opened the store.
func start(b *testing.B, url string) *process {
	b.Helper()
	p := &process{b: b, cmd: exec.Command(os.Args[0]), lines: make(chan []string, 16)}
	p.cmd.Env = append(os.Environ(), childEnv+"="+url)
	p.cmd.Stderr = os.Stderr
	var err error
	p.in, err = p.cmd.StdinPipe()
	check(b, err)
	out, err := p.cmd.StdoutPipe()
	check(b, err)
	check(b, p.cmd.Start())
	go p.read(out)
	b.Cleanup(p.end)
	p.expect("ready")
	return p
}

func (p *process) read(out io.Reader) {
	defer close(p.lines)
	for s := bufio.NewScanner(out); s.Scan(); {
		p.lines <- strings.Fields(s.Text())
	}
}

// end lets the child release what it holds, or ends it.
func (p *process) end() {
	_ = p.in.Close()
	t := time.AfterFunc(limit, func() { _ = p.cmd.Process.Kill() })
	defer t.Stop()
	for range p.lines { // it says no more
	}
	_ = p.cmd.Wait()
}

func (p *process) order(format string, args ...any) {
	p.b.Helper()
	_, err := fmt.Fprintf(p.in, format+"\n", args...)
	check(p.b, err)
}

// expect reads the next line, which must begin with what, and returns the
// numbers that follow.
func (p *process) expect(what string) []time.Duration {
	p.b.Helper()
	select {
	case line, ok := <-p.lines:
		if !ok || line[0] != what {
			p.b.Fatalf("a child says %q instead of %q", line, what)
		}
		var numbers []time.Duration
		for _, s := range line[1:] {
			n, err := strconv.ParseInt(s, 10, 64)
			check(p.b, err)
			numbers = append(numbers, time.Duration(n))
		}
		return numbers
	case <-time.After(limit):
		p.b.Fatalf("a child does not say %q within %v", what, limit)
	}
	return nil
}

// kill kills the child and returns when that began and when the kernel said
// that it was dead.
func (p *process) kill() (from, dead time.Duration) {
	p.b.Helper()
	from = machine.Boot()
	check(p.b, p.cmd.Process.Kill())
	_, err := p.cmd.Process.Wait()
	check(p.b, err)
	return from, machine.Boot()
}

// standsInLine waits until somebody waits for the lease. Nothing tells it, so it
// polls, and then gives the waiter a moment to go to sleep.
func standsInLine(b *testing.B, q store.Queuer) {
	b.Helper()
	for end := time.Now().Add(limit); ; time.Sleep(time.Millisecond) {
		there, err := q.Waiting(b.Context(), store.Key("default", "lease", "job"))
		if err == nil && there {
			break
		}
		if time.Now().After(end) {
			b.Fatalf("nobody stands in line within %v (%v)", limit, err)
		}
	}
	time.Sleep(20 * time.Millisecond)
}

// BenchmarkKill is how long it takes from the kill -9 of a holder, whose death
// the kernel proves, until the next process holds the lease. The floor is the
// kernel's own time to tell the parent of the death. Target: at most 10 ms.
func BenchmarkKill(b *testing.B) {
	others(b)
	url := urls(b)["File"]
	st := local(b, url)
	holder := start(b, url)
	holder.order("acquire")
	holder.expect("held")
	var took, death sample
	for b.Loop() {
		next := start(b, url)
		next.order("acquire")
		standsInLine(b, st)
		killed, dead := holder.kill()
		took = append(took, next.expect("held")[0]-killed)
		death = append(death, dead-killed)
		holder = next
	}
	hideTime(b)
	b.ReportMetric(micros(took.median()), "p50-us")
	b.ReportMetric(micros(took.at(0.99)), "p99-us")
	b.ReportMetric(micros(death.median()), "death-p50-us")
	b.ReportMetric(micros(death.at(0.99)), "death-p99-us")
}

// BenchmarkHandOver is how long it takes from the begin of a release in one
// process until another one, which waits, holds the lease. The floor is the two
// durable writes that lie between: one frees, one takes. Target: at most 2 ms
// beyond them.
func BenchmarkHandOver(b *testing.B) {
	for name, url := range urls(b) {
		b.Run(name, func(b *testing.B) {
			others(b)
			st := local(b, url)
			floor := newFileFloor(b).twice
			if name == "SQLite" {
				floor = newSQLFloor(b).twice
			}
			holder, waiter := start(b, url), start(b, url)
			holder.order("acquire")
			holder.expect("held")
			var took, least sample
			for b.Loop() {
				waiter.order("acquire")
				standsInLine(b, st)
				least.time(floor)
				holder.order("release")
				released := holder.expect("releasing")[0]
				took = append(took, waiter.expect("held")[0]-released)
				holder.expect("released")
				holder, waiter = waiter, holder
			}
			compare(b, took, least)
			b.ReportMetric(micros(took.median()-least.median()), "beyond-us")
		})
	}
}

// BenchmarkFairness lets eight processes take and free one lease as often as
// they can, and reports how often the unluckiest got it in relation to the
// luckiest. Target: at least 0.9.
func BenchmarkFairness(b *testing.B) {
	const processes, window = 8, 5 * time.Second
	for name, url := range urls(b) {
		b.Run(name, func(b *testing.B) {
			others(b)
			var all []*process
			for range processes {
				all = append(all, start(b, url))
			}
			for b.Loop() {
				from := machine.Boot() + 100*time.Millisecond
				for _, p := range all {
					p.order("loop %d %d", from, from+window)
				}
				least, most, sum, longest := time.Duration(1<<62), time.Duration(0), time.Duration(0), time.Duration(0)
				for _, p := range all {
					got := p.expect("looped")
					b.Log(got)
					least, most, sum, longest = min(least, got[0]), max(most, got[0]), sum+got[0], max(longest, got[1])
				}
				b.ReportMetric(ratio(least, most), "min/max")
				b.ReportMetric(float64(sum)/window.Seconds(), "grants/s")
				b.ReportMetric(micros(longest), "longest-wait-us")
			}
			hideTime(b)
		})
	}
}
