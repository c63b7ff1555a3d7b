package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-project/tenure/ledger"
)

// showFull plays TestOnceOnFiveHosts as long as people are told that it can be played:
// 60 occurrences, one each second.
var showFull = flag.Bool("show", false, "play TestOnceOnFiveHosts in full: 60 occurrences of one second")

// show is five hosts that have the same job in their crontab, while somebody kills and
// stops processes of tenure.
type show struct {
	p     *place
	every time.Duration
	n     int // occurrences
	ttl   string
	over  chan struct{}
	kills int
}

// Five hosts run a job with tenure once, while processes of tenure are killed and
// stopped at random. No occurrence happens twice. Each one that is recorded as done
// happened; each other is listed, as failed or as unknown, for a person to settle.
//
// SPEC EX4 EX5 EX6 UI1
// CASE B13 B34
func TestOnceOnFiveHosts(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"file", "sqlite"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			s := &show{p: newPlace(t, scheme), every: 200 * time.Millisecond, n: 40, ttl: "1s", over: make(chan struct{})}
			if *showFull {
				s.every, s.n = time.Second, 60
			}
			s.play()
		})
	}
}

func (s *show) play() {
	t := s.p.t
	first := time.Now().Truncate(s.every).Add(s.every)
	last := first.Add(time.Duration(s.n-1) * s.every)
	var hosts, harm sync.WaitGroup
	for range 5 {
		hosts.Go(func() { s.host(last) })
	}
	harm.Go(s.harm)
	<-time.After(time.Until(last.Add(s.every)))
	close(s.over)
	harm.Wait()
	hosts.Wait()
	lines := s.settle(first, last)
	if s.kills == 0 {
		t.Error("nobody was killed")
	}
	t.Logf("%d occurrences: %v; %d processes were killed or stopped", s.n, lines, s.kills)
}

// once is one call of a host.
func (s *show) once(which ...string) *program {
	args := append([]string{"tenure", "once", "--job", "show", "--ttl", s.ttl, "--quiet"}, which...)
	return s.p.start(append(args, "--", "sh", "-c", `sleep 0.03; echo "$TENURE_AT" >>out; sleep 0.05`)...)
}

// host asks for the present occurrence again and again, as its cron would.
func (s *show) host(last time.Time) {
	for time.Now().Before(last.Add(s.every)) {
		now := time.Now()
		<-s.once("--every", s.every.String()).ended
		<-time.After(time.Until(now.Truncate(s.every).Add(s.every)))
	}
}

// harm kills one process of tenure after the other, or stops it for up to two TTLs.
func (s *show) harm() {
	r := rand.New(rand.NewPCG(rand.Uint64(), 0))
	var asleep sync.WaitGroup
	defer asleep.Wait()
	for {
		select {
		case <-s.over:
			return
		case <-time.After(time.Duration(20+r.IntN(150)) * time.Millisecond):
		}
		pid := s.victim(r)
		if pid == 0 {
			continue
		}
		s.kills++
		if r.IntN(2) == 0 {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			continue
		}
		_ = syscall.Kill(pid, syscall.SIGSTOP)
		length := time.Duration(r.IntN(2000)) * time.Millisecond
		asleep.Go(func() {
			select {
			case <-time.After(length):
			case <-s.over:
			}
			_ = syscall.Kill(pid, syscall.SIGCONT)
		})
	}
}

// victim is a process of tenure: any wrapper or supervisor, or one whose command runs.
func (s *show) victim(r *rand.Rand) int {
	all := s.p.processes()
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	near := r.IntN(2) == 0
	for _, pid := range all {
		switch line := commandLine(pid); {
		case near && strings.HasPrefix(line, "sh\x00"):
			supervisor := parentOf(pid)
			if wrapper := parentOf(supervisor); r.IntN(3) == 0 && isOnce(wrapper) {
				return wrapper
			}
			if isOnce(supervisor) {
				return supervisor
			}
		case !near && isOnce(pid):
			return pid
		}
	}
	return 0
}

func commandLine(pid int) string {
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return string(line)
}

func isOnce(pid int) bool { return strings.HasPrefix(commandLine(pid), "tenure\x00once\x00") }

// parentOf is 0 for a process that is gone.
func parentOf(pid int) (parent int) {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(stat), ") ")
	_, _ = fmt.Sscanf(rest, "%s %d", new(string), &parent)
	return parent
}

// settle asks for every occurrence once more, and compares what happened with what the
// ledger says. It returns how many are in which state.
func (s *show) settle(first, last time.Time) map[string]int {
	t := s.p.t
	before := s.happened()
	codes := map[time.Time]int{}
	for at := first; !at.After(last); at = at.Add(s.every) {
		codes[at] = s.once("--at", instantText(at)).wait()
	}
	after, states := s.happened(), s.states("all")
	count := map[string]int{}
	for at, code := range codes {
		run, err := ledger.Occurrence("show", ledger.DefaultTrigger, at)
		if err != nil {
			t.Fatal(err)
		}
		state, was, is := states[run.ID.String()], before[instantText(at)], after[instantText(at)]
		count[state]++
		ok := false
		switch state {
		case stateCommitted:
			ok = is == 1 && code == 0
		case stateFailed: // it was ended with its wrapper, before or after
			ok = is == was && is <= 1 && code == 0
		case stateUnknown:
			ok = is == was && is <= 1 && code == exitUnknownRun
		}
		if !ok {
			t.Errorf("%s is %q, happened %d and then %d times, and the exit code is %d", instantText(at), state, was, is, code)
		}
	}
	if listed := s.states(stateUnknown); len(listed) < count[stateUnknown] {
		t.Errorf("%d runs are unknown, but these are listed: %v", count[stateUnknown], listed)
	}
	return count
}

// happened counts the effects of each occurrence.
func (s *show) happened() map[string]int {
	n := map[string]int{}
	text, _ := os.ReadFile(s.p.path("out"))
	for line := range strings.Lines(string(text)) {
		n[strings.TrimSpace(line)]++
	}
	return n
}

// states are the runs in a state, as the ledger lists them.
func (s *show) states(of string) map[string]string {
	g := s.p.start("tenure", "ledger", "ls", "--job", "show", "--state", of, "--json")
	g.want(0)
	all := map[string]string{}
	for line := range strings.Lines(g.output()) {
		var j runJSON
		if json.Unmarshal([]byte(line), &j) == nil && j.Run != "" {
			all[j.Run] = j.State
		}
	}
	return all
}
