package tenure

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/tenure-project/tenure/internal/core/lease"
)

// Do waits for the lease name, runs fn while holding it, and releases it after
// fn returned: stop, then release (LS6).
//
// fn's context carries ctx's values. It ends when ctx ends (cause ErrShutdown)
// or when the lease is lost or about to lapse (ErrLost, ErrExpired). After a
// shutdown the lease is renewed on while fn stops, for at most the stop limit.
// If fn is still running then, Do returns an ErrOverlap and lets the lease
// lapse; no other caller in this process gets the name before fn has returned.
//
// The result is fn's error, joined with the loss of the lease if it was lost
// before fn returned, and with an ErrUnconfirmed if the release was not
// confirmed. A panic in fn releases the lease and goes on in Do's caller.
func (c *Client) Do(ctx context.Context, name string, fn func(ctx context.Context, l *Lease) error, opts ...AcquireOption) error {
	l, err := c.Acquire(ctx, name, opts...)
	if err != nil {
		return err
	}
	return l.do(ctx, fn)
}

// TryDo is Do, but returns a *[HeldError] at once if the lease is held.
func (c *Client) TryDo(ctx context.Context, name string, fn func(ctx context.Context, l *Lease) error, opts ...AcquireOption) error {
	l, err := c.TryAcquire(ctx, name, opts...)
	if err != nil {
		return err
	}
	return l.do(ctx, fn)
}

// ending is how a function under Do returned.
type ending struct {
	err      error
	panicked any
	exited   bool // by runtime.Goexit
}

func (l *Lease) do(ctx context.Context, fn func(context.Context, *Lease) error) error {
	finished := make(chan struct{})
	defer close(finished)
	l.mu.Lock()
	begin := !l.ending && l.ctx.Err() == nil && l.work.Live()
	if begin {
		l.working, l.finished = true, finished
	}
	l.mu.Unlock()
	if !begin { // given up by Leave or Close, or over, before the work began
		lost := l.ended(l.work.Cause())
		if lost == nil {
			lost = fmt.Errorf("lease %q (token %d): %w", l.name, l.token, ErrExpired)
		}
		return errors.Join(lost, l.giveUp(ctx, ErrReleased, lease.Ended{How: lease.HowReleased}))
	}

	work, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	defer context.AfterFunc(l.ctx, func() { cancel(context.Cause(l.ctx)) })()
	defer context.AfterFunc(ctx, func() { l.stopWork(fmt.Errorf("%w: %w", ErrShutdown, context.Cause(ctx))) })()

	done := make(chan ending, 1)
	go l.runWork(work, fn, done)

	select {
	case e := <-done:
		return l.finish(ctx, e)
	case <-l.ctx.Done():
	}
	late := make(chan struct{})
	t := l.c.clk.AfterFunc(l.limit, func() { close(late) })
	defer t.Stop()
	select {
	case e := <-done:
		return l.finish(ctx, e)
	case <-late:
		l.c.log.Error("lease: the work does not stop; the lease is left to lapse", "lease", l.name, "token", l.token)
		l.overran()
		return fmt.Errorf("lease %q (token %d): %w: %w", l.name, l.token, ErrOverlap, l.Err())
	}
}

// runWork runs fn in a goroutine of its own, so that Do can return without it.
func (l *Lease) runWork(ctx context.Context, fn func(context.Context, *Lease) error, done chan<- ending) {
	e := ending{exited: true}
	defer func() {
		if p := recover(); p != nil {
			l.c.log.Error("lease: panic in the work", "lease", l.name, "panic", p, "stack", string(debug.Stack()))
			e.panicked, e.exited = p, false
		}
		l.mu.Lock()
		l.working = false
		l.mu.Unlock()
		done <- e
		l.freeStuck()
		over := (<-chan struct{})(l.kept)
		if l.s != nil {
			over = l.dl.Done()
		}
		select {
		case <-over: // the lease is over: whoever waits here may go on
			l.retire()
		default: // endContext will do it
		}
	}()
	e.err = fn(ctx, l)
	e.exited = false
}

// overran leaves a lease whose work does not stop. One of its own lapses; a
// session's would stay as long as the session, so it is freed when the work returns
// after all (LS8).
func (l *Lease) overran() {
	if l.s == nil {
		return
	}
	l.stuck.Store(true)
	l.mu.Lock()
	working := l.working
	l.mu.Unlock()
	if !working {
		l.freeStuck()
	}
}

// freeStuck frees a lease whose work returned after Do had given up on it.
func (l *Lease) freeStuck() {
	if l.stuck.CompareAndSwap(true, false) {
		l.dl.End(fmt.Errorf("lease %q: %w", l.name, ErrReleased))
		l.freeLater(lease.Ended{How: lease.HowReleased, Why: "its work ended late", At: l.c.nowMS()})
	}
}

// finish releases the lease after the work returned.
func (l *Lease) finish(ctx context.Context, e ending) error {
	lost := l.Err()
	if !errors.Is(lost, ErrLost) { // it may have been lost while the work stopped
		lost = l.ended(l.dl.Cause())
	}
	if !errors.Is(lost, ErrLost) {
		lost = nil
	}
	released := l.giveUp(ctx, ErrReleased, lease.Ended{How: lease.HowReleased})
	if lost != nil && errors.Is(released, ErrLost) {
		released = nil // said already
	}
	if e.panicked != nil {
		panic(e.panicked)
	}
	if e.exited {
		runtime.Goexit()
	}
	if lost != nil && errors.Is(e.err, lost) {
		lost = nil
	}
	return errors.Join(e.err, lost, released)
}
