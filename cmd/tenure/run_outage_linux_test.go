package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/clock"
	"github.com/tenure-project/tenure/internal/proc"
	"github.com/tenure-project/tenure/store/memstore"
)

// An outage shorter than what is left of the lease is not noticed by the command.
//
// SPEC LS4
// CASE B26
func TestShortOutageIsNotNoticed(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"file", "sqlite"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, scheme)
			holder := p.startWith([]string{"TENURE_STORE=" + cutURL(p.url, p.path("cut"))}, "tenure", "run", "--lease", "j", "--ttl", "7s", "--grace", "300ms", "--",
				"work", "-log", "a", "-alone", "lock", "-term", "1ms", "-for", "8s")
			p.await(holder, "a", "begin", 1)
			p.touch("cut")
			<-time.After(2800 * time.Millisecond) // 40 % of the TTL
			p.remove("cut")
			holder.want(0)
			if p.count("a", "term") != 0 || p.count("a", "end") != 1 {
				t.Errorf("the command did not come to its end undisturbed: %v", p.events("a"))
			}
		})
	}
}

// A limit on the waiting ends neither the hold nor the command.
//
// SPEC LS6
// CASE B27
func TestWaitLimitDoesNotEndTheHold(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "file")
	holder := p.start("tenure", "run", "--lease", "j", "--ttl", "3s", "--grace", "300ms", "--wait", "2s", "--", "work", "-log", "a", "-term", "1ms", "-for", "5s")
	holder.want(0)
	if p.count("a", "term") != 0 || p.count("a", "end") != 1 {
		t.Errorf("the command did not come to its end undisturbed: %v", p.events("a"))
	}
}

// A store that does not answer any more does not keep a run from ending: the
// command is gone, and the exit code says that something is open.
//
// SPEC LS5 UI1
// CASE B73
func TestEndWithAStoreThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		work []string
		code int
		own  int
	}{
		{"command killed by the signal", []string{"sh", "-c", "work -log a & exec sleep 1000"}, 143, 143},
		{"command that ends well", []string{"work", "-log", "a", "-term", "1ms"}, exitUnconfirmed, 0},
		{"command that fails", []string{"work", "-log", "a", "-term", "1ms", "-code", "9"}, 9, 9},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, "file")
			holder := p.startWith([]string{"TENURE_STORE=" + cutURL(p.url, p.path("cut"))},
				append([]string{"tenure", "run", "--lease", "j", "--ttl", "8s", "--status-file", "st", "--"}, c.work...)...)
			p.await(holder, "a", "begin", 1)
			p.touch("cut")
			holder.signal(syscall.SIGTERM)
			holder.want(c.code, "the release is not confirmed after 3.", "the lease lapses by itself after its TTL")
			if left := p.processes(); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
			st := p.status("st")
			if st.End != "exited" || st.Code != c.code || st.CommandCode == nil || *st.CommandCode != c.own || !strings.Contains(st.Reason, "not confirmed") {
				t.Errorf("the status file says %+v", st)
			}
			p.start("tenure", "status", "j", "--json").want(0, `"state":"held"`)
		})
	}
}

// A second signal ends the wait for a release that does not come. The release
// itself would be waited for for much longer than this test lasts.
//
// CASE B72 B73
func TestSecondSignalEndsTheWaitForTheRelease(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "file")
	holder := p.startWith([]string{"TENURE_STORE=" + cutURL(p.url, p.path("cut"))},
		"tenure", "run", "--lease", "j", "--ttl", "10m", "--", "work", "-log", "a", "-term", "1ms")
	p.await(holder, "a", "begin", 1)
	p.touch("cut")
	holder.signal(syscall.SIGTERM)
	p.await(holder, "a", "end", 1)
	<-time.After(300 * time.Millisecond) // closer together the two would be one request
	holder.signal(syscall.SIGTERM)
	holder.want(exitUnconfirmed, "the release is not confirmed: the end was asked for again")
}

// A store that cannot even be opened ends a limited wait in time, and says that
// it is the store that is waited for.
//
// SPEC ST13 UI1
// CASE B73
func TestWaitForAStoreThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "file")
	p.touch("cut")
	env := []string{"TENURE_STORE=" + cutURL(p.url, p.path("cut"))}
	p.startWith(env, "tenure", "run", "--lease", "j", "--wait", "300ms", "--", "work", "-log", "a").want(exitUnavailable, "waited for 300ms")
	waiter := p.startWith(env, "tenure", "run", "--lease", "j", "--", "work", "-log", "a")
	eventually(t, waiter.output, func() bool { return len(p.processes()) == 2 })
	waiter.signal(syscall.SIGINT)
	waiter.want(130, "stopped by signal: SIGINT")
	if n := len(p.events("a")); n > 0 {
		t.Errorf("the command ran: %v", p.events("a"))
	}
}

// With processes left that cannot be ended, the lease is not given up in any way:
// it lapses, renewed no more. The caller learns of it.
//
// SPEC UI1 LS6
func TestSurvivorsKeepTheLease(t *testing.T) {
	t.Parallel()
	st := memstore.New()
	defer st.Close()
	ctx := context.Background()
	c, err := tenure.New(ctx, st)
	if err != nil {
		t.Fatal(err)
	}
	l, err := c.TryAcquire(ctx, "j")
	if err != nil {
		t.Fatal(err)
	}
	r := &running{a: &app{clk: clock.NewSystem()}, lease: "j"}
	res := proc.Result{End: proc.Exited, Survivors: []proc.Survivor{{Pid: 7, Why: "it sleeps"}}}
	out, told := r.verdict(l, res, r.giveUp(c, l, res, nil))
	if s, err := c.Status(ctx, "j"); err != nil || s.State != tenure.Held || !l.Live() {
		t.Errorf("the lease is %s now (%v)", s.State, err)
	}
	if out.Code != exitUnconfirmed || !strings.Contains(out.Message, "process 7: it sleeps") || len(told.Survivors) != 1 {
		t.Errorf("the verdict is %+v, %+v", out, told)
	}
	res.Code = 4
	if out, _ = r.verdict(l, res, nil); out.Code != 4 {
		t.Errorf("the command's own status is lost: %d", out.Code)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}

// A grace that does not fit is refused with numbers that do fit.
//
// SPEC DL5
// CASE B07
func TestGraceThatDoesNotFit(t *testing.T) {
	t.Parallel()
	for _, ttl := range []time.Duration{100 * time.Millisecond, time.Second, 3 * time.Second, 0, time.Minute, 24 * time.Hour} {
		if err := (&running{ttl: ttl}).fitGrace(false); err != nil {
			t.Errorf("the default grace does not fit the TTL %v: %v", ttl, err)
		}
		err := (&running{ttl: ttl, grace: max(ttl, 15*time.Second)}).fitGrace(true)
		if exitCode(err) != exitUsage {
			t.Errorf("TTL %v: %v", ttl, err)
			continue
		}
		_, advice, _ := strings.Cut(err.Error(), "give less than ")
		less, more, _ := strings.Cut(advice, ", or --ttl ")
		most, err := time.ParseDuration(less)
		if err != nil {
			t.Fatalf("%q: %v", advice, err)
		}
		real := ttl
		if real == 0 {
			real = 15 * time.Second
		}
		if fits(real, most) || !fits(real, most-1) {
			t.Errorf("TTL %v: %q is not the bound", ttl, less)
		}
		if more == "" && ttl < time.Minute {
			t.Errorf("TTL %v: no other TTL is named", ttl)
		}
		if more != "" {
			longer, err := time.ParseDuration(more)
			if err != nil || !fits(longer, max(ttl, 15*time.Second)) {
				t.Errorf("TTL %v: %q does not fit: %v", ttl, more, err)
			}
		}
	}
	if err := (&running{ttl: 3 * time.Second, grace: 1099 * time.Millisecond}).fitGrace(true); err != nil {
		t.Error(err)
	}
}

// What is in the way of a status file is found before the command runs, and
// nothing but a file is ever replaced.
//
// SPEC UI1
func TestStatusFileIsCheckedFirst(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "file")
	for _, bad := range []string{"/dev/null", p.dir, p.path("no/such/folder"), "pipe", "link-to-null"} {
		_ = syscall.Mkfifo(p.path("pipe"), 0o600)
		_ = os.Symlink("/dev/null", p.path("link-to-null"))
		p.start("tenure", "run", "--lease", "j", "--status-file", bad, "--", "work", "-log", "a").want(exitUsage, "write status file")
	}
	if n := len(p.events("a")); n > 0 {
		t.Errorf("the command ran: %v", p.events("a"))
	}
	if info, err := os.Stat("/dev/null"); err != nil || info.Mode()&os.ModeDevice == 0 {
		t.Errorf("/dev/null is %v now (%v)", info.Mode(), err)
	}
	if err := os.Symlink("real", p.path("link")); err != nil {
		t.Fatal(err)
	}
	p.touch("real")
	p.start("tenure", "run", "--lease", "j", "--status-file", "link", "--", "sh", "-c", "exit 64").want(64)
	if st := p.status("real"); st.End != "exited" || st.CommandCode == nil || *st.CommandCode != 64 || st.Code != 64 {
		t.Errorf("the status file says %+v", st)
	}
	// A run that fails before it begins does not leave an earlier one's report.
	for _, args := range [][]string{{"--grace", "1h"}, {"--ttl", "0"}, {"--bogus"}} {
		p.start(append(append([]string{"tenure", "run", "--lease", "j", "--status-file", "link"}, args...), "--", "true")...).want(exitUsage)
		if st := p.status("real"); st.End != "not-started" || st.Code != exitUsage || st.CommandCode != nil || st.Reason == "" {
			t.Errorf("%v: the status file says %+v", args, st)
		}
		p.start("tenure", "run", "--lease", "j", "--status-file", "link", "--", "true").want(0)
	}
	if left, err := os.ReadDir(p.dir); err == nil && strings.Contains(fmt.Sprint(left), ".tenure-status") {
		t.Errorf("left behind: %v", left)
	}
}
