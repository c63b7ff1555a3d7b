package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/clock"
)

// inCache is the environment of a process without a runtime folder, such as a cron
// job: its private folder is in the cache.
var inCache = []string{"XDG_RUNTIME_DIR="}

// An agent is asked by its store's URL, and the store only if nobody answers there:
// it is most wanted when the store is not there. The store's name leads to it, too.
//
// SPEC UI1
func TestAgentStatusWithoutItsStore(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "file")
	p.agent(nil, "--node", "n1", "--ttl", "30s")
	alias, err := filepath.Glob(p.path("run/tenure/url-*.sock"))
	if err != nil || len(alias) != 1 {
		t.Fatalf("the other names of the socket are %v (%v)", alias, err)
	}
	p.startWith([]string{"TENURE_STORE=file:" + p.path("store") + "?namespace=other"}, "tenure", "agent", "status").want(exitUnavailable, "there is no agent at ")
	if err := os.Symlink(p.path("store"), p.path("same")); err != nil {
		t.Fatal(err)
	}
	p.startWith([]string{"TENURE_STORE=file:" + p.path("same")}, "tenure", "agent", "status").want(0, "node     n1, term 1")
	if err := os.Rename(p.path("store"), p.path("away")); err != nil {
		t.Fatal(err)
	}
	p.start("tenure", "agent", "status").want(0, "node     n1, term 1")
	p.startWith([]string{"TENURE_STORE=file:" + p.path("never")}, "tenure", "agent", "status").want(exitUsage, "there is no store at ")
}

// An agent and a run find each other if only one of them has a runtime folder.
//
// SPEC UI1
func TestAgentInTheOtherFolder(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "file")
	a := p.agent(inCache, "--node", "n1", "--ttl", "5s")
	if !strings.Contains(a.output(), p.path(".cache/tenure/agent-")) {
		t.Fatalf("the agent says %s", a.output())
	}
	p.start("tenure", "run", "--session", "--lease", "j", "--", "true").want(0)
	p.start("tenure", "agent", "status").want(0, "node     n1, term 1")
	a.signal(syscall.SIGTERM)
	a.want(0)
	p.start("tenure", "run", "-v", "--lease", "j", "--", "true").want(0, "there is no agent at "+p.path("run/tenure/agent-"), ", nor at "+p.path(".cache/tenure/agent-"), "takes a lease of its own")
	p.start("tenure", "run", "--session", "--lease", "j", "--", "true").want(exitUnavailable, "tenure: next: start `tenure agent`, or leave --session away")
}

// An agent that is started before its store is there waits for it, and for its name,
// for as long as it may.
//
// SPEC ST13 UI1
func TestAgentWaitsAtItsStart(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "file")
	env := []string{"TENURE_STORE=" + cutURL(p.url, p.path("cut"))}
	p.startWith(env, "tenure", "run", "--lease", "j", "--", "true").want(0)
	p.touch("cut")
	p.startWith(env, "tenure", "agent", "--node", "n1", "--ttl", "1s", "--wait", "0").want(exitUnavailable)
	p.startWith(env, "tenure", "agent", "--node", "n1", "--ttl", "1s", "--wait", "300ms").want(exitUnavailable, "waited for 300ms")
	a := p.startWith(env, "tenure", "agent", "--node", "n1", "--ttl", "2s")
	eventually(t, a.output, func() bool { return strings.Contains(a.output(), "tenure: warning: waiting for the store: ") })
	p.remove("cut")
	eventually(t, a.output, func() bool { return strings.Contains(a.output(), " socket ") })

	other := append(p.otherHost(), "TENURE_STORE="+p.url)
	p.startWith(other, "tenure", "agent", "--node", "n1", "--wait", "0").want(exitHeld, `node "n1": held by another`)
	p.startWith(other, "tenure", "agent", "--node", "n1", "--wait", "200ms").want(exitHeld, `node "n1": held by another`)
	b := p.startWith(other, "tenure", "agent", "--node", "n1")
	eventually(t, b.output, func() bool { return strings.Contains(b.output(), "waiting: ") })
	b.signal(syscall.SIGTERM)
	b.want(143, "tenure: stopped by signal: terminated: node \"n1\" was not joined\n")

	// An outage is told once, however much meets it.
	for i := range 3 {
		p.startWith(env, "tenure", "run", "--session", "--lease", fmt.Sprint("k", i), "--", "work", "-log", "a", "-until", "go")
	}
	p.await(a, "a", "begin", 3)
	p.touch("cut")
	a.want(exitNotCurrent)
	if n := strings.Count(a.output(), "tenure: warning: 2"); n != 1 {
		t.Errorf("%d warnings in one outage:\n%s", n, a.output())
	}
	p.start("tenure", "agent", "--store", "mem:").want(exitUsage, "a store in memory (mem:) is this process's alone")
}

// An agent whose socket somebody removed makes it anew; a second one is told how it is
// until then.
//
// SPEC UI1
func TestAgentSocketIsMadeAnew(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "file")
	a := p.agent(nil, "--node", "n1", "--ttl", "1s")
	socket := p.agentStatus().Socket
	holder := p.start("tenure", "run", "--session", "--lease", "j", "--", "work", "-log", "a", "-until", "go")
	p.await(holder, "a", "begin", 1)
	// In one step: the agent makes it anew at any instant.
	if err := os.Rename(filepath.Dir(socket), p.path("away")); err != nil {
		t.Fatal(err)
	}
	eventually(t, a.output, func() bool { return strings.Contains(a.output(), "was gone, and is made anew") })
	if j := p.agentStatus(); j.PID != a.cmd.Process.Pid || j.Leases != 1 {
		t.Errorf("the agent's status is %+v", j)
	}
	p.start("tenure", "run", "--session", "--lease", "k", "--", "true").want(0)
	p.touch("go")
	holder.want(0)
	a.signal(syscall.SIGSTOP)
	if err := os.Remove(socket); err != nil {
		t.Fatal(err)
	}
	p.start("tenure", "agent", "--node", "n2").want(exitHeld, fmt.Sprintf("another agent (process %d) runs, but its socket is gone", a.cmd.Process.Pid))
	a.signal(syscall.SIGCONT)
}

// A run that waits by an agent that is stopped takes a lease of its own, or says what
// it waits for if it insists. Nobody hangs on an agent that does not answer.
//
// SPEC ST13 LS9
func TestAgentIsStoppedWhileRunsWait(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "file")
	holder := p.startWith(p.otherHost(), "tenure", "run", "--lease", "j", "--", "work", "-log", "a", "-alone", "lock", "-until", "go")
	p.await(holder, "a", "begin", 1)
	a := p.agent(nil, "--node", "n1", "--ttl", "1s")
	work := []string{"--", "work", "-log", "a", "-alone", "lock", "-for", "1ms"}
	auto := p.start(append([]string{"tenure", "run", "-v", "--lease", "j", "--status-file", "st"}, work...)...)
	insists := p.start(append([]string{"tenure", "run", "--session", "--wait", "12s", "--lease", "j", "--status-file", "st2"}, work...)...)
	eventually(t, auto.output, func() bool { return p.agentStatus().Waiting == 2 })
	a.signal(syscall.SIGSTOP)
	p.start("tenure", "agent", "status").want(exitUnavailable, fmt.Sprintf("(process %d): the agent does not answer within 2s", a.cmd.Process.Pid), "tenure: next: its process is stopped or hangs")
	p.start("tenure", "run", "--session", "--lease", "k", "--", "true").want(exitUnavailable, "the agent does not answer within 2s", "tenure: next: its process is stopped or hangs")
	eventually(t, auto.output, func() bool { return strings.Contains(auto.output(), "this command takes a lease of its own") })
	eventually(t, insists.output, func() bool { return strings.Contains(insists.output(), "does not answer; waiting on") })
	p.touch("go")
	holder.want(0)
	auto.want(0, "has said nothing for its TTL of 1s")
	if st := p.status("st"); st.Node != "" || st.Token != 2 {
		t.Errorf("the status file says %+v", st)
	}
	insists.want(exitHeld, "waited for 12s: the agent does not answer", "nobody else holds the lease (last token ")
	a.signal(syscall.SIGCONT)
	a.want(exitNotCurrent)
	p.start("tenure", "run", "--lease", "j", "--", "true").want(0) // no grant was left behind
	p.alone("a")
}

// supervisorOf is the process that a run started.
func supervisorOf(t *testing.T, g *program) (pid int) {
	t.Helper()
	eventually(t, g.output, func() bool {
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", g.cmd.Process.Pid))
		for _, path := range tasks {
			raw, _ := os.ReadFile(path)
			if n, err := strconv.Atoi(strings.TrimSpace(string(raw))); err == nil {
				pid = n
			}
		}
		return pid > 0
	})
	return pid
}

// A run that was stopped while it was granted its lease does not work under a grant
// that is over: it gives it back, and waits again.
//
// SPEC DL1 LS9
func TestRunIsStoppedWhileItWaits(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "file")
	holder := p.startWith(p.otherHost(), "tenure", "run", "--lease", "j", "--", "work", "-log", "a", "-alone", "lock", "-until", "go")
	p.await(holder, "a", "begin", 1)
	p.agent(nil, "--node", "n1", "--ttl", "1s")
	waiter := p.start("tenure", "run", "--session", "--lease", "j", "--status-file", "st", "--", "work", "-log", "a", "-alone", "lock", "-for", "1ms")
	eventually(t, waiter.output, func() bool { return p.agentStatus().Waiting == 1 })
	supervisor := supervisorOf(t, waiter)
	if err := syscall.Kill(supervisor, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	p.touch("go")
	holder.want(0)
	eventually(t, waiter.output, func() bool { return p.agentStatus().Leases == 1 })
	clk := clock.NewSystem()
	told := clk.Boot()
	eventually(t, waiter.output, func() bool { return clk.Boot() > told+1500*time.Millisecond })
	if err := syscall.Kill(supervisor, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	waiter.want(0)
	if st := p.status("st"); st.Node != "n1" || st.Token != 3 {
		t.Errorf("the status file says %+v", st)
	}
	p.alone("a")
}

// An outage of the store is one line of a log, a line without a cause is not given
// one, and what the agent's last words tell is not told before.
func TestCalmLog(t *testing.T) {
	t.Parallel()
	var stderr strings.Builder
	a := newApp(strings.NewReader(""), discard{}, &stderr, nil)
	log, over := calmLogger(a.logger())
	log = log.With("node", "n1")
	down := fmt.Errorf("down: %w", tenure.ErrUnavailable)
	for range 3 {
		log.Warn("one", "error", down)
		log.Warn("two", "error", down)
	}
	log.Warn("other", "error", errors.New("no outage"))
	log.Warn("none", "error", nil)
	log.Error("session: lost", "node", "n1", "error", errors.New("superseded"))
	log.Error("lease: lost", "lease", "j", "error", errors.New("revoked"))
	over()
	log.Warn("two", "error", down)
	want := []string{"one (node n1): down: ", "other (node n1): no outage", "none (node n1)", "lease: lost (node n1, lease j): revoked", "two (node n1): down: "}
	lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
	if len(lines) != len(want) {
		t.Fatalf("it says\n%s", stderr.String())
	}
	for i, w := range want {
		if !strings.Contains(lines[i], "Z "+w) || strings.Contains(lines[i], "nil") {
			t.Errorf("line %d is %q, not %q", i, lines[i], w)
		}
	}
}
