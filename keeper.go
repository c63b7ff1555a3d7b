package tenure

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/tenure-project/tenure/internal/clock"
	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/internal/deadline"
	"github.com/tenure-project/tenure/internal/membership"
	"github.com/tenure-project/tenure/internal/settle"
	"github.com/tenure-project/tenure/store"
)

// start begins the renewals, for a lease of its own, and the watch over the
// deadlines.
func (l *Lease) start() {
	l.c.observe(Event{Lease: l.name, Token: l.token, Kind: EventAcquired})
	if l.s != nil {
		l.work.OnEnd(l.endContext)
		l.dl.OnEnd(func() { l.endWork(l.ended(l.dl.Cause())) })
		l.archiveSoon()
		return
	}
	l.kept = make(chan struct{})
	l.c.mu.Lock()
	l.c.leases[l] = struct{}{}
	l.c.mu.Unlock()
	l.work.OnEnd(l.endContext)
	l.dl.OnEnd(func() { l.quit(ErrExpired) })
	go l.keep()
	l.archiveSoon()
}

// endContext cancels the work's context once its deadline has ended, which does
// not wait for any store call (LS7).
func (l *Lease) endContext() {
	cause := l.work.Cause()
	if errors.Is(cause, deadline.ErrExpired) {
		l.tell(slog.LevelError, "lease: not renewed in time, the work must stop", l.ended(cause))
	}
	l.cancel(l.ended(cause))
	l.awaitOver()
	l.retire()
}

// awaitOver waits until the lease is over for good. Work that has ended by now, or
// that nobody watches, must not keep a lease of its own for ever: after the stop
// limit it is left to lapse (LS6). A session's stays until its holder releases it
// or the session ends (LS8).
func (l *Lease) awaitOver() {
	if l.s != nil {
		<-l.dl.Done()
		return
	}
	t := l.c.clk.AfterFunc(l.limit, l.stopKeeper)
	<-l.kept
	t.Stop()
}

// tell reports the end of a lease. What ends ten thousand leases of one session is
// one event for a person.
func (l *Lease) tell(level slog.Level, what string, cause error) {
	if l.s != nil && l.s.Err() != nil {
		level = slog.LevelDebug
	}
	l.c.log.Log(context.Background(), level, what, "lease", l.name, "token", l.token, "error", cause)
	l.c.observe(Event{Lease: l.name, Token: l.token, Kind: EventLost, Err: cause})
}

// ended is the cause of the end of one of the lease's deadlines in the words of
// this package.
func (l *Lease) ended(cause error) error {
	switch {
	case errors.Is(cause, deadline.ErrExpired):
		return l.expired()
	case l.s != nil && errors.Is(cause, membership.ErrLost):
		return fmt.Errorf("lease %q (token %d): %w with its session: %w", l.name, l.token, ErrLost, cause)
	}
	return cause
}

// expired is why the lease ended at its deadline: credentials that ran out are
// another matter than a store that hung.
func (l *Lease) expired() error {
	l.mu.Lock()
	trouble := l.trouble
	l.mu.Unlock()
	if l.s != nil {
		trouble = l.s.m.Health().Err
	}
	if trouble == nil {
		return fmt.Errorf("lease %q (token %d): %w", l.name, l.token, ErrExpired)
	}
	return fmt.Errorf("lease %q (token %d): %w; the last try: %w", l.name, l.token, ErrExpired, trouble)
}

// retire forgets the lease once it is over and its work has returned.
func (l *Lease) retire() {
	l.mu.Lock()
	working := l.working
	l.mu.Unlock()
	if working {
		return // Do calls it again
	}
	if l.s != nil {
		l.s.forget(l)
	} else {
		l.c.mu.Lock()
		delete(l.c.leases, l)
		l.c.mu.Unlock()
	}
	l.leave()
}

func (l *Lease) stopKeeper() {
	if l.quit != nil {
		l.quit(ErrReleased)
	}
}

// keep renews until the lease is over or the keeper is told to stop. It does
// nothing else: no clean-up, listing or archiving may delay a renewal.
func (l *Lease) keep() {
	defer close(l.kept)
	defer l.work.End(deadline.ErrExpired)
	next := l.nextRenewal(l.timing.Life())
	for clock.Sleep(l.c.clk, next, l.keeping.Done()) && l.dl.Cause() == nil {
		next = l.renew(l.keeping)
	}
}

// nextRenewal is the jittered pause before the next renewal, counted from the
// send of the last one, whose grant had life to live.
func (l *Lease) nextRenewal(life time.Duration) time.Duration {
	sinceSend := life - l.dl.Remaining()
	every := l.timing.Renew - time.Duration(l.c.rand()*float64(l.timing.Renew)/8)
	return max(0, every-sinceSend)
}

// renew extends the lease once and returns the pause before the next time. It
// goes on trying until ctx ends, which is at the deadline (LS4).
func (l *Lease) renew(ctx context.Context) time.Duration {
	held, over := l.state()
	next := held.Renew(l.c.newID())
	if l.archived() > 0 {
		next = next.Forget(l.archived())
	}
	started := l.c.clk.Boot()
	res, err := l.write(ctx, next, over)
	took := l.c.clk.Boot() - started
	if ctx.Err() == nil { // what ended with the lease itself explains nothing
		l.mu.Lock()
		l.trouble = err
		l.mu.Unlock()
	}
	switch {
	case err == nil:
		return l.renewed(res, took)
	case ctx.Err() != nil:
		return 0 // the deadline came first, or the keeper was told to stop
	}
	l.c.observe(Event{Lease: l.name, Token: l.token, Kind: EventRenewFailed, Err: err, Took: took, Margin: l.dl.Remaining()})
	switch store.KindOf(err) {
	case store.ErrConflict, store.ErrNotFound, store.ErrExists:
		return l.refused(ctx, held)
	case store.ErrNewer, store.ErrInvalid, store.ErrCorrupt:
		_ = l.lose(fmt.Errorf("%w: %w", ErrLost, err))
		return 0
	}
	l.c.log.Warn("lease: renewal failed, trying again", "lease", l.name, "token", l.token, "left", l.dl.Remaining(), "error", err)
	return l.retryPause()
}

// renewalFails notes that a call of a renewal failed, which goes on.
func (l *Lease) renewalFails(err error) {
	l.mu.Lock()
	first := l.trouble == nil
	l.trouble = err
	l.mu.Unlock()
	left := l.dl.Remaining()
	l.c.observe(Event{Lease: l.name, Token: l.token, Kind: EventRenewFailed, Err: err, Margin: left})
	level := slog.LevelDebug // an outage is told once
	if first {
		level = slog.LevelWarn
	}
	l.c.log.Log(l.keeping, level, "lease: a renewal fails, trying again", "lease", l.name, "token", l.token, "left", left, "error", err)
}

// retryPause is how long to wait after a renewal that failed: the less time is
// left, the shorter.
func (l *Lease) retryPause() time.Duration {
	return l.c.pace(l.timing).Jitter(min(l.timing.Renew/4, max(l.dl.Remaining()/3, l.timing.Attempt/16, time.Millisecond)))
}

func (l *Lease) renewed(res settle.Result, took time.Duration) time.Duration {
	margin := l.dl.Remaining()
	if err := l.adopt(res); err != nil {
		_ = l.lose(err)
		return 0
	}
	if !l.extend(res.Sent) {
		return 0 // it came after T: a loss, already ended by the deadline
	}
	l.c.observe(Event{Lease: l.name, Token: l.token, Kind: EventRenewed, Took: took, Margin: margin})
	return l.nextRenewal(l.timing.Life())
}

// refused reads what stands in the way of a renewal. Another's write that left
// the tenure alone (a jump) is adopted; anything else is the end (ST9, LS4).
func (l *Lease) refused(ctx context.Context, held *lease.Record) time.Duration {
	f, err := l.c.read(ctx, l.name, l.timing.Attempt)
	switch {
	case errors.Is(err, ErrRegressed):
		_ = l.lose(fmt.Errorf("%w: %w", ErrLost, err))
		return 0
	case err != nil:
		l.renewalFails(err)
		return l.retryPause()
	case f.rec == nil || !lease.Adoptable(held, f.rec, l.mine):
		_ = l.lose(lostTo(f.rec))
		return 0
	}
	l.mu.Lock()
	l.rec, l.ver = f.rec, f.ver
	l.mu.Unlock()
	return 0 // renew at once over what was found
}

func (l *Lease) archived() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.archive
}
