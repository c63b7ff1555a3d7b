//go:build linux

package proc

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-project/tenure/internal/clock"
	"golang.org/x/sys/unix"
)

// screen is a terminal with a program on it.
type screen struct {
	t    *testing.T
	tty  *os.File // our side
	mu   sync.Mutex
	text strings.Builder
}

// newTerminal opens a pseudo-terminal and returns both sides.
func newTerminal(t *testing.T) (*screen, *os.File) {
	t.Helper()
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := ours.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var n int
	_ = raw.Control(func(fd uintptr) {
		n, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		if err == nil {
			err = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	s := &screen{t: t, tty: ours}
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := ours.Read(buf)
			s.mu.Lock()
			s.text.Write(buf[:n])
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() { _ = ours.Close() })
	return s, theirs
}

func (s *screen) shown() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func (s *screen) write(keys string) {
	s.t.Helper()
	if _, err := s.tty.WriteString(keys); err != nil {
		s.t.Fatal(err)
	}
}

// expect waits until text was shown n times.
func (s *screen) expect(text string, n int) {
	s.t.Helper()
	end := testClock.Boot() + patience
	for strings.Count(s.shown(), text) < n {
		if testClock.Boot() > end {
			s.t.Fatalf("%q was not shown %d times; the screen:\n%s", text, n, s.shown())
		}
		clock.Sleep(testClock, 2*time.Millisecond, nil)
	}
}

// onTerminal starts a run as the only program of a session on a terminal.
func onTerminal(t *testing.T, cfg config, args ...string) (*job, *screen) {
	t.Helper()
	s, theirs := newTerminal(t)
	defer theirs.Close()
	j := newJob(t, cfg, args...)
	j.cmd.Stdin, j.cmd.Stdout, j.cmd.Stderr = theirs, theirs, theirs
	j.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	j.begin()
	return j, s
}

// The terminal's keys reach the command once, by the kernel; what a process
// sends to the wrapper alone is passed on.
//
// SPEC UI1
func TestKeysReachTheCommandOnce(t *testing.T) {
	t.Parallel()
	j, s := onTerminal(t, config{TTL: 60_000}, self("count")...)
	s.expect("counting", 1)
	// What the helper shows can be lost when a key discards pending output, so it
	// is asked until it is heard. Whatever the wrapper passed on by mistake has
	// arrived when a later signal has.
	ask := func(want string) {
		t.Helper()
		eventually(t, want, func() bool {
			j.signal(unix.SIGUSR1)
			return strings.Contains(s.shown(), want)
		})
	}
	s.write("\x03")
	ask("seen INT=1 QUIT=0 HUP=0")
	s.write("\x1c")
	ask("seen INT=1 QUIT=1 HUP=0")
	j.signal(unix.SIGHUP)
	ask("seen INT=1 QUIT=1 HUP=1")
	j.signal(unix.SIGINT)
	ask("seen INT=2 QUIT=1 HUP=1")
	j.signal(unix.SIGQUIT)
	ask("seen INT=2 QUIT=2 HUP=1")
	if strings.Contains(s.shown(), "INT=3") {
		t.Errorf("the screen:\n%s", s.shown())
	}
	j.signal(unix.SIGUSR2)
	j.wantCode(0)
}

// Ctrl-C while the hold is not there yet ends the wait.
//
// SPEC UI1
// CASE B72
func TestCtrlCWhileWaiting(t *testing.T) {
	t.Parallel()
	j, s := onTerminal(t, config{TTL: 60_000, Wait: 60_000}, "true")
	j.await("supervisor")
	s.write("\x03")
	j.wantCode(128 + 2)
}

// The command has the terminal: its size, its input, as without a wrapper.
//
// SPEC UI1
func TestCommandHasTheTerminal(t *testing.T) {
	t.Parallel()
	j, s := onTerminal(t, config{TTL: 60_000}, "sh", "-c", `test -t 0 && test -t 1 && test -t 2 && echo all three; read line; echo "got <$line>"; exit 9`)
	s.expect("all three", 1)
	s.write("hello\n")
	s.expect("got <hello>", 1)
	j.wantCode(9)
}

// shell is an interactive shell on a terminal.
type shell struct {
	*screen
	job *job // only its token, log and clean-up
	run string
}

func newShell(t *testing.T, cfg config) *shell {
	t.Helper()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Fatal("this test needs an interactive shell with job control: bash")
	}
	s, theirs := newTerminal(t)
	defer theirs.Close()
	j := newJob(t, cfg, "unused")
	j.cmd.Path, j.cmd.Args = bash, []string{"bash", "--norc", "--noprofile", "--noediting", "-i"}
	j.cmd.Env = append(j.cmd.Env, "PS1=ready$ ", "HISTFILE=")
	j.cmd.Stdin, j.cmd.Stdout, j.cmd.Stderr = theirs, theirs, theirs
	j.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	j.begin()
	sh := &shell{screen: s, job: j, run: testBinary + " run -- "}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("left: %+v", j.left())
		}
	})
	sh.expect("ready$ ", 1)
	return sh
}

// do types a line and waits for the prompt after it.
func (s *shell) do(line string) {
	s.t.Helper()
	before := strings.Count(s.shown(), "ready$ ")
	s.write(line + "\n")
	s.expect("ready$ ", before+1)
}

// find waits for the process of the job that f accepts.
func (s *shell) find(what string, f func(process, string) bool) process {
	s.t.Helper()
	var found process
	eventually(s.t, what+" on\n"+s.shown(), func() bool {
		for _, p := range s.job.left() {
			line, _ := os.ReadFile("/proc/" + strconv.Itoa(p.pid) + "/cmdline")
			if f(p, strings.ReplaceAll(string(line), "\x00", " ")) {
				found = p
				return true
			}
		}
		return false
	})
	return found
}

// Ctrl-Z stops the job for the shell, the hold goes on being renewed, and fg
// takes it up again, once and again.
//
// SPEC UI1
func TestStopAndForeground(t *testing.T) {
	t.Parallel()
	sh := newShell(t, config{TTL: 3000, Grace: 200, Reserve: 100})
	sh.write(sh.run + "cat\n")
	sh.job.await("deadline")
	sh.write("one\n")
	sh.expect("one", 2) // echo and cat
	for round := 1; round <= 2; round++ {
		sh.write("\x1a")
		sh.expect("Stopped", round)
		cat := sh.find("a stopped cat", func(p process, line string) bool { return line == "cat " && p.stopped() })
		stopped := testClock.Boot()
		eventually(t, "the hold outlives a deadline", func() bool { return testClock.Boot() > stopped+ms(3200) })
		if p, err := readProcess(cat.pid); err != nil || !p.stopped() {
			t.Fatalf("the stopped command is %+v, %v", p, err)
		}
		sh.write("fg\n")
		sh.find("a running cat", func(p process, line string) bool { return line == "cat " && !p.stopped() })
		sh.write(fmt.Sprintf("again%d\n", round))
		sh.expect(fmt.Sprintf("again%d", round), 2)
	}
	sh.do("\x04")
	sh.do("echo status=$?")
	sh.expect("status=0\r\n", 1)
	sh.write("exit 0\n")
	sh.job.wantCode(0)
}

// bg continues a stopped job in the background, and a job that reads from the
// terminal there stops again.
//
// SPEC UI1
func TestBackground(t *testing.T) {
	t.Parallel()
	sh := newShell(t, config{TTL: 60_000})
	sh.write(sh.run + "sh -c 'echo begun; read x; echo read-$x'\n")
	sh.expect("begun\r\n", 1)
	sh.write("\x1a")
	sh.expect("Stopped", 1)
	sh.do("bg")
	sh.find("a job stopped by its read", func(p process, line string) bool {
		return strings.Contains(line, "read x") && !strings.Contains(line, " run ") && p.stopped()
	})
	sh.find("a wrapper that is stopped with it", func(p process, line string) bool { return strings.Contains(line, " run ") && p.stopped() })
	eventually(t, "the shell knows that the job is stopped", func() bool {
		sh.do("jobs")
		return strings.Count(sh.shown(), "Stopped") >= 2
	})
	sh.write("fg\n")
	sh.find("a running job", func(p process, line string) bool {
		return strings.Contains(line, "read x") && !strings.Contains(line, " run ") && !p.stopped()
	})
	sh.write("word\n")
	sh.expect("read-word", 1)
	sh.do("echo status=$?")
	sh.expect("status=0\r\n", 1)
	sh.write("exit 0\n")
	sh.job.wantCode(0)
}

// A command that stops itself stops the job; SIGCONT to the wrapper alone takes
// both up again.
//
// SPEC UI1
func TestCommandStopsItself(t *testing.T) {
	t.Parallel()
	sh := newShell(t, config{TTL: 60_000})
	sh.write(sh.run + "sh -c 'kill -STOP $$; echo went on; exit 5'\n")
	sh.expect("Stopped", 1)
	w := sh.find("the stopped wrapper", func(p process, line string) bool { return strings.Contains(line, " run ") && p.stopped() })
	send(t, w.pid, unix.SIGCONT)
	if e := sh.job.await("exit wrapper"); e.Value != 5 {
		t.Errorf("exit code %d, want 5", e.Value)
	}
	sh.write("exit 0\n")
	sh.job.wantCode(0)
}

// SIGCONT to the command alone takes the wrapper along, and a stopped command
// that is killed ends the job.
//
// SPEC UI1
func TestCommandIsContinuedAlone(t *testing.T) {
	t.Parallel()
	sh := newShell(t, config{TTL: 60_000})
	sh.write(sh.run + "sleep 61\n")
	sh.find("the command", func(p process, line string) bool { return line == "sleep 61 " })
	sh.write("\x1a")
	sh.expect("Stopped", 1)
	sleeping := sh.find("the stopped command", func(p process, line string) bool { return line == "sleep 61 " && p.stopped() })
	isWrapper := func(line string) bool { return strings.Contains(line, " run ") }
	sh.find("the stopped wrapper", func(p process, line string) bool { return isWrapper(line) && p.stopped() })
	send(t, sleeping.pid, unix.SIGCONT)
	eventually(t, "nothing is stopped", func() bool {
		for _, p := range sh.job.left() {
			if p.stopped() {
				return false
			}
		}
		return true
	})
	send(t, sleeping.pid, unix.SIGSTOP)
	sh.find("the stopped wrapper", func(p process, line string) bool { return isWrapper(line) && p.stopped() })
	send(t, sleeping.pid, unix.SIGKILL)
	eventually(t, "only the shell is left", func() bool { return len(sh.job.left()) == 1 })
	sh.do("wait %1; echo status=$?")
	sh.expect("status=137\r\n", 1)
	sh.write("exit 0\n")
	sh.job.wantCode(0)
}

// The whole job is stopped at once by SIGSTOP, which no process can mirror, and
// fg takes all of it up again. TSTP to the wrapper alone stops the command too.
//
// SPEC UI1
func TestJobIsStoppedFromOutside(t *testing.T) {
	t.Parallel()
	sh := newShell(t, config{TTL: 60_000})
	sh.write(sh.run + "cat\n")
	cat := sh.find("the command", func(p process, line string) bool { return line == "cat " })
	wrapper := sh.find("the wrapper, which leads the group", func(p process, line string) bool { return p.pid == cat.pgrp })
	for round, stop := range []func(){
		func() { sendGroup(t, cat.pgrp, unix.SIGSTOP) },
		func() { send(t, wrapper.pid, unix.SIGTSTP) },
		func() { send(t, cat.pid, unix.SIGTSTP) },
	} {
		stop()
		sh.expect("Stopped", round+1)
		sh.find("the stopped command", func(p process, line string) bool { return p.pid == cat.pid && p.stopped() })
		sh.write("fg\n")
		sh.find("the running command", func(p process, line string) bool { return p.pid == cat.pid && !p.stopped() })
		sh.find("the running wrapper", func(p process, line string) bool { return p.pid == wrapper.pid && !p.stopped() })
		sh.write(fmt.Sprintf("again%d\n", round))
		sh.expect(fmt.Sprintf("again%d", round), 2)
	}
	sh.do("\x04")
	sh.write("exit 0\n")
	sh.job.wantCode(0)
}

// A job can be stopped while it waits for the hold, and waits on after fg.
//
// SPEC UI1
func TestStopWhileWaiting(t *testing.T) {
	t.Parallel()
	sh := newShell(t, config{TTL: 60_000, Wait: 60_000})
	sh.write(sh.run + "true\n")
	sh.job.await("supervisor")
	for round := 1; round <= 2; round++ {
		sh.write("\x1a")
		sh.expect("Stopped", round)
		sh.write("fg\n")
		eventually(t, "nothing is stopped", func() bool {
			for _, p := range sh.job.left() {
				if p.stopped() {
					return false
				}
			}
			return true
		})
	}
	sh.do("\x03")
	sh.do("echo status=$?")
	sh.expect("status=130\r\n", 1)
	sh.write("exit 0\n")
	sh.job.wantCode(0)
}

// Pipes end as without a wrapper, in both directions.
//
// SPEC UI1
func TestPipes(t *testing.T) {
	t.Parallel()
	sh := newShell(t, config{TTL: 60_000})
	sh.do(sh.run + "yes | head -n 2; echo status=${PIPESTATUS[*]}")
	sh.expect("status=141 0\r\n", 1)
	sh.do("echo through | " + sh.run + "cat | tr a-z A-Z")
	sh.expect("THROUGH", 1)
	// The reader ends when the command gives its output up, not when it exits.
	flag := filepath.Join(t.TempDir(), "flag")
	sh.do(sh.run + "sh -c 'echo last; exec >&-; while [ ! -e " + flag + " ]; do sleep 0.05; done; exit 4' | { cat; touch " + flag + "; }; echo status=${PIPESTATUS[*]}")
	sh.expect("status=4 0\r\n", 1)
	sh.write("exit 0\n")
	sh.job.wantCode(0)
}

// A shell inside a run has job control of its own, and can be suspended.
//
// SPEC UI1
func TestShellInside(t *testing.T) {
	t.Parallel()
	sh := newShell(t, config{TTL: 60_000})
	sh.do(sh.run + "env PS1='re''ady$ in' bash --norc --noprofile --noediting -i")
	sh.write("sleep 62\n")
	sh.find("the inner command", func(p process, line string) bool { return line == "sleep 62 " })
	sh.write("\x1a")
	sh.expect("Stopped", 1)
	sh.find("the stopped inner command", func(p process, line string) bool { return line == "sleep 62 " && p.stopped() })
	sh.write("fg\n")
	sh.find("the running inner command", func(p process, line string) bool { return line == "sleep 62 " && !p.stopped() })
	sh.do("\x03")
	sh.do("suspend")
	sh.expect("Stopped", 2)
	sh.do("echo outer")
	sh.expect("outer\r\n", 1)
	sh.do("fg")
	sh.do("echo back")
	sh.expect("back\r\n", 1)
	sh.do("exit 6")
	sh.do("echo status=$?")
	sh.expect("status=6\r\n", 1)
	sh.write("exit 0\n")
	sh.job.wantCode(0)
}
