package membership

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/tenure-project/tenure/internal/clock"
	"github.com/tenure-project/tenure/internal/core/identity"
	"github.com/tenure-project/tenure/internal/settle"
	"github.com/tenure-project/tenure/store"
)

// keep renews until the member is over (PL8). It does nothing else: no sealing,
// listing or pruning may delay a renewal.
func (m *Member) keep() {
	next := m.nextRenewal()
	for clock.Sleep(m.i.cfg.Clock, next, m.keeping.Done()) && m.dl.Cause() == nil {
		next = m.renew(m.keeping)
	}
}

// nextRenewal is the jittered pause before the next renewal, counted from the send
// of the last one. A tick that was missed is skipped.
func (m *Member) nextRenewal() time.Duration {
	t := m.claim.Timing
	if len(m.Record().Revocations) > 0 { // those who took the leases wait for the answer
		return 0
	}
	sinceSend := t.Life() - m.dl.Remaining()
	every := t.Renew - time.Duration(m.i.cfg.Rand()*float64(t.Renew)/8)
	return max(0, every-sinceSend)
}

// renew extends the membership once, with one store request if nothing is in the
// way (LS4), and returns the pause before the next time. It goes on trying until
// ctx ends, which is at the deadline.
func (m *Member) renew(ctx context.Context) time.Duration {
	m.mu.Lock()
	held, over, sealed, told := m.rec, m.ver, m.sealed, m.told
	m.mu.Unlock()
	next, err := held.Renew(m.owner, identity.Renewal{Attempt: m.attempt(), NowMS: m.i.nowMS(), Sealed: sealed, Acknowledged: told})
	if err != nil {
		m.lose(fmt.Errorf("%w: %w", ErrLost, err))
		return 0
	}
	started := m.i.cfg.Clock.Boot()
	res, err := m.send(ctx, next, over)
	took := m.i.cfg.Clock.Boot() - started
	switch {
	case err == nil:
		return m.confirmed(next, res, took)
	case ctx.Err() != nil:
		return 0 // the deadline came first, or the member ended
	}
	m.observe(RenewalEvent{Took: took, Margin: m.dl.Remaining(), Err: err})
	m.mu.Lock()
	m.trouble = err
	m.mu.Unlock()
	switch store.KindOf(err) {
	case store.ErrConflict, store.ErrNotFound, store.ErrExists:
		return m.refused(ctx, held)
	case store.ErrNewer, store.ErrInvalid, store.ErrCorrupt:
		m.lose(fmt.Errorf("%w: %w", ErrLost, err))
		return 0
	}
	m.i.cfg.Log.Warn("identity: renewal failed, trying again", "node", m.claim.Node, "term", m.owner.Term, "left", m.dl.Remaining(), "error", err)
	return m.retryPause()
}

// send writes next for a renewal: its tries come closer as the deadline does.
func (m *Member) send(ctx context.Context, next *identity.Record, over store.Version) (settle.Result, error) {
	w, err := m.i.prepare(next, over)
	if err != nil {
		return settle.Result{Outcome: settle.Rejected}, err
	}
	p := m.pace()
	p.Left, w.Failed = m.dl.Remaining, m.renewalFails
	res, err := settle.Do(ctx, m.i.cfg.Store, w, p)
	if res.Outcome == settle.Unknown {
		m.inDoubt()
	}
	return res, err
}

func (m *Member) inDoubt() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.doubt++
	m.ver = ""
}

// confirmed publishes a renewal.
func (m *Member) confirmed(next *identity.Record, res settle.Result, took time.Duration) time.Duration {
	margin := m.dl.Remaining()
	if err := m.adopt(next, res); err != nil {
		m.lose(err)
		return 0
	}
	if !m.extend(res.Sent) {
		return 0 // it came after T: a loss, already ended by the deadline
	}
	m.observe(RenewalEvent{Took: took, Margin: margin})
	return m.nextRenewal()
}

// refused reads what stands in the way of a renewal. Another's write that left the
// ownership alone (a revocation) is adopted; anything else is the end (ST9).
func (m *Member) refused(ctx context.Context, held *identity.Record) time.Duration {
	call, cancel := settle.Limit(ctx, m.i.cfg.Clock, m.claim.Timing.Attempt)
	defer cancel()
	h, err := m.i.Read(call, m.claim.Node)
	switch {
	case err != nil && ctx.Err() == nil && !retryable(err) && !errors.Is(err, store.ErrDenied):
		m.lose(fmt.Errorf("%w: %w", ErrLost, err))
		return 0
	case err != nil:
		m.renewalFails(err)
		return m.retryPause()
	case h.Record == nil:
		m.lose(lostTo(nil))
		return 0
	}
	if err := m.goOnFrom(held, h.Record, h.Version); err != nil {
		m.lose(err)
	}
	return 0 // renew at once over what was found
}

// renewalFails notes that a call of a renewal failed, which goes on.
func (m *Member) renewalFails(err error) {
	m.mu.Lock()
	first := m.trouble == nil
	m.trouble = err
	m.mu.Unlock()
	left := m.dl.Remaining()
	m.observe(RenewalEvent{Margin: left, Err: err})
	level := slog.LevelDebug // an outage is told once
	if first {
		level = slog.LevelWarn
	}
	m.i.cfg.Log.Log(m.keeping, level, "identity: a renewal fails, trying again", "node", m.claim.Node, "term", m.owner.Term, "left", left, "error", err)
}

// retryPause is how long to wait after a renewal that failed: the less time is
// left, the shorter.
func (m *Member) retryPause() time.Duration {
	t := m.claim.Timing
	return m.pace().Jitter(min(t.Renew/4, max(m.dl.Remaining()/3, t.Attempt/16, time.Millisecond)))
}

func (m *Member) observe(e RenewalEvent) {
	if m.claim.Observe != nil {
		m.claim.Observe(e)
	}
}
