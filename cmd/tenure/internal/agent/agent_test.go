//go:build linux || darwin

package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/clock"
	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/store/memstore"
)

func TestMain(m *testing.M) {
	if path := os.Getenv("AGENT_TEST_CLIENT"); path != "" {
		os.Exit(borrowUntilKilled(path, os.Getenv("AGENT_TEST_GROUP")))
	}
	goleak.VerifyTestMain(m)
}

// borrowUntilKilled is a process of its own that holds a lease.
func borrowUntilKilled(path, group string) int {
	c, err := Dial(context.Background(), path, clock.NewSystem())
	if err == nil {
		_, err = c.Acquire(context.Background(), Request{Lease: "j", Wait: -1, Group: group})
	}
	fmt.Println("held", err)
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 1
}

// patience is how long a test waits for what must come; a loaded machine is slow,
// not wrong.
const patience = 45 * time.Second

// host is one agent in this process, and a second node on the same store.
type host struct {
	t      *testing.T
	clk    clock.Clock
	path   string
	st     *memstore.Store
	client *tenure.Client
	sess   *tenure.Session
	srv    *Server
	rival  *tenure.Client
}

type tell func()

func (f tell) Observe(e tenure.Event) {
	if e.Kind == tenure.EventRenewed && e.Node != "" {
		f()
	}
}

// socketDir is a folder whose path is short enough for sockets.
func socketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ag")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func newHost(t *testing.T, ttl time.Duration) *host {
	t.Helper()
	h := &host{t: t, clk: clock.NewSystem(), path: filepath.Join(socketDir(t), "a.sock"), st: memstore.New()}
	ready := make(chan struct{})
	h.client = h.open(tenure.WithTTL(ttl), tenure.WithObserver(tell(func() {
		<-ready
		h.srv.Renewed()
	})))
	h.rival = h.open(tenure.WithTTL(ttl))
	var err error
	if h.sess, err = h.client.Join(t.Context(), "n1"); err != nil {
		t.Fatal(err)
	}
	h.srv = NewServer(Config{
		Session: h.sess, Store: h.st.Info().Identity, Namespace: "default", Margin: lease.Timing{TTL: ttl}.Defaults().Margin,
		Clock: h.clk, Log: slog.New(slog.DiscardHandler),
	})
	close(ready)
	p, err := Claim(h.path)
	if err != nil {
		t.Fatal(err)
	}
	l, err := p.Listen()
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- h.srv.Serve(l) }()
	t.Cleanup(func() {
		_ = h.rival.Close()
		_ = h.sess.Leave(context.Background())
		_ = l.Close()
		h.srv.Close()
		if err := errors.Join(<-served, p.Close(), h.client.Close(), h.st.Close()); err != nil {
			t.Error(err)
		}
	})
	return h
}

func (h *host) open(opts ...tenure.Option) *tenure.Client {
	h.t.Helper()
	c, err := tenure.New(h.t.Context(), h.st, append(opts, tenure.WithoutProbe(), tenure.WithClock(h.clk))...)
	if err != nil {
		h.t.Fatal(err)
	}
	return c
}

func (h *host) ctx() context.Context {
	ctx, cancel := context.WithTimeout(h.t.Context(), patience)
	h.t.Cleanup(cancel)
	return ctx
}

func (h *host) dial() *Conn {
	h.t.Helper()
	c, err := Dial(h.ctx(), h.path, h.clk)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = c.Close() })
	return c
}

func (h *host) hold(name string) *Hold {
	h.t.Helper()
	l, err := h.dial().Acquire(h.ctx(), Request{Lease: name, Wait: -1})
	if err != nil {
		h.t.Fatal(err)
	}
	return l
}

// raw speaks the protocol by hand.
type raw struct {
	*net.UnixConn
	in receiver
	t  *testing.T
}

func (h *host) raw() raw {
	h.t.Helper()
	c, err := net.Dial("unix", h.path)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = c.Close() })
	return raw{c.(*net.UnixConn), newReceiver(c), h.t}
}

func (r raw) say(lines ...string) {
	r.t.Helper()
	if _, err := io.WriteString(r, strings.Join(lines, "\n")+"\n"); err != nil {
		r.t.Fatal(err)
	}
}

func (r raw) hear(op string) message {
	r.t.Helper()
	_ = r.SetReadDeadline(time.Now().Add(patience))
	m, err := r.in.next()
	if err != nil || m.Op != op {
		r.t.Fatalf("heard %+v (%v), not %q", m, err, op)
	}
	return m
}

// until waits for an instant of the boot clock.
func (h *host) until(at time.Duration) {
	over := make(chan struct{})
	t := h.clk.AfterBoot(at, func() { close(over) })
	defer t.Stop()
	<-over
}

func wantErr(t *testing.T, err error, kind error, texts ...string) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Errorf("error %v, not of the kind %v", err, kind)
		return
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%q is missing in %q", text, err)
		}
	}
}

// A lease is granted, follows the session's renewals, excludes others in and out of
// the agent, and is free at once when it is released.
//
// SPEC LS8 UI1
func TestLend(t *testing.T) {
	t.Parallel()
	h := newHost(t, 2*time.Second)
	l := h.hold("j")
	p := h.sess.Proof()
	p.Token = 1
	if l.Proof() != p || l.Name() != "j" || l.Owner() != p.Incarnation {
		t.Errorf("the hold is %+v, the session %+v", l.Proof(), p)
	}
	first, ok := l.Deadline()
	if now := h.clk.Boot(); !ok || first <= now || first > now+1800*time.Millisecond {
		t.Errorf("the deadline is %v at %v", first, now)
	}
	_, err := h.dial().Acquire(h.ctx(), Request{Lease: "j"})
	wantErr(t, err, tenure.ErrHeld, `"j"`, p.Incarnation)
	_, err = h.rival.TryAcquire(h.ctx(), "j")
	wantErr(t, err, tenure.ErrHeld)
	_, err = h.dial().Acquire(h.ctx(), Request{Lease: "j", Wait: 50 * time.Millisecond})
	wantErr(t, err, ErrWaited)
	h.until(first) // it was renewed, or is over
	if at, ok := l.Deadline(); !ok || at <= first || l.Err() != nil {
		t.Errorf("the deadline did not move: %v, %v, %v", at, ok, l.Err())
	}
	if st, err := h.dial().Status(h.ctx()); err != nil || st.Leases != 1 || st.Waiting != 0 || st.PID != os.Getpid() || st.Margin <= 0 {
		t.Errorf("the status is %+v (%v)", st, err)
	}
	if err := l.Release(h.ctx()); err != nil {
		t.Error(err)
	}
	next, err := h.rival.TryAcquire(h.ctx(), "j")
	if err != nil {
		t.Fatal(err)
	}
	if next.Token() != 2 {
		t.Errorf("token %d", next.Token())
	}
}

// A supervisor that is gone without a word frees its lease when the last deadline
// that it was told has passed with the margin, and not before. The session lives on.
//
// SPEC LS8 DL4
func TestLapse(t *testing.T) {
	t.Parallel()
	h := newHost(t, 1500*time.Millisecond)
	r := h.raw()
	r.say(`{"op":"hello","v":1}`, `{"op":"acquire","lease":"j","wait_ns":-1}`)
	r.hear(opHello)
	told := r.hear(opGranted).Deadline
	for range 2 {
		m := r.hear(opDeadline)
		if m.Deadline <= told {
			t.Errorf("the deadline went from %v to %v", told, m.Deadline)
		}
		told = m.Deadline
	}
	_ = r.Close()
	next, err := h.rival.Acquire(h.ctx(), "j")
	if err != nil {
		t.Fatal(err)
	}
	if now, free := h.clk.Boot(), told+h.srv.cfg.Margin; now < free || next.Token() != 2 {
		t.Errorf("token %d was granted %v too early", next.Token(), free-now)
	}
	if h.sess.Err() != nil {
		t.Errorf("the session ended: %v", h.sess.Err())
	}
}

// A supervisor that reads nothing keeps its lease while it is there, though it is
// told nothing more.
//
// SPEC LS8
func TestMutePeer(t *testing.T) {
	t.Parallel()
	h := newHost(t, time.Second)
	r := h.raw()
	r.say(`{"op":"hello","v":1}`, `{"op":"acquire","lease":"j","wait_ns":-1}`)
	r.hear(opHello)
	r.hear(opGranted)
	h.srv.mu.Lock()
	for p := range h.srv.peers {
		p.out.silence()
	}
	h.srv.mu.Unlock()
	for {
		if _, err := r.in.next(); err != nil {
			if !errors.Is(err, io.EOF) {
				t.Errorf("the agent's side is not closed: %v", err)
			}
			break
		}
	}
	h.until(h.clk.Boot() + 1200*time.Millisecond)
	_, err := h.rival.TryAcquire(h.ctx(), "j")
	wantErr(t, err, tenure.ErrHeld)
	if st := h.srv.Status(); st.Leases != 1 || st.Lapsing != 1 {
		t.Errorf("the status is %+v", st)
	}
	r.say(`{"op":"release"}`)
	if _, err := h.rival.Acquire(h.ctx(), "j"); err != nil {
		t.Error(err)
	}
}

// Somebody who gives up waiting, or is granted what it does not want any more,
// leaves nothing behind.
//
// SPEC LS9
func TestGiveUpWaiting(t *testing.T) {
	t.Parallel()
	h := newHost(t, 30*time.Second)
	first := h.hold("j")
	ctx, cancel := context.WithCancelCause(h.ctx())
	enough := errors.New("enough")
	waits := make(chan error)
	go func() {
		c, err := Dial(ctx, h.path, h.clk)
		if err == nil {
			_, err = c.Acquire(ctx, Request{Lease: "j", Wait: -1})
		}
		waits <- err
	}()
	for h.srv.Status().Waiting == 0 {
		h.until(h.clk.Boot() + time.Millisecond)
	}
	cancel(enough)
	wantErr(t, <-waits, enough)
	if err := first.Release(h.ctx()); err != nil {
		t.Error(err)
	}
	// One that says release at once is granted the lease, or is not: it is free soon,
	// long before the deadline that a grant would have told.
	r := h.raw()
	r.say(`{"op":"hello","v":1}`, `{"op":"acquire","lease":"j","wait_ns":-1}`, `{"op":"release"}`)
	r.hear(opHello)
	began := h.clk.Boot()
	if _, err := h.rival.Acquire(h.ctx(), "j"); err != nil || h.clk.Boot()-began > 20*time.Second {
		t.Errorf("it was free after %v (%v)", h.clk.Boot()-began, err)
	}
}

// A drain asks the holder to stop, keeps the lease until it has, and gives nothing
// more away.
//
// SPEC PL8 LS6
func TestDrain(t *testing.T) {
	t.Parallel()
	h := newHost(t, 2*time.Second)
	l := h.hold("j")
	drained := make(chan error)
	go func() { drained <- h.srv.Drain(h.ctx(), 20*time.Second) }()
	<-l.Done()
	wantErr(t, l.Err(), tenure.ErrShutdown, "drains")
	first, _ := l.Deadline()
	h.until(first)
	if at, ok := l.Deadline(); !ok || at <= first {
		t.Errorf("the lease is not renewed while its work stops: %v, %v", at, ok)
	}
	_, err := h.dial().Acquire(h.ctx(), Request{Lease: "k", Wait: -1})
	wantErr(t, err, ErrEnding)
	_, err = h.rival.TryAcquire(h.ctx(), "j")
	wantErr(t, err, tenure.ErrHeld)
	if err := errors.Join(l.Release(h.ctx()), <-drained); err != nil {
		t.Error(err)
	}
	if _, err := h.rival.TryAcquire(h.ctx(), "j"); err != nil {
		t.Error(err)
	}
	if _, err := h.rival.TryJoin(h.ctx(), "n1"); err != nil {
		t.Error(err)
	}
}

// A session that is lost is told to every holder, and so is a lease that was stolen,
// to its own.
//
// SPEC LS11 LS7
func TestLost(t *testing.T) {
	t.Parallel()
	h := newHost(t, 2*time.Second)
	j, k := h.hold("j"), h.hold("k")
	if _, err := h.rival.Steal(h.ctx(), "j", tenure.StealOptions{Token: 1, Reason: "test"}); err != nil {
		t.Fatal(err)
	}
	<-j.Done()
	wantErr(t, j.Err(), tenure.ErrLost, "revoked")
	if _, ok := j.Deadline(); ok || k.Err() != nil {
		t.Errorf("j goes on (%v), or k does not (%v)", ok, k.Err())
	}
	wantErr(t, j.Release(h.ctx()), tenure.ErrLost)
	if err := h.rival.ForceNode(h.ctx(), h.sess.Proof(), tenure.StealOptions{Reason: "test", By: "op"}); err != nil {
		t.Fatal(err)
	}
	<-k.Done()
	wantErr(t, k.Err(), tenure.ErrLost)
	_, err := h.dial().Acquire(h.ctx(), Request{Lease: "m", Wait: -1})
	wantErr(t, err, ErrEnding)
}

// Nonsense gets words, or nothing, and costs nobody else anything.
//
// SPEC ST7
func TestNonsense(t *testing.T) {
	t.Parallel()
	h := newHost(t, 10*time.Second)
	for _, c := range []struct{ line, text string }{
		{`GET / HTTP/1.1`, "does not speak this protocol"},
		{`{"op":"hello","v":2,"new":true}`, "it speaks version 2, this program speaks version 1"},
		{`{"op":"hello"}`, "it speaks version 0"},
		{`{"op":"hello","v":1,"new":true}`, `unknown field "new"`},
		{`{"op":"acquire","lease":"j"}`, `begins with "acquire"`},
		{`{"op":"hello","v":1} {}`, ""},
		{`{"op":"hello","v":1,"note":"` + strings.Repeat("x", maxLine) + `"}`, "more than 16384 bytes"},
	} {
		r := h.raw()
		r.say(c.line)
		if m := r.hear(opError); m.Kind != "protocol" || !strings.Contains(m.Text, c.text) {
			t.Errorf("%.40s: %+v", c.line, m)
		}
		if _, err := r.in.next(); err == nil {
			t.Errorf("%.40s: the agent goes on", c.line)
		}
	}
	for _, line := range []string{`{"op":"release"}`, `{"op":"acquire","lease":"j","wait_ns":-2}`, `{"op":"acquire","lease":"j","stop_ns":-1}`, `{"op":"acquire","lease":"j","owner":"x"}`} {
		r := h.raw()
		r.say(`{"op":"hello","v":1}`, line)
		r.hear(opHello)
		if m := r.hear(opError); m.Kind != "protocol" {
			t.Errorf("%s: %+v", line, m)
		}
	}
	_, err := h.dial().Acquire(h.ctx(), Request{Lease: " j", Wait: -1})
	wantErr(t, err, tenure.ErrInvalid)
	_, err = h.dial().Acquire(h.ctx(), Request{Lease: "j", Stop: 9 * time.Second, Wait: -1})
	wantErr(t, err, tenure.ErrInvalid, "stop")
	if err := h.hold("j").Release(h.ctx()); err != nil {
		t.Error(err)
	}
}
