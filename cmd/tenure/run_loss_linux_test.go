package main

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// harm is something that happens to a holder whose command ignores every signal.
type harm struct {
	name string
	do   func(p *place, holder *program, worker workEvent)
	ttl  string // of the holder
	code int    // of the holder
	ends []string
	says []string // one for each of ends
}

const kill9 = 128 + int(syscall.SIGKILL)

var harms = []harm{
	{name: "cut off", ttl: "5s", code: exitNotCurrent,
		do: func(p *place, _ *program, _ workEvent) { p.touch("cut") },
		// A wrapper whose supervisor comes late to a processor does not wait for it.
		ends: []string{"lost", "supervisor-gone"},
		says: []string{`the command was ended: lease "j" (token 1): the lease was lost: it was not renewed in time`, "does not answer; the command was ended"}},
	{name: "stolen", ttl: "5s", code: exitNotCurrent,
		do: func(p *place, _ *program, w workEvent) {
			p.start("tenure", "steal", "j", "--token", fmt.Sprint(w.Token), "--reason", "test", "--by", "op").want(0)
		},
		ends: []string{"lost"}, says: []string{`it was forced by "op": test`}},
	{name: "supervisor killed", ttl: "5s", code: exitNotCurrent,
		do:   func(_ *place, _ *program, w workEvent) { _ = syscall.Kill(w.Parent, syscall.SIGKILL) },
		ends: []string{"supervisor-gone"}, says: []string{"died; the command was ended"}},
	{name: "supervisor stopped", ttl: "5s", code: exitNotCurrent,
		do:   func(_ *place, _ *program, w workEvent) { _ = syscall.Kill(w.Parent, syscall.SIGSTOP) },
		ends: []string{"supervisor-gone"}, says: []string{"does not answer; the command was ended"}},
	{name: "wrapper killed", ttl: "60s", code: kill9,
		do:   func(_ *place, h *program, _ workEvent) { h.signal(syscall.SIGKILL) },
		ends: []string{"wrapper-gone"}, says: []string{"the command was ended: the wrapper is gone"}},
	{name: "asked twice", ttl: "60s", code: kill9,
		do: func(p *place, h *program, _ workEvent) {
			h.signal(syscall.SIGINT)
			p.await(h, "a", "term", 1)
			<-time.After(300 * time.Millisecond) // closer together the two would be one request
			h.signal(syscall.SIGINT)
		},
		ends: []string{"interrupted"}, says: []string{""}},
}

// Whatever happens to a holder, the next one begins when nothing of the holder's
// command is left: neither the command, which ignores TERM, nor a child of a
// session of its own. And it does begin: where the lease was released, at once
// (the TTL is far above the test's patience), else after the TTL.
//
// SPEC UI1 LS2 LS6 LS11 DL5
// CASE B05 B07 B29 B72
func TestOverlapIsZero(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"file", "sqlite"} {
		for _, h := range harms {
			t.Run(h.name+" on "+scheme, func(t *testing.T) {
				t.Parallel()
				overlapIsZero(t, scheme, h)
			})
		}
	}
}

func overlapIsZero(t *testing.T, scheme string, h harm) {
	p := newPlace(t, scheme)
	env := []string{}
	if h.name == "cut off" {
		env = append(env, "TENURE_STORE="+cutURL(p.url, p.path("cut")))
	}
	holder := p.startWith(env, "tenure", "run", "--lease", "j", "--ttl", h.ttl, "--grace", "300ms", "--status-file", "st", "--",
		"work", "-log", "a", "-alone", "lock", "-term", "ignore", "-detach")
	worker := p.await(holder, "a", "begin", 1)
	rival := p.start("tenure", "run", "--lease", "j", "--ttl", "30s", "--", "work", "-log", "a", "-alone", "lock", "-for", "50ms", "-code", "5")
	h.do(p, holder, worker)
	rival.want(5)
	holder.want(h.code)
	p.alone("a")
	if n := p.count("a", "begin"); n != 2 {
		t.Errorf("%d workers began", n)
	}
	st := p.status("st")
	end := slices.Index(h.ends, st.End)
	if end < 0 || st.Lease != "j" || st.Namespace != "default" || len(st.Survivors) > 0 {
		t.Fatalf("the status file says %+v", st)
	}
	if h.code != kill9 && st.Code != h.code {
		t.Errorf("the status file says code %d", st.Code)
	}
	if says := h.says[end]; !strings.Contains(holder.output(), says) || !strings.Contains("tenure: "+st.Reason, says) {
		t.Errorf("%q is missing in what the holder said:\n%s\nor in the status file's reason:\n%s", says, holder.output(), st.Reason)
	}
	if strings.Contains(holder.output(), "tenure: next:") || strings.Contains(holder.output(), "tenure: error:") {
		t.Errorf("the holder says something twice, or gives idle advice:\n%s", holder.output())
	}
}

// A command that drains after TERM keeps its lease for as long as it needs, which
// is longer than the TTL here; the next one begins when it has ended.
//
// SPEC LS6 UI1
// CASE B10
func TestReleaseComesAfterTheDrain(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "file")
	holder := p.start("tenure", "run", "--lease", "j", "--ttl", "4s", "--grace", "200ms", "--", "work", "-log", "a", "-alone", "lock", "-term", "5s", "-code", "6")
	p.await(holder, "a", "begin", 1)
	rival := p.start("tenure", "run", "--lease", "j", "--", "work", "-log", "a", "-alone", "lock", "-for", "10ms")
	holder.signal(syscall.SIGTERM)
	rival.want(0)
	holder.want(6)
	p.alone("a")
	if n := p.count("a", "end"); n != 2 {
		t.Errorf("%d of 2 workers came to their end", n)
	}
}

// A signal to tenure reaches the command, and the lease is free once the command
// has ended; the TTL does not have to pass.
//
// SPEC UI1 LS5
// CASE B72
func TestSignalFreesTheLease(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"file", "sqlite"} {
		for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT} {
			t.Run(fmt.Sprintf("%v on %s", sig, scheme), func(t *testing.T) {
				t.Parallel()
				p := newPlace(t, scheme)
				holder := p.startWith([]string{"GOTRACEBACK=none"}, "tenure", "run", "--lease", "j", "--ttl", "5m", "--status-file", "st", "--",
					"sh", "-c", "work -log a -alone lock & exec sleep 1000")
				p.await(holder, "a", "begin", 1)
				rival := p.start("tenure", "run", "--lease", "j", "--", "work", "-log", "a", "-alone", "lock", "-for", "1ms")
				holder.signal(sig)
				holder.want(128 + int(sig))
				rival.want(0)
				p.alone("a")
				st := p.status("st")
				if st.End != "exited" || st.Signal != int(sig) || st.CommandCode == nil || *st.CommandCode != 128+int(sig) {
					t.Errorf("the status file says %+v", st)
				}
			})
		}
	}
}

// A signal to a run that still waits ends it: the command never runs, and the
// line behind it moves up.
//
// SPEC UI1 LS9
// CASE B72
func TestSignalEndsTheWaiting(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "file")
	holder := p.start("tenure", "run", "--lease", "j", "--ttl", "5m", "--", "work", "-log", "a", "-alone", "lock", "-until", "go")
	p.await(holder, "a", "begin", 1)
	waiter := p.start("tenure", "run", "--lease", "j", "--status-file", "st", "--", "work", "-log", "b")
	eventually(t, waiter.output, func() bool { return len(p.processes()) >= 5 }) // its supervisor is there
	waiter.signal(syscall.SIGTERM)
	waiter.want(143, "tenure: stopped by signal: SIGTERM, before the command was started\n")
	if st := p.status("st"); st.End != "not-started" || st.Code != 143 || st.CommandCode != nil || st.Token != 0 {
		t.Errorf("the status file says %+v", st)
	}
	last := p.start("tenure", "run", "--lease", "j", "--", "work", "-log", "a", "-alone", "lock", "-for", "1ms")
	p.touch("go")
	last.want(0)
	holder.want(0)
	p.alone("a")
	if n := len(p.events("b")); n != 0 {
		t.Errorf("the command ran: %v", p.events("b"))
	}
}

// A job that its user stops stays held: the supervisor goes on renewing beyond
// the TTL. When the command ends meanwhile, the lease is free; the stopped wrapper
// returns the command's status once it goes on.
//
// SPEC UI1
func TestStoppedWrapperKeepsTheLease(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "file")
	holder := p.start("tenure", "run", "--lease", "j", "--ttl", "3s", "--grace", "200ms", "--", "work", "-log", "a", "-alone", "lock", "-until", "go", "-code", "7")
	p.await(holder, "a", "begin", 1)
	holder.signal(syscall.SIGSTOP)
	rival := p.start("tenure", "run", "--lease", "j", "--wait", "4s", "--", "work", "-log", "b")
	rival.want(exitHeld, "held by another")
	next := p.start("tenure", "run", "--lease", "j", "--", "work", "-log", "a", "-alone", "lock", "-for", "1ms")
	p.touch("go")
	next.want(0)
	holder.signal(syscall.SIGCONT)
	holder.want(7)
	p.alone("a")
}
