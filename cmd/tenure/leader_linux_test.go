package main

import (
	"slices"
	"strings"
	"syscall"
	"testing"
)

// leaderHarms are what happens to a leader whose command ignores every signal.
var leaderHarms = []harm{
	{name: "cut off", ttl: "5s", code: exitNotCurrent,
		do:   func(p *place, _ *program, _ workEvent) { p.touch("cut") },
		ends: []string{"lost", "supervisor-gone"}, says: []string{"it was not renewed in time", "does not answer; the command was ended"}},
	{name: "supervisor killed", ttl: "5s", code: exitNotCurrent,
		do:   func(_ *place, _ *program, w workEvent) { _ = syscall.Kill(w.Parent, syscall.SIGKILL) },
		ends: []string{"supervisor-gone"}, says: []string{"died; the command was ended"}},
	{name: "supervisor stopped", ttl: "5s", code: exitNotCurrent,
		do:   func(_ *place, _ *program, w workEvent) { _ = syscall.Kill(w.Parent, syscall.SIGSTOP) },
		ends: []string{"supervisor-gone"}, says: []string{"does not answer; the command was ended"}},
	{name: "wrapper killed", ttl: "60s", code: kill9,
		do:   func(_ *place, h *program, _ workEvent) { h.signal(syscall.SIGKILL) },
		ends: []string{"wrapper-gone"}, says: []string{"the command was ended: the wrapper is gone"}},
}

// Whatever happens to a leader, the next one begins when nothing of the leader's
// command is left, and it does begin: where the leader stepped down, at once (the TTL
// is far above the test's patience), else after the TTL.
//
// SPEC UI1 LA3 LA6 DL5 DL6
// CASE B05 B07 B29
func TestLeadersDoNotOverlap(t *testing.T) {
	t.Parallel()
	for _, h := range leaderHarms {
		t.Run(h.name, func(t *testing.T) {
			t.Parallel()
			leadersDoNotOverlap(t, h)
		})
	}
}

func leadersDoNotOverlap(t *testing.T, h harm) {
	p := newPlace(t, "file")
	var env []string
	if h.name == "cut off" {
		env = append(env, "TENURE_STORE="+cutURL(p.url, p.path("cut")))
	}
	leader := p.startWith(env, "tenure", "leader", "elect", "jobs", "--node", "n1", "--ttl", h.ttl, "--grace", "300ms", "--status-file", "st", "--",
		"work", "-log", "a", "-alone", "lock", "-term", "ignore", "-detach")
	worker := p.await(leader, "a", "begin", 1)
	rival := p.start("tenure", "leader", "elect", "jobs", "--node", "n2", "--ttl", "30s", "--", "work", "-log", "a", "-alone", "lock", "-for", "50ms", "-code", "5")
	h.do(p, leader, worker)
	rival.want(5)
	leader.want(h.code)
	p.alone("a")
	if n := p.count("a", "begin"); n != 2 {
		t.Errorf("%d workers began", n)
	}
	st := p.status("st")
	end := slices.Index(h.ends, st.End)
	if end < 0 || st.Authority != "jobs" || st.Lease != "" || len(st.Survivors) > 0 {
		t.Fatalf("the status file says %+v", st)
	}
	if says := h.says[end]; !strings.Contains(leader.output(), says) {
		t.Errorf("%q is missing in what the leader said:\n%s", says, leader.output())
	}
}

// A signal to tenure reaches the command, and the next candidate leads once it has
// ended; the TTL does not have to pass. A signal during the wait ends it.
//
// SPEC UI1 LA6
func TestSignalFreesTheLeadership(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "file")
	leader := p.start("tenure", "leader", "elect", "jobs", "--node", "n1", "--ttl", "5m", "--", "work", "-log", "a", "-alone", "lock", "-term", "10ms", "-code", "6")
	p.await(leader, "a", "begin", 1)
	waiting := p.start("tenure", "-v", "leader", "elect", "jobs", "--node", "n2", "--ttl", "5m", "--", "work", "-log", "b")
	eventually(t, waiting.output, func() bool {
		return strings.Contains(waiting.output(), "tenure: waiting: authority \"jobs\": held by another: node \"n1\"")
	})
	waiting.signal(syscall.SIGTERM)
	waiting.want(128 + int(syscall.SIGTERM))
	rival := p.start("tenure", "leader", "elect", "jobs", "--node", "n3", "--ttl", "5m", "--", "work", "-log", "a", "-alone", "lock", "-for", "10ms")
	leader.signal(syscall.SIGTERM)
	leader.want(6)
	rival.want(0)
	p.alone("a")
	if p.count("b", "begin") != 0 {
		t.Error("a command was started that waited in vain")
	}
}
