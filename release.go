package tenure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenure-project/tenure/internal/clock"
	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/internal/settle"
	"github.com/tenure-project/tenure/store"
)

// Release gives the lease up: first here (Live is false and the context
// cancelled before anything is sent), then in the store, where the next acquire
// is free at once. Stop the work before, or use Do.
//
// It has its own time limit (WithReleaseLimit) and does not mind if ctx is
// already cancelled; only ctx's values are used. If the store does not confirm
// in time, Release returns an ErrUnconfirmed and goes on trying in the
// background while the client lives; calling Release again waits for another
// limit. Releasing a lease that was lost returns an ErrLost and touches nothing;
// releasing it twice is fine.
func (l *Lease) Release(ctx context.Context) error {
	return l.giveUp(ctx, ErrReleased, lease.Ended{How: lease.HowReleased})
}

// ReleaseTo hands the lease over to a named successor: an Acquire with
// [As] of that name gets it at once, everyone else only after watching the
// released record for hold, at most the TTL (LS10).
func (l *Lease) ReleaseTo(ctx context.Context, successor string, hold time.Duration) error {
	if err := store.CheckName("successor", successor); err != nil {
		return err
	}
	if hold <= 0 || hold > l.timing.TTL || hold%time.Millisecond != 0 {
		return store.Errorf(ErrInvalid, "", "release", l.name, "a hold is whole milliseconds above 0 and at most the TTL %v, not %v", l.timing.TTL, hold)
	}
	return l.giveUpTo(ctx, ErrReleased, lease.Ended{How: lease.HowReleased}, successor, hold)
}

func (l *Lease) giveUp(ctx context.Context, cause error, e lease.Ended) error {
	return l.giveUpTo(ctx, cause, e, "", 0)
}

func (l *Lease) giveUpTo(ctx context.Context, cause error, e lease.Ended, successor string, hold time.Duration) error {
	if l.s != nil && l.s.doubt(1) { // until its outcome is known: Leave waits for that
		defer l.s.doubt(-1)
	}
	l.mu.Lock()
	l.ending = true
	l.mu.Unlock()
	l.stopWork(cause)
	l.dl.End(fmt.Errorf("lease %q: %w", l.name, cause)) // before the first send (LS5)
	l.stopKeeper()
	if l.kept != nil {
		<-l.kept // returns soon: its store call's context has ended
	}
	defer l.retire() // whoever released may acquire at once
	limit := l.c.releaseLimit(l.timing)
	rctx, cancel := settle.Limit(context.WithoutCancel(ctx), l.c.clk, limit)
	defer cancel()
	select {
	case l.end.lock <- struct{}{}:
		defer func() { <-l.end.lock }()
	case <-rctx.Done(): // the one in the background is at it
		return fmt.Errorf("lease %q: %w after %v: it is still being tried in the background", l.name, ErrUnconfirmed, limit)
	}
	if l.end.done {
		return l.end.err
	}
	if err := l.lostErr(); err != nil {
		l.end.done, l.end.err = true, err
		return err
	}
	e.At = l.c.nowMS()
	if successor != "" { // it stays the successor, however often it is tried
		l.end.successor, l.end.hold = successor, hold
	}
	err := l.freeTo(rctx, e, l.end.successor, l.end.hold)
	switch {
	case err == nil:
		l.end.done = true
		l.c.observe(Event{Lease: l.name, Token: l.token, Kind: EventReleased})
	case errors.Is(err, ErrLost):
		l.end.done, l.end.err = true, err
	case l.s != nil && l.s.ctx.Err() != nil:
		err = fmt.Errorf("lease %q: %w, but its session is over, and so is the lease: %w", l.name, ErrUnconfirmed, err)
	default:
		err = fmt.Errorf("lease %q: %w after %v: %w", l.name, ErrUnconfirmed, limit, err)
		l.c.log.Error("lease: release not confirmed, trying on in the background", "lease", l.name, "token", l.token, "error", err)
		l.freeLater(e)
	}
	return err
}

// lostErr is why the lease was lost, if it certainly was: then there is nothing
// to free. One that merely expired may still be ours, and is freed (B18: by
// exact owner and token).
func (l *Lease) lostErr() error {
	if err := l.ended(l.dl.Cause()); errors.Is(err, ErrLost) && !errors.Is(err, ErrExpired) {
		return err
	}
	return nil
}

// freeLater goes on freeing the record in the background, for as long as it
// could still block others.
func (l *Lease) freeLater(e lease.Ended) {
	l.later(2*l.timing.TTL, func(ctx context.Context) error {
		l.end.lock <- struct{}{}
		defer func() { <-l.end.lock }()
		if l.end.done {
			return nil
		}
		err := l.freeTo(ctx, e, l.end.successor, l.end.hold)
		if err == nil || errors.Is(err, ErrLost) && ctx.Err() == nil {
			l.end.done, l.end.err = true, err
		}
		return err
	})
}

// free writes the released record, whatever became of the writes before it: it
// reads where it is not sure, and stops where another owns the lease.
func (l *Lease) free(ctx context.Context, e lease.Ended) error { return l.freeTo(ctx, e, "", 0) }

func (l *Lease) freeTo(ctx context.Context, e lease.Ended, successor string, hold time.Duration) error {
	if e.At == 0 {
		e.At = l.c.nowMS()
	}
	for {
		held, over, err := l.settled(ctx)
		if errors.Is(err, errAlreadyFree) {
			return nil
		}
		if err != nil {
			return err
		}
		next := l.archiveBefore(ctx, held.End(l.c.newID(), e))
		next.Successor, next.HoldMS = successor, hold.Milliseconds()
		_, err = l.write(ctx, next, over)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrNotFound):
			return err
		}
		l.mu.Lock()
		l.ver = "" // not what we thought: read before the next try
		l.mu.Unlock()
	}
}

// settled returns the record that this handle holds in the store, reading it if
// a write before is in doubt or the version is not known. An ErrLost says that
// the lease belongs to nobody or another, also if an earlier release of this
// handle took effect.
func (l *Lease) settled(ctx context.Context) (*lease.Record, store.Version, error) {
	l.mu.Lock()
	rec, ver, doubt := l.rec, l.ver, l.doubt
	l.mu.Unlock()
	if doubt == nil && ver != "" {
		return rec, ver, nil
	}
	for failures := 1; ; failures++ {
		f, err := l.c.read(ctx, l.name, l.timing.Attempt)
		r := f.rec
		switch {
		case err == nil && r != nil && r.SameOwner(l.owner, l.token):
			l.mu.Lock()
			l.rec, l.ver, l.doubt = r, f.ver, nil
			l.mu.Unlock()
			return r, f.ver, nil
		case err == nil && r != nil && r.Released(l.owner, l.token):
			return nil, "", errAlreadyFree
		case err == nil:
			return nil, "", l.fate(ctx, r)
		case store.KindOf(err) != store.ErrUnavailable || ctx.Err() != nil:
			return nil, "", err
		}
		if !l.pauseRelease(ctx, failures) {
			return nil, "", err
		}
	}
}

// errAlreadyFree: an earlier try of this handle to release took effect.
var errAlreadyFree = errors.New("it was released by this handle before")

func (l *Lease) pauseRelease(ctx context.Context, failures int) bool {
	d := l.timing.Attempt / 8 * time.Duration(min(failures, 8))
	return clock.Sleep(l.c.clk, l.c.pace(l.timing).Jitter(d), ctx.Done())
}

// fate says what became of this handle's lease, which r no longer is: released by
// an earlier try, or lost. Where the record tells nothing of it any more the
// archives do; while they cannot be read nothing is said.
func (l *Lease) fate(ctx context.Context, r *lease.Record) error {
	if r == nil {
		return lostTo(r)
	}
	ended, err := l.c.endedAs(ctx, l.name, r, l.token, func(t lease.Tenure) bool {
		return t.Owner.Incarnation == l.owner.Incarnation && t.How == lease.HowReleased
	})
	switch {
	case err != nil:
		return err
	case ended:
		return errAlreadyFree
	}
	return lostTo(r)
}

// shutdown ends the lease because the client closes or the session leaves.
func (l *Lease) shutdown() error {
	l.stopWork(ErrShutdown)
	if l.awaitWork() {
		return nil
	}
	return l.giveUp(context.Background(), ErrShutdown, lease.Ended{How: lease.HowReleased, Why: "shutdown"})
}

// awaitWork waits until Do has returned, which it does within its stop limit and
// its release limit, and reports whether there is a Do at all.
func (l *Lease) awaitWork() bool {
	l.mu.Lock()
	finished := l.finished
	l.ending = l.ending || finished == nil
	l.mu.Unlock()
	if finished == nil {
		return false
	}
	<-finished
	return true
}
