package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
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
)

// patience is how long a test waits for anything that must come. It is far above
// every TTL here: a loaded machine is slow, not wrong.
const patience = 45 * time.Second

// markVar is in the environment of every process of a test, so that none of them
// outlives it.
const markVar = "TENURE_TEST_MARK"

// eventually polls other processes' traces until f is true.
func eventually(t *testing.T, what func() string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !f(); time.Sleep(3 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", patience, what())
		}
	}
}

// place is a store, and the processes that use it.
type place struct {
	t    *testing.T
	dir  string
	url  string
	mark string
	env  []string
}

func newPlace(t *testing.T, scheme string) *place {
	t.Helper()
	dir := t.TempDir()
	p := &place{t: t, dir: dir, mark: rand.Text()}
	p.url = map[string]string{"file": "file://" + dir + "/store", "sqlite": "sqlite://" + dir + "/store.db"}[scheme]
	p.env = append(os.Environ(), markVar+"="+p.mark, "TENURE_STORE="+p.url, "HOME="+dir, "XDG_RUNTIME_DIR="+dir+"/run", "GORACE=atexit_sleep_ms=0")
	if err := os.Mkdir(dir+"/run", 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.cleanUp)
	return p
}

func (p *place) path(name string) string { return filepath.Join(p.dir, name) }

func (p *place) touch(name string) {
	p.t.Helper()
	if err := os.WriteFile(p.path(name), nil, 0o600); err != nil {
		p.t.Fatal(err)
	}
}

func (p *place) remove(name string) {
	p.t.Helper()
	if err := os.Remove(p.path(name)); err != nil {
		p.t.Fatal(err)
	}
}

// cleanUp ends what is left of this test's processes, by PID.
func (p *place) cleanUp() {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) { // a bounded poll
		left := p.processes()
		if len(left) == 0 {
			return
		}
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	p.t.Error("processes are left that cannot be ended")
}

// processes are the living processes of this test.
func (p *place) processes() []int {
	var found []int
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		env, err := os.ReadFile("/proc/" + e.Name() + "/environ")
		if err == nil && bytes.Contains(env, []byte(markVar+"="+p.mark)) && alive(pid) {
			found = append(found, pid)
		}
	}
	return found
}

// alive says whether a process is there and not a zombie.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

// program is one process of the program under test.
type program struct {
	p     *place
	cmd   *exec.Cmd
	ended chan struct{}

	mu  sync.Mutex
	out bytes.Buffer // both streams
}

func (g *program) Write(b []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.out.Write(b)
}

func (g *program) output() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.out.String()
}

// start starts a program of TestMain in a process group of its own.
func (p *place) start(args ...string) *program { return p.startWith(nil, args...) }

func (p *place) startWith(env []string, args ...string) *program {
	p.t.Helper()
	g := &program{p: p, cmd: exec.Command(args[0], args[1:]...), ended: make(chan struct{})}
	g.cmd.Env = append(p.env[:len(p.env):len(p.env)], env...)
	g.cmd.Dir = p.dir
	g.cmd.Stdout, g.cmd.Stderr = g, g
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := g.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	go func() {
		_ = g.cmd.Wait()
		close(g.ended)
	}()
	return g
}

// wait returns the exit code; 128 and the signal's number if one ended it.
func (g *program) wait() int {
	g.p.t.Helper()
	select {
	case <-g.ended:
	case <-time.After(patience):
		g.p.t.Fatalf("%v did not end within %v; it said\n%s", g.cmd.Args, patience, g.output())
	}
	st := g.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if st.Signaled() {
		return 128 + int(st.Signal())
	}
	return st.ExitStatus()
}

func (g *program) want(code int, texts ...string) {
	g.p.t.Helper()
	got := g.wait()
	if got != code {
		g.p.t.Errorf("%v: exit code %d, want %d; it said\n%s", g.cmd.Args, got, code, g.output())
	}
	for _, text := range texts {
		if !strings.Contains(g.output(), text) {
			g.p.t.Errorf("%v: %q is missing in\n%s", g.cmd.Args, text, g.output())
		}
	}
}

func (g *program) signal(s syscall.Signal) {
	g.p.t.Helper()
	if err := g.cmd.Process.Signal(s); err != nil {
		g.p.t.Fatalf("%v: %v; it said\n%s", g.cmd.Args, err, g.output())
	}
}

// events are what the workers of a log said so far.
func (p *place) events(log string) []workEvent {
	raw, err := os.ReadFile(p.path(log))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		p.t.Fatal(err)
	}
	var all []workEvent
	for line := range strings.Lines(string(raw)) {
		var e workEvent
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			p.t.Fatalf("%s: %q: %v", log, line, err)
		}
		all = append(all, e)
	}
	return all
}

func (p *place) count(log, what string) int {
	n := 0
	for _, e := range p.events(log) {
		if e.What == what {
			n++
		}
	}
	return n
}

// await returns the n-th event of a kind, counted from 1.
func (p *place) await(g *program, log, what string, n int) (found workEvent) {
	p.t.Helper()
	why := func() string {
		return fmt.Sprintf("%s %d in %s: %v; the program said %q", what, n, log, p.events(log), g.output())
	}
	eventually(p.t, why, func() bool {
		left := n
		for _, e := range p.events(log) {
			if e.What == what {
				if left--; left == 0 {
					found = e
					return true
				}
			}
		}
		return false
	})
	return found
}

// alone wants no overlap, and tokens that rise from one worker to the next.
func (p *place) alone(log string) {
	p.t.Helper()
	var last workEvent
	for _, e := range p.events(log) {
		switch {
		case e.What == "overlap":
			p.t.Errorf("token %d began while another one worked (%s; last: %+v)", e.Token, e.Text, last)
		case e.What == "begin" && e.Token <= last.Token:
			p.t.Errorf("token %d began after token %d", e.Token, last.Token)
		case e.What == "begin":
			last = e
		}
	}
}

// status reads a status file.
func (p *place) status(name string) runStatus {
	p.t.Helper()
	raw, err := os.ReadFile(p.path(name))
	if err != nil {
		p.t.Fatal(err)
	}
	var st runStatus
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&st); err != nil {
		p.t.Fatalf("%s: %v: %s", name, err, raw)
	}
	return st
}

func (p *place) write(name, text string) {
	p.t.Helper()
	if err := os.WriteFile(p.path(name), []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
}
