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
	"github.com/tenure-project/tenure/internal/settle"
	"github.com/tenure-project/tenure/store"
)

// Acquire waits until this process holds the lease name, or ctx ends. ctx
// governs the waiting only: cancelling it afterwards does not end the lease.
// The caller must Release the lease.
//
// While it waits it rides out a store that is unavailable; rights that are
// missing, corrupt records and bad input are errors at once.
func (c *Client) Acquire(ctx context.Context, name string, opts ...AcquireOption) (*Lease, error) {
	return c.acquire(ctx, nil, name, true, opts)
}

// TryAcquire takes the lease name if it is free, or if its holder has been
// silent for its TTL before this process's eyes (see [WithStateDir] for
// commands that come and go). Otherwise it returns a *[HeldError] at once.
func (c *Client) TryAcquire(ctx context.Context, name string, opts ...AcquireOption) (*Lease, error) {
	return c.acquire(ctx, nil, name, false, opts)
}

func (c *Client) newRequest(s *Session, name string, opts []AcquireOption) (request, error) {
	r := request{timing: c.timing}
	if s != nil {
		r = s.request()
	}
	for _, o := range opts {
		o(&r)
	}
	if err := s.mayAsk(name, r); err != nil {
		return r, err
	}
	r.timing = r.timing.Defaults()
	if r.stopLimit == 0 {
		r.stopLimit = max(r.timing.TTL, r.timing.Stop)
	}
	if r.lock != nil && !c.st.Info().Can.Has(store.CanProve) {
		r.lock = nil
	}
	return r, errors.Join(c.fitsRate("acquire", name, r), store.CheckName("lease name", name), r.timing.Check(), lease.CheckNote(r.note))
}

// fitsRate refuses renewals that would need more than half of the writes that one
// key takes (ST14). A session's leases are not renewed.
func (c *Client) fitsRate(op, name string, r request) error {
	info := c.st.Info()
	if rate := info.WritesPerSecond; rate > 0 && r.s == nil && r.timing.Renew.Seconds() < 2/rate {
		return store.Errorf(ErrInvalid, info.Scheme, op, name, "a renewal every %v is more than half of the %g writes per second that one key takes here: raise the TTL to at least %v",
			r.timing.Renew, rate, time.Duration(10/rate*float64(time.Second)))
	}
	return nil
}

// acquire takes the lease for the session s, or for itself if s is nil.
func (c *Client) acquire(ctx context.Context, s *Session, name string, wait bool, opts []AcquireOption) (*Lease, error) {
	req, err := c.newRequest(s, name, opts)
	if err != nil {
		return nil, err
	}
	if s != nil {
		if err := s.begin(); err != nil {
			return nil, err
		}
		defer s.acquiring.Done()
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.accept, func() { cancel(ErrClosed) })()
	if s != nil { // before the line: Leave waits for those in it
		defer context.AfterFunc(s.accept, func() { cancel(context.Cause(s.accept)) })()
	}
	outer := ctx
	leave, ok, err := c.enter(ctx, name, wait)
	if err != nil {
		return nil, err
	}
	defer c.acquiring.Done()
	if !ok {
		return nil, c.heldHere(ctx, name)
	}

	a := acquirer{c: c, name: name, req: req, wait: wait}
	if !wait { // one who does not wait does not wait for a store in trouble either
		a.late = func() { cancel(context.DeadlineExceeded) }
		a.limit = c.clk.AfterFunc(3*req.timing.Attempt, a.late)
		defer func() { a.limit.Stop() }()
	}
	l, err := a.run(ctx)
	a.endVigil()
	a.leaveQueue()
	if err != nil {
		leave()
		return nil, err
	}
	l.leave = leave
	l.start() // renewals begin before anything that may be slow
	if err := l.raise(outer, req.guards); err != nil {
		return nil, errors.Join(err, l.giveUp(ctx, ErrReleased, lease.Ended{How: lease.HowReleased, Why: "a guard refused"}))
	}
	return l, nil
}

// raise lifts every guard to the new token before the holder's first read
// (GD1): a former holder cannot write from then on.
func (l *Lease) raise(ctx context.Context, guards []Raiser) error {
	for _, g := range guards {
		if err := g.Raise(ctx, l.token); err != nil {
			return fmt.Errorf("lease %q: raise the guard to token %d: %w", l.name, l.token, err)
		}
	}
	return l.overErr()
}

// heldHere is the error for a name that this very client holds or waits for.
func (c *Client) heldHere(ctx context.Context, name string) error {
	f, err := c.read(ctx, name, c.timing.Defaults().Attempt)
	if err != nil {
		return err
	}
	if f.rec == nil || !f.rec.Held() {
		return &HeldError{Name: name, Free: "another caller in this process is about to take it"}
	}
	return heldBy(f.rec)
}

func heldBy(r *lease.Record) *HeldError {
	e := &HeldError{Name: r.Resource, Token: r.Token, Note: r.Note, Since: time.UnixMilli(r.Since)}
	switch {
	case r.Held():
		e.Owner, e.Label = r.Owner.Incarnation, r.Owner.Node
	case r.Successor != "":
		e.Free = fmt.Sprintf("it was handed over to %q, and everyone else watches it for %v first", r.Successor, time.Duration(r.HoldMS)*time.Millisecond)
	default:
		e.Free = fmt.Sprintf("it was %s by %q (%s), and everyone watches it for the superseded TTL %v first",
			r.Ended.How, r.Ended.By, r.Ended.Why, time.Duration(r.Ended.SupersededTTLMS)*time.Millisecond)
	}
	return e
}

// acquirer is one attempt to get one lease. Its methods are for one goroutine.
type acquirer struct {
	c    *Client
	name string
	req  request
	wait bool

	obs      lease.Observation
	ticket   store.Ticket
	first    bool // nobody alive stands before us in the store's line
	failures int
	warned   bool // that the holder's session cannot be judged
	yielded  bool // to those in the store's line
	vigil    *sessionVigil

	limit clock.Timer // of one who does not wait; then calls late
	late  func()
}

func (a *acquirer) run(ctx context.Context) (*Lease, error) {
	for {
		l, err := a.round(ctx)
		switch {
		case err == nil && l != nil:
			return l, nil
		case err == nil:
			a.failures = 0
		case ctx.Err() != nil:
			return nil, fmt.Errorf("lease %q: %w (%w)", a.name, context.Cause(ctx), err)
		case !a.retryable(err):
			return nil, err
		case settle.LostRace(err) && a.queueUp(ctx):
			a.failures = 0 // the line orders what the race would leave to luck
		default:
			a.failures++
			level, pause := slog.LevelWarn, a.req.timing.Renew*time.Duration(min(a.failures, 8))/4
			if settle.LostRace(err) {
				level, pause = slog.LevelDebug, a.req.timing.Attempt/16
			}
			a.c.log.Log(ctx, level, "lease: cannot acquire yet, trying again", "lease", a.name, "error", err)
			if !a.pause(ctx, pause) {
				return nil, fmt.Errorf("lease %q: %w (%w)", a.name, context.Cause(ctx), err)
			}
		}
	}
}

// retryable errors are those that time may mend. Somebody who does not want to
// wait gets a few tries all the same: a race lost to somebody who then is not
// there is no reason to give up.
func (a *acquirer) retryable(err error) bool {
	if errors.Is(err, ErrHeld) || errors.Is(err, ErrRegressed) {
		return false
	}
	switch store.KindOf(err) {
	case store.ErrUnavailable, store.ErrUnknown, store.ErrConflict, store.ErrExists, store.ErrNotFound:
		return a.wait || a.failures < 2
	}
	return false
}

// round looks once and acts on it. A nil lease without an error means that
// something changed, or that a wait ended: look again.
func (a *acquirer) round(ctx context.Context) (*Lease, error) {
	f, err := a.look(ctx)
	if err != nil {
		return nil, err
	}
	fell, ripeAt, err := a.judge(ctx, f)
	if err != nil {
		return nil, err
	}
	if ripeAt <= f.at {
		if mine, err := a.myTurn(ctx, f); err != nil || !mine {
			return nil, err
		}
		return a.grant(ctx, f, fell)
	}
	if !a.wait {
		return nil, heldBy(f.rec)
	}
	return nil, a.waitFor(ctx, f, ripeAt)
}

func (a *acquirer) look(ctx context.Context) (found, error) {
	return a.c.read(ctx, a.name, a.req.timing.Attempt)
}

// grant writes the record that makes this handle the holder.
func (a *acquirer) grant(ctx context.Context, f found, fell fall) (*Lease, error) {
	c := a.c
	var floor uint64
	var err error
	if f.rec == nil || c.retains() {
		if floor, err = c.floor(ctx); err != nil {
			return nil, err
		}
	}
	claim, err := a.claim(ctx)
	if err != nil {
		return nil, err
	}
	claim.Evidence, claim.Why, claim.By = fell.evidence, fell.why, fell.by
	next, err := lease.Grant(f.rec, floor, claim, fell.how)
	if err != nil {
		return nil, err
	}
	l := newLease(c, a.name, a.req, next)
	// A grant that is not confirmed by its own end is none (DL4).
	wctx, cancel := settle.Limit(ctx, c.clk, a.req.timing.Life())
	defer cancel()
	res, err := l.write(wctx, next, f.ver)
	if res.Outcome == settle.Unknown {
		c.abandon(l, next, f.ver, res.Sent)
	}
	if err != nil {
		l.never()
		return nil, err
	}
	got, err := a.publish(ctx, l, f, res, fell.how)
	if err != nil {
		l.never()
	}
	return got, err
}

// never ends the deadlines of a lease that is not handed out: a session's would
// stay with it.
func (l *Lease) never() {
	l.dl.End(ErrReleased)
	l.work.End(ErrReleased)
}

// claim is what this acquirer wants to be written.
func (a *acquirer) claim(ctx context.Context) (lease.Claim, error) {
	c := a.c
	claim := lease.Claim{
		Kind: lease.Self, Resource: a.name, Owner: lease.Owner{Node: c.label, Incarnation: c.newID()},
		TTL: a.req.timing.TTL, Note: a.req.note, Attempt: c.newID(), NowMS: c.nowMS(),
	}
	if s := a.req.s; s != nil { // its identity has the rest
		claim.Kind, claim.Owner = lease.Session, s.owner
		return claim, nil
	}
	var err error
	if claim.Lock, err = c.lockFor(ctx, a.req.lock); err != nil {
		return claim, err
	}
	claim.ClockInstance, err = c.clockInstance(ctx)
	return claim, err
}

// publish hands the lease out if there is time left on it, counted from before
// the send, and if retention did not remove the name meanwhile (LS15).
func (a *acquirer) publish(ctx context.Context, l *Lease, f found, res settle.Result, how string) (*Lease, error) {
	c := a.c
	if err := l.adopt(res); err != nil {
		return nil, err
	}
	if f.rec == nil && c.retains() {
		floor, err := c.floor(ctx)
		if err != nil || floor >= l.token {
			c.discard(l)
			return nil, errors.Join(err, store.Errorf(ErrConflict, "", "acquire", a.name, "the floor rose to %d meanwhile", floor))
		}
	}
	if s := a.req.s; s != nil {
		if err := s.enter(l); err != nil {
			c.discard(l)
			return nil, err
		}
	} else if !l.extend(res.Sent) {
		c.discard(l)
		return nil, store.Errorf(ErrUnavailable, c.st.Info().Identity, "acquire", a.name,
			"the grant of token %d came later than its own TTL %v less the margin: the store is too slow, raise the TTL", l.token, a.req.timing.TTL)
	}
	_ = c.memory.check(a.name, 0, l.token)
	c.memory.remember(a.name, nil, nil)
	if how != "" {
		c.log.Info("lease: took over", "lease", a.name, "token", l.token, "from", f.rec.Owner.Node, "how", how)
	}
	return l, nil
}

// lockFor takes the lock that proves this process's death, before the write
// that names it.
func (c *Client) lockFor(ctx context.Context, wish *lockWish) (*lease.Lock, error) {
	if wish == nil {
		return nil, nil
	}
	select {
	case c.witnessing <- struct{}{}:
		defer func() { <-c.witnessing }()
	case <-ctx.Done():
		return nil, store.CtxErr(ctx, c.st.Info().Identity, "acquire", "")
	}
	if c.witness == nil {
		p, _ := store.AsProver(c.st)
		w, err := p.NewWitness(ctx)
		if err != nil {
			return nil, err
		}
		c.witness = w
	}
	return &lease.Lock{Mark: c.witness.Mark(), Tree: wish.tree, Cgroup: wish.cgroup}, nil
}

// abandon settles an acquisition in doubt whose caller was told that it failed,
// and frees the lease if it was granted after all: a failed Acquire leaves
// nothing behind, at worst for one TTL.
func (c *Client) abandon(l *Lease, next *lease.Record, over store.Version, sent deadline.Stamp) {
	l.later(l.timing.TTL, func(ctx context.Context) error {
		res, err := l.again(ctx, next, over, sent)
		if err != nil {
			return err
		}
		if err := l.adopt(res); err != nil {
			return err
		}
		return l.free(ctx, lease.Ended{How: lease.HowReleased, Why: "the acquisition was given up"})
	})
}

// discard frees a lease that was granted but never handed out.
func (c *Client) discard(l *Lease) {
	l.later(l.timing.TTL, func(ctx context.Context) error {
		return l.free(ctx, lease.Ended{How: lease.HowReleased, Why: "the grant came too late"})
	})
}

// later settles in the background what its caller does not wait for. A lease of its
// own lapses anyway, so that one try within limit is enough; a session's does not,
// so that it is tried until it is done or the session has ended (LS8).
func (l *Lease) later(limit time.Duration, f func(ctx context.Context) error) {
	if l.s != nil {
		l.s.settle(l.name, f)
		return
	}
	l.c.background(func(ctx context.Context) {
		ctx, cancel := settle.Limit(ctx, l.c.clk, limit)
		defer cancel()
		_ = f(ctx)
	})
}
