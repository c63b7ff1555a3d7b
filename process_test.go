//go:build unix

package tenure_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-project/tenure"
)

// helperEnv makes the test binary a holder: "url name ttl", or "url name ttl node"
// for one that holds the lease under a session.
const helperEnv = "TENURE_TEST_HOLDER"

func init() {
	if spec := os.Getenv(helperEnv); spec != "" {
		os.Exit(holder(strings.Fields(spec)))
	}
}

// holder acquires, says so, and holds until told to release.
func holder(spec []string) int {
	ttl, err := time.ParseDuration(spec[2])
	if err != nil {
		return 2
	}
	ctx := context.Background()
	c, err := tenure.Open(ctx, spec[0], tenure.WithTTL(ttl))
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	l, err := acquireAs(ctx, c, spec)
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	fmt.Println("held", l.Token(), time.Now().UnixNano())
	orders := bufio.NewScanner(os.Stdin)
	for orders.Scan() {
		switch orders.Text() {
		case "live":
			fmt.Println(l.Live())
		case "release":
			fmt.Println("released", time.Now().UnixNano())
			if err := errors.Join(l.Release(ctx), c.Close()); err != nil {
				fmt.Println("error", err)
			}
			return 0
		}
	}
	return 0
}

func acquireAs(ctx context.Context, c *tenure.Client, spec []string) (*tenure.Lease, error) {
	if len(spec) < 4 {
		return c.Acquire(ctx, spec[1], tenure.NoChildren())
	}
	s, err := c.Join(ctx, spec[3], tenure.NoChildren())
	if err != nil {
		return nil, err
	}
	return s.Acquire(ctx, spec[1])
}

// process is a holder in a process of its own.
type process struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func start(t *testing.T, url, name string, ttl time.Duration, node ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %s %s", helperEnv, url, name, ttl, strings.Join(node, "")))
	p.cmd.Stderr = os.Stderr
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewScanner(out)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.cmd.Process.Kill(); _ = p.cmd.Wait() })
	return p
}

// say reads the next line.
func (p *process) say() []string {
	p.t.Helper()
	if !p.out.Scan() {
		p.t.Fatalf("the process ended: %v", p.out.Err())
	}
	return strings.Fields(p.out.Text())
}

// held waits until the process holds the lease, and returns its token and when.
func (p *process) held() (token int, at time.Time) {
	p.t.Helper()
	line := p.say()
	if line[0] != "held" {
		p.t.Fatalf("the process says %q", line)
	}
	token, _ = strconv.Atoi(line[1])
	return token, nanos(p.t, line[2])
}

func nanos(t *testing.T, s string) time.Time {
	t.Helper()
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return time.Unix(0, n)
}

func (p *process) order(what string) {
	p.t.Helper()
	if _, err := fmt.Fprintln(p.in, what); err != nil {
		p.t.Fatal(err)
	}
}

// A holder without children that is killed is proven dead by the kernel: the
// next one in line does not wait for the TTL.
//
// SPEC LS14 LS9
// CASE B32
func TestKilledHolderIsReplacedAtOnce(t *testing.T) {
	t.Parallel()
	url := "file://" + filepath.Join(t.TempDir(), "store")
	const ttl = time.Minute
	a := start(t, url, "job", ttl)
	if token, _ := a.held(); token != 1 {
		t.Fatalf("token %d", token)
	}
	b, c := start(t, url, "job", ttl), start(t, url, "job", ttl)
	waitInLine(t, url, 2)
	killed := time.Now()
	if err := a.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	first, second := b, c
	won := make(chan *process, 2)
	for _, p := range []*process{b, c} {
		go func() { p.out.Scan(); won <- p }()
	}
	if first = <-won; first == c {
		second = b
	}
	line := strings.Fields(first.out.Text())
	if line[0] != "held" || line[1] != "2" {
		t.Fatalf("the next holder says %q", line)
	}
	if d := nanos(t, line[2]).Sub(killed); d > ttl/4 {
		t.Errorf("the next holder came %v after the kill", d)
	} else {
		t.Logf("kill -9 to next holder: %v", d)
	}
	first.order("release")
	released := nanos(t, first.say()[1])
	<-won
	line = strings.Fields(second.out.Text())
	if line[1] != "3" {
		t.Fatalf("the third holder says %q", line)
	}
	t.Logf("hand-over between processes: %v", nanos(t, line[2]).Sub(released))
}

// A session whose process is killed is proven dead by the kernel, like a lease of
// its own: its name and its leases pass on at once, with a certificate that says so.
//
// SPEC LS14 LS8 PL3
func TestKilledSessionIsReplacedAtOnce(t *testing.T) {
	t.Parallel()
	url := "file://" + filepath.Join(t.TempDir(), "store")
	const ttl = time.Minute
	a := start(t, url, "job", ttl, "n1")
	a.held()
	b := start(t, url, "job", ttl, "n2") // waits for the lease
	waitInLine(t, url, 1)
	killed := time.Now()
	if err := a.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	token, at := b.held()
	if d := at.Sub(killed); token != 2 || d > ttl/4 {
		t.Errorf("the next session came %v after the kill, with token %d", d, token)
	} else {
		t.Logf("kill -9 to the next session's lease: %v", d)
	}
	c, err := tenure.Open(t.Context(), url, tenure.WithTTL(ttl))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := c.Join(t.Context(), "n1") // the fence left the name free
	if err != nil {
		t.Fatal(err)
	}
	certs, err := c.NodeHistory(t.Context(), "n1")
	if err != nil || len(certs) != 2 || certs[0].How != "proven" || !certs[0].Revoker || s.Proof().Term != 3 {
		t.Errorf("%+v, %v", certs, err)
	}
}

// waitInLine polls until n processes wait for the lease: nothing tells it.
func waitInLine(t *testing.T, url string, n int) {
	t.Helper()
	dir := filepath.Join(strings.TrimPrefix(url, "file://"), ".queue")
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) { // poll: another process
		tickets, _ := filepath.Glob(filepath.Join(dir, "*", "*"))
		if len(tickets) >= n {
			return
		}
	}
	t.Fatalf("no %d waiters stood in line within 20s", n)
}

// A holder that is stopped beyond its lease is replaced after a TTL, and when it
// wakes it knows that it is not the holder.
//
// SPEC LS2 LS14 DL3
// CASE B12 B18
func TestStoppedHolderIsReplacedAfterItsTTL(t *testing.T) {
	t.Parallel()
	url := "file://" + filepath.Join(t.TempDir(), "store")
	const ttl = 2 * time.Second
	a := start(t, url, "job", ttl)
	a.held()
	signal(t, a, syscall.SIGSTOP)
	stopped := time.Now()
	b := start(t, url, "job", ttl)
	token, at := b.held()
	if d := at.Sub(stopped); token != 2 || d < ttl {
		t.Fatalf("token %d after %v: a stopped process is not dead", token, d)
	}
	a.order("live")
	signal(t, a, syscall.SIGCONT)
	if line := a.say(); line[0] != "false" {
		t.Fatalf("the sleeper believes it is live: %v", line)
	}
	a.order("release") // says that it was lost, and harms nobody
	_ = a.cmd.Wait()
	b.order("live")
	if line := b.say(); line[0] != "true" {
		t.Fatalf("the sleeper harmed the new holder: %v", line)
	}
}

// A waiter that is stopped does not keep a free lease from one who does not wait.
//
// SPEC LS9 ST13
func TestStoppedWaiterKeepsNothing(t *testing.T) {
	t.Parallel()
	url := "file://" + filepath.Join(t.TempDir(), "store")
	a := start(t, url, "job", time.Minute)
	a.held()
	b := start(t, url, "job", time.Minute)
	waitInLine(t, url, 1)
	signal(t, b, syscall.SIGSTOP)
	a.order("release")
	a.say()
	_ = a.cmd.Wait()
	c, err := tenure.Open(t.Context(), url, tenure.WithTTL(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	l, err := c.TryAcquire(t.Context(), "job")
	if err != nil || l.Token() != 2 {
		t.Fatal(err)
	}
	if err := l.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	signal(t, b, syscall.SIGCONT)
	if token, _ := b.held(); token != 3 {
		t.Errorf("token %d", token)
	}
}

func signal(t *testing.T, p *process, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}
