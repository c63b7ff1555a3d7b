//go:build unix

package etcdstore

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// child is another process that stands in line.
type child struct {
	cmd *exec.Cmd
	in  *os.File
	out *bufio.Scanner
}

func newChild(t testing.TB, endpoint, prefix string) *child {
	t.Helper()
	c := &child{cmd: exec.Command(os.Args[0])}
	c.cmd.Env = append(os.Environ(), childVariable+"="+endpoint+" "+prefix)
	c.cmd.Stderr = os.Stderr
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c.cmd.Stdin, c.in = r, w
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.out = bufio.NewScanner(out)
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = r.Close()
	t.Cleanup(func() {
		_ = w.Close()
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
	})
	c.says(t, "in line")
	return c
}

func (c *child) says(t testing.TB, want string) {
	t.Helper()
	if !c.out.Scan() || c.out.Text() != want {
		t.Fatalf("the other process said %q, want %q", c.out.Text(), want)
	}
}

// A process that is stopped delays the others for its lease's time only, and
// goes to the end of the line when it is continued. One that was killed is
// passed over in the same time.
//
// SPEC LS9
func TestStoppedAndKilledMembersArePassedOver(t *testing.T) {
	t.Parallel()
	n := shared.node(t)
	for _, how := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
		t.Run(how.String(), func(t *testing.T) {
			t.Parallel()
			prefix := fresh()
			c := newChild(t, n.endpoint, prefix)
			s := openQuick(t, prefix, n.endpoint)
			mine := enqueue(t, s)
			blocked(t, mine, "the second in line")
			if err := c.cmd.Process.Signal(how); err != nil {
				t.Fatal(err)
			}
			begun := time.Now()
			turn(t, mine, "the second in line")
			if took := time.Since(begun); took > 3*quickTTL {
				t.Errorf("it waited for %v", took)
			}
			if how == syscall.SIGKILL {
				return
			}
			if err := c.cmd.Process.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			mine.Leave()
			if _, err := fmt.Fprintln(c.in, "go"); err != nil {
				t.Fatal(err)
			}
			c.says(t, "turn")
		})
	}
}
