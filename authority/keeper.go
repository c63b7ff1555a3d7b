package authority

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	tenure "github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/clock"
	"github.com/tenure-project/tenure/internal/kit"
	"github.com/tenure-project/tenure/internal/settle"
	"github.com/tenure-project/tenure/store"
)

// keep renews until the leadership is over. It does nothing else: no listing,
// walking or pruning may delay a renewal.
func (l *Leader) keep() {
	defer close(l.kept)
	defer l.caught("keeper")
	next := l.untilRenewal()
	for clock.Sleep(l.a.c.Clock, next, l.keeping.Done()) && l.own.Cause() == nil {
		if next = l.untilRenewal(); next > 0 && !l.a.reports.waiting() {
			continue // a decision renewed meanwhile
		}
		next = l.renew(l.keeping)
	}
}

// caught ends the leadership if its goroutine panics (LA6).
func (l *Leader) caught(who string) {
	if p := recover(); p != nil {
		l.a.c.Log.Error("authority: panic, the leadership ends", "authority", l.a.name, "token", l.proof.Token, "in", who, "panic", p, "stack", string(debug.Stack()))
		_ = l.lose(errPanic(p))
	}
}

// untilRenewal is the jittered pause before the next renewal, counted from the send
// of the last write that renewed. A tick that was missed is skipped.
func (l *Leader) untilRenewal() time.Duration {
	t := l.a.cfg.timing
	sinceSend := t.Life() - l.own.Remaining()
	every := t.Renew - time.Duration(l.a.c.Rand()*float64(t.Renew)/8)
	return max(0, every-sinceSend)
}

// renew extends the leadership once, with one store request if nothing is in the
// way, and returns the pause before the next time. It folds the reports that were
// found pending into the same write (RF). It goes on trying until ctx ends, which
// is at the deadline.
func (l *Leader) renew(ctx context.Context) time.Duration {
	a := l.a
	free, err := a.take(ctx, a.lock)
	if err != nil {
		return 0 // the leadership is over
	}
	defer free()
	if l.untilRenewal() > 0 && !a.reports.waiting() {
		return l.untilRenewal() // a decision renewed while this waited
	}
	h, err := l.current(ctx)
	if err != nil {
		return l.failed(ctx, err)
	}
	next, _, err := h.Renew(l.core(), a.c.NewID(), a.reports.take()...)
	if err != nil {
		_ = l.lose(fmt.Errorf("%w: %w", tenure.ErrLost, err))
		return 0
	}
	res, err := a.write(ctx, next, l.hurry)
	if err != nil {
		return l.failed(ctx, err)
	}
	return l.renewed(res)
}

// hurry makes the tries of a write come closer as the deadline does.
func (l *Leader) hurry(w *settle.Write, p *settle.Pace) {
	p.Left, w.Failed = l.own.Remaining, l.renewalFails
}

// renewed publishes a write that renewed, and returns the pause before the next.
func (l *Leader) renewed(res settle.Result) time.Duration {
	l.a.reports.shown(l.a.head)
	took, margin := l.a.c.Clock.Boot()-res.Sent.Boot(), l.own.Remaining()
	if !l.extend(res.Sent) {
		return 0 // it came after T: a loss, already ended by the deadline
	}
	l.mu.Lock()
	l.trouble = nil
	l.mu.Unlock()
	l.a.note(func(h *Health) { h.RenewedAt, h.RenewErr = res.Sent.Boot(), nil })
	l.a.tell(tenure.EventRenewed, l.proof.Token, kit.Event{Took: took, Margin: margin})
	return l.untilRenewal()
}

// failed judges a renewal that failed and returns the pause before the next try.
func (l *Leader) failed(ctx context.Context, err error) time.Duration {
	switch {
	case ctx.Err() != nil || l.own.Cause() != nil:
		return 0
	case settle.LostRace(err): // read what came first, at once
		return 0
	case retryable(err) || store.KindOf(err) == store.ErrDenied:
		l.renewalFails(err)
		t := l.a.cfg.timing
		return l.a.c.Pace(t).Jitter(min(t.Renew/4, max(l.own.Remaining()/3, t.Attempt/16, time.Millisecond)))
	}
	_ = l.lose(fmt.Errorf("%w: %w", tenure.ErrLost, err))
	return 0
}

// renewalFails notes that a call of a renewal failed, which goes on.
func (l *Leader) renewalFails(err error) {
	l.mu.Lock()
	first := l.trouble == nil
	l.trouble = err
	l.mu.Unlock()
	l.a.note(func(h *Health) { h.RenewErr = err })
	l.a.tell(tenure.EventRenewFailed, l.proof.Token, kit.Event{Margin: l.own.Remaining(), Err: err})
	level := slog.LevelDebug // an outage is told once
	if first {
		level = slog.LevelWarn
	}
	l.a.c.Log.Log(l.keeping, level, "authority: a renewal fails, trying again", "authority", l.a.name, "token", l.proof.Token, "left", l.own.Remaining(), "error", err)
}
