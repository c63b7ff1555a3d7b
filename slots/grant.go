package slots

import (
	"context"
	"fmt"
	"time"

	"github.com/tenure-project/tenure/internal/deadline"
)

// Grant is the right to serve one range under one epoch, from when it was given until it
// ends for good: whoever may serve again after a lapse gets another Grant. All methods are
// safe for concurrent use.
type Grant struct {
	rng   Range
	epoch uint64
	owner string
	d     *deadline.Deadline
	// ctx ends with the deadline; told is closed when OnLoss has returned.
	ctx    context.Context
	cancel context.CancelCauseFunc
	told   chan struct{}
}

// Range is what may be served.
func (g *Grant) Range() Range { return g.rng }

// Epoch is the fencing token: hand it to the resource with every write.
func (g *Grant) Epoch() uint64 { return g.epoch }

// Live reports whether the range may be served at this instant. It costs about one clock
// reading and allocates nothing (DL2).
func (g *Grant) Live() bool { return g.d.Live() }

// Deadline is the instant on the clock's boot-time scale until which the grant is live
// unless it is renewed; ok is false once it is over.
func (g *Grant) Deadline() (at time.Duration, ok bool) { return g.d.T() }

// Done is closed when the grant is over.
func (g *Grant) Done() <-chan struct{} { return g.ctx.Done() }

// Context ends when the grant is over, by its deadline even while a renewal hangs. Its
// cause is Err.
func (g *Grant) Context() context.Context { return g.ctx }

// Err says why the grant is over, nil before that: a tenure.ErrExpired (not renewed in
// time), another tenure.ErrLost, or a tenure.ErrReleased.
func (g *Grant) Err() error {
	if cause := g.d.Cause(); cause != nil {
		return g.ended(cause)
	}
	return nil
}

// String names range and epoch.
func (g *Grant) String() string { return fmt.Sprintf("slots %v, epoch %d", g.rng, g.epoch) }

func (g *Grant) ended(cause error) error {
	return fmt.Errorf("slots %v (owner %q, epoch %d): %w", g.rng, g.owner, g.epoch, endOf(cause))
}

// newGrant makes a grant that is live once its deadline is extended or, under a session,
// as long as that is.
func (h *Host) newGrant(r Range, epoch uint64) *Grant {
	g := &Grant{rng: r, epoch: epoch, owner: h.me.Owner, told: make(chan struct{})}
	if h.session != nil {
		g.d = deadline.NewUnder(h.session.Deadline)
	} else {
		g.d = deadline.New(h.k.Clock, h.ttl-h.life)
	}
	g.ctx, g.cancel = context.WithCancelCause(context.Background())
	return g
}

// publishLocked tells of a new grant in a goroutine of its own, after the end of the one
// before it of that range was told, and later of its end: for one range calls never
// overlap. The one before may have been taken away long ago; what counts is that whoever
// was told of it is done with that.
func (h *Host) publishLocked(g *Grant) {
	before := h.latest[g.rng]
	h.latest[g.rng] = g
	claimed := make(chan struct{})
	g.d.OnEnd(func() {
		defer close(g.told)
		err := g.ended(g.d.Cause())
		g.cancel(err)
		h.ring()
		<-claimed
		if h.cfg.OnLoss != nil {
			h.cfg.OnLoss(g, err)
		}
	})
	if h.cfg.OnClaim == nil && (before == nil || h.cfg.OnLoss == nil) {
		close(claimed)
		return
	}
	go func() {
		defer close(claimed)
		if before != nil {
			<-before.told
		}
		if h.cfg.OnClaim != nil {
			h.cfg.OnClaim(g)
		}
	}()
}
