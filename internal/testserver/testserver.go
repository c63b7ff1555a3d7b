// Package testserver starts the real servers that tests talk to: versitygw,
// Azurite and PostgreSQL, each a process of its own on the loopback interface
// with its data in a temporary folder, gone with the test.
//
// scripts/servers.sh puts the programs in place. A server that is not there
// makes a test skip and say so; with CI set in the environment it fails it.
package testserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"
)

// ErrMissing says that a server's program is not on this machine.
var ErrMissing = errors.New("this server is not on this machine; run `make servers`")

// Need turns the error of a start into a skipped test where the server is
// missing and CI is not set, and into a failed one otherwise. It does nothing
// if err is nil.
func Need(t testing.TB, server string, err error) {
	t.Helper()
	switch {
	case err == nil:
	case errors.Is(err, ErrMissing) && os.Getenv("CI") == "":
		t.Skipf("NOT TESTED against %s: %v", server, err)
	default:
		t.Fatalf("%s: %v", server, err)
	}
}

// Process is a server that a test started.
type Process struct {
	cmd  *exec.Cmd
	out  *tail
	done chan struct{}
	err  error // why it ended; read after done
}

// Start starts cmd and returns once ready returns nil, which is asked every few
// milliseconds for at most within. The process dies with the caller where the
// system can do that.
func Start(cmd *exec.Cmd, ready func(context.Context) error, within time.Duration) (*Process, error) {
	p := &Process{cmd: cmd, out: &tail{}, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p.out, p.out
	dieWithParent(cmd)
	if err := p.start(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	for {
		err := ready(ctx)
		if err == nil {
			return p, nil
		}
		select {
		case <-p.done:
			return nil, fmt.Errorf("%s ended before it was ready: %w\n%s", cmd.Path, p.err, p.Output())
		case <-ctx.Done():
			p.Stop()
			return nil, fmt.Errorf("%s was not ready within %v: %w\n%s", cmd.Path, within, err, p.Output())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// start starts the process from a thread that lives as long as it: on Linux the
// death signal of a child is bound to its parent's thread.
func (p *Process) start() error {
	began := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		began <- err
		if err != nil {
			return
		}
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return <-began
}

// Pid is the process id, for tests that kill or stop the server.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Output is the end of what the process printed.
func (p *Process) Output() string { return p.out.String() }

// Stop kills the process and waits for its end.
func (p *Process) Stop() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// FreePort returns a loopback TCP port that was free a moment ago.
func FreePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// Dialable is a ready check: something accepts connections at addr.
func Dialable(addr string) func(context.Context) error {
	return func(ctx context.Context) error {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		if err != nil {
			return err
		}
		return c.Close()
	}
}

// Cache is a path under the tree's .cache folder, or ErrMissing if nothing is
// there. The tree is the one that holds go.work above the working folder.
func Cache(elem ...string) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			break
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", fmt.Errorf("%w (no go.work above the working folder)", ErrMissing)
		}
		dir = up
	}
	path := filepath.Join(append([]string{dir, ".cache"}, elem...)...)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%w (%v)", ErrMissing, err)
	}
	return path, nil
}

// tail keeps the last bytes written to it.
type tail struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.buf.Len() > 64<<10 {
		t.buf.Reset()
	}
	return t.buf.Write(b)
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.buf.String()
}
