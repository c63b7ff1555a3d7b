//go:build linux

package fileguard

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// childVar makes the test program play one of the children below instead.
const childVar = "FILEGUARD_TEST_CHILD"

func TestMain(m *testing.M) {
	role := os.Getenv(childVar)
	if role == "" {
		goleak.VerifyTestMain(m)
		return
	}
	token, err := strconv.ParseUint(os.Args[2], 10, 64)
	if err == nil {
		err = children[role](os.Args[1], token)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, role+":", err)
		os.Exit(1)
	}
}

// children are other processes that use the guard of path under token. Each
// says on its standard output what it has reached.
var children = map[string]func(path string, token uint64) error{
	"write":         childWrite,
	"count":         childCount,
	"pause-before":  childPauseBefore,
	"pause-between": childPauseBetween,
	"hold":          childHold,
	"stubborn":      childStubborn,
	"inherit":       childInherit,
	"sleep":         func(string, uint64) error { return untilInputEnds() },
}

// child is a running child.
type child struct {
	t     testing.TB
	cmd   *exec.Cmd
	lines *bufio.Scanner
	stdin io.WriteCloser
}

// start runs a child, which ends with the test at the latest.
func start(t testing.TB, role, path string, token uint64) *child {
	t.Helper()
	cmd := command(role, path, token)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &child{t, cmd, bufio.NewScanner(out), in}
	t.Cleanup(c.kill)
	return c
}

func command(role, path string, token uint64) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	cmd := exec.Command(self, path, strconv.FormatUint(token, 10))
	cmd.Env = append(os.Environ(), childVar+"="+role)
	cmd.Stderr = os.Stderr
	return cmd
}

// line is the child's next line; "" at its end.
func (c *child) line() string {
	if !c.lines.Scan() {
		return ""
	}
	return c.lines.Text()
}

// says waits for a line and fails the test if it is another one.
func (c *child) says(want string) {
	c.t.Helper()
	if got := c.line(); got != want {
		c.t.Fatalf("the child said %q, want %q", got, want)
	}
}

// stop stops the child and returns when it has stopped.
func (c *child) stop() {
	c.t.Helper()
	if err := c.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		c.t.Fatal(err)
	}
	eventually(c.t, "the child to be stopped", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.cmd.Process.Pid))
		_, after, _ := strings.Cut(string(stat), ") ")
		return err == nil && strings.HasPrefix(after, "T")
	})
}

// resume lets a stopped child go on.
func (c *child) resume() {
	c.t.Helper()
	if err := c.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		c.t.Fatal(err)
	}
}

// next lets a child that waits for a line take its next step.
func (c *child) next() {
	c.t.Helper()
	if _, err := fmt.Fprintln(c.stdin); err != nil {
		c.t.Fatal(err)
	}
}

// kill ends the child with SIGKILL and returns when it is gone. It may be
// called again.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

// eventually polls until ok holds.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("waited 20 s for %s", what)
		}
		<-time.After(5 * time.Millisecond)
	}
}

func untilInputEnds() error {
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// outcome says how a guarded step ended.
func outcome(err error) {
	if err == nil {
		fmt.Println("done")
		return
	}
	fmt.Println(err)
}

// childWrite writes once, says how that ended, and waits to be killed.
func childWrite(path string, token uint64) error {
	g, err := Open(path, "prod", "report")
	if err != nil {
		return err
	}
	outcome(g.Write(context.Background(), token, dataOf(token)))
	return untilInputEnds()
}

// childCount writes under one token after the other for ever and says each that
// was acknowledged.
func childCount(path string, token uint64) error {
	g, err := Open(path, "prod", "report")
	if err != nil {
		return err
	}
	for ; ; token++ {
		if err := g.Write(context.Background(), token, dataOf(token)); err != nil {
			return err
		}
		fmt.Println(token)
	}
}

// childPauseBefore pauses in a write, after it got inside and before the check.
// childPauseBetween pauses between the check and the write.
func childPauseBefore(path string, token uint64) error {
	return writeTwice(path, token, func(g *Guard, pause func()) { g.beforeCheck = pause })
}

func childPauseBetween(path string, token uint64) error {
	return writeTwice(path, token, func(g *Guard, pause func()) { g.afterCheck = pause })
}

// writeTwice says how two writes ended. In the first it says where it is and
// goes on when a line comes in; the second begins with another line.
func writeTwice(path string, token uint64, set func(g *Guard, pause func())) error {
	g, err := Open(path, "prod", "report")
	if err != nil {
		return err
	}
	in := bufio.NewReader(os.Stdin)
	paused := false
	set(g, func() {
		if !paused {
			paused = true
			fmt.Println("inside")
			_, err = in.ReadString('\n')
		}
	})
	outcome(errors.Join(g.Write(context.Background(), token, dataOf(token)), err))
	if _, err := in.ReadString('\n'); err != nil {
		return err
	}
	outcome(g.Write(context.Background(), token, dataOf(token)))
	return nil
}

// childHold holds until a higher token asks, says so, and ends. It ends with its
// input, too.
func childHold(path string, token uint64) error {
	g, err := Open(path, "prod", "report")
	if err != nil {
		return err
	}
	h, err := g.Hold(context.Background(), token)
	if err != nil {
		return err
	}
	defer h.Release()
	outcome(h.Write(context.Background(), dataOf(token)))
	go func() {
		_ = untilInputEnds()
		os.Exit(1)
	}()
	<-h.Context().Done()
	outcome(context.Cause(h.Context()))
	outcome(h.Write(context.Background(), dataOf(token)))
	return nil
}

// childStubborn holds and does not care who asks.
func childStubborn(path string, token uint64) error {
	g, err := Open(path, "prod", "report")
	if err != nil {
		return err
	}
	if _, err := g.Hold(context.Background(), token); err != nil {
		return err
	}
	fmt.Println("holding")
	return untilInputEnds()
}

// childInherit holds and hands the lock to a process of its own, whose PID it
// says, and which lives until its input ends.
func childInherit(path string, token uint64) error {
	g, err := Open(path, "prod", "report")
	if err != nil {
		return err
	}
	h, err := g.Hold(context.Background(), token)
	if err != nil {
		return err
	}
	f, err := h.File()
	if err != nil {
		return err
	}
	cmd := command("sleep", path, token)
	cmd.Stdin, cmd.ExtraFiles = os.Stdin, []*os.File{f}
	if err := errors.Join(cmd.Start(), f.Close()); err != nil {
		return err
	}
	fmt.Println(cmd.Process.Pid)
	return cmd.Wait()
}
