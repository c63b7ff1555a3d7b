package main

import (
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// asToken lets work write the epoch of the last range into its log, where the token of a
// lease stands.
const asToken = "TENURE_TOKEN=${TENURE_SLOTS##*=} exec work "

// claimHarms are what happens to a claim whose command ignores every signal.
var claimHarms = []harm{
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

// Whatever happens to a claim, the next owner of any of its ranges begins when nothing of
// the command is left, and it does begin: where the ranges were released, at once (the TTL
// is far above the test's patience), else after the TTL.
//
// SPEC UI1 SL3 SL5 DL5 DL6
// CASE B05 B07 B29
func TestClaimsDoNotOverlap(t *testing.T) {
	t.Parallel()
	for _, h := range claimHarms {
		t.Run(h.name, func(t *testing.T) {
			t.Parallel()
			claimsDoNotOverlap(t, h)
		})
	}
}

func claimsDoNotOverlap(t *testing.T, h harm) {
	p := newPlace(t, "file")
	p.start("tenure", "slots", "init", "orders").want(0)
	var env []string
	if h.name == "cut off" {
		env = append(env, "TENURE_STORE="+cutURL(p.url, p.path("cut")))
	}
	owner := p.startWith(env, "tenure", "slots", "claim", "orders", "0-99", "200-299", "--owner", "a", "--ttl", h.ttl, "--grace", "300ms", "--status-file", "st", "--",
		"sh", "-c", asToken+"-log a -alone lock -term ignore -detach")
	worker := p.await(owner, "a", "begin", 1)
	rival := p.start("tenure", "slots", "claim", "orders", "250-260", "--owner", "b", "--ttl", "30s", "--", "sh", "-c", asToken+"-log a -alone lock -for 50ms -code 5")
	h.do(p, owner, worker)
	rival.want(5)
	owner.want(h.code)
	p.alone("a")
	if n := p.count("a", "begin"); n != 2 {
		t.Errorf("%d workers began", n)
	}
	st := p.status("st")
	end := slices.Index(h.ends, st.End)
	if end < 0 || st.Table != "orders" || st.Lease != "" || len(st.Slots) != 2 || len(st.Survivors) > 0 {
		t.Fatalf("the status file says %+v", st)
	}
	if says := h.says[end]; !strings.Contains(owner.output(), says) {
		t.Errorf("%q is missing in what the claim said:\n%s", says, owner.output())
	}
}

// A signal to tenure reaches the command, and the ranges are free once it has ended; the
// TTL does not have to pass. A signal during the wait ends it.
//
// SPEC UI1 SL7
func TestSignalFreesTheRanges(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "file")
	p.start("tenure", "slots", "init", "orders").want(0)
	owner := p.start("tenure", "slots", "claim", "orders", "0-99", "--owner", "a", "--ttl", "5m", "--", "sh", "-c", asToken+"-log a -alone lock -term 10ms -code 6")
	p.await(owner, "a", "begin", 1)
	waiting := p.start("tenure", "-v", "slots", "claim", "orders", "50", "--owner", "b", "--ttl", "5m", "--", "work", "-log", "b")
	eventually(t, waiting.output, func() bool {
		return strings.Contains(waiting.output(), "tenure: waiting: slots 50-50: held by another host; 0-99 by a (epoch 1)")
	})
	waiting.signal(syscall.SIGTERM)
	waiting.want(128 + int(syscall.SIGTERM))
	rival := p.start("tenure", "slots", "claim", "orders", "0-99", "--owner", "c", "--ttl", "5m", "--", "sh", "-c", asToken+"-log a -alone lock -for 10ms")
	owner.signal(syscall.SIGTERM)
	owner.want(6)
	rival.want(0)
	p.alone("a")
	if p.count("b", "begin") != 0 {
		t.Error("a command was started that waited in vain")
	}
}

// A restart without a command goes on under the same epoch where it holds the volume's
// lock, however long the TTL is; without that, and beside the process that has it, not.
//
// SPEC SL3
func TestVolumeSurvivesARestart(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "sqlite")
	p.start("tenure", "slots", "init", "orders").want(0)
	claim := func(more ...string) *program {
		return p.start(append([]string{"tenure", "slots", "claim", "orders", "0-99", "--owner", "a", "--ttl", "10m"}, more...)...)
	}
	says := func(g *program, text string) {
		t.Helper()
		eventually(t, g.output, func() bool { return strings.Contains(g.output(), text) })
	}
	if err := os.Mkdir(p.path("vol"), 0o700); err != nil {
		t.Fatal(err)
	}
	first := claim("--volume", "vol")
	says(first, "claimed 0-99 epoch 1\n")
	claim("--volume", "vol", "--wait", "0").want(exitUnavailable)
	claim("--wait", "0").want(exitHeld)
	first.signal(syscall.SIGKILL)
	first.want(kill9)
	claim("--wait", "0").want(exitHeld)
	again := claim("--volume", "vol")
	says(again, "claimed 0-99 epoch 1\n")
	again.signal(syscall.SIGTERM)
	again.want(0)
	says(again, "released 0-99 epoch 1\n")
	last := claim()
	says(last, "claimed 0-99 epoch 2\n")
	last.signal(syscall.SIGINT)
	last.want(0)
}
