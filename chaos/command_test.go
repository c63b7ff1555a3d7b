//go:build linux

package chaos

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// tenure is the path of the command, built once.
var tenure = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "tenure-chaos-")
	if err != nil {
		return "", err
	}
	binDir = dir
	path := filepath.Join(dir, "tenure")
	build := exec.Command("go", "build", "-o", path, "github.com/tenure-project/tenure/cmd/tenure")
	build.Dir = ".." // the workspace knows every module
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	return path, nil
})

var binDir string

func TestMain(m *testing.M) {
	flag.Parse()
	// They wait for TTLs most of the time, not for a processor.
	if err := flag.Set("test.parallel", strconv.Itoa(2*runtime.GOMAXPROCS(0))); err != nil {
		panic(err)
	}
	code := m.Run()
	if binDir != "" {
		_ = os.RemoveAll(binDir)
	}
	os.Exit(code)
}

// stage is where one test plays: a place, and a folder for what workers say.
type stage struct {
	*testing.T
	place
	backend, exe, dir string
}

func newStage(t *testing.T, b backend) *stage {
	t.Helper()
	exe, err := tenure()
	if err != nil {
		t.Fatal(err)
	}
	return &stage{T: t, place: b.open(t), backend: b.name, exe: exe, dir: t.TempDir()}
}

// program is a running command.
type program struct {
	s    *stage
	cmd  *exec.Cmd
	out  lockedBuffer
	done chan struct{}
}

// start starts tenure with the stage's store. It ends with the test.
func (s *stage) start(args ...string) *program {
	s.Helper()
	p := &program{s: s, cmd: exec.Command(s.exe, args...), done: make(chan struct{})}
	p.cmd.Dir = s.dir
	p.cmd.Env = append(os.Environ(), append(s.env, "TENURE_STORE="+s.url, "HOME="+s.dir, "XDG_RUNTIME_DIR=")...)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	p.cmd.WaitDelay = time.Minute
	if err := p.cmd.Start(); err != nil {
		s.Fatal(err)
	}
	go func() { _ = p.cmd.Wait(); close(p.done) }()
	s.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
	})
	return p
}

// want waits for the end and checks the exit code.
func (p *program) want(code int) string {
	p.s.Helper()
	select {
	case <-p.done:
	case <-time.After(3 * time.Minute):
		p.s.Fatalf("%q goes on and on:\n%s", p.cmd.Args, p.out.String())
	}
	if got := p.cmd.ProcessState.ExitCode(); got != code {
		p.s.Fatalf("%q ended with %d (%v), want %d:\n%s", p.cmd.Args, got, p.cmd.ProcessState, code, p.out.String())
	}
	return p.out.String()
}

// run is start and want.
func (s *stage) run(code int, args ...string) string {
	s.Helper()
	return s.start(args...).want(code)
}

// holds starts a holder of the lease job whose worker then does what it is told.
func (s *stage) holds(then string, flags ...string) *program {
	s.Helper()
	args := append([]string{"run", "--lease", "job", "--ttl", s.ttl.String()}, flags...)
	return s.start(append(args, work("log", then)...)...)
}

// work is a worker for `tenure run`: it says in log when it began (nanoseconds
// of the wall clock, which all have in common here), under which token, and
// which processes are behind it, and then what it was told to.
func work(log, then string) []string {
	return []string{"--", "sh", "-c", `echo "begin $TENURE_TOKEN $(date +%s%N) $$ $PPID" >>` + log + "; " + then}
}

// begun is what a worker said.
type begun struct {
	token           uint64
	at              time.Time
	pid, supervisor int
}

// begins waits until log tells of n workers and returns the last.
func (s *stage) begins(log string, n int) begun {
	s.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for {
		text, err := os.ReadFile(filepath.Join(s.dir, log))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			s.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		if len(lines) >= n && strings.HasSuffix(string(text), "\n") {
			return s.parse(lines[n-1])
		}
		if time.Now().After(deadline) {
			s.Fatalf("%d workers began, want %d:\n%s", len(lines), n, text)
		}
		time.Sleep(2 * time.Millisecond) // poll: a shell writes the file
	}
}

func (s *stage) parse(line string) begun {
	s.Helper()
	f := strings.Fields(line)
	if len(f) != 5 || f[0] != "begin" {
		s.Fatalf("a worker said %q", line)
	}
	var n [4]int64
	for i := range n {
		var err error
		if n[i], err = strconv.ParseInt(f[i+1], 10, 64); err != nil {
			s.Fatalf("a worker said %q", line)
		}
	}
	return begun{uint64(n[0]), time.Unix(0, n[1]), int(n[2]), int(n[3])}
}

// signalAll sends sig to every process of a holder: its wrapper, supervisor and
// command, in this order.
func (s *stage) signalAll(p *program, w begun, sig syscall.Signal) time.Time {
	s.Helper()
	at := time.Now()
	for _, pid := range []int{p.cmd.Process.Pid, w.supervisor, w.pid} {
		err := syscall.Kill(pid, sig)
		if sig == syscall.SIGCONT && errors.Is(err, syscall.ESRCH) {
			continue // one that woke before it ended it
		}
		if err != nil {
			s.Fatalf("signal %v to %d: %v", sig, pid, err)
		}
	}
	return at
}

func mkdir(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(path, 0o700); err != nil {
		t.Fatal(err)
	}
}

// lockedBuffer collects output while others read it.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
