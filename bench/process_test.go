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
	return p.patient(what, limit)
}

// patient is expect with a limit of its own.
func (p *process) patient(what string, limit time.Duration) []time.Duration {
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

// rounds is how many deaths or changes of hands one benchmark is made of.
const rounds = 100

// BenchmarkKill is how long it takes from the kill -9 of a holder, whose death
// the kernel proves, until the next process holds the lease. The floor is the
// kernel's own time to tell the parent of the death, and the one durable write
// that takes the lease. Target: at most 10 ms.
func BenchmarkKill(b *testing.B) {
	others(b)
	url := filePlace(b)
	st, floor := local(b, url), newFileFloor(b)
	holder := start(b, url)
	holder.order("acquire")
	holder.expect("held")
	for b.Loop() {
		var took, least sample
		for range rounds {
			next := start(b, url)
			next.order("acquire")
			standsInLine(b, st)
			killed, dead := holder.kill()
			took = append(took, next.expect("held")[0]-killed)
			start := machine.Boot()
			floor.write()
			least = append(least, machine.Boot()-start+dead-killed)
			holder = next
		}
		hands(b, took, least)
	}
}

// hands reports how long changes of hands took beside their floor.
func hands(b *testing.B, took, least sample) {
	b.Helper()
	hideTime(b)
	b.ReportMetric(micros(took.median()), "p50-us")
	b.ReportMetric(micros(took.at(1)), "max-us")
	b.ReportMetric(micros(least.median()), "floor-p50-us")
	b.ReportMetric(micros(least.at(1)), "floor-max-us")
	b.ReportMetric(micros(took.median()-least.median()), "beyond-us")
}

// BenchmarkHandOver is how long it takes from the begin of a release in one
// process until another one, which waits, holds the lease. The floor is the two
// durable writes that lie between: one frees, one takes. Target: at most 2 ms
// beyond them.
func BenchmarkHandOver(b *testing.B) {
	for _, p := range places(b) {
		b.Run(p.kind, func(b *testing.B) {
			others(b)
			st, floor := local(b, p.url), p.floor(b)
			holder, waiter := start(b, p.url), start(b, p.url)
			holder.order("acquire")
			holder.expect("held")
			for b.Loop() {
				var took, least sample
				for range rounds {
					waiter.order("acquire")
					standsInLine(b, st)
					least.time(floor)
					holder.order("release")
					released := holder.expect("releasing")[0]
					took = append(took, waiter.expect("held")[0]-released)
					holder.expect("released")
					holder, waiter = waiter, holder
				}
				hands(b, took, least)
			}
		})
	}
}

// BenchmarkFairness lets eight processes take and free one lease as often as
// they can, and reports how often the unluckiest got it in relation to the
// luckiest (target: at least 0.9), the longest time that one waited, and how
// often it changed hands, beside how often the two durable writes that this
// takes can be made.
func BenchmarkFairness(b *testing.B) {
	const processes, window = 8, 5 * time.Second
	for _, p := range places(b) {
		b.Run(p.kind, func(b *testing.B) {
			others(b)
			var all []*process
			for range processes {
				all = append(all, start(b, p.url))
			}
			floor := p.floor(b)
			for b.Loop() {
				least := several(floor)
				grants, longest := loopAll(all, window)
				least = append(least, several(floor)...)
				var sum time.Duration
				for _, n := range grants {
					sum += n
				}
				b.ReportMetric(ratio(grants.at(0), grants.at(1)), "min/max")
				b.ReportMetric(float64(sum)/window.Seconds(), "grants/s")
				b.ReportMetric(1/least.median().Seconds(), "floor-grants/s")
				b.ReportMetric(micros(longest), "longest-wait-us")
			}
			hideTime(b)
		})
	}
}

func several(f func()) (s sample) {
	for range rounds {
		s.time(f)
	}
	return s
}

// loopAll lets all loop for window, and returns how often each got the lease and
// the longest time that one of them waited.
func loopAll(all []*process, window time.Duration) (grants sample, longest time.Duration) {
	from := machine.Boot() + 100*time.Millisecond
	for _, p := range all {
		p.order("loop %d %d", from, from+window)
	}
	for _, p := range all {
		got := p.expect("looped")
		grants, longest = append(grants, got[0]), max(longest, got[1])
	}
	return grants, longest
}
