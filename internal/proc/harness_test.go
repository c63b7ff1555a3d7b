//go:build linux

package proc

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-project/tenure/internal/clock"
	"golang.org/x/sys/unix"
)

// patience is how long a test waits for anything; it is above killBound.
const patience = 20 * time.Second

var testClock = clock.NewSystem()

// testBinary is this program's path.
var testBinary, _ = os.Executable()

// eventually polls until f is true.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := testClock.Boot() + patience; !f(); {
		if testClock.Boot() > end {
			t.Fatalf("not within %v: %s", patience, what)
		}
		clock.Sleep(testClock, 2*time.Millisecond, nil)
	}
}

// job is a run under test.
type job struct {
	t     *testing.T
	cfg   config
	token string
	cmd   *exec.Cmd
	ended chan struct{}

	mu  sync.Mutex
	out bytes.Buffer
}

func (j *job) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.out.Write(p)
}

func (j *job) output() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.out.String()
}

// newJob prepares a run of args. Defaults: TTL 2 s, grace 400 ms, reserve 200 ms.
func newJob(t *testing.T, cfg config, args ...string) *job {
	t.Helper()
	dir := t.TempDir()
	if cfg.TTL == 0 {
		cfg.TTL = 2000
	}
	if cfg.Grace == 0 {
		cfg.Grace = 400
	}
	if cfg.Reserve == 0 {
		cfg.Reserve = 200
	}
	cfg.Log = filepath.Join(dir, "log")
	j := &job{t: t, cfg: cfg, token: rand.Text(), ended: make(chan struct{})}
	text, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	j.cmd = exec.Command("/proc/self/exe", append([]string{"run", "--"}, args...)...)
	j.cmd.Args[0] = os.Args[0]
	j.cmd.Env = append(os.Environ(), configVar+"="+string(text), tokenVar+"="+j.token)
	j.cmd.Stdout, j.cmd.Stderr = j, j
	t.Cleanup(j.cleanup)
	return j
}

// start starts a run of args and waits for it in the background.
func start(t *testing.T, cfg config, args ...string) *job {
	t.Helper()
	j := newJob(t, cfg, args...)
	j.begin()
	return j
}

func (j *job) begin() {
	j.t.Helper()
	if err := j.cmd.Start(); err != nil {
		j.t.Fatal(err)
	}
	go func() {
		_ = j.cmd.Wait()
		close(j.ended)
	}()
}

// self is a command line for a helper.
func self(args ...string) []string { return append([]string{"/proc/self/exe", "helper"}, args...) }

// left lists the living processes of the job, by the token in their
// environment, which no change of group, session or parent takes from them.
func (j *job) left() []process {
	table, err := processTable()
	if err != nil {
		j.t.Fatal(err)
	}
	var found []process
	for _, p := range table {
		env, err := os.ReadFile("/proc/" + strconv.Itoa(p.pid) + "/environ")
		if err == nil && p.alive() && bytes.Contains(env, []byte(tokenVar+"="+j.token)) {
			found = append(found, p)
		}
	}
	return found
}

// tree is what is left without wrapper and supervisor.
func (j *job) tree() []process {
	sup := j.supervisor()
	return slices.DeleteFunc(j.left(), func(p process) bool { return p.pid == j.cmd.Process.Pid || p.pid == sup })
}

func (j *job) cleanup() {
	if j.cmd.Process == nil {
		return
	}
	for end := testClock.Boot() + patience; testClock.Boot() < end; {
		left := j.left()
		if len(left) == 0 {
			break
		}
		for _, p := range left {
			_ = signalProcess(p, unix.SIGKILL)
		}
		clock.Sleep(testClock, 5*time.Millisecond, nil)
	}
	<-j.ended
	for _, e := range j.events() {
		if r, err := parseCgroupRef(e.Text); e.What == "supervisor" && err == nil {
			_ = removeGroups(r.path)
		}
	}
}

func (j *job) events() []event {
	raw, err := os.ReadFile(j.cfg.Log)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		j.t.Fatal(err)
	}
	var all []event
	for line := range strings.Lines(string(raw)) {
		var e event
		if json.Unmarshal([]byte(line), &e) == nil {
			all = append(all, e)
		}
	}
	return all
}

// last is the newest event of a kind.
func (j *job) last(what string) (event, bool) {
	all := j.events()
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].What == what {
			return all[i], true
		}
	}
	return event{}, false
}

func (j *job) await(what string) event {
	j.t.Helper()
	var e event
	eventually(j.t, "event "+what+" in\n"+j.output(), func() (ok bool) { e, ok = j.last(what); return ok })
	return e
}

func (j *job) supervisor() int {
	if e, ok := j.last("supervisor"); ok {
		return e.Pid
	}
	return 0
}

// running waits until n processes of the command's tree run, and returns them.
func (j *job) running(n int) []process {
	j.t.Helper()
	j.await("supervisor")
	var found []process
	eventually(j.t, "the command runs", func() bool {
		found = j.tree()
		return len(found) >= n
	})
	return found
}

// helperPid waits until a helper wrote its pid to path.
func helperPid(t *testing.T, path string) int {
	t.Helper()
	pid := 0
	eventually(t, "helper writes "+path, func() bool {
		raw, err := os.ReadFile(path)
		if err != nil {
			return false
		}
		pid, err = strconv.Atoi(string(raw))
		return err == nil
	})
	return pid
}

// signal signals the wrapper.
func (j *job) signal(sig unix.Signal) {
	j.t.Helper()
	send(j.t, j.cmd.Process.Pid, sig)
}

// signalSupervisor signals the supervisor.
func (j *job) signalSupervisor(sig unix.Signal) {
	j.t.Helper()
	send(j.t, j.await("supervisor").Pid, sig)
}

// send signals one process; 0 and below would be many.
func send(t *testing.T, pid int, sig unix.Signal) {
	t.Helper()
	if pid <= 1 {
		t.Fatalf("signal %v to process %d", sig, pid)
	}
	if err := unix.Kill(pid, sig); err != nil {
		t.Fatal(err)
	}
}

// sendGroup signals a process group.
func sendGroup(t *testing.T, group int, sig unix.Signal) {
	t.Helper()
	if group <= 1 || group == unix.Getpgrp() {
		t.Fatalf("signal %v to process group %d", sig, group)
	}
	if err := unix.Kill(-group, sig); err != nil {
		t.Fatal(err)
	}
}

// code waits for the wrapper and returns its exit code as a shell sees it.
func (j *job) code() int {
	j.t.Helper()
	select {
	case <-j.ended:
	case <-time.After(patience):
		j.t.Fatalf("the wrapper did not end; left: %v\n%s", j.left(), j.output())
	}
	status := j.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return 1000 + int(status.Signal())
	}
	return status.ExitStatus()
}

func (j *job) wantCode(want int) {
	j.t.Helper()
	if got := j.code(); got != want {
		j.t.Errorf("exit code %d, want %d\n%s\n%v", got, want, j.output(), j.events())
	}
}

// wantNothingLeft requires that the whole tree is gone now.
func (j *job) wantNothingLeft() {
	j.t.Helper()
	if left := j.tree(); len(left) > 0 {
		j.t.Errorf("left behind: %+v", left)
	}
}

// goneBy waits until the tree is gone. It must never be seen alive at or after
// the newest deadline that the hold ever had.
func (j *job) goneBy() {
	j.t.Helper()
	var seen time.Duration
	eventually(j.t, "the tree is gone", func() bool {
		now := testClock.Boot()
		if len(j.tree()) == 0 {
			return true
		}
		seen = now
		return false
	})
	d, ok := j.last("deadline")
	if !ok {
		j.t.Fatal("no deadline was logged")
	}
	if seen >= d.Value {
		j.t.Errorf("the tree was seen alive %v after the deadline", seen-d.Value)
	}
	j.t.Logf("last seen alive %v before the deadline", d.Value-seen)
}

func (j *job) result() Result {
	j.t.Helper()
	var got struct {
		End          End
		Code, Signal int
		Survivors    []Survivor
	}
	if err := json.Unmarshal([]byte(j.await("result").Text), &got); err != nil {
		j.t.Logf("result: %v", err)
	}
	return Result{End: got.End, Code: got.Code, Signal: got.Signal, Survivors: got.Survivors}
}

// containments runs a test in a control group, if one can be made, and without.
func containments(t *testing.T, f func(t *testing.T, treeOnly bool)) {
	for _, treeOnly := range []bool{false, true} {
		name := "cgroup"
		if treeOnly {
			name = "tree"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, treeOnly)
		})
	}
}
