package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-project/tenure/internal/clock"
)

// agent starts an agent and waits until it is ready.
func (p *place) agent(env []string, args ...string) *program {
	p.t.Helper()
	g := p.startWith(env, append([]string{"tenure", "agent"}, args...)...)
	eventually(p.t, g.output, func() bool { return strings.Contains(g.output(), " socket ") })
	return g
}

// otherHost is the environment of a process on another host: it finds no agent of
// this one.
func (p *place) otherHost() []string {
	p.t.Helper()
	dir := p.path("run2")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		p.t.Fatal(err)
	}
	return []string{"XDG_RUNTIME_DIR=" + dir}
}

// agentStatus asks the agent.
func (p *place) agentStatus() (j agentJSON) {
	p.t.Helper()
	g := p.start("tenure", "agent", "status", "--json")
	g.want(0)
	if err := json.Unmarshal([]byte(g.output()), &j); err != nil {
		p.t.Fatalf("%v: %s", err, g.output())
	}
	return j
}

// writes counts how often each record of a kind was written: the store of files
// numbers the states of a record.
func (p *place) writes(kind string) map[string]int {
	p.t.Helper()
	files, err := filepath.Glob(p.path("store/default/" + kind + "/*/*"))
	if err != nil {
		p.t.Fatal(err)
	}
	found := map[string]int{}
	for _, f := range files {
		if n, err := strconv.Atoi(filepath.Base(f)); err == nil {
			name := filepath.Base(filepath.Dir(f))
			found[name] = max(found[name], n)
		}
	}
	return found
}

// Twenty commands under one agent cost one renewal per interval. Their records are
// written when they are acquired and when they are released, and not in between.
//
// SPEC LS8 UI1
func TestAgentRenewsOnceForMany(t *testing.T) {
	t.Parallel()
	const many, ttl = 20, 5 * time.Second
	p := newPlace(t, "file")
	a := p.agent(nil, "--node", "n1", "--ttl", ttl.String())
	var runs []*program
	for i := range many {
		runs = append(runs, p.start("tenure", "run", "--session", "--lease", fmt.Sprintf("j%d", i), "--", "work", "-log", "a", "-until", "go"))
	}
	p.await(runs[0], "a", "begin", many)
	clk := clock.NewSystem()
	began, leases, before := clk.Boot(), p.writes("lease"), p.writes("identity")["n1.d"]
	eventually(t, a.output, func() bool { return p.writes("identity")["n1.d"] >= before+3 })
	after, passed := p.writes("identity")["n1.d"], clk.Boot()-began
	if most := int(passed/(ttl/5*7/8)) + 1; after-before > most {
		t.Errorf("%d renewals in %v", after-before, passed)
	}
	if now := p.writes("lease"); len(now) != many || !reflect.DeepEqual(now, leases) {
		t.Errorf("the leases were written: %v, before %v", now, leases)
	}
	for name, n := range leases {
		if n != 1 {
			t.Errorf("%s was written %d times", name, n)
		}
	}
	if j := p.agentStatus(); j.Leases != many || j.Node != "n1" || j.Term != 1 || !j.Healthy || j.PID != a.cmd.Process.Pid || j.TTLMS != ttl.Milliseconds() || j.Lapsing+j.Stuck+j.Waiting != 0 {
		t.Errorf("the agent's status is %+v", j)
	}
	// Its death must prove nothing of its commands.
	p.start("tenure", "node", "status", "n1", "--json").want(0, `"proof":""`)
	p.touch("go")
	for _, g := range runs {
		g.want(0)
	}
	if j := p.agentStatus(); j.Leases != 0 {
		t.Errorf("the agent's status is %+v", j)
	}
	a.signal(syscall.SIGTERM)
	a.want(0)
	p.start("tenure", "agent", "status").want(exitUnavailable, "there is no agent at "+p.path("run/tenure/agent-"), "tenure: next: start `tenure agent` for this store and namespace")
}

// What a command under an agent finds is what every command finds, and the session.
//
// SPEC UI1 LS8
func TestAgentCommandsEnvironment(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "sqlite")
	p.agent(nil, "--node", "n1", "--ttl", "5s")
	run := p.start("tenure", "run", "--session", "--lease", "j", "--guard", "data", "--status-file", "st", "--", "sh", "-c",
		`echo "<$TENURE_LEASE $TENURE_TOKEN $TENURE_NODE $TENURE_TERM>"; grep token= "$TENURE_DEADLINE_FILE"; tenure check && echo current
		tenure guard data -- echo inside; tenure release; echo "release $?"; tenure run --lease j -- true; echo "again $?"
		tenure run --session=never --lease k -- sh -c 'echo "own <$TENURE_NODE$TENURE_TERM>"'; exit 3`)
	run.want(3, "<j 1 n1 1>", "token=1", "current", "inside", "which alone releases it", "release 64", "would wait for itself", "again 75", "own <>")
	if st := p.status("st"); st.Node != "n1" || st.Term != 1 || st.Token != 1 || st.End != "exited" || st.Code != 3 || st.Owner == "" {
		t.Errorf("the status file says %+v", st)
	}
	p.start("tenure", "status", "j").want(0, "free: the first to acquire it gets it at once")
	p.start("tenure", "run", "--session", "--lease", "j", "--guard", "data", "--", "no-such-command").want(127)
	p.start("tenure", "guard", "data", "--lease", "j", "--token", "9", "--", "true").want(0)
	p.start("tenure", "run", "--session", "--lease", "j", "--guard", "data", "--", "true").want(exitFenced)
	p.start("tenure", "status", "j").want(0, "free: the first to acquire it gets it at once")
}

// agentHarms happen to an agent or to a run under it whose command ignores TERM and
// has left a child behind.
var agentHarms = []struct {
	name  string
	do    func(p *place, agent *program, w workEvent)
	agent int // the agent's exit code; 0: it goes on
	says  string
}{
	{"agent killed", func(_ *place, a *program, _ workEvent) { a.signal(syscall.SIGKILL) }, kill9, `the agent of node "n1" is gone`},
	{"agent stopped", func(_ *place, a *program, _ workEvent) { a.signal(syscall.SIGSTOP) }, exitNotCurrent, "the command was ended"},
	{"agent cut off", func(p *place, _ *program, _ workEvent) { p.touch("cut") }, exitNotCurrent, "the command was ended"},
	{"supervisor killed", func(_ *place, _ *program, w workEvent) { _ = syscall.Kill(w.Parent, syscall.SIGKILL) }, 0, "died; the command was ended; the agent of node n1 frees the lease once that is certain"},
	{"supervisor stopped", func(_ *place, _ *program, w workEvent) { _ = syscall.Kill(w.Parent, syscall.SIGSTOP) }, 0, "does not answer; the command was ended; the agent of node n1 frees the lease once that is certain"},
	{"lease stolen", func(p *place, _ *program, w workEvent) {
		p.start("tenure", "steal", "j", "--token", fmt.Sprint(w.Token), "--reason", "test", "--by", "op").want(0)
	}, 0, "an operator revoked it"},
	{"node forced", func(p *place, _ *program, _ workEvent) {
		p.start("tenure", "node", "force", "n1", "--incarnation", p.agentStatus().Incarnation, "--term", "1", "--reason", "test", "--by", "op").want(0)
	}, exitNotCurrent, "the command was ended"},
}

// Whatever happens to an agent, or to a run under it, the next holder begins when
// nothing of the last one's command is left, and it does begin. The next holder is
// on another host, under an agent there.
//
// SPEC UI1 LS8 LS11
// CASE B05 B07 B29
func TestAgentOverlapIsZero(t *testing.T) {
	t.Parallel()
	for _, h := range agentHarms {
		t.Run(h.name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, "file")
			a := p.agent([]string{"TENURE_STORE=" + cutURL(p.url, p.path("cut"))}, "--node", "n1", "--ttl", "4s")
			other := p.otherHost()
			p.agent(other, "--node", "n2", "--ttl", "30s")
			holder := p.start("tenure", "run", "--session", "--lease", "j", "--grace", "300ms", "--status-file", "st", "--",
				"work", "-log", "a", "-alone", "lock", "-term", "ignore", "-detach")
			w := p.await(holder, "a", "begin", 1)
			rival := p.startWith(other, "tenure", "run", "--session", "--lease", "j", "--status-file", "st2", "--",
				"work", "-log", "a", "-alone", "lock", "-for", "50ms", "-code", "5")
			h.do(p, a, w)
			rival.want(5)
			holder.want(exitNotCurrent)
			p.alone("a")
			if st := p.status("st2"); st.Node != "n2" || st.Token < 2 {
				t.Errorf("the rival's status file says %+v", st)
			}
			if st := p.status("st"); st.Node != "n1" || st.Term != 1 || st.Token != w.Token || st.Owner == "" {
				t.Errorf("the holder's status file says %+v", st)
			}
			if !strings.Contains(holder.output(), h.says) {
				t.Errorf("%q is missing in what the holder said:\n%s", h.says, holder.output())
			}
			if h.agent == 0 {
				p.start("tenure", "run", "--session", "--lease", "j", "--", "true").want(0)
				a.signal(syscall.SIGTERM)
			}
			_ = a.cmd.Process.Signal(syscall.SIGCONT)
			a.want(h.agent)
		})
	}
}

// A steal under an agent ends that one command.
//
// SPEC LS11
func TestAgentStealEndsOneCommand(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "file")
	p.agent(nil, "--node", "n1", "--ttl", "3s")
	one := p.start("tenure", "run", "--session", "--lease", "j", "--", "work", "-log", "a", "-term", "1ms")
	two := p.start("tenure", "run", "--session", "--lease", "k", "--", "work", "-log", "b", "-until", "go", "-code", "4")
	w := p.await(one, "a", "begin", 1)
	p.await(two, "b", "begin", 1)
	p.start("tenure", "steal", "j", "--token", fmt.Sprint(w.Token), "--reason", "test").want(0)
	one.want(exitNotCurrent, "an operator revoked it")
	p.touch("go")
	two.want(4)
	if n := p.count("b", "term"); n != 0 {
		t.Error("the other command was ended, too")
	}
}

// A drain ends every command, releases each lease when its command has ended, and
// then the name. Nobody waits for a TTL, which is far above this test's patience.
//
// SPEC PL8 LS6 UI1
func TestAgentDrains(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "file")
	a := p.agent(nil, "--node", "n1", "--ttl", "5m", "--drain-limit", "2m")
	var holders, rivals []*program
	for _, lease := range []string{"j", "k"} {
		g := p.start("tenure", "run", "--session", "--lease", lease, "--", "work", "-log", lease, "-alone", "lock-"+lease, "-term", "700ms")
		p.await(g, lease, "begin", 1)
		holders = append(holders, g)
		rivals = append(rivals, p.startWith(p.otherHost(), "tenure", "run", "--lease", lease, "--status-file", "st-"+lease, "--",
			"work", "-log", lease, "-alone", "lock-"+lease, "-for", "1ms"))
	}
	a.signal(syscall.SIGTERM)
	a.want(0)
	for i, lease := range []string{"j", "k"} {
		holders[i].want(exitNotCurrent, `the agent of node "n1" drains`)
		rivals[i].want(0)
		p.alone(lease)
		if n := p.count(lease, "end"); n != 2 {
			t.Errorf("%d of 2 workers of %s came to their end", n, lease)
		}
		if st := p.status("st-" + lease); st.Node != "" {
			t.Errorf("the rival used an agent: %+v", st)
		}
	}
	next := p.agent(nil, "--node", "n1", "--ttl", "5m")
	if !strings.Contains(next.output(), "node n1 term 2 ") {
		t.Errorf("the next agent says %s", next.output())
	}
}

// A run of which nobody acts any more keeps its lease while it is there. An agent
// that drains waits for it, and a second signal ends the agent at once; the run ends
// when it goes on.
//
// SPEC UI1 LS6
func TestAgentAndAStoppedRun(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "file")
	a := p.agent(nil, "--node", "n1", "--ttl", "3s", "--drain-limit", "5m")
	holder := p.start("tenure", "run", "--session", "--lease", "j", "--", "work", "-log", "a", "-term", "1ms")
	w := p.await(holder, "a", "begin", 1)
	// The supervisor first: a wrapper that goes on would end it.
	for _, pid := range []int{w.Parent, holder.cmd.Process.Pid} {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	rival := p.startWith(p.otherHost(), "tenure", "run", "--lease", "j", "--wait", "5s", "--", "true")
	rival.want(exitHeld, "n1")
	a.signal(syscall.SIGTERM)
	eventually(t, a.output, func() bool { return p.agentStatus().Draining })
	a.signal(syscall.SIGTERM)
	a.want(128 + int(syscall.SIGTERM))
	for _, pid := range []int{w.Parent, holder.cmd.Process.Pid} {
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
	holder.want(exitNotCurrent)
	if left := p.processes(); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// A second agent is refused; one that takes the place of a dead one is a new term.
//
// SPEC PL9 UI1
func TestAgentAfterAnother(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "file")
	a := p.agent(nil, "--node", "n1", "--ttl", "2s")
	p.start("tenure", "agent", "--node", "n2").want(exitHeld, fmt.Sprintf("another agent (process %d) listens there", a.cmd.Process.Pid))
	holder := p.start("tenure", "run", "--session", "--lease", "j", "--", "work", "-log", "a", "-term", "1ms")
	p.await(holder, "a", "begin", 1)
	a.signal(syscall.SIGKILL)
	a.want(kill9)
	p.start("tenure", "run", "--session", "--lease", "k", "--", "true").want(exitUnavailable, "there is no agent at ")
	b := p.agent(nil, "--node", "n1", "--ttl", "2s")
	if !strings.Contains(b.output(), "waiting: node \"n1\": held by another") || !strings.Contains(b.output(), "node n1 term 2 ") {
		t.Errorf("the second agent says %s", b.output())
	}
	holder.want(exitNotCurrent)
	p.start("tenure", "run", "--session", "--lease", "j", "--status-file", "st", "--", "true").want(0)
	if st := p.status("st"); st.Term != 2 || st.Token != 2 {
		t.Errorf("the status file says %+v", st)
	}
}

// A run uses an agent that fits, and says why not otherwise.
//
// SPEC UI1
func TestWhichAgent(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "file")
	p.agent(nil, "--node", "n1", "--ttl", "4s", "--namespace", "other")
	p.start("tenure", "run", "--session", "--lease", "j", "--", "true").want(exitUnavailable, "there is no agent")
	p.agent(nil, "--node", "n1", "--ttl", "4s")
	for _, c := range []struct {
		args []string
		code int
		node string
		text string
	}{
		{nil, 0, "n1", ""},
		{[]string{"--session"}, 0, "n1", ""},
		{[]string{"--session=never"}, 0, "", ""},
		{[]string{"--ttl", "4s", "--session"}, 0, "n1", ""},
		{[]string{"--ttl", "9s", "-v"}, 0, "", "its TTL is 4s, not 9s: leave --ttl away, or give --session=never; this command takes a lease of its own"},
		{[]string{"--ttl", "9s", "--session"}, exitUsage, "", "its TTL is 4s, not 9s"},
		{[]string{"--grace", "3s", "-v"}, 0, "", "--grace 3s does not fit a TTL of 4s"},
		{[]string{"--grace", "3s", "--session"}, exitUsage, "", "--grace 3s does not fit a TTL of 4s: give less than 1.466666668s, or --session=never\n"},
		{[]string{"--session=perhaps"}, exitUsage, "", "give auto, always or never"},
		{[]string{"--store", "file:" + p.path("store")}, 0, "n1", ""},
		{[]string{"--store", "file:" + p.path("store3"), "-v"}, 0, "", "no agent's session can be used: there is no agent at " + p.path("run/tenure/agent-")},
		{[]string{"-v"}, 0, "n1", "tenure: the agent of node n1, term 1, at " + p.path("run/tenure/agent-")},
	} {
		g := p.start(append(append([]string{"tenure", "run", "--lease", "j", "--status-file", "st"}, c.args...), "--", "true")...)
		g.want(c.code, c.text)
		if st := p.status("st"); st.Node != c.node {
			t.Errorf("%v: the node is %q, not %q; it said %s", c.args, st.Node, c.node, g.output())
		}
	}
	// A socket of its own, and an agent of another store under the same identity.
	env := []string{envAgentSocket + "=" + p.path("run/own.sock")}
	p.agent(env, "--node", "n3", "--ttl", "4s")
	p.startWith(env, "tenure", "run", "--session", "--lease", "j", "--status-file", "st", "--", "true").want(0)
	if st := p.status("st"); st.Node != "n3" {
		t.Errorf("the status file says %+v", st)
	}
	p.startWith(env, "tenure", "run", "--session", "--lease", "j", "--store", "file:"+p.path("store3"), "--", "true").want(exitUsage, "it keeps leases of the namespace \"default\" in file:")
	p.startWith(env, "tenure", "agent", "status").want(0, "node     n3, term 1")
	if err := os.Rename(p.path("store"), p.path("store4")); err != nil {
		t.Fatal(err)
	}
	env = append(env, p.otherHost()...) // which remembers nothing of that node
	p.startWith(env, "tenure", "run", "--session", "--lease", "j", "--", "true").want(exitUsage, "this store knows nothing of its node \"n3\" in term 1")
}

// A run that waits for its lease by an agent goes on without it if that dies.
//
// SPEC LS9
func TestAgentDiesWhileARunWaits(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "file")
	holder := p.startWith(p.otherHost(), "tenure", "run", "--lease", "j", "--", "work", "-log", "a", "-alone", "lock", "-until", "go")
	p.await(holder, "a", "begin", 1)
	a := p.agent(nil, "--node", "n1", "--ttl", "3s")
	waiter := p.start("tenure", "run", "--lease", "j", "--status-file", "st", "--", "work", "-log", "a", "-alone", "lock", "-for", "1ms")
	eventually(t, waiter.output, func() bool { return p.agentStatus().Waiting == 1 })
	a.signal(syscall.SIGKILL)
	a.want(kill9)
	eventually(t, waiter.output, func() bool { _, err := os.Stat(p.path("store")); return err == nil })
	p.touch("go")
	waiter.want(0)
	holder.want(0)
	p.alone("a")
	if st := p.status("st"); st.Node != "" || st.Token != 2 {
		t.Errorf("the status file says %+v", st)
	}
}

// A signal ends a run that waits by an agent, and a limit does too; neither leaves
// anything behind.
//
// SPEC UI1 LS9
// CASE B72
func TestWaitingByAnAgentEnds(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "file")
	p.agent(nil, "--node", "n1", "--ttl", "5m")
	holder := p.start("tenure", "run", "--session", "--lease", "j", "--note", "mine", "--", "work", "-log", "a", "-alone", "lock", "-until", "go")
	p.await(holder, "a", "begin", 1)
	p.start("tenure", "run", "--session", "--lease", "j", "--wait", "0", "--", "true").want(exitHeld, "held by another: n1", "mine")
	p.start("tenure", "run", "--session", "--lease", "j", "--wait", "300ms", "--", "true").want(exitHeld, "waited for 300ms", "held by another: n1")
	waiter := p.start("tenure", "run", "--session", "--lease", "j", "--", "true")
	eventually(t, waiter.output, func() bool { return p.agentStatus().Waiting == 1 })
	waiter.signal(syscall.SIGTERM)
	waiter.want(143, "tenure: stopped by signal: SIGTERM, before the command was started\n")
	last := p.start("tenure", "run", "--session", "--lease", "j", "--", "work", "-log", "a", "-alone", "lock", "-for", "1ms")
	p.touch("go")
	last.want(0)
	holder.want(0)
	p.alone("a")
}

// A socket whose path is too long is refused in words, and is no reason for a run to
// fail.
//
// SPEC UI1
func TestAgentSocketTooLong(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "file")
	long := []string{"XDG_RUNTIME_DIR=" + p.path(strings.Repeat("x", 100))}
	p.startWith(long, "tenure", "agent").want(exitUsage, "this system allows 107 for a socket: give --socket a shorter one")
	p.startWith(long, "tenure", "agent", "status").want(exitUsage, "this system allows 107")
	p.startWith(long, "tenure", "run", "--lease", "j", "--", "true").want(0)
	p.start("tenure", "agent", "--socket", "a.sock").want(exitUsage, "give an absolute path")
	p.start("tenure", "agent", "--socket", "/dev/shm/a.sock").want(exitUsage, "is not a folder of this user alone: choose a folder of your own (mode 0700)")
	p.start("tenure", "agent", "--node", " ").want(exitUsage, "node name")
}

// docs/cli.md shows the JSON of agent status with exactly its fields.
//
// SPEC UI1
func TestAgentJSONIsDocumented(t *testing.T) {
	t.Parallel()
	_, rest, _ := strings.Cut(readDoc(t), "\n#### JSON of `agent status`")
	_, rest, _ = strings.Cut(rest, "\n```json\n")
	example, _, found := strings.Cut(rest, "\n```")
	if got, want := fields(t, []byte(example)), fields(t, mustJSON(t, agentJSON{})); !found || !reflect.DeepEqual(got, want) {
		t.Errorf("docs/cli.md shows %v, but the fields are %v", got, want)
	}
}
