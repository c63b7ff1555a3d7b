//go:build linux || darwin

package agent

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/bootid"
	"github.com/tenure-project/tenure/internal/clock"
	"github.com/tenure-project/tenure/store"
)

// fakeAgent answers one connection with whatever f says.
func fakeAgent(t *testing.T, f func(r raw)) (path string) {
	t.Helper()
	path = filepath.Join(socketDir(t), "a.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		f(raw{c.(*net.UnixConn), newReceiver(c), t})
		_, _ = io.Copy(io.Discard, c)
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return path
}

func hello(change func(*message)) message {
	m := message{
		Op: opHello, V: version, Boot: bootid.Boot(), TimeNamespace: bootid.TimeNamespace(), Store: "mem:", Namespace: "default",
		Node: "n", Incarnation: "i", Term: 1, TTL: time.Second, Margin: 100 * time.Millisecond,
	}
	if change != nil {
		change(&m)
	}
	return m
}

// An agent whose clock is not ours, or that speaks another version, is refused in
// words.
//
// SPEC DL3
func TestOtherKernelIsRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text   string
		change func(*message)
	}{
		{"it runs on another kernel", func(m *message) { m.Boot = "other" }},
		{"it runs in another time namespace", func(m *message) { m.TimeNamespace = "time:[1]" }},
		{"it speaks version 2, this program speaks version 1", func(m *message) { m.V = 2 }},
		{"its hello is not complete", func(m *message) { m.TTL = 0 }},
	} {
		path := fakeAgent(t, func(r raw) {
			if m, err := r.in.next(); err == nil && m.Op == opHello {
				_ = send(r.UnixConn, hello(c.change))
			}
		})
		if _, err := Dial(t.Context(), path, clock.NewSystem()); err == nil || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%q is missing in %v", c.text, err)
		}
	}
	if err := sameClock("a", "b", "a", "b"); err != nil {
		t.Error(err)
	}
}

// An agent that is stopped does not hold anybody up for long.
//
// SPEC ST13
func TestAgentThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	path := fakeAgent(t, func(raw) {})
	began := time.Now()
	_, err := Dial(t.Context(), path, clock.NewSystem())
	wantErr(t, err, ErrSilent, path, "the agent does not answer within 2s")
	if took := time.Since(began); took > answerLimit+20*time.Second {
		t.Errorf("it took %v", took)
	}
}

// A deadline that comes after the one before has passed is none: who was asleep
// meanwhile must end.
//
// SPEC DL1
func TestLateDeadlineIsRefused(t *testing.T) {
	t.Parallel()
	clk := clock.NewSystem()
	late := make(chan struct{})
	path := fakeAgent(t, func(r raw) {
		_, _ = r.in.next()
		_ = send(r.UnixConn, hello(nil))
		_, _ = r.in.next()
		_ = send(r.UnixConn, message{Op: opGranted, Token: 7, Incarnation: "i", Term: 1, Deadline: clk.Boot() + 500*time.Millisecond})
		<-late
		_ = send(r.UnixConn, message{Op: opDeadline, Deadline: clk.Boot() + time.Hour})
		_, _ = r.in.next()
		_ = send(r.UnixConn, message{Op: opReleased})
	})
	c, err := Dial(t.Context(), path, clk)
	if err != nil {
		t.Fatal(err)
	}
	h, err := c.Acquire(t.Context(), Request{Lease: "j", Wait: -1, Stop: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	at, _ := h.Deadline()
	<-h.Done()
	if early := at - clk.Boot(); early < -2*time.Second || early > 100*time.Millisecond {
		t.Errorf("the work must begin to end %v before the deadline", early)
	}
	wantErr(t, h.Err(), tenure.ErrExpired, `lease "j" (token 7)`)
	<-h.dl.Done()
	close(late)
	if err := h.Release(context.Background()); err != nil { // answered after the late deadline
		t.Error(err)
	}
	if _, ok := h.Deadline(); ok {
		t.Error("the deadline was revived")
	}
}

// A connection that breaks ends the work, and leaves the deadline for whoever ends
// it. A release that is not confirmed is told.
//
// SPEC LS5
func TestBrokenConnection(t *testing.T) {
	t.Parallel()
	clk := clock.NewSystem()
	path := fakeAgent(t, func(r raw) {
		_, _ = r.in.next()
		_ = send(r.UnixConn, hello(nil))
		_, _ = r.in.next()
		_ = send(r.UnixConn, message{Op: opGranted, Token: 7, Incarnation: "i", Term: 1, Deadline: clk.Boot() + time.Minute})
		_ = r.CloseWrite()
	})
	c, err := Dial(t.Context(), path, clk)
	if err != nil {
		t.Fatal(err)
	}
	h, err := c.Acquire(t.Context(), Request{Lease: "j", Wait: -1})
	if err != nil {
		t.Fatal(err)
	}
	<-h.Done()
	wantErr(t, h.Err(), tenure.ErrLost, `the agent of node "n" is gone`)
	if _, ok := h.Deadline(); !ok {
		t.Error("the deadline is gone, too")
	}
	wantErr(t, h.Release(context.Background()), tenure.ErrUnconfirmed, "is gone")
}

// A peer that reads nothing is given up after the limit of one write. Every deadline
// that it may have got counts as told, and its own words are still heard.
//
// SPEC DL4 ST13
func TestOutboxOfASlowPeer(t *testing.T) {
	t.Parallel()
	path := filepath.Join(socketDir(t), "a.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	theirs, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	ours, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	if err := ours.SetWriteBuffer(4096); err != nil {
		t.Fatal(err)
	}
	o := newOutbox(ours)
	for n := time.Duration(1); !o.silent(); n++ {
		o.extend(n)
	}
	<-o.done
	told := o.silence()
	o.extend(told + 1)
	o.send(message{Op: opLost})
	if o.silence() != told {
		t.Error("something was told after the silence")
	}
	in, last := newReceiver(theirs), time.Duration(0)
	for {
		m, err := in.next()
		if err != nil {
			break // the end, or half a message
		}
		if m.Op != opDeadline || m.Deadline <= last {
			t.Errorf("got %+v after %v", m, last)
		}
		last = m.Deadline
	}
	if last == 0 || told < last {
		t.Errorf("the peer knows %v, and %v counts as told", last, told)
	}
	if _, err := io.WriteString(theirs, "{\"op\":\"release\"}\n"); err != nil {
		t.Fatal(err)
	}
	if m, err := newReceiver(ours).next(); err != nil || m.Op != opRelease {
		t.Errorf("heard %+v (%v)", m, err)
	}
}

// One agent has a place at a time. What a dead one left is replaced, what a live one
// or somebody else has there is left alone.
//
// SPEC UI1
func TestPlace(t *testing.T) {
	t.Parallel()
	dir := socketDir(t)
	path := filepath.Join(dir, "a.sock")
	first, err := Claim(path)
	if err != nil {
		t.Fatal(err)
	}
	l, err := first.Listen()
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket's mode is %v (%v)", info.Mode(), err)
	}
	_, err = Claim(path)
	wantErr(t, err, tenure.ErrHeld, "another agent (process ")
	if err := os.Remove(path + ".lock"); err != nil { // somebody tidies up
		t.Fatal(err)
	}
	_, err = Claim(path)
	wantErr(t, err, tenure.ErrHeld, "another agent listens there")
	l.SetUnlinkOnClose(false) // as kill -9 would leave it
	if err := errors.Join(l.Close(), first.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := Dial(t.Context(), path, clock.NewSystem()); !errors.Is(err, ErrNone) {
		t.Errorf("a stale socket is %v", err)
	}
	second, err := Claim(path)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the stale socket is still there (%v)", err)
	}
	if _, err := Dial(t.Context(), path, clock.NewSystem()); !errors.Is(err, ErrNone) {
		t.Errorf("no socket is %v", err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = Claim(file)
	wantErr(t, err, store.ErrInvalid, "something that is no socket is in the way")
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
}

// A socket that cannot be private, or cannot be at all, is refused in words.
//
// SPEC UI1
func TestBadPlaces(t *testing.T) {
	t.Parallel()
	dir := socketDir(t)
	open := filepath.Join(dir, "open")
	if err := os.Mkdir(open, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o750); err != nil {
		t.Fatal(err)
	}
	long := filepath.Join(dir, strings.Repeat("x", maxPath-len(dir)))
	for _, c := range []struct{ path, text string }{
		{"a.sock", "absolute"},
		{long, "for a socket: give --socket a shorter one"},
		{filepath.Join(open, "a.sock"), "is not a folder of this user alone: choose a folder of your own (mode 0700)"},
		{filepath.Join(dir, "no", "a.sock"), "no such file"},
	} {
		_, err := Claim(c.path)
		wantErr(t, err, store.ErrInvalid, c.text)
	}
	fits, err := Claim(long[:maxPath-len(".")])
	if err != nil {
		t.Fatal(err)
	}
	defer fits.Close()
	l, err := fits.Listen()
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	a, b := SocketPath("/r", "file:/a", "n"), SocketPath("/r", "file:/a", "m")
	if a == b || a == SocketPath("/r", "file:/b", "n") || filepath.Dir(a) != "/r" {
		t.Errorf("the paths are %s and %s", a, b)
	}
}

// Only the same user and root are answered, and root may ask any agent. A lease is
// lent within one user only.
//
// SPEC UI1
func TestTrusted(t *testing.T) {
	t.Parallel()
	ok := errors.Join(trusted(5, 5), trusted(0, 5), trusted(0, 0), mayAsk(5, 5), mayAsk(5, 0), mayAsk(0, 0), mayBorrow(5, 5), mayBorrow(0, 0))
	if ok != nil {
		t.Error(ok)
	}
	for _, err := range []error{trusted(6, 5), mayAsk(6, 5)} {
		wantErr(t, err, store.ErrDenied, "belongs to user 6, this one to user 5: only the same user and root are answered")
	}
	wantErr(t, trusted(5, 0), store.ErrDenied, "user 5")
	wantErr(t, mayAsk(0, 5), store.ErrDenied, "user 0")
	for _, err := range []error{mayBorrow(0, 5), mayBorrow(5, 0), mayBorrow(6, 5)} {
		wantErr(t, err, store.ErrDenied, "an agent and its commands must have one user")
	}
}

// A socket that somebody removed is made anew, alone or with its lock file and its
// other name. Nothing that another agent made there is touched.
//
// SPEC UI1
func TestSocketIsMended(t *testing.T) {
	t.Parallel()
	dir := socketDir(t)
	path, alias := filepath.Join(dir, "a.sock"), AliasPath(dir, "file:///s", "default")
	p, err := Claim(path)
	if err != nil {
		t.Fatal(err)
	}
	first, err := p.Listen()
	if err == nil {
		err = p.Alias(alias)
	}
	if err != nil {
		t.Fatal(err)
	}
	answers := func(path string) {
		t.Helper()
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
	}
	if l, err := p.Mend(); l != nil || err != nil {
		t.Errorf("there was nothing to mend: %v, %v", l, err)
	}
	answers(alias)
	if err := errors.Join(os.Remove(path), os.Remove(alias)); err != nil {
		t.Fatal(err)
	}
	_, err = Claim(path)
	wantErr(t, err, tenure.ErrHeld, "runs, but its socket is gone")
	if l, err := p.Mend(); l == nil || err != nil {
		t.Fatalf("not mended: %v", err)
	}
	answers(path)
	answers(alias)
	if _, err := first.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the old listener is %v", err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	last, err := p.Mend()
	if last == nil || err != nil {
		t.Fatalf("not mended: %v", err)
	}
	answers(alias)
	_, err = Claim(path)
	wantErr(t, err, tenure.ErrHeld, "listens there")
	if err := errors.Join(os.Remove(path), os.Remove(path+lockSuffix)); err != nil {
		t.Fatal(err)
	}
	q, err := Claim(path) // another agent
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	l, err := q.Listen()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = p.Mend()
	wantErr(t, err, tenure.ErrHeld, "listens there")
	if err := errors.Join(last.Close(), p.Close()); err != nil {
		t.Error(err)
	}
	answers(path)
	if _, err := os.Lstat(alias); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the other name is left: %v", err)
	}
}
