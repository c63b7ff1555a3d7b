//go:build linux

package proc

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// SPEC UI1
// CASE B68
func TestExitCodes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	noFormat := filepath.Join(dir, "noformat")
	if err := os.WriteFile(plain, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(noFormat, []byte("no interpreter line"), 0o700); err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		name string
		args []string
		want int
	}{
		{"0", []string{"sh", "-c", "exit 0"}, 0},
		{"1", []string{"sh", "-c", "exit 1"}, 1},
		{"2", []string{"sh", "-c", "exit 2"}, 2},
		{"76", []string{"sh", "-c", "exit 76"}, 76},
		{"255", []string{"sh", "-c", "exit 255"}, 255},
		{"killed", []string{"sh", "-c", "kill -9 $$"}, 128 + 9},
		{"terminated", []string{"sh", "-c", "kill -TERM $$"}, 128 + 15},
		{"missing", []string{"no-such-command-anywhere"}, 127},
		{"missing path", []string{filepath.Join(dir, "nothing")}, 127},
		{"not a folder", []string{plain + "/x"}, 127},
		{"not executable", []string{plain}, 126},
		{"folder", []string{dir}, 126},
		{"no format", []string{noFormat}, 126},
		{"empty", []string{""}, 127},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			j := start(t, config{}, c.args...)
			j.wantCode(c.want)
			j.wantNothingLeft()
			if _, ok := j.last("released"); !ok {
				t.Error("the hold was not given up")
			}
			if c.want > 125 && c.want < 128 && !strings.Contains(j.output(), "cannot run") {
				t.Errorf("no word on why: %q", j.output())
			}
		})
	}
}

// SPEC UI1
// CASE B69
func TestArgumentsAndEnvironmentPassUnchanged(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "argv")
	args := append(self("argv", path), "--lease", "b", "-v", "", "a b", "$HOME", "*", "\xff\xfe", "--", "a\nb")
	j := newJob(t, config{}, args...)
	j.cmd.Env = append(j.cmd.Env, "EMPTY=", "SPACE=a b", "BYTES=\xff", "EQUALS=a=b")
	env := slices.Clone(j.cmd.Env)
	j.begin()
	j.wantCode(0)
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	argv, rest, _ := strings.Cut(string(raw), "\x01")
	if got := strings.Split(argv, "\x00"); !slices.Equal(got, args) {
		t.Errorf("arguments %q, want %q", got, args)
	}
	got := strings.Split(rest, "\x00")
	extra := slices.DeleteFunc(slices.Clone(got), func(e string) bool { return slices.Contains(env, e) })
	if len(extra) != 1 || !strings.HasPrefix(extra[0], "TENURE_DEADLINE_FILE=/") {
		t.Errorf("the command got %q beyond its environment", extra)
	}
	for _, e := range env {
		if !slices.Contains(got, e) {
			t.Errorf("missing in the command's environment: %q", e)
		}
	}
}

// The command has exactly the descriptors that the caller passed, and no pipe
// stays open because wrapper or supervisor hold it.
//
// SPEC UI1
// CASE B29
func TestNoDescriptorLeaks(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	// "exec 3>&-" gives the passed pipe up while the command goes on.
	j := newJob(t, config{}, "sh", "-c", "echo $$ >&3; ls -l /proc/$$/fd >&3; exec 3>&-; exec sleep 60")
	j.cmd.ExtraFiles = []*os.File{w}
	j.begin()
	w.Close()
	var text strings.Builder
	buf := make([]byte, 4096)
	_ = r.SetReadDeadline(time.Now().Add(patience))
	for {
		n, err := r.Read(buf)
		text.Write(buf[:n])
		if err != nil {
			if !strings.Contains(err.Error(), "EOF") {
				t.Fatalf("somebody still holds the passed pipe: %v", err)
			}
			break
		}
	}
	fds := map[string]string{}
	for line := range strings.Lines(text.String()) {
		if before, target, ok := strings.Cut(line, " -> "); ok {
			f := strings.Fields(before)
			fds[f[len(f)-1]] = strings.TrimSpace(target)
		}
	}
	want := []string{"0", "1", "2", "3"}
	for fd, target := range fds {
		// The shell keeps its own copies of redirected descriptors at 10 and above.
		if n, _ := strconv.Atoi(fd); !slices.Contains(want, fd) && n < 10 {
			t.Errorf("descriptor %s -> %s leaked", fd, target)
		}
		if strings.Contains(target, "socket:") {
			t.Errorf("descriptor %s is a socket: %s", fd, target)
		}
	}
	for _, fd := range want {
		if fds[fd] == "" {
			t.Errorf("descriptor %s is missing in %v", fd, fds)
		}
	}
	j.signal(unix.SIGTERM)
	j.wantCode(128 + 15)
}

// Signals that one process sends to the wrapper alone are passed on, once.
//
// SPEC UI1
func TestSignalsArePassedOn(t *testing.T) {
	t.Parallel()
	j := start(t, config{}, self("count")...)
	eventually(t, "counting", func() bool { return strings.Contains(j.output(), "counting") })
	for _, s := range []unix.Signal{unix.SIGINT, unix.SIGQUIT, unix.SIGHUP, unix.SIGTERM, unix.SIGUSR1} {
		j.signal(s)
	}
	eventually(t, "USR1 arrives last", func() bool { return strings.Contains(j.output(), "seen") })
	// Signals of different kinds may overtake each other: ask again.
	eventually(t, "all arrive once", func() bool {
		j.signal(unix.SIGUSR1)
		return strings.Contains(j.output(), "seen INT=1 QUIT=1 HUP=1 TERM=1")
	})
	j.signal(unix.SIGUSR2)
	j.wantCode(0)
}

// SPEC UI1
func TestDispositionsAndMaskStay(t *testing.T) {
	t.Parallel()
	const show = "grep -E 'Sig(Blk|Ign)' /proc/self/status"
	for _, c := range []struct{ name, before string }{
		{"default", ""},
		{"nohup", "trap '' HUP;"},
		{"background", "trap '' INT HUP;"},
		{"stops", "trap '' TSTP TTIN TTOU;"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			plain := newJob(t, config{}, "unused")
			plain.cmd.Path, plain.cmd.Args = "/bin/sh", []string{"sh", "-c", c.before + show}
			plain.begin()
			plain.wantCode(0)
			j := newJob(t, config{}, "sh", "-c", show)
			j.cmd.Args = append([]string{"sh", "-c", c.before + `exec "$0" "$@"`, os.Args[0]}, j.cmd.Args[1:]...)
			j.cmd.Path = "/bin/sh"
			j.begin()
			j.wantCode(0)
			if j.output() != plain.output() {
				t.Errorf("with the wrapper %q, without %q", j.output(), plain.output())
			}
		})
	}
}

// What the command leaves behind is ended before the hold is given up.
//
// SPEC UI1 LS6
// CASE B29
func TestLeftoversEndBeforeRelease(t *testing.T) {
	t.Parallel()
	containments(t, func(t *testing.T, treeOnly bool) {
		for _, c := range []struct {
			name string
			args []string
		}{
			{"background", []string{"sh", "-c", "setsid sleep 120 & exit 3"}},
			{"daemon", self("daemon", "2", "wait", "-")},
			{"stubborn daemon", self("daemon", "1", "stubborn", "-")},
		} {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				j := start(t, config{TreeOnly: treeOnly}, c.args...)
				j.await("released")
				j.wantNothingLeft()
				if got := j.result(); got.End != Exited || len(got.Survivors) > 0 {
					t.Errorf("result %+v", got)
				}
				if want := map[string]int{"background": 3}[c.name]; j.code() != want {
					t.Errorf("exit code %d, want %d", j.code(), want)
				}
			})
		}
	})
}

// A signal while the hold is not there yet ends the wait, and the command never
// runs.
//
// SPEC UI1
// CASE B72
func TestSignalEndsTheWait(t *testing.T) {
	t.Parallel()
	for _, s := range []unix.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT} {
		t.Run(unix.SignalName(s), func(t *testing.T) {
			t.Parallel()
			ran := filepath.Join(t.TempDir(), "ran")
			j := start(t, config{Wait: 60_000}, "touch", ran)
			j.await("supervisor")
			j.signal(s)
			j.wantCode(128 + int(s))
			if _, err := os.Stat(ran); err == nil {
				t.Error("the command ran")
			}
			eventually(t, "the supervisor ends", func() bool { return len(j.left()) == 0 })
		})
	}
}

// A second signal ends a command that did not heed the first, a third one at
// once.
//
// CASE B72
func TestSecondSignalSpeedsUp(t *testing.T) {
	t.Parallel()
	containments(t, func(t *testing.T, treeOnly bool) {
		ready := filepath.Join(t.TempDir(), "ready")
		j := start(t, config{TTL: 120_000, Grace: 30_000, TreeOnly: treeOnly}, self("stubborn", ready)...)
		helperPid(t, ready)
		began := testClock.Boot()
		for range 3 {
			j.signal(unix.SIGTERM)
			end := testClock.Boot() + tooClose + 50*time.Millisecond
			eventually(t, "time passes", func() bool { return testClock.Boot() > end })
		}
		j.wantCode(128 + 9)
		if took := testClock.Boot() - began; took > hurriedGrace {
			t.Errorf("three signals took %v", took)
		}
		j.wantNothingLeft()
		if got := j.result(); got.End != Interrupted {
			t.Errorf("result %+v", got)
		}
	})
}

// QUIT leaves no child, and a release that hangs can be hurried.
//
// CASE B72 B73
func TestQuitLeavesNoChild(t *testing.T) {
	t.Parallel()
	j := start(t, config{Release: 60_000}, "sh", "-c", "sleep 100 & sleep 100")
	j.running(3)
	j.signal(unix.SIGQUIT)
	j.result()
	j.wantNothingLeft()
	end := testClock.Boot() + tooClose + 50*time.Millisecond
	eventually(t, "time passes", func() bool { return testClock.Boot() > end })
	j.signal(unix.SIGTERM)
	j.wantCode(128 + 3)
}

// A service manager signals every process it finds, and some tools a process and
// its group: that is one request, the supervisor survives it, and the command
// gets its time.
//
// SPEC UI1
// CASE B72
func TestSignalToEveryProcess(t *testing.T) {
	t.Parallel()
	ready := filepath.Join(t.TempDir(), "ready")
	j := newJob(t, config{TTL: 60_000, Grace: 10_000}, "sh", "-c", `trap 'sleep 0.4; echo cleaned up; exit 6' TERM; echo -n $$ > `+ready+`; sleep 60 & wait`)
	j.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	j.begin()
	command := helperPid(t, ready)
	j.signalSupervisor(unix.SIGTERM)
	j.signal(unix.SIGTERM)
	send(t, command, unix.SIGTERM)
	sendGroup(t, j.cmd.Process.Pid, unix.SIGTERM)
	j.wantCode(6)
	if !strings.Contains(j.output(), "cleaned up") {
		t.Errorf("no time to clean up: %q", j.output())
	}
	j.await("released")
}

// Without any right beyond its own the run keeps its promises by the process
// table.
//
// SPEC UI1
func TestUnprivileged(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(j *job){
		"lost":              func(*job) {},
		"supervisor killed": func(j *job) { j.signalSupervisor(unix.SIGKILL) },
		"wrapper killed":    func(j *job) { j.signal(unix.SIGKILL) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := newJob(t, config{RenewFor: 300}, "sh", "-c", `trap '' TERM; setsid sh -c 'trap "" TERM; sleep 61; sleep 61' & sleep 60; sleep 60`)
			if os.Geteuid() == 0 {
				const nobody = 65534
				j.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
				dir := filepath.Dir(j.cfg.Log)
				if err := errors.Join(os.Chmod(dir, 0o777), os.Chmod(filepath.Dir(dir), 0o755)); err != nil {
					t.Fatal(err)
				}
			}
			j.cmd.Env = append(j.cmd.Env, "XDG_RUNTIME_DIR=")
			j.begin()
			j.running(4)
			if e, _ := j.last("supervisor"); os.Geteuid() == 0 && e.Text != "" {
				t.Errorf("nobody made a control group: %q", e.Text)
			}
			end(j)
			j.goneBy()
			j.code()
			eventually(t, "nothing is left", func() bool { return len(j.left()) == 0 })
		})
	}
}

// In a PID namespace whose /proc is still the outer one, process numbers there
// name strangers: a privileged run looks at its own, any other refuses.
//
// SPEC UI1
// CASE B32
func TestForeignProcfs(t *testing.T) {
	t.Parallel()
	ready := filepath.Join(t.TempDir(), "ready")
	j := newJob(t, config{}, "sh", "-c", `echo -n $$ > `+ready+`; setsid sleep 60 & exit 3`)
	flags := uintptr(syscall.CLONE_NEWPID)
	if os.Geteuid() != 0 {
		flags |= syscall.CLONE_NEWUSER
	}
	j.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
	j.begin()
	if code := j.code(); code == 64 {
		if os.Geteuid() == 0 || !strings.Contains(j.output(), "another PID namespace") {
			t.Errorf("refused: %s", j.output())
		}
		return
	}
	j.wantCode(3)
	if pid := helperPid(t, ready); pid > 20 {
		t.Errorf("the command's pid is %d: it is in no namespace of its own", pid)
	}
	if got := j.result(); got.End != Exited || len(got.Survivors) > 0 {
		t.Errorf("result %+v", got)
	}
	j.wantNothingLeft()
}

// Another process can see that the group of a run holds somebody, and that it is
// empty.
//
// SPEC LS14
func TestGroupIsSeenFromOutside(t *testing.T) {
	t.Parallel()
	j := start(t, config{TTL: 60_000}, "sleep", "60")
	j.running(1)
	ref := j.await("supervisor").Text
	if ref == "" {
		if c, err := newCage(os.Getpid()); err == nil {
			c.leave()
			c.remove(testClock)
			t.Fatal("this process can make a control group, the run did not")
		}
		return
	}
	if empty, err := CgroupEmpty(ref); err != nil || empty {
		t.Fatalf("while the command runs: %v, %v", empty, err)
	}
	j.signalSupervisor(unix.SIGSTOP) // nobody is left to clear up
	j.signal(unix.SIGKILL)
	j.signalSupervisor(unix.SIGKILL)
	eventually(t, "the group is empty", func() bool {
		empty, err := CgroupEmpty(ref)
		if err != nil {
			t.Fatal(err)
		}
		return empty
	})
}

// What left the control group is ended by the process table, and until then the
// group is not called empty, also if the supervisor is dead.
//
// SPEC LS14 UI1
func TestGroupIsNotEmptyBeforeTheTreeIsGone(t *testing.T) {
	t.Parallel()
	parent, err := ownGroup()
	if err != nil {
		return // then there are no groups here
	}
	file := filepath.Join(t.TempDir(), "daemon")
	j := start(t, config{TreeOnly: false}, "sh", "-c",
		`echo $$ > "$1/cgroup.procs"; "$0" helper daemon 1 stubborn "$2"; sleep 60`, testBinary, parent, file)
	daemon := helperPid(t, file)
	ref := j.await("supervisor").Text
	if ref == "" {
		return
	}
	if in := groupOf(ref).pids(); in[daemon] {
		t.Fatalf("process %d did not leave the group: %v", daemon, in)
	}
	j.signalSupervisor(unix.SIGKILL)
	eventually(t, "the group is empty", func() bool {
		empty, err := CgroupEmpty(ref)
		if err != nil {
			t.Fatal(err)
		}
		if p, err := readProcess(daemon); empty && err == nil && p.alive() {
			t.Fatal("the group is called empty while a process of the tree lives")
		}
		return empty
	})
	j.wantCode(testLost)
}

// The deadline file follows the hold and goes with it.
//
// SPEC UI1
func TestDeadlineFileFollowsTheHold(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "path")
	j := start(t, config{TTL: 1000, Grace: 100, Reserve: 50}, "sh", "-c", `echo -n "$TENURE_DEADLINE_FILE" > `+path+`; exec sleep 60`)
	file := ""
	eventually(t, "the command names the file", func() bool {
		raw, _ := os.ReadFile(path)
		file = string(raw)
		return file != ""
	})
	first, err := ReadDeadline(file)
	if err != nil || first.Token != 42 {
		t.Fatalf("read %+v, %v", first, err)
	}
	eventually(t, "the deadline moves on", func() bool {
		now, err := ReadDeadline(file)
		return err == nil && now.Boot > first.Boot
	})
	j.signal(unix.SIGTERM)
	j.wantCode(128 + 15)
	if _, err := ReadDeadline(file); !os.IsNotExist(err) {
		t.Errorf("after the end: %v", err)
	}
}

// A bad option is refused before anything is started.
func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	for _, o := range []Options{{Grace: -1, Reserve: 1}, {Grace: 1}, {Grace: 1, Reserve: -1}} {
		if _, err := Main(o, nil); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
}
