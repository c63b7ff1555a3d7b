//go:build linux || darwin

package agent

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/clock"
)

// errWaitedFor is the cause of a context whose time is over.
var errWaitedFor = errors.New("waited for so long")

// An agent that waits for a lease says so all the time, so that one that is stopped
// is told from one that has nothing new to say.
//
// SPEC ST13 LS9
func TestAgentSaysThatItWaits(t *testing.T) {
	t.Parallel()
	h := newHost(t, 600*time.Millisecond)
	l := h.hold("j")
	r := h.raw()
	r.say(`{"op":"hello","v":1}`, `{"op":"acquire","lease":"j","wait_ns":-1}`)
	r.hear(opHello)
	began := h.clk.Boot()
	for range 2 * waitingParts {
		r.hear(opWaiting)
	}
	if passed := h.clk.Boot() - began; passed < h.sess.TTL() {
		t.Errorf("it said so %d times in %v", 2*waitingParts, passed)
	}
	if err := l.Release(h.ctx()); err != nil {
		t.Error(err)
	}
	for {
		m, err := r.in.next()
		if err != nil || m.Op != opWaiting {
			if err != nil || m.Op != opGranted {
				t.Errorf("heard %+v (%v)", m, err)
			}
			return
		}
	}
}

// stoppedAgent greets, says words of them that it waits, and then nothing more until
// the client gives up.
func stoppedAgent(t *testing.T, ttl time.Duration, words int) (c *Conn, gaveUp chan message) {
	gaveUp = make(chan message, 1)
	path := fakeAgent(t, func(r raw) {
		_, _ = r.in.next()
		_ = send(r.UnixConn, hello(func(m *message) { m.TTL = ttl }))
		_, _ = r.in.next()
		for range words {
			_ = send(r.UnixConn, message{Op: opWaiting})
		}
		m, _ := r.in.next()
		gaveUp <- m
	})
	c, err := Dial(t.Context(), path, clock.NewSystem())
	if err != nil {
		t.Fatal(err)
	}
	return c, gaveUp
}

// A client whose agent is silent for its TTL gives the wish back and says so, or waits
// on if it wants to, until its own time is over.
//
// SPEC ST13 LS9
func TestSilentAgent(t *testing.T) {
	t.Parallel()
	const ttl = 300 * time.Millisecond
	began := time.Now()
	c, gaveUp := stoppedAgent(t, ttl, 5)
	_, err := c.Acquire(t.Context(), Request{Lease: "j", Wait: -1})
	wantErr(t, err, ErrSilent, `node "n" has said nothing for its TTL of 300ms`)
	if m := <-gaveUp; m.Op != opRelease {
		t.Errorf("it said %+v", m)
	}
	if passed := time.Since(began); passed < ttl {
		t.Errorf("that was silence after %v", passed)
	}

	c, gaveUp = stoppedAgent(t, ttl, 0)
	ctx, cancel := context.WithTimeoutCause(t.Context(), 5*ttl, errWaitedFor)
	defer cancel()
	told := 0
	_, err = c.Acquire(ctx, Request{Lease: "j", Wait: 5 * ttl, Silent: func() bool {
		told++
		return true
	}})
	wantErr(t, err, ErrSilent, "waited for so long: the agent does not answer")
	if m := <-gaveUp; m.Op != opRelease || told != 1 || !errors.Is(err, errWaitedFor) {
		t.Errorf("it said %+v, and told of the silence %d times", m, told)
	}
}

// Where the time to wait is shorter than a TTL, an agent that has not said that it is
// over does not answer; one that has is not blamed.
//
// SPEC ST13 LS9
func TestShortWait(t *testing.T) {
	t.Parallel()
	c, _ := stoppedAgent(t, time.Hour, 1)
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errWaitedFor)
	defer cancel()
	_, err := c.Acquire(ctx, Request{Lease: "j", Wait: 50 * time.Millisecond})
	wantErr(t, err, ErrSilent, "waited for so long")

	over := make(chan struct{})
	path := fakeAgent(t, func(r raw) {
		_, _ = r.in.next()
		_ = send(r.UnixConn, hello(nil))
		_, _ = r.in.next()
		<-over
		_ = send(r.UnixConn, failure(ErrWaited))
	})
	if c, err = Dial(t.Context(), path, clock.NewSystem()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel = context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errWaitedFor)
	defer cancel()
	defer context.AfterFunc(ctx, func() { close(over) })()
	if _, err = c.Acquire(ctx, Request{Lease: "j", Wait: 50 * time.Millisecond}); errors.Is(err, ErrSilent) || !errors.Is(err, errWaitedFor) && !errors.Is(err, ErrWaited) {
		t.Errorf("the error is %v", err)
	}
}

// A grant that was read too late to work under is given back at once, and can be asked
// for anew.
//
// SPEC DL1 LS9
func TestLateGrant(t *testing.T) {
	t.Parallel()
	clk := clock.NewSystem()
	released := make(chan message, 1)
	path := fakeAgent(t, func(r raw) {
		_, _ = r.in.next()
		_ = send(r.UnixConn, hello(nil))
		_, _ = r.in.next()
		_ = send(r.UnixConn, message{Op: opGranted, Token: 7, Incarnation: "i", Term: 1, Deadline: clk.Boot() - time.Second})
		m, _ := r.in.next()
		released <- m
		_ = send(r.UnixConn, message{Op: opReleased})
	})
	c, err := Dial(t.Context(), path, clk)
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Acquire(t.Context(), Request{Lease: "j", Wait: -1})
	wantErr(t, err, ErrLate, `lease "j" (token 7): the grant came too late`)
	if m := <-released; m.Op != opRelease || errors.Is(err, tenure.ErrUnconfirmed) {
		t.Errorf("it said %+v, and the error is %v", m, err)
	}
}

// What an agent passes on of its own process is worded for others: a lease that was
// stolen, but that one of its commands has yet, is free soon.
//
// SPEC LS11 UI1
func TestStolenLeaseIsNotYetFreeHere(t *testing.T) {
	t.Parallel()
	h := newHost(t, 20*time.Second)
	l := h.hold("j")
	if _, err := h.rival.Steal(h.ctx(), "j", tenure.StealOptions{Token: l.Token(), Reason: "test", Vouch: true}); err != nil {
		t.Fatal(err)
	}
	_, err := h.dial().Acquire(h.ctx(), Request{Lease: "j"})
	wantErr(t, err, tenure.ErrHeld, fmt.Sprintf("(last token %d)", l.Token()), `the agent of node "n1" ends the command that had it first`)
	wantErr(t, l.Release(h.ctx()), tenure.ErrLost, "vouched")
}
