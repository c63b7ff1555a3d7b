package membership

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenure-project/tenure/internal/clock"
	"github.com/tenure-project/tenure/internal/core/identity"
	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/internal/settle"
	"github.com/tenure-project/tenure/store"
)

// Release gives the name up (PL8): it ends the deadline first, then settles what is
// in doubt and marks the name released, so that the next process joins at once.
// Only for a session whose leases have all ended: the release is proof for others
// that they have. It has its own time limit and does not mind if ctx is cancelled
// already. A release that the store does not confirm in time is ErrUnconfirmed and
// goes on in the background for at most 2 TTL; calling it again waits for another
// limit. A member that expired, or whose counter was raised, is released like any
// other; one that was superseded or abandoned returns why and touches nothing.
// Releasing twice is fine. It must not be called from the functions of a Claim.
func (m *Member) Release(ctx context.Context) error {
	m.dl.End(fmt.Errorf("node %q, term %d: %w", m.claim.Node, m.owner.Term, ErrReleased)) // before the first send
	m.quit()
	m.kept.Wait() // soon: the context of their store calls has ended
	limit := max(3*m.claim.Timing.Attempt, time.Second)
	rctx, cancel := settle.Limit(context.WithoutCancel(ctx), m.i.cfg.Clock, limit)
	defer cancel()
	select {
	case m.end.lock <- struct{}{}:
		defer func() { <-m.end.lock }()
	case <-rctx.Done(): // the one in the background is at it
		return fmt.Errorf("node %q: %w after %v: it is still being tried in the background", m.claim.Node, ErrUnconfirmed, limit)
	}
	if m.end.done {
		return m.end.err
	}
	err := m.finalCause()
	if err == nil {
		err = m.free(rctx)
	}
	if err == nil || errors.Is(err, ErrSuperseded) || errors.Is(err, errAbandoned) {
		m.end.done, m.end.err = true, err
		return err
	}
	err = fmt.Errorf("node %q: %w after %v: %w", m.claim.Node, ErrUnconfirmed, limit, err)
	m.i.cfg.Log.Error("identity: release not confirmed, trying on in the background", "node", m.claim.Node, "term", m.owner.Term, "error", err)
	m.freeLater()
	return err
}

// errAbandoned marks the cause of a member whose work may go on: its name must
// lapse, and never be released.
var errAbandoned = errors.New("the identity was abandoned")

// Abandon ends the member at once and lets the name lapse: nothing is sent any
// more, and Release does nothing. It does not wait for a renewal in flight.
func (m *Member) Abandon(cause error) {
	m.dl.End(fmt.Errorf("node %q, term %d: %w: %w", m.claim.Node, m.owner.Term, errAbandoned, cause))
	m.quit()
}

// finalCause is why there is nothing to release, nil if there may be.
func (m *Member) finalCause() error {
	if err := m.dl.Cause(); errors.Is(err, ErrSuperseded) || errors.Is(err, errAbandoned) {
		return err
	}
	return nil
}

// freeLater goes on in the background, for as long as the name could still block
// others.
func (m *Member) freeLater() {
	m.i.cfg.Background(func(ctx context.Context) {
		m.end.lock <- struct{}{}
		defer func() { <-m.end.lock }()
		if m.end.done {
			return
		}
		ctx, cancel := settle.Limit(ctx, m.i.cfg.Clock, 2*m.claim.Timing.TTL)
		defer cancel()
		if err := m.free(ctx); err == nil || errors.Is(err, ErrSuperseded) {
			m.end.done, m.end.err = true, err
		}
	})
}

// free writes the released record, whatever became of the writes before it: it
// reads where it is not sure, and stops where another owns the name.
func (m *Member) free(ctx context.Context) error {
	for {
		held, over, err := m.settled(ctx)
		if errors.Is(err, errAlreadyFree) {
			return nil
		}
		if err != nil {
			return err
		}
		m.mu.Lock()
		sealed := m.sealed
		m.mu.Unlock()
		next, err := held.Release(m.owner, identity.Renewal{Attempt: m.attempt(), NowMS: m.i.nowMS(), Sealed: sealed})
		if err != nil {
			return err
		}
		res, err := m.i.write(ctx, next, over, m.pace())
		if err == nil {
			m.set(next, res.Version)
			return nil
		}
		m.forget() // not what we thought: read before the next try
		if res.Outcome == settle.Unknown {
			m.inDoubt()
		}
		if !settle.LostRace(err) {
			return err
		}
	}
}

// settled returns the state that this member owns in the store, reading it if it
// is not known for sure. Its errors are ErrSuperseded or the store's, and
// errAlreadyFree if an earlier release took effect.
func (m *Member) settled(ctx context.Context) (*identity.Record, store.Version, error) {
	m.mu.Lock()
	rec, ver := m.rec, m.ver
	m.mu.Unlock()
	if ver != "" {
		if !rec.Held() {
			return nil, "", errAlreadyFree
		}
		return rec, ver, nil
	}
	for failures := 1; ; failures++ {
		r, v, err := m.fate(ctx)
		if err == nil {
			m.set(r, v)
			return r, v, nil
		}
		if store.KindOf(err) != store.ErrUnavailable || !retryable(err) || ctx.Err() != nil {
			return nil, "", err
		}
		pause := m.pace().Jitter(m.claim.Timing.Attempt / 8 * time.Duration(min(failures, 8)))
		if !clock.Sleep(m.i.cfg.Clock, pause, ctx.Done()) {
			return nil, "", err
		}
	}
}

// errAlreadyFree: an earlier try of this member to release took effect.
var errAlreadyFree = errors.New("it was released by this member before")

// fate reads what became of this member's ownership.
func (m *Member) fate(ctx context.Context) (*identity.Record, store.Version, error) {
	h, err := m.i.Read(ctx, m.claim.Node)
	switch {
	case err != nil:
		return nil, "", err
	case h.Record == nil:
		return nil, "", lostTo(nil)
	case h.Record.OwnedBy(m.owner):
		return h.Record, h.Version, nil
	}
	v, err := m.i.judgeBy(ctx, h, m.owner)
	switch {
	case err != nil:
		return nil, "", err
	case v.State == identity.Over && v.How == lease.HowReleased:
		return nil, "", errAlreadyFree
	}
	return nil, "", lostTo(h.Record)
}
