//go:build linux

package proc

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// family is a command with a stubborn child in a session of its own two
// generations down, and one that a shell waits for: three processes stay.
func family(dir string) []string {
	return []string{"sh", "-c", `"$0" helper daemon 1 stubborn ` + filepath.Join(dir, "daemon") +
		`; "$0" helper stubborn ` + filepath.Join(dir, "child") + ` & trap '' TERM; wait; sleep 60`, testBinary}
}

// startFamily starts a family and waits until all of it is there.
func startFamily(t *testing.T, cfg config) *job {
	t.Helper()
	dir := t.TempDir()
	j := start(t, cfg, family(dir)...)
	helperPid(t, filepath.Join(dir, "daemon"))
	helperPid(t, filepath.Join(dir, "child"))
	return j
}

// The hold is not renewed any more, as when the store cannot be reached: the
// tree is gone before the deadline, with a command that ignores TERM too.
//
// SPEC UI1 DL5
// CASE B05 B07
func TestTreeIsGoneBeforeTheDeadline(t *testing.T) {
	t.Parallel()
	containments(t, func(t *testing.T, treeOnly bool) {
		j := startFamily(t, config{RenewFor: 500, TreeOnly: treeOnly})
		j.goneBy()
		j.wantCode(testLost)
		// On a very busy machine the wrapper does not wait for the supervisor.
		if !strings.Contains(j.output(), "not renewed in time") && !strings.Contains(j.output(), "does not answer") {
			t.Errorf("no word on why: %q", j.output())
		}
		eventually(t, "nothing is left", func() bool { return len(j.left()) == 0 })
	})
}

// A tree that heeds TERM gets its grace.
//
// SPEC UI1 LS6
// CASE B10
func TestTermComesFirst(t *testing.T) {
	t.Parallel()
	j := start(t, config{LoseAfter: 200, TTL: 5000, Grace: 2000},
		"sh", "-c", `trap 'sleep 0.3; echo cleaned up; exit 7' TERM; sleep 60 & wait`)
	j.wantCode(testLost)
	if !strings.Contains(j.output(), "cleaned up") {
		t.Errorf("no time to clean up: %q", j.output())
	}
	if got := j.result(); got.End != Lost || got.Code != 7 || len(got.Survivors) > 0 {
		t.Errorf("result %+v", got)
	}
}

// A stopped tree is ended as well.
//
// SPEC UI1
func TestStoppedTreeIsEnded(t *testing.T) {
	t.Parallel()
	containments(t, func(t *testing.T, treeOnly bool) {
		j := start(t, config{RenewFor: 600, TreeOnly: treeOnly},
			"sh", "-c", `sh -c 'trap "exit 0" TERM; kill -STOP $$; sleep 60' & sleep 60 & wait`)
		j.running(3)
		j.goneBy()
		j.wantCode(testLost)
	})
}

// chain is a shell whose processes live for a moment only: each starts the next
// one and ends. Their number bounds it.
const chain = `trap '' TERM; n=0; next() { n=$((n+1)); [ $n -lt 30000 ] && next & }; next; sleep 60`

// A tree that forks without end is ended, whether it grows or runs away.
//
// SPEC UI1
func TestForkStormIsEnded(t *testing.T) { // alone: it needs all processors
	for _, treeOnly := range []bool{false, true} {
		for name, args := range map[string][]string{
			"grows":     {"sh", "-c", `trap '' TERM; "$0" helper hydra 7 & sleep 60`, testBinary},
			"runs away": {"sh", "-c", chain},
		} {
			t.Run(fmt.Sprintf("%s/treeOnly=%t", name, treeOnly), func(t *testing.T) {
				j := start(t, config{TTL: 60_000, Grace: 1, TreeOnly: treeOnly}, args...)
				j.running(2) // the storm begins first, and sleep comes after it
				began := testClock.Boot()
				j.signal(unix.SIGKILL)
				if got := j.result(); len(got.Survivors) > 0 {
					t.Errorf("result %+v", got)
				}
				if took := j.await("result").At - began; took > killBound/2 {
					t.Errorf("it took %v", took)
				} else {
					t.Logf("it took %v", took)
				}
				j.wantNothingLeft()
			})
		}
	}
}

// The wrapper is killed: the supervisor ends the tree at once, and only then
// gives the hold up.
//
// SPEC UI1 LS6
func TestWrapperKilled(t *testing.T) {
	t.Parallel()
	containments(t, func(t *testing.T, treeOnly bool) {
		j := startFamily(t, config{TTL: 60_000, TreeOnly: treeOnly})
		j.signal(unix.SIGKILL)
		j.await("released")
		j.wantNothingLeft()
		if got := j.result(); got.End != WrapperGone || len(got.Survivors) > 0 {
			t.Errorf("result %+v", got)
		}
		eventually(t, "the supervisor ends", func() bool { return len(j.left()) == 0 })
	})
}

// The supervisor is killed: the wrapper ends the tree before the deadline.
//
// SPEC UI1
func TestSupervisorKilled(t *testing.T) {
	t.Parallel()
	containments(t, func(t *testing.T, treeOnly bool) {
		j := startFamily(t, config{TreeOnly: treeOnly})
		j.signalSupervisor(unix.SIGKILL)
		j.goneBy()
		j.wantCode(testLost)
		if _, released := j.last("released"); released {
			t.Error("the hold was given up")
		}
		if !strings.Contains(j.output(), "supervisor (process") {
			t.Errorf("no word on why: %q", j.output())
		}
	})
}

// The supervisor is stopped past the deadline, after it renewed for a while: the
// wrapper ends the tree in time.
//
// SPEC UI1
// CASE B12
func TestSupervisorStopped(t *testing.T) {
	t.Parallel()
	containments(t, func(t *testing.T, treeOnly bool) {
		j := startFamily(t, config{TTL: 1500, TreeOnly: treeOnly})
		first := j.await("deadline")
		eventually(t, "the first deadline passes", func() bool { return testClock.Boot() > first.Value })
		j.signalSupervisor(unix.SIGSTOP)
		j.goneBy()
		j.wantCode(testLost)
		eventually(t, "the supervisor is gone", func() bool { return len(j.left()) == 0 })
	})
}

// The wrapper is stopped past the deadline: the supervisor ends the tree in
// time, and the wrapper tells when it goes on.
//
// SPEC UI1
// CASE B12
func TestWrapperStopped(t *testing.T) {
	t.Parallel()
	containments(t, func(t *testing.T, treeOnly bool) {
		j := startFamily(t, config{RenewFor: 800, TreeOnly: treeOnly})
		j.signal(unix.SIGSTOP)
		j.goneBy()
		j.await("result")
		j.signal(unix.SIGCONT)
		j.wantCode(testLost)
	})
}

// A wrapper that was stopped for longer than a deadline, while the supervisor
// renewed, does not end anything when it goes on.
//
// SPEC UI1
func TestWrapperStoppedWhileHeld(t *testing.T) {
	t.Parallel()
	ready := filepath.Join(t.TempDir(), "ready")
	j := start(t, config{TTL: 600, Grace: 100, Reserve: 40}, self("wait", ready)...)
	helperPid(t, ready)
	j.signal(unix.SIGSTOP)
	first, _ := j.last("deadline")
	eventually(t, "the deadline that the wrapper knows passes", func() bool {
		return testClock.Boot() > first.Value+ms(600)
	})
	j.signal(unix.SIGCONT)
	now := testClock.Boot()
	eventually(t, "it goes on for a while", func() bool { return testClock.Boot() > now+ms(500) })
	if len(j.tree()) != 1 {
		t.Fatalf("the command was ended: %s", j.output())
	}
	j.signal(unix.SIGTERM)
	j.wantCode(128 + 15)
}

// The job's whole process group is killed, as shells do it: the supervisor is not
// in it, and ends what left the group.
//
// SPEC UI1 LS6
func TestGroupKilled(t *testing.T) {
	t.Parallel()
	containments(t, func(t *testing.T, treeOnly bool) {
		j := groupFamily(t, config{TTL: 60_000, TreeOnly: treeOnly})
		sendGroup(t, j.cmd.Process.Pid, unix.SIGKILL)
		j.await("released")
		j.wantNothingLeft()
	})
}

// groupFamily is a family whose wrapper leads a process group.
func groupFamily(t *testing.T, cfg config) *job {
	t.Helper()
	dir := t.TempDir()
	j := newJob(t, cfg, family(dir)...)
	j.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	j.begin()
	helperPid(t, filepath.Join(dir, "daemon"))
	helperPid(t, filepath.Join(dir, "child"))
	return j
}

// The job's whole process group is stopped past a deadline: a stopped job stays
// held, and goes on.
//
// SPEC UI1
func TestStoppedGroupStaysHeld(t *testing.T) {
	t.Parallel()
	j := groupFamily(t, config{TTL: 1000, Grace: 100, Reserve: 60})
	sendGroup(t, j.cmd.Process.Pid, unix.SIGSTOP)
	last := j.await("deadline")
	eventually(t, "the deadline passes", func() bool { return testClock.Boot() > last.Value+ms(300) })
	sendGroup(t, j.cmd.Process.Pid, unix.SIGCONT)
	now := testClock.Boot()
	eventually(t, "it goes on for a while", func() bool { return testClock.Boot() > now+ms(300) })
	if left := j.tree(); len(left) != 3 {
		t.Fatalf("left %+v: %s", left, j.output())
	}
	j.signal(unix.SIGKILL)
	j.await("released")
	j.wantNothingLeft()
}

// Wrapper and supervisor are killed at once: the command itself dies all the
// same.
//
// SPEC UI1
func TestBothKilled(t *testing.T) {
	t.Parallel()
	ready := filepath.Join(t.TempDir(), "ready")
	j := start(t, config{TTL: 60_000}, self("stubborn", ready)...)
	helperPid(t, ready)
	j.signalSupervisor(unix.SIGSTOP)
	j.signal(unix.SIGKILL)
	j.signalSupervisor(unix.SIGKILL)
	eventually(t, "the command dies", func() bool { return len(j.left()) == 0 })
}

// A hold that comes too late is not acted on: the command never runs.
//
// SPEC UI1 DL5
// CASE B40
func TestTooLateToStart(t *testing.T) {
	t.Parallel()
	ran := filepath.Join(t.TempDir(), "ran")
	j := start(t, config{TTL: 500, Grace: 400, Reserve: 200}, "touch", ran)
	j.wantCode(testLost)
	if got := j.result(); got.End != NotStarted {
		t.Errorf("result %+v", got)
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("the command ran")
	}
}

// The supervisor dies while it waits for the hold: the wrapper says so.
//
// SPEC UI1
func TestSupervisorDiesEarly(t *testing.T) {
	t.Parallel()
	j := start(t, config{Wait: 60_000}, "true")
	j.await("supervisor")
	j.signalSupervisor(unix.SIGKILL)
	j.wantCode(testFailed)
	if !strings.Contains(j.output(), "before the command was started") {
		t.Errorf("no word on why: %q", j.output())
	}
}

// The wrapper dies while the supervisor waits for the hold: the wait ends, and
// the command never runs.
//
// SPEC UI1
func TestWrapperDiesEarly(t *testing.T) {
	t.Parallel()
	j := start(t, config{Wait: 60_000}, "true")
	j.await("supervisor")
	j.signal(unix.SIGKILL)
	if e := j.await("gave up"); e.Text != ErrWrapperGone.Error() {
		t.Errorf("gave up because %q", e.Text)
	}
	eventually(t, "the supervisor ends", func() bool { return len(j.left()) == 0 })
}
