package main

import (
	"os"
	"strings"
	"syscall"
	"testing"
)

// vanish leaves an attempt of a run without a word: both processes of tenure are killed
// while the command runs.
func (p *place) vanish(run string) {
	p.t.Helper()
	before := p.count("gone", "begin")
	holder := p.start("tenure", "once", "--job", "j", "--run-id", run, "--ttl", "5s", "--", "work", "-log", "gone")
	worker := p.await(holder, "gone", "begin", before+1)
	supervisor := parentOf(worker.PID)
	_ = syscall.Kill(parentOf(supervisor), syscall.SIGKILL)
	_ = syscall.Kill(supervisor, syscall.SIGKILL)
	eventually(p.t, holder.output, func() bool { return !alive(worker.PID) })
}

// A probe that does not end is ended with everything that it started, however that hid,
// and has not said anything: the run stays unknown. One that leaves something behind is
// believed, and that is ended, too.
//
// SPEC EX4 UI1
// CASE B29
func TestProbeHasALimit(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "file")
	p.vanish("r")
	hangs := `setsid sh -c 'trap "" TERM; echo $$ >hidden; while :; do sleep 0.05; done' & trap "" TERM; sleep 1000`
	probed := p.start("tenure", "once", "--job", "j", "--run-id", "r", "--unknown", "probe="+hangs, "--probe-limit", "3s", "--", "false")
	probed.want(exitUnknownRun, "the probe took longer than 3s (--probe-limit), and was ended", "tenure ledger settle")
	if _, err := os.Stat(p.path("hidden")); err != nil {
		t.Error("the probe did not run")
	}
	if left := p.left("sleep", "sh"); len(left) > 0 {
		t.Errorf("the probe left %q", left)
	}
	p.run("j", "r", "unknown", "open")
	p.start("tenure", "once", "--job", "j", "--run-id", "r", "--unknown", "probe=setsid sleep 1000 & exit 0", "--", "false").want(0, "done already")
	if left := p.left("sleep", "sh"); len(left) > 0 {
		t.Errorf("the probe left %q", left)
	}
	p.run("j", "r", "committed", "committed")
}

// left are the living processes of this test that were started by one of these names.
func (p *place) left(names ...string) (found []string) {
	for _, pid := range p.processes() {
		for _, name := range names {
			if line := commandLine(pid); alive(pid) && strings.HasPrefix(line, name+"\x00") {
				found = append(found, strings.ReplaceAll(line, "\x00", " "))
			}
		}
	}
	return found
}

// A store that is gone, as of a volume that is not mounted, lets nobody do everything
// again: a host that remembers the ledger says so, and with --must-exist so does one that
// does not. A person can begin anew.
//
// SPEC LS12 EX3
func TestStoreIsGone(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"file", "sqlite"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, scheme)
			once := func(flags ...string) *program {
				return p.start(append(append([]string{"tenure", "once", "--job", "j", "--run-id", "r"}, flags...), "--", "sh", "-c", "echo x >>out")...)
			}
			once("--must-exist").want(64, "there is no store at")
			p.start("tenure", "store", "init").want(0)
			once("--must-exist", "--namespace", "other").want(64, `there is no namespace "other" in this store`)
			once("--must-exist").want(0)
			p.unmount()
			once("--must-exist").want(64, "there is no store at")
			if _, err := os.Stat(p.storePath()); err == nil {
				t.Error("the store was made")
			}
			once().want(exitRegressed, `job "j": its ledger is gone`, "its volume mounted", "tenure ledger jump j --above 4")
			jump := []string{"tenure", "ledger", "jump", "j", "--above", "4"}
			p.unmount() // what the last one made
			p.start(jump...).want(64, "there is no store at")
			if _, err := os.Stat(p.storePath()); err == nil {
				t.Error("the store was made, which --must-exist takes for the one that is gone")
			}
			p.start("tenure", "store", "init").want(0)
			p.start(jump...).want(64, "job j has no ledger in this store", "--anew")
			p.start(append(jump, "--anew")...).want(0, "at least 4")
			p.start("tenure", "jump", "--all", "--above", "9").want(0)
			once().want(0)
			if text, err := os.ReadFile(p.path("out")); err != nil || string(text) != "x\nx\n" { // which was asked for
				t.Errorf("%q, %v", text, err)
			}
		})
	}
}

func (p *place) storePath() string { return strings.SplitN(p.url, "://", 2)[1] }

// unmount takes the store away, with all that lies beside it.
func (p *place) unmount() {
	p.t.Helper()
	for _, end := range []string{"", "-wal", "-shm", ".lock"} {
		if err := os.RemoveAll(p.storePath() + end); err != nil {
			p.t.Fatal(err)
		}
	}
}

// A schedule whose store is not there says so, makes none, and goes on once it is.
//
// SPEC EX4
func TestScheduleWaitsForItsStore(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "file")
	p.write("jobs", "@every 100ms j -- echo x >>out\n")
	s := p.start("tenure", "schedule", "--must-exist", "jobs")
	eventually(t, s.output, func() bool { return strings.Contains(s.output(), "there is no store at") })
	if _, err := os.Stat(p.storePath()); err == nil {
		t.Error("the store was made")
	}
	p.start("tenure", "store", "init").want(0)
	eventually(t, s.output, func() bool { _, err := os.Stat(p.path("out")); return err == nil })
	s.signal(syscall.SIGTERM)
	s.want(0)
}
