//go:build linux || darwin

package filestore

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-project/tenure/store"
)

// roleVariable makes the test binary play another process. It holds a part.
const roleVariable = "TENURE_FILESTORE_ROLE"

// part is what another process does in a test.
type part struct {
	Role    string
	Path    string
	Op      string
	Key     string
	Body    string
	Version store.Version
	Step    int                 // die or stop before this step
	Signal  syscall.Signal      // by this signal
	User    *syscall.Credential `json:"-"` // as whom it runs; nil for the same user
}

// playRole is main of the other process. Its exit status is 0 if all went well.
func playRole(text string) int {
	var p part
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		fmt.Println("bad part:", err)
		return 2
	}
	if p.Role == "idle" {
		_, _ = io.Copy(io.Discard, os.Stdin)
		return 0
	}
	halt := &halter{part: p}
	s, err := Open(p.Path, hasty, traced(halt))
	if err != nil {
		fmt.Println(err)
		return 2
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*limit)
	defer cancel()
	switch p.Role {
	case "write":
		halt.on.Store(true)
		err = p.write(ctx, s)
		_, _ = s.Get(ctx, p.Key, MaxBody) // waits until the write has tidied up
		halt.on.Store(false)
		fmt.Println("ended", kindName(err))
		return 0
	case "wait":
		return p.wait(ctx, s)
	case "witness":
		return p.witness(ctx, s)
	}
	fmt.Println("unknown role")
	return 2
}

func (p part) write(ctx context.Context, s *Store) error {
	var err error
	switch p.Op {
	case "create":
		_, err = s.Create(ctx, p.Key, []byte(p.Body))
	case "replace":
		_, err = s.Replace(ctx, p.Key, []byte(p.Body), p.Version)
	case "delete-if":
		err = s.DeleteIf(ctx, p.Key, p.Version)
	case "delete":
		err = s.Delete(ctx, p.Key)
	default:
		err = errors.New("unknown operation")
	}
	return err
}

// kindName is an error's kind in words, "" for none.
func kindName(err error) string {
	if err == nil {
		return ""
	}
	return store.KindOf(err).Error()
}

// halter ends or stops its own process before the step of a number.
type halter struct {
	part part
	on   atomic.Bool
	n    atomic.Int64
}

func (h *halter) before(st step) error {
	if !h.on.Load() || h.n.Add(1) != int64(h.part.Step) {
		return nil
	}
	if h.part.Signal == syscall.SIGKILL {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
	awake := make(chan os.Signal, 1)
	signal.Notify(awake, syscall.SIGCONT)
	fmt.Println("stops", st.kind)
	_ = syscall.Kill(os.Getpid(), h.part.Signal)
	<-awake // so that nothing happens before the stop takes effect
	return nil
}

func (h *halter) after(step, error) {}

// process is another process of a test.
type process struct {
	t     testing.TB
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Reader
	ended bool
}

// start plays a part in another process, which the test ends.
func start(t testing.TB, p part) *process {
	t.Helper()
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	if p.User != nil {
		cmd.Path = "/proc/self/exe" // the other user may not search the directories above
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: p.User}
	}
	cmd.Env = append(os.Environ(), roleVariable+"="+string(text), "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pr := &process{t: t, cmd: cmd, in: in, out: bufio.NewReader(out)}
	t.Cleanup(func() { pr.signal(syscall.SIGKILL); pr.wait() })
	return pr
}

// line is the next line that the process prints; "" if it ended.
func (p *process) line() string {
	p.t.Helper()
	got := make(chan string, 1)
	go func() {
		s, _ := p.out.ReadString('\n')
		got <- strings.TrimSpace(s)
	}()
	select {
	case s := <-got:
		return s
	case <-time.After(limit):
		p.t.Fatal("the other process says nothing")
		return ""
	}
}

func (p *process) expect(want string) {
	p.t.Helper()
	if got := p.line(); got != want {
		p.t.Fatalf("the other process says %q, want %q", got, want)
	}
}

func (p *process) tell(line string) {
	p.t.Helper()
	if _, err := fmt.Fprintln(p.in, line); err != nil {
		p.t.Fatal(err)
	}
}

func (p *process) signal(sig syscall.Signal) {
	if !p.ended {
		_ = p.cmd.Process.Signal(sig)
	}
}

// stopped waits until the process is really stopped.
func (p *process) stopped() {
	p.t.Helper()
	var ws syscall.WaitStatus
	for {
		_, err := syscall.Wait4(p.cmd.Process.Pid, &ws, syscall.WUNTRACED, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || !ws.Stopped() {
			p.t.Fatalf("waiting for the other process to stop: %v, status %v", err, ws)
		}
		return
	}
}

// wait waits for the end and returns the exit status; -1 if it was killed.
func (p *process) wait() int {
	if !p.ended {
		p.ended = true
		_ = p.in.Close()
		_, _ = io.Copy(io.Discard, p.out)
		_ = p.cmd.Wait()
	}
	return p.cmd.ProcessState.ExitCode()
}
