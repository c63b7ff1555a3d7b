package membership

import (
	"context"
	"fmt"
	"time"

	"github.com/tenure-project/tenure/internal/core/identity"
	"github.com/tenure-project/tenure/store"
)

// A fence reads the head and the certificate before and after its observation. Then
// it writes: the old certificate under two names, the takeover, the new certificate
// under two names.
const (
	fenceReads  = 4
	fenceWrites = 5
)

// FenceTime is the time that a fence of an owner with this TTL should be given
// (PL6): one observation, and an attempt limit for each of its calls.
func (i *Identities) FenceTime(ttl time.Duration) time.Duration {
	plan := identity.Plan{Step: identity.ObserveThenTake, Wait: ttl}
	return plan.Need(i.cfg.Timing.Rho, fenceReads*i.cfg.Timing.Attempt+i.fenceIO())
}

func (i *Identities) fenceIO() time.Duration { return fenceWrites * i.cfg.Timing.Attempt }

// Fence makes durable, within the time given, that the exact incarnation is over
// (PL6): ErrAlive, ErrMissingEvidence and ErrTooShort say why not. The verdict's
// Wait has to pass yet where the end rests on force (LS11).
func (i *Identities) Fence(ctx context.Context, node, incarnation string, within time.Duration) (*identity.Certificate, identity.Verdict, error) {
	until := i.cfg.Clock.Boot() + within
	ctx, cancel := i.untilBoot(ctx, until)
	defer cancel()
	f := fence{i: i, node: node, target: incarnation, until: until}
	c, err := f.run(ctx)
	if err != nil {
		return nil, identity.Verdict{}, err
	}
	v, err := i.VerifyCertificate(ctx, c)
	if err == nil && v.State != identity.Over {
		err = store.Errorf(store.ErrCorrupt, i.identityOfStore(), "fence", node, "the certificate of incarnation %s is gone from the store", incarnation)
	}
	return c, v, err
}

// fence is one attempt to end one incarnation. It is for one goroutine.
type fence struct {
	i            *Identities
	node, target string
	until        time.Duration // boot clock
	seen         identity.Observation
	looked       bool // the answer so far rests on one look
}

func (f *fence) run(ctx context.Context) (*identity.Certificate, error) {
	for failures := 0; ; {
		c, err := f.round(ctx)
		switch {
		case err == nil && c != nil:
			return c, nil
		case err == nil:
			failures = 0
		case !retryable(err) || ctx.Err() != nil:
			return nil, err
		default:
			failures++
			f.i.pause(ctx, f.i.retryAfter(err, failures, f.i.cfg.Timing))
		}
		if err := store.CtxErr(ctx, f.i.identityOfStore(), "fence", f.node); err != nil {
			return nil, err
		}
	}
}

// round looks once and acts on it. No certificate and no error: look again.
func (f *fence) round(ctx context.Context) (*identity.Certificate, error) {
	h, err := f.i.Read(ctx, f.node)
	if err != nil {
		return nil, err
	}
	sealed, err := f.i.Certificate(ctx, f.node, identity.PredecessorName(f.target))
	if err != nil {
		return nil, err
	}
	plan, err := identity.PlanFence(f.target, h.Record, sealed, f.seen)
	if err != nil {
		return nil, err
	}
	switch plan.Step {
	case identity.AlreadyOver:
		_, err := f.i.sealOf(ctx, h.Record, f.i.pace())
		return plan.Certificate, err
	case identity.Changed:
		return nil, fmt.Errorf("node %q, incarnation %s: %w", f.node, f.target, ErrAlive)
	case identity.MissingEvidence, identity.ReadAgain:
		return nil, f.missing(plan.Step)
	}
	f.looked = false
	return f.take(ctx, h)
}

// missing is the error for a second look that told no more than the first.
func (f *fence) missing(step identity.Step) error {
	if !f.looked {
		f.looked = true
		return nil
	}
	if step == identity.ReadAgain {
		return fmt.Errorf("%w: %w", ErrBehind, store.Errorf(store.ErrCorrupt, f.i.identityOfStore(), "fence", f.node,
			"the record is older than the sealed end of incarnation %s: the store went back", f.target))
	}
	return fmt.Errorf("node %q, incarnation %s: %w", f.node, f.target, ErrMissingEvidence)
}

// take fences the owner of h, or waits until that may be possible.
func (f *fence) take(ctx context.Context, h Head) (*identity.Certificate, error) {
	g, left, err := f.i.ground(ctx, h)
	if err != nil {
		return nil, err
	}
	if f.seen == (identity.Observation{}) {
		f.seen = f.seen.Observe(h.Record, h.Version, h.At)
	}
	if need, have := left+f.i.fenceIO(), f.until-h.At; need > have {
		return nil, fmt.Errorf("node %q, incarnation %s: %w: %v are left, and it takes up to %v", f.node, f.target, ErrTooShort, max(0, have).Truncate(time.Millisecond), (need + time.Millisecond - 1).Truncate(time.Millisecond))
	}
	if left > 0 {
		f.i.await(ctx, h, left)
		return nil, nil
	}
	next, err := f.i.revoke(ctx, h, f.target, g)
	if err != nil {
		return nil, err
	}
	return next.Certificate, nil
}

// revoke takes h over with a one-off revoker, on ground g, and seals the end of
// target. It returns the record that it wrote.
func (i *Identities) revoke(ctx context.Context, h Head, target string, g identity.Ground) (*identity.Record, error) {
	sealed, err := i.sealOf(ctx, h.Record, i.pace())
	if err != nil {
		return nil, err
	}
	next, err := identity.Fence(h.Record, target, i.cfg.NewID(), g, sealed, i.nowMS())
	if err != nil {
		return nil, err
	}
	if _, err := i.write(ctx, next, g.Version(), i.pace()); err != nil {
		return nil, err
	}
	i.cfg.Log.Info("identity: fenced", "node", h.Node, "incarnation", target, "term", h.Record.Term, "how", g.How())
	_, err = i.seal(ctx, next.Certificate, i.pace())
	return next, err
}

// Retire leaves a record that nobody owns for a node that is not to come back
// (PL5). It fences whoever is silent, and fails with ErrAlive where the owner
// renews. A node that never joined is ErrNotFound.
func (i *Identities) Retire(ctx context.Context, node string, within time.Duration) error {
	until := i.cfg.Clock.Boot() + within
	h, err := i.Read(ctx, node)
	switch {
	case err != nil:
		return err
	case h.Record == nil:
		return store.Errorf(store.ErrNotFound, i.identityOfStore(), "retire", node, "the node never joined here")
	case h.Record.Held() && h.Record.Revoker == nil:
		if _, _, err := i.Fence(ctx, node, h.Record.Incarnation, until-i.cfg.Clock.Boot()); err != nil {
			return err
		}
	}
	return i.change(ctx, node, func(h Head, _ bool) (*identity.Record, error) { return i.retired(ctx, h) })
}

// retired is h owned by nobody: nil where it is so already, or where the wait
// after a force has to stay with the record.
func (i *Identities) retired(ctx context.Context, h Head) (*identity.Record, error) {
	r := h.Record
	switch {
	case !r.Held() || r.Revoker != nil && r.Revoker.SupersededTTLMS != 0:
		return nil, nil
	case r.Revoker == nil:
		return nil, fmt.Errorf("node %q: incarnation %s joined meanwhile: %w", h.Node, r.Incarnation, ErrAlive)
	}
	sealed, err := i.sealOf(ctx, r, i.pace())
	if err != nil {
		return nil, err
	}
	return r.Release(r.Last(), identity.Renewal{Attempt: i.cfg.NewID(), NowMS: i.nowMS(), Sealed: sealed})
}
