package membership

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/tenure-project/tenure/internal/core/identity"
	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/internal/deadline"
	"github.com/tenure-project/tenure/internal/settle"
	"github.com/tenure-project/tenure/store"
)

// Claim is what a process wants that joins.
type Claim struct {
	// Node is the name.
	Node string
	// Note is for people, at most 1 KiB.
	Note string
	// Timing is the member's, complete.
	Timing lease.Timing
	// Lock, taken before the join, proves this process's death (LS14). May be nil.
	Lock *lease.Lock
	// Revoked is called for each lease that was taken from the session (LS11), from
	// the goroutine that renews: it must not block. May be nil.
	Revoked func(identity.Revocation)
	// Extended is called after each grant and renewal was published, with the
	// instant from which it counts. It must not block. May be nil.
	Extended func(sent deadline.Stamp)
	// Observe is told of each renewal, for metrics. It must not block. May be nil.
	Observe func(RenewalEvent)
}

// RenewalEvent is the outcome of one renewal, or of one try that will be followed
// by another.
type RenewalEvent struct {
	// Took is how long the store needed; 0 for a try that goes on.
	Took time.Duration
	// Margin is how much time was left on the deadline when the answer came.
	Margin time.Duration
	// Err is nil for a renewal that was confirmed.
	Err error
}

// tries is how many attempt limits a join that does not wait may take in all: it
// reads, seals what it finds, takes over, and seals its own.
const tries = 6

// Join makes this process the owner of the node's name (PL1, PL2, PL4, PL9). With
// wait false a name that is not free now is a *HeldError. Waiting rides out a store
// that is unavailable; rights that are missing, corrupt records and bad input are
// errors at once. ctx governs the join only: the member outlives it, and its owner
// must Release or Abandon it.
func (i *Identities) Join(ctx context.Context, c Claim, wait bool) (*Member, error) {
	if err := errors.Join(store.CheckName("node name", c.Node), c.Timing.Check(), lease.CheckNote(c.Note)); err != nil {
		return nil, err
	}
	if !wait {
		var stop context.CancelFunc
		ctx, stop = settle.Limit(ctx, i.cfg.Clock, tries*c.Timing.Attempt)
		defer stop()
	}
	j := joiner{i: i, claim: c, wait: wait}
	for {
		m, err := j.round(ctx)
		switch {
		case err == nil && m != nil:
			return m, nil
		case err == nil:
			j.failures = 0
		case ctx.Err() != nil:
			return nil, fmt.Errorf("node %q: %w (%w)", c.Node, context.Cause(ctx), err)
		case !j.goesOn(err):
			return nil, err
		default:
			j.failures++
			level := slog.LevelWarn
			if settle.LostRace(err) {
				level = slog.LevelDebug
			}
			i.cfg.Log.Log(ctx, level, "identity: cannot join yet, trying again", "node", c.Node, "error", err)
			if !i.pause(ctx, i.retryAfter(err, j.failures, c.Timing)) {
				return nil, fmt.Errorf("node %q: %w (%w)", c.Node, context.Cause(ctx), err)
			}
		}
	}
}

// joiner is one attempt to join. Its methods are for one goroutine.
type joiner struct {
	i        *Identities
	claim    Claim
	wait     bool
	found    bool // the node had a record
	failures int
}

func (j *joiner) goesOn(err error) bool { return retryable(err) && (j.wait || j.failures < 2) }

// round looks once and acts on it. A nil member without an error means that
// something changed, or that a wait ended: look again.
func (j *joiner) round(ctx context.Context) (*Member, error) {
	h, err := j.i.Read(ctx, j.claim.Node)
	if err != nil {
		return nil, err
	}
	if h.Record == nil {
		return j.first(ctx)
	}
	j.found = true
	g, left, err := j.i.ground(ctx, h)
	switch {
	case err != nil:
		return nil, err
	case left == 0:
		return j.takeover(ctx, h, g)
	case !j.wait:
		return nil, heldBy(h.Record)
	}
	j.i.await(ctx, h, left)
	return nil, nil
}

// newClaim is what is written of this process, under a fresh incarnation: every
// write over another state needs its own.
func (j *joiner) newClaim(ctx context.Context) (identity.Claim, error) {
	c := identity.Claim{Node: j.claim.Node, Incarnation: j.i.cfg.NewID(), TTL: j.claim.Timing.TTL, Note: j.claim.Note, Lock: j.claim.Lock, NowMS: j.i.nowMS()}
	if j.i.cfg.StoreClock == nil {
		return c, nil
	}
	call, cancel := j.i.limit(ctx)
	defer cancel()
	var err error
	c.ClockInstance, _, err = j.i.cfg.StoreClock(call)
	return c, err
}

// first joins a node that was never seen. The floor is read after the absence, and
// again after the create: a jump may have raised it, and listed what it raises,
// before this record was there (LS12).
func (j *joiner) first(ctx context.Context) (*Member, error) {
	if j.found {
		return nil, store.Errorf(store.ErrCorrupt, j.i.identityOfStore(), "join", j.claim.Node, "the record vanished: nothing removes an identity")
	}
	claim, err := j.newClaim(ctx)
	if err != nil {
		return nil, err
	}
	floor, err := j.i.cfg.Floor(ctx)
	if err != nil {
		return nil, err
	}
	next, err := identity.First(claim, floor)
	if err != nil {
		return nil, err
	}
	return j.win(ctx, next, "", func(ctx context.Context, m *Member) error {
		floor, err := j.i.cfg.Floor(ctx)
		if err != nil || floor < next.Term {
			return err
		}
		// Raised above the floor and released at once, so that the next round's term is
		// above it.
		if _, err := j.i.Jump(ctx, claim.Node, floor); err != nil {
			return err
		}
		m.forget()
		if err := m.free(ctx); err != nil {
			return err
		}
		return store.Errorf(store.ErrConflict, j.i.identityOfStore(), "join", claim.Node, "the floor rose to %d meanwhile", floor)
	})
}

// takeover replaces the state that g speaks of. What it carries is sealed before,
// its own certificate after: no later term acts without it (PL4).
func (j *joiner) takeover(ctx context.Context, h Head, g identity.Ground) (*Member, error) {
	sealed, err := j.i.sealOf(ctx, h.Record, j.i.paceOf(j.claim.Timing))
	if err != nil {
		return nil, err
	}
	claim, err := j.newClaim(ctx)
	if err != nil {
		return nil, err
	}
	next, err := identity.Takeover(h.Record, claim, g, sealed)
	if err != nil {
		return nil, err
	}
	m, err := j.win(ctx, next, g.Version(), func(ctx context.Context, m *Member) error {
		sealed, err := j.i.seal(ctx, next.Certificate, m.pace())
		m.mu.Lock()
		defer m.mu.Unlock()
		m.sealed = sealed
		return err
	})
	if err == nil {
		j.i.cfg.Log.Info("identity: took over", "node", claim.Node, "term", next.Term, "from", h.Record.Last().Incarnation, "how", g.How())
	}
	return m, err
}

// win writes next, completes what must be done before the member may act, and
// publishes it, all before the deadline that counts from the first send (DL4).
// What was won and is not published is released in the background.
func (j *joiner) win(ctx context.Context, next *identity.Record, over store.Version, complete func(context.Context, *Member) error) (*Member, error) {
	m := newMember(j.i, j.claim, next)
	ctx, cancel := settle.Limit(ctx, j.i.cfg.Clock, j.claim.Timing.Life())
	defer cancel()
	res, err := j.i.write(ctx, next, over, m.pace())
	if res.Outcome == settle.Unknown {
		j.abandon(m, next, over, res)
	}
	if err != nil {
		return nil, err
	}
	if err = m.adopt(next, res); err == nil {
		err = complete(ctx, m)
	} else { // a jump came first, which the next round's term is above
		err = store.Wrap(store.ErrConflict, j.i.identityOfStore(), "join", next.Node, err)
	}
	if err == nil && !m.extend(res.Sent) {
		err = store.Errorf(store.ErrUnavailable, j.i.identityOfStore(), "join", next.Node,
			"term %d was complete later than its own TTL %v less the margin: the store is too slow, raise the TTL", next.Term, j.claim.Timing.TTL)
	}
	if err != nil {
		j.discard(m)
		return nil, err
	}
	m.start()
	return m, nil
}

// abandon settles a write in doubt whose joiner went on without it, and releases
// the name if it was won after all.
func (j *joiner) abandon(m *Member, next *identity.Record, over store.Version, first settle.Result) {
	m.dl.End(ErrReleased)
	j.i.cfg.Background(func(ctx context.Context) {
		ctx, cancel := settle.Limit(ctx, j.i.cfg.Clock, 2*m.claim.Timing.TTL)
		defer cancel()
		if _, err := j.i.again(ctx, next, over, m.pace(), first); err == nil {
			m.forget()
			_ = m.free(ctx)
		}
	})
}

// discard releases a name that was won but never published.
func (j *joiner) discard(m *Member) {
	m.dl.End(ErrReleased)
	m.freeLater()
}
