package authority

import (
	"errors"
	"time"

	tenure "github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/kit"
	"github.com/tenure-project/tenure/internal/settle"
)

// Health is how an Authority fares. Read it when metrics are read: what it says of
// Leading is the truth at that instant, whatever events came before.
type Health struct {
	// Leading reports whether it leads now.
	Leading bool
	// Token is the last leadership's; 0 before the first.
	Token uint64
	// Remaining is the time left to the leadership, 0 without one.
	Remaining time.Duration
	// RenewedAt is when the last write that renewed was first sent, by the boot clock;
	// 0 before the first.
	RenewedAt time.Duration
	// InDoubt counts writes of the head whose outcome is not known yet.
	InDoubt int
	// RenewErr is why renewing fails at present, or did when the last leadership
	// ended; nil if it does not.
	RenewErr error
	// FoldErr is why pending fault reports cannot be read, nil if they can.
	FoldErr error
	// CompactErr is why a chain that is to be compacted cannot be walked, nil if it can.
	// It is corrupt, if the error is a *BrokenError.
	CompactErr error
	// PrunedAt is when the last removal run ended, by the boot clock; 0: never.
	PrunedAt time.Duration
	// PruneErr is how it failed, nil if it did not. Nothing depends on it (LA8).
	PruneErr error
}

// Health reports how the authority fares.
func (a *Authority) Health() Health {
	a.mu.Lock()
	h := a.health
	h.InDoubt = len(a.cand.InDoubt())
	a.mu.Unlock()
	if l := a.leader.Load(); l != nil {
		h.Leading, h.Token, h.Remaining = l.Live(), l.proof.Token, l.Remaining()
	}
	return h
}

func (a *Authority) note(f func(h *Health)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f(&a.health)
}

// tell tells the client's observer what happened to a leadership, or under it.
func (a *Authority) tell(kind tenure.EventKind, token uint64, e kit.Event) {
	e.Authority, e.Token, e.Kind = a.name, token, string(kind)
	a.c.Observe(e)
}

// began tells that the leadership is handed out by a write of that result, and sees
// to it that its end is told.
func (l *Leader) began(res settle.Result) {
	a := l.a
	a.note(func(h *Health) { h.RenewedAt, h.RenewErr = res.Sent.Boot(), nil })
	a.tell(tenure.EventAcquired, l.proof.Token, kit.Event{Took: a.c.Clock.Boot() - res.Sent.Boot(), Margin: l.Remaining()})
	l.own.OnEnd(func() {
		cause := l.inWords(l.own.Cause())
		if !errors.Is(cause, tenure.ErrReleased) && !errors.Is(cause, tenure.ErrShutdown) {
			a.tell(tenure.EventLost, l.proof.Token, kit.Event{Err: cause})
		}
	})
}
