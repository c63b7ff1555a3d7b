package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// onceHarm is something that happens to the host of a run, and what the ledger says of
// the run then.
type onceHarm struct {
	harm
	attempt string // the state of the first attempt, once the next one is over
}

func onceHarms() []onceHarm {
	all := []onceHarm{{attempt: "failed", harm: harm{name: "stolen", ttl: "5s", code: exitNotCurrent, ends: []string{"lost"},
		do: func(p *place, _ *program, w workEvent) {
			p.start("tenure", "steal", "once/j", "--token", fmt.Sprint(w.Token), "--reason", "test", "--by", "op").want(0)
		}}}}
	for _, h := range harms {
		switch h.name {
		case "cut off", "stolen":
		case "supervisor killed", "supervisor stopped":
			all = append(all, onceHarm{h, "abandoned"})
		default:
			all = append(all, onceHarm{h, "failed"})
		}
	}
	return all
}

// Whatever happens to the host of a run whose command ignores every signal, the next
// attempt begins when nothing of the first is left, with a higher epoch. The ledger says
// what became of the first, or that it was given up.
//
// SPEC EX4 UI1
// CASE B07 B13 B29 B72
func TestNextAttemptBeginsAfterTheFirstIsGone(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"file", "sqlite"} {
		for _, h := range onceHarms() {
			t.Run(h.name+" on "+scheme, func(t *testing.T) {
				t.Parallel()
				p := newPlace(t, scheme)
				holder := p.start("tenure", "once", "--job", "j", "--run-id", "r", "--ttl", h.ttl, "--grace", "300ms", "--status-file", "st", "--",
					"work", "-log", "a", "-alone", "lock", "-term", "ignore", "-detach")
				worker := p.await(holder, "a", "begin", 1)
				rival := p.start("tenure", "once", "--job", "j", "--run-id", "r", "--unknown", "retry", "--attempts", "2", "--", "work", "-log", "a", "-alone", "lock", "-for", "50ms")
				h.do(p, holder, worker)
				rival.want(0)
				holder.want(h.code)
				p.alone("a")
				if n := p.count("a", "begin"); n != 2 {
					t.Errorf("%d workers began", n)
				}
				if st := p.status("st"); !slices.Contains(h.ends, st.End) || st.Job != "j" || st.Lease != "once/j" || st.Attempt != 1 || len(st.Run) != 64 {
					t.Errorf("the status file says %+v", st)
				}
				p.run("j", "r", "committed", h.attempt, "committed")
			})
		}
	}
}

// run wants a run's state and those of its attempts. An older attempt that merely failed
// is forgotten.
func (p *place) run(job, run, state string, attempts ...string) runJSON {
	p.t.Helper()
	g := p.start("tenure", "ledger", "show", job, run, "--json")
	g.want(0)
	var j runJSON
	if err := json.Unmarshal([]byte(g.output()), &j); err != nil {
		p.t.Fatalf("%v: %s", err, g.output())
	}
	var got []string
	for _, at := range j.Attempts {
		got = append(got, at.State)
	}
	for len(attempts) > len(got) && attempts[0] == "failed" {
		attempts = attempts[1:]
	}
	if j.State != state || !slices.Equal(got, attempts) {
		p.t.Errorf("run %s of job %s is %s with attempts %v, want %s with %v", run, job, j.State, got, state, attempts)
	}
	return j
}

// A signal reaches the command, whose exit code counts: the run failed. One that comes
// while another host is waited for leaves nothing behind.
//
// SPEC EX4 UI1
// CASE B72
func TestSignalsOfOnce(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "file")
	holder := p.start("tenure", "once", "--job", "j", "--run-id", "r", "--", "work", "-log", "a", "-term", "10ms", "-code", "9")
	p.await(holder, "a", "begin", 1)
	waiter := p.start("tenure", "once", "-v", "--job", "j", "--run-id", "s", "--", "work", "-log", "a")
	eventually(t, waiter.output, func() bool { return strings.Contains(waiter.output(), "waiting: ") })
	waiter.signal(syscall.SIGTERM)
	waiter.want(143, "stopped by signal: SIGTERM, before the command was started")
	holder.signal(syscall.SIGINT)
	holder.want(9)
	p.run("j", "r", "failed", "failed")
	p.start("tenure", "ledger", "show", "j", "s").want(exitUsage, "the ledger has nothing of it")
}

// A command whose record the store does not take is told from one that is recorded: the
// run is unknown, and the exit code says so. Who is in a hurry does not wait for the
// store.
//
// SPEC EX4 UI1
// CASE B13 B73
func TestRecordThatDoesNotCome(t *testing.T) {
	t.Parallel()
	for _, own := range []int{0, 5} {
		t.Run(fmt.Sprint(own), func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, "file")
			holder := p.startWith([]string{"TENURE_STORE=" + cutURL(p.url, p.path("cut"))}, "tenure", "once", "--job", "j", "--run-id", "r", "--ttl", "2m", "--status-file", "st", "--",
				"work", "-log", "a", "-term", "1ms", "-code", fmt.Sprint(own))
			p.await(holder, "a", "begin", 1)
			p.touch("cut")
			holder.signal(syscall.SIGTERM)
			p.await(holder, "a", "end", 1)
			<-time.After(300 * time.Millisecond) // closer together the two would be one request
			holder.signal(syscall.SIGTERM)
			code := own
			if code == 0 {
				code = exitUnconfirmed
			}
			holder.want(code, "what became of attempt 1 is not recorded, so the run is unknown: the end was asked for again", "tenure ledger settle j ")
			if st := p.status("st"); st.Outcome != "unsettled" || st.End != "exited" || st.Code != code || *st.CommandCode != own {
				t.Errorf("the status file says %+v", st)
			}
			p.run("j", "r", "running", "open")
			p.start("tenure", "ledger", "settle", "j", "r", "--attempt", "1", "--as", "committed", "--reason", "looked", "--wait", "0").want(exitHeld, "is running")
			p.start("tenure", "ledger", "settle", "j", "r", "--attempt", "1", "--as", "committed", "--reason", "looked", "--vouch").want(0)
			p.run("j", "r", "committed", "committed")
		})
	}
}

// A store that cannot be opened ends a limited wait in time.
//
// SPEC ST13 UI1
// CASE B73
func TestOnceWaitsForAStore(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "file")
	p.touch("cut")
	env := []string{"TENURE_STORE=" + cutURL(p.url, p.path("cut"))}
	p.startWith(env, "tenure", "once", "--job", "j", "--run-id", "r", "--wait", "300ms", "--", "work", "-log", "a").want(exitUnavailable, "waited for 300ms")
	if n := len(p.events("a")); n > 0 {
		t.Errorf("the command ran: %v", p.events("a"))
	}
}

// A second signal to a schedule reaches what runs; the scheduler waits for its end.
// Occurrences that came while one ran are passed over, all but the latest.
//
// SPEC UI1
func TestScheduleEnds(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "file")
	p.write("jobs", "@every 100ms j --ttl 2s --grace 100ms -- work -log a -alone lock -until go -term 10ms -code 7\n")
	s := p.start("tenure", "schedule", "jobs")
	p.await(s, "a", "begin", 1)
	<-time.After(400 * time.Millisecond) // four occurrences
	p.touch("go")
	p.await(s, "a", "begin", 2)
	p.remove("go")
	n := p.count("a", "begin")
	p.await(s, "a", "begin", n)
	s.signal(syscall.SIGTERM)
	eventually(t, s.output, func() bool {
		return strings.Contains(s.output(), "nothing more is started") || !alive(s.cmd.Process.Pid)
	})
	s.signal(syscall.SIGTERM)
	s.want(0, "job j: from ", "occurrences were passed over")
	p.alone("a")
	if left := p.processes(); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// A killed scheduler leaves what runs to itself: it comes to its end, and is recorded.
//
// SPEC UI1 EX4
func TestKilledSchedulerLeavesItsJobsAlone(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "file")
	p.write("jobs", "@every 219000h j -- work -log a -until go\n")
	s := p.start("tenure", "schedule", "jobs")
	p.await(s, "a", "begin", 1)
	s.signal(syscall.SIGKILL)
	eventually(t, s.output, func() bool { return !alive(s.cmd.Process.Pid) })
	p.touch("go")
	p.start("tenure", "once", "--job", "j", "--every", "219000h", "--", "work", "-log", "a").want(0, "done already")
	if p.count("a", "begin") != 1 || p.count("a", "end") != 1 {
		t.Errorf("the job did not run through once: %v", p.events("a"))
	}
}

// Schedules of several hosts share the work: each occurrence is done once.
//
// SPEC EX4 EX5 EX6
// CASE B34
func TestSchedulesShareTheWork(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"file", "sqlite"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, scheme)
			p.write("jobs", "@every 500ms j --ttl 5s -- echo \"$TENURE_AT\" >>out\n")
			var hosts []*program
			for range 3 {
				hosts = append(hosts, p.start("tenure", "schedule", "jobs"))
			}
			lines := func() []string {
				text, _ := os.ReadFile(p.path("out"))
				return strings.Fields(string(text))
			}
			eventually(t, func() string { return fmt.Sprint(lines()) }, func() bool { return len(lines()) >= 5 })
			for _, h := range hosts {
				h.signal(syscall.SIGTERM)
				h.want(0)
			}
			done := lines()
			slices.Sort(done)
			if once := slices.Compact(slices.Clone(done)); len(once) != len(done) {
				t.Errorf("an occurrence was done twice: %v", done)
			}
			p.start("tenure", "ledger", "ls", "--job", "j", "--json").want(0, fmt.Sprintf(`"committed":%d,"repeated":0,"failed":0,"running":0,"unknown":0`, len(done)))
		})
	}
}

// An occurrence that the store stood in the way of is tried again while it is due.
//
// SPEC UI1
func TestScheduleTriesAgain(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "file")
	p.touch("cut")
	p.write("jobs", "@every 219000h j --wait 300ms -- work -log a -for 10ms\n")
	s := p.startWith([]string{"TENURE_STORE=" + cutURL(p.url, p.path("cut"))}, "tenure", "schedule", "jobs")
	eventually(t, s.output, func() bool { return strings.Contains(s.output(), "waited for 300ms") })
	p.remove("cut")
	p.await(s, "a", "begin", 1)
	s.signal(syscall.SIGINT)
	s.want(0)
}
