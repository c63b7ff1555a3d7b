package sqlstore

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tenure-project/tenure/store"
)

// childVar makes the test program play one of the children below instead.
const childVar = "SQLSTORE_TEST_CHILD"

func TestMain(m *testing.M) {
	if role := os.Getenv(childVar); role != "" {
		if err := children[role](os.Args[1], os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, role+":", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// children are other processes that use the database at path. Each says on its
// standard output what it has reached.
var children = map[string]func(path string, args []string) error{
	"count":  childCount,
	"hold":   childHold,
	"queue":  childQueue,
	"open":   childOpen,
	"writes": childWrites,
	"guard":  childGuard,
}

// child is a running child.
type child struct {
	t     testing.TB
	cmd   *exec.Cmd
	lines *bufio.Scanner
	stdin io.WriteCloser
}

// start runs a child, which ends with the test at the latest.
func start(t testing.TB, role, path string, args ...string) *child {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, append([]string{path}, args...)...)
	cmd.Stderr = os.Stderr
	return startCommand(t, cmd, role)
}

func startCommand(t testing.TB, cmd *exec.Cmd, role string) *child {
	t.Helper()
	cmd.Env = append(os.Environ(), childVar+"="+role)
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
		pause(context.Background(), 5*time.Millisecond)
	}
}

// childCount counts the number at a key up for ever and says each count that
// was acknowledged.
func childCount(path string, args []string) error {
	ctx := context.Background()
	s, err := OpenSQLite(ctx, path)
	if err != nil {
		return err
	}
	for {
		o, err := s.Get(ctx, args[0], 10000)
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(strings.TrimRight(string(o.Body), " "))
		if err != nil {
			return err
		}
		if _, err := s.Replace(ctx, args[0], countBody(n+1), o.Version); err != nil {
			return err
		}
		fmt.Println(n + 1)
	}
}

// countBody is a number in a body that takes more than one page.
func countBody(n int) []byte { return []byte(fmt.Sprintf("%-9000d", n)) }

// childHold takes the write lock, says so, and keeps it until its input ends.
func childHold(path string, _ []string) error {
	at, err := settings(path, syncFull, true)
	if err != nil {
		return err
	}
	c, err := connect(at)
	if err != nil {
		return err
	}
	return c.atomically(func() error {
		if _, err := c.exec("UPDATE tenure_meta SET counter = counter + 1"); err != nil {
			return err
		}
		fmt.Println("holding")
		_, err := io.Copy(io.Discard, os.Stdin)
		return err
	})
}

// childQueue joins a line, says so, and waits in it until its input ends; then
// it leaves.
func childQueue(path string, args []string) error {
	ctx := context.Background()
	s, err := OpenSQLite(ctx, path)
	if err != nil {
		return err
	}
	ticket, err := s.Enqueue(ctx, args[0])
	if err != nil {
		return err
	}
	fmt.Println("joined")
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	ticket.Leave()
	return s.Close()
}

// childOpen opens the store when its input ends, writes one key, and closes it.
func childOpen(path string, args []string) error {
	fmt.Println("ready")
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	s, err := OpenSQLite(context.Background(), path)
	if err != nil {
		return err
	}
	if _, err := s.Create(context.Background(), args[0], []byte("x")); err != nil {
		return err
	}
	fmt.Println("done")
	return s.Close()
}

// childWrites replaces a key as fast as it can until its input ends, on a disk
// that takes 5 ms for a commit.
func childWrites(path string, args []string) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s, err := OpenSQLite(ctx, path)
	if err != nil {
		return err
	}
	s.commit = func(do func() error) error {
		pause(ctx, 5*time.Millisecond)
		return do()
	}
	v, err := s.Create(ctx, args[0], []byte("x"))
	if err != nil {
		return err
	}
	fmt.Println("writing")
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	for ctx.Err() == nil {
		w, err := s.Replace(ctx, args[0], []byte("x"), v)
		if err != nil && ctx.Err() == nil {
			return err
		}
		v = w
	}
	return s.Close()
}

// kindIs fails the test unless err is of the kind.
func kindIs(t testing.TB, err, kind error, what string) {
	t.Helper()
	if store.KindOf(err) != kind {
		t.Fatalf("%s gave %v (kind %v), want the kind %q", what, err, store.KindOf(err), kind)
	}
}
