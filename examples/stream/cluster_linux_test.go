package main

import (
	"bytes"
	"context"
	"errors"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/authority"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/stores"
)

// cluster are the processes of one stream.
type cluster struct {
	*testing.T
	dir, url string
	input    *input
	exe      []string // the program and its environment
	args     []string
	procs    map[string]*proc
	reader   *authority.Reader
	client   *tenure.Client
}

// proc is one name, and the process that has it.
type proc struct {
	c     *cluster
	name  string
	cmd   *exec.Cmd
	log   lockedBuffer
	done  chan struct{}
	ended bool // by the test
}

// newCluster makes an input of partitions times lines, for processes with args.
func newCluster(t *testing.T, url string, partitions, lines int, args ...string) *cluster {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{T: t, dir: t.TempDir(), exe: []string{self}, procs: map[string]*proc{}}
	c.url = url
	if url == "" {
		c.url = "file://" + filepath.Join(c.dir, "store")
	}
	in := filepath.Join(c.dir, "in")
	if err := generate(in, partitions, lines, 1); err != nil {
		t.Fatal(err)
	}
	if c.input, err = openInput(in); err != nil {
		t.Fatal(err)
	}
	c.args = append([]string{"--input", in, "--output", filepath.Join(c.dir, "out.txt")}, args...)
	t.Cleanup(c.end)
	return c
}

// start starts the process of a name, which may have had one before.
func (c *cluster) start(name, kind string) *proc {
	c.Helper()
	p := c.procs[name]
	if p == nil {
		p = &proc{c: c, name: name}
		c.procs[name] = p
	}
	at := c.url
	if kind != "real" {
		at = "cut:?" + url.Values{"on": {c.url}, "when": {c.cutFile(name)}}.Encode()
	}
	p.cmd = exec.Command(c.exe[0], append([]string{"run", "--store", at, "--node", name}, c.args...)...)
	p.cmd.Env = append(os.Environ(), asProgram+"="+kind, "GORACE=atexit_sleep_ms=0")
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	p.done, p.ended = make(chan struct{}), false
	if err := p.cmd.Start(); err != nil {
		c.Fatal(err)
	}
	go func(cmd *exec.Cmd, done chan struct{}) { _ = cmd.Wait(); close(done) }(p.cmd, p.done)
	return p
}

func (c *cluster) cutFile(name string) string { return filepath.Join(c.dir, "cut-"+name) }

// end ends every process, and shows what they said if the test failed.
func (c *cluster) end() {
	for _, p := range c.procs {
		_ = p.cmd.Process.Kill()
		<-p.done
		if c.Failed() {
			c.Logf("%s:\n%s", p.name, p.log.tail())
		}
	}
	if c.client != nil {
		_ = c.client.Close()
	}
}

func (p *proc) signal(sig syscall.Signal) {
	p.c.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.c.Fatal(err)
	}
}

func (p *proc) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// want waits for the end of the process and checks its exit code.
func (p *proc) want(code int) {
	p.c.Helper()
	select {
	case <-p.done:
	case <-time.After(4 * time.Minute):
		p.c.Fatalf("%s goes on and on", p.name)
	}
	if got := p.cmd.ProcessState.ExitCode(); got != code {
		p.c.Fatalf("%s ended with %d (%v), want %d", p.name, got, p.cmd.ProcessState, code)
	}
}

// read returns a reader of what the processes decide, once they did.
func (c *cluster) read() *authority.Reader {
	c.Helper()
	if c.reader == nil {
		var err error
		if c.client, err = tenure.Open(c.Context(), c.url, tenure.WithDrivers(stores.All()...), tenure.WithoutCreate()); err != nil {
			c.Fatal(err)
		}
		if c.reader, err = authority.Read(c.Context(), c.client, "stream"); err != nil {
			c.Fatal(err)
		}
	}
	return c.reader
}

// poll tries f until it is true. f returns an error of something that cannot be.
func (c *cluster) poll(what string, f func() (bool, error)) {
	c.Helper()
	for end := time.Now().Add(4 * time.Minute); ; time.Sleep(10 * time.Millisecond) { // poll: other processes act
		ok, err := f()
		switch {
		case ok:
			return
		case err != nil && !passing(err) && !errors.Is(err, store.ErrNotFound):
			c.Fatal(err)
		case c.failed() != "":
			c.Fatalf("%s: %s ended by itself", what, c.failed())
		case time.Now().After(end):
			c.Fatalf("%s: not within four minutes (%v)", what, err)
		}
	}
}

// failed names a process that ended by itself and not well, if there is one.
func (c *cluster) failed() string {
	for name, p := range c.procs {
		if !p.running() && !p.ended && p.cmd.ProcessState.ExitCode() != 0 {
			return name
		}
	}
	return ""
}

// view is what a process sees.
func (c *cluster) view() (*view, error) {
	v, err := newLooker(c.input, c.read()).look(context.WithoutCancel(c.Context()))
	if err == nil && v.state == nil {
		err = store.ErrNotFound // nobody ever led
	}
	return v, err
}

// verify runs the program's own check and returns what it says.
func (c *cluster) verify() (code int, said string) {
	c.Helper()
	code, out, bad := try(c.T, "verify", "--store", c.url, "--input", filepath.Dir(c.input.paths[0]))
	return code, out + bad
}

// exact checks the end: the counts, the audit, the catalog, and the output file.
func (c *cluster) exact() string {
	c.Helper()
	code, said := c.verify()
	if code != 0 {
		c.Fatalf("verify: %s", said)
	}
	want, err := c.input.plain()
	if err != nil {
		c.Fatal(err)
	}
	if out, err := os.ReadFile(filepath.Join(c.dir, "out.txt")); err != nil || string(out) != want.text() {
		c.Errorf("the output file has %d bytes (%v), the plain count %d", len(out), err, len(want.text()))
	}
	if code, out, _ := try(c.T, "result", "--store", c.url); code != 0 || out != want.text() {
		c.Errorf("result prints %d bytes (exit code %d), the plain count has %d", len(out), code, len(want.text()))
	}
	return said
}

// build builds the program as it is shipped.
func build(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "stream")
	if out, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", path, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return path
}

// Without troubles every attempt is committed: exactly as many checkpoints as the
// input has batches, under one leader, and whoever joins gets slots.
//
// SPEC LA4 CK AS CT
func TestFaultFree(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "", 6, 800, "--ttl", "10s", "--batch", "10", "--pace", "100ms", "--poll", "20ms")
	c.exe[0] = build(t)
	var all []*proc
	for _, name := range []string{"a", "b", "c"} {
		all = append(all, c.start(name, "real"))
	}
	for _, p := range all {
		p.want(0)
	}
	if said := c.exact(); !bytes.Contains([]byte(said), []byte("after 80 checkpoints, last epoch 80, last token ")) {
		t.Errorf("verify says %s", said)
	}
	v, err := c.view()
	if err != nil {
		t.Fatal(err)
	}
	if n := len(v.assigned.Fence.Participants); n != 3 {
		t.Errorf("the slots belong to %d processes, want 3", n)
	}
	// Whoever campaigns when the first leader leaves may lead a moment, and decides nothing.
	if decided, _ := v.head.Chain(authority.Checkpoint); decided.Head.Token != 1 {
		t.Errorf("the last checkpoint was decided under token %d", decided.Head.Token)
	}
	p := c.start("late", "real") // it finds nothing to do
	p.want(0)
	if _, again := c.verify(); !bytes.Contains([]byte(again), []byte("last epoch 80")) {
		t.Errorf("after a late process verify says %s", again)
	}
}
