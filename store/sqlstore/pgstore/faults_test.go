package pgstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-project/tenure/store"
)

// SPEC LS4 ST9
func TestOneRequestPerCall(t *testing.T) {
	t.Parallel()
	p, through := startProxy(t, place(t))
	s := open(t, with(through, "watch", "no", "pool_max_conns", "2"))
	var v store.Version
	p.sent("")
	for i := range 3 {
		for _, step := range []struct {
			name string
			call func() error
		}{
			{"Create", func() (err error) { v, err = s.Create(t.Context(), key+strconv.Itoa(i), []byte("x")); return err }},
			{"Get", func() error { _, err := s.Get(t.Context(), key+strconv.Itoa(i), 100); return err }},
			{"Replace", func() (err error) {
				v, err = s.Replace(t.Context(), key+strconv.Itoa(i), []byte("y"), v)
				return err
			}},
			{"a refused Replace", func() error {
				_, err := s.Replace(t.Context(), key+strconv.Itoa(i), []byte("y"), "stale")
				if errors.Is(err, store.ErrConflict) {
					return nil
				}
				return fmt.Errorf("not a conflict: %w", err)
			}},
			{"DeleteIf", func() error { return s.DeleteIf(t.Context(), key+strconv.Itoa(i), v) }},
			{"Delete", func() error { return s.Delete(t.Context(), key+strconv.Itoa(i)) }},
			{"Commit", func() error {
				_, err := s.Commit(t.Context(), []store.Change{{Key: key + "made" + strconv.Itoa(i)}, {Key: key + "absent", Do: store.Keep}})
				return err
			}},
			{"a refused Commit", func() error {
				_, err := s.Commit(t.Context(), []store.Change{{Key: key + "made" + strconv.Itoa(i)}, {Key: key + "absent"}})
				if errors.Is(err, store.ErrConflict) {
					return nil
				}
				return fmt.Errorf("not a conflict: %w", err)
			}},
			{"Commit that changes nothing", func() error {
				_, err := s.Commit(t.Context(), []store.Change{{Key: key + "absent", Do: store.Keep}})
				return err
			}},
			{"Scan", func() error {
				_, err := s.Scan(t.Context(), store.ScanRange{To: "z", Most: 1, Limit: 100})
				return err
			}},
			{"Now", func() error { _, err := s.Now(t.Context()); return err }},
			{"Waiting", func() error { _, err := s.Waiting(t.Context(), key); return err }},
			{"List", func() (err error) {
				for _, err = range s.List(t.Context(), "", "") {
				}
				return err
			}},
		} {
			if err := step.call(); err != nil {
				t.Fatalf("%s: %v", step.name, err)
			}
			if n := p.sent(""); n != 1 {
				t.Errorf("%s took %d requests", step.name, n)
			}
		}
	}
}

// The write took effect, and its answer did not come.
//
// SPEC ST9
// CASE B02
func TestLostReplyIsUnknown(t *testing.T) {
	t.Parallel()
	p, through := startProxy(t, place(t))
	s := open(t, with(through, "watch", "no"))
	p.once("INSERT INTO", action{kind: loseReply})
	p.sent("")
	_, err := s.Create(t.Context(), key, []byte("first"))
	kindIs(t, err, store.ErrUnknown, "Create whose reply was lost")
	if n := p.sent("INSERT"); n != 1 {
		t.Errorf("it was sent %d times", n)
	}
	o := must(s.Get(t.Context(), key, 100))(t)
	if string(o.Body) != "first" {
		t.Errorf("the body is %q", o.Body)
	}
	p.once("UPDATE", action{kind: loseReply})
	p.sent("")
	_, err = s.Replace(t.Context(), key, []byte("second"), o.Version)
	kindIs(t, err, store.ErrUnknown, "Replace whose reply was lost")
	if n := p.sent("UPDATE"); n != 1 {
		t.Errorf("it was sent %d times", n)
	}
	if o = must(s.Get(t.Context(), key, 100))(t); string(o.Body) != "second" {
		t.Errorf("the body is %q", o.Body)
	}
	p.once("DELETE", action{kind: loseReply})
	kindIs(t, s.DeleteIf(t.Context(), key, o.Version), store.ErrUnknown, "DeleteIf whose reply was lost")
	_, err = s.Get(t.Context(), key, 100)
	kindIs(t, err, store.ErrNotFound, "Get after it")
	p.once("UPDATE", action{kind: loseReply})
	p.sent("")
	_, err = s.Commit(t.Context(), []store.Change{{Key: key, Body: []byte("third")}, {Key: key + "2", Body: []byte("third")}})
	kindIs(t, err, store.ErrUnknown, "Commit whose reply was lost")
	if n := p.sent("UPDATE"); n != 1 {
		t.Errorf("it was sent %d times", n)
	}
	if found := must(s.Scan(t.Context(), store.ScanRange{To: "z", Most: 9, Limit: 100}))(t); len(found) != 2 {
		t.Errorf("%d keys are there, want both", len(found))
	}
}

// A connection that ended while it was idle is noticed before anything is sent
// over it, so a restart of the server or a fail-over costs no unknown outcome.
//
// SPEC ST8
func TestIdleConnectionThatEndedIsNotUsed(t *testing.T) {
	t.Parallel()
	u := place(t)
	s := open(t, with(u, "watch", "no", "application_name", "idle-"+param(u, "schema")))
	v := must(s.Create(t.Context(), key, []byte("0")))(t)
	for i := range 20 {
		admin(t, u, "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'idle-"+param(u, "schema")+"'")
		var err error
		if v, err = s.Replace(t.Context(), key, []byte(strconv.Itoa(i)), v); err != nil {
			t.Fatalf("Replace after the server ended the session: %v", err)
		}
	}
}

// The check of an idle connection does not wait for a goroutine that reads it.
func TestCheckOfAnIdleConnectionNeverWaits(t *testing.T) {
	t.Parallel()
	l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	c := must(net.Dial("tcp", l.Addr().String()))(t)
	peer := must(l.Accept())(t)
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = c.Read(make([]byte, 1))
	}()
	done := make(chan bool)
	go func() { done <- silent(c) }()
	select {
	case ok := <-done:
		if !ok {
			t.Error("a connection that lives was called ended")
		}
	case <-time.After(10 * time.Second):
		t.Error("the check waits for a reader")
	}
	_ = peer.Close()
	<-read
	for deadline := time.Now().Add(10 * time.Second); silent(c); { // poll
		if time.Now().After(deadline) {
			t.Fatal("the end of a connection is not seen")
		}
	}
	_ = c.Close()
}

// The request did not arrive, but it left: nobody here can know.
//
// SPEC ST9
func TestConnectionEndsUnderAWrite(t *testing.T) {
	t.Parallel()
	p, through := startProxy(t, place(t))
	s := open(t, with(through, "watch", "no"))
	p.on(s.sql.records, action{kind: killBefore})
	for _, op := range writes(s) {
		kindIs(t, op.call(t.Context()), store.ErrUnknown, op.name+" whose connection broke")
	}
	_, err := s.Get(t.Context(), key, 100)
	kindIs(t, err, store.ErrUnavailable, "Get whose connection broke")
}

// SPEC ST13
// CASE B05
func TestHungServerHoldsNobody(t *testing.T) {
	t.Parallel()
	p, through := startProxy(t, place(t))
	s := open(t, with(through, "watch", "no"))
	if err := s.Delete(t.Context(), key); err != nil { // there is a connection now
		t.Fatal(err)
	}
	p.on(s.sql.records, action{kind: hang})
	unknown := 0
	soon := func(what string, call func(ctx context.Context) error) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		start := time.Now()
		err := call(ctx)
		if errors.Is(err, store.ErrUnknown) {
			unknown++
		} else { // the time went by in making a connection
			kindIs(t, err, store.ErrUnavailable, what)
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v does not wrap the context's error", what, err)
		}
		if d := time.Since(start); d > 3*time.Second {
			t.Errorf("%s took %v", what, d)
		}
	}
	for range 2 { // more than the pool has connections
		for _, op := range writes(s) {
			soon(op.name+" at a hung server", op.call)
		}
	}
	soon("Get", func(ctx context.Context) error { _, err := s.Get(ctx, key, 1); return err })
	if unknown == 0 {
		t.Error("no write that was sent had an unknown outcome")
	}
	start := time.Now()
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("Close took %v", d)
	}
}

// A stopped server process holds a row: callers go on with their lives, other
// keys are not touched, and when it goes on, nothing is lost.
//
// SPEC ST13
// CASE B05
func TestStoppedServerProcess(t *testing.T) {
	t.Parallel()
	u := place(t)
	s, other := open(t, with(u, "watch", "no", "pool_max_conns", "2", "application_name", "stop-"+param(u, "schema"))), open(t, u)
	v := must(s.Create(t.Context(), key, []byte("0")))(t)
	pid := must(strconv.Atoi(admin(t, u, "SELECT pid FROM pg_stat_activity WHERE application_name = 'stop-"+param(u, "schema")+"'")[0][0]))(t)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	resumed := false
	resume := func() {
		if !resumed {
			resumed = true
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}
	}
	t.Cleanup(resume)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, err := s.Replace(ctx, key, []byte("1"), v)
	kindIs(t, err, store.ErrUnknown, "Replace by a stopped server process")
	if d := time.Since(start); d > 3*time.Second {
		t.Errorf("it took %v", d)
	}
	if _, err := s.Create(t.Context(), key+"2", []byte("x")); err != nil {
		t.Errorf("another call of the same store: %v", err)
	}
	if _, err := other.Replace(t.Context(), key, []byte("2"), v); err != nil {
		t.Errorf("the write of another process: %v", err)
	}
	resume()
	o := must(other.Get(t.Context(), key, 100))(t)
	if string(o.Body) != "2" {
		t.Errorf("the body is %q", o.Body)
	}
}
