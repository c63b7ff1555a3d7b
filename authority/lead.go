package authority

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	tenure "github.com/tenure-project/tenure"
	core "github.com/tenure-project/tenure/internal/core/authority"
	"github.com/tenure-project/tenure/internal/core/identity"
	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/internal/deadline"
	"github.com/tenure-project/tenure/internal/membership"
	"github.com/tenure-project/tenure/internal/settle"
	"github.com/tenure-project/tenure/store"
)

// Lead campaigns until this process leads, or ctx ends. ctx governs the campaign
// only. A head that its leader left is taken at once; that of a leader that is
// silent, after it was observed unchanged for its TTL; that of one whose session is
// proven to be over, at once (LA3). It rides out a store that is unavailable; rights
// that are missing, corrupt records and bad input are errors at once. One process
// has one leadership at a time: Lead while it leads is a *[HeldError].
//
// After a leadership that lapsed here it waits one TTL before it leads again.
// Whatever acted under the last leadership must have stopped when Lead is called.
func (a *Authority) Lead(ctx context.Context) (*Leader, error) { return a.lead(ctx, true) }

// TryLead leads if the authority is free, or its leader over before this process's
// eyes. Otherwise it returns a *[HeldError] at once.
func (a *Authority) TryLead(ctx context.Context) (*Leader, error) { return a.lead(ctx, false) }

// tries is how many attempt limits a TryLead may take in all: it reads, looks for
// evidence and takes over.
const tries = 6

// campaign is one attempt to lead. Its methods are for one goroutine.
type campaign struct {
	a        *Authority
	wait     bool
	failures int
	vigil    *vigil
}

func (a *Authority) lead(ctx context.Context, wait bool) (*Leader, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(a.session.Accept, func() { cancel(context.Cause(a.session.Accept)) })()
	if !wait {
		var stop context.CancelFunc
		ctx, stop = settle.Limit(ctx, a.c.Clock, tries*a.cfg.timing.Attempt)
		defer stop()
	}
	free, err := a.take(ctx, a.campaign)
	if err != nil {
		return nil, a.campaignErr(ctx, err)
	}
	defer free()
	a.want(1)
	c := campaign{a: a, wait: wait}
	l, err := c.run(ctx)
	c.vigil.end()
	a.want(-1)
	if err != nil {
		a.settleLater() // what it may have won is given up
	}
	return l, err
}

func (a *Authority) want(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.wanted += n
}

func (a *Authority) campaignErr(ctx context.Context, err error) error {
	return fmt.Errorf("authority %q: %w (%w)", a.name, context.Cause(ctx), err)
}

func (c *campaign) run(ctx context.Context) (*Leader, error) {
	for {
		l, err := c.round(ctx)
		switch {
		case err == nil && l != nil:
			return l, nil
		case err == nil:
			c.failures = 0
		case ctx.Err() != nil:
			return nil, c.a.campaignErr(ctx, err)
		case !(retryable(err) || settle.LostRace(err)) || !c.wait && c.failures >= 2:
			return nil, err
		default:
			c.failures++
			level, pause := slog.LevelWarn, c.a.cfg.timing.Renew*time.Duration(min(c.failures, 8))/4
			if settle.LostRace(err) {
				level, pause = slog.LevelDebug, c.a.cfg.timing.Attempt/16
			}
			c.a.c.Log.Log(ctx, level, "authority: cannot lead yet, trying again", "authority", c.a.name, "error", err)
			if !c.a.pause(ctx, pause) {
				return nil, c.a.campaignErr(ctx, err)
			}
		}
	}
}

// round looks once and acts on it. A nil leader without an error means that
// something changed, or that a wait ended: look again.
func (c *campaign) round(ctx context.Context) (*Leader, error) {
	a := c.a
	if l := a.leader.Load(); l != nil {
		if l.Live() {
			return nil, &HeldError{Authority: a.name, Leader: l.proof, Since: l.since, Note: a.cfg.note}
		}
		<-l.own.Done() // soon: its time has come
		<-l.kept
		if err := l.awaitWork(ctx); err != nil {
			return nil, err
		}
	}
	l, s, left, err := c.attempt(ctx)
	switch {
	case err != nil || l != nil:
		return l, err
	case c.wait:
		c.await(ctx, s, left)
		return nil, nil
	case s.head != nil && a.rest(s.at) == 0:
		return nil, heldBy(s.head)
	}
	return nil, store.Errorf(store.ErrUnavailable, a.identity(), "lead", a.name, "a leadership lapsed here, and one TTL must pass")
}

// attempt judges the head, and takes it over where it may. Otherwise left is about
// how long nothing will change.
func (c *campaign) attempt(ctx context.Context) (l *Leader, s state, left time.Duration, err error) {
	a := c.a
	free, err := a.take(ctx, a.lock)
	if err != nil {
		return nil, s, 0, err
	}
	defer free()
	if a.session.Accept.Err() != nil { // looked at under the lock: nothing begins after the end did
		return nil, s, 0, store.CtxErr(a.session.Accept, a.identity(), "lead", a.name)
	}
	if s, err = a.refresh(ctx); err != nil {
		return nil, s, 0, err
	}
	a.mu.Lock()
	a.cand.Ended() // the last one's keeper returned, and its work has stopped
	a.mu.Unlock()
	if s.head != nil {
		a.observe(s)
	}
	if rest := a.rest(s.at); rest > 0 {
		return nil, s, rest, nil
	}
	if s.head == nil {
		l, err = c.first(ctx)
		return l, s, 0, err
	}
	g, left, err := c.ground(ctx, s)
	if err != nil || left > 0 {
		return nil, s, left, err
	}
	claim, err := a.claim(ctx)
	if err != nil {
		return nil, s, 0, err
	}
	next, err := core.Takeover(s.head, claim, g)
	if err != nil {
		return nil, s, 0, err
	}
	if l, err = c.win(ctx, next, nil); err == nil && s.head.Led() {
		a.c.Log.Info("authority: took over", "authority", a.name, "token", next.Token, "from", s.head.Leader.Node, "how", g.How())
	}
	return l, s, 0, err
}

// observe continues or begins the observation of the head's leadership, which a short
// command leaves for the next one to continue (LS2). The caller holds the lock.
func (a *Authority) observe(s state) {
	o := a.obs.Observe(s.head, s.at)
	if o == a.obs {
		return
	}
	what, seen := "authority/"+a.name, fmt.Appendf(nil, "%s %d %d %d", o.Owner.Incarnation, o.Owner.Term, o.Token, o.Renewal)
	if from, ok := a.c.Recall(what, seen); ok {
		o.From = min(o.From, from)
	}
	a.c.Remember(what, seen, o.From)
	a.obs = o
}

// ground says on what ground the head may be taken over now (LA3); otherwise how
// much longer to wait.
func (c *campaign) ground(ctx context.Context, s state) (core.Ground, time.Duration, error) {
	a, rho := c.a, c.a.cfg.timing.Rho
	if s.head.Led() && *s.head.Leader == a.me {
		return c.again(s)
	}
	g, left, err := a.obs.Ground(s.head, s.ver, a.me, s.at, rho)
	if err != nil || left == 0 || !s.head.Led() {
		return g, left, err
	}
	e, known := c.evidence(ctx, *s.head.Leader)
	if !known {
		return g, left, nil
	}
	return e.Ground(s.head, s.ver, a.me, a.c.Clock.Boot(), rho)
}

// again is the ground for a head that names this very process: its leadership ended
// here, or was never handed out.
func (c *campaign) again(s state) (core.Ground, time.Duration, error) {
	a := c.a
	a.mu.Lock()
	defer a.mu.Unlock()
	if p, _ := a.cand.Proof(); p.Token < s.head.Token { // settled after its campaign had ended
		if err := a.cand.Granted(s.head); err != nil {
			return core.Ground{}, 0, err
		}
		a.cand.Ended()
	}
	q, err := a.cand.Quiet()
	if err != nil {
		return core.Ground{}, 0, err
	}
	g, err := q.Ground(s.head, s.ver)
	return g, 0, err
}

// evidence is what is known of the end of o's process start. A campaign that does
// not wait asks once.
func (c *campaign) evidence(ctx context.Context, o core.Owner) (core.Evidence, bool) {
	a := c.a
	a.mu.Lock()
	e, known := a.evidence[o]
	a.mu.Unlock()
	if known || c.wait {
		return e, known
	}
	found, _, err := a.c.Identities.Over(ctx, o.Node, identity.Owner{Incarnation: o.Incarnation, Term: o.Term})
	if err != nil || found == nil {
		return e, false
	}
	return a.proven(o, found), true
}

// proven keeps evidence whose wait has passed.
func (a *Authority) proven(o core.Owner, found *membership.Evidence) core.Evidence {
	e := core.Evidence{Node: o.Node, Owner: identity.Owner{Incarnation: o.Incarnation, Term: o.Term}, Verdict: found.Verdict}
	// The identities waited already, from the first look at the evidence on.
	e.From = a.c.Clock.Boot() - lease.Stretch(found.Verdict.Wait, a.cfg.timing.Rho)
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.evidence) >= 64 { // of long ago
		clear(a.evidence)
	}
	a.evidence[o] = e
	return e
}

// claim is what this process asks for. The floor is read now: after the head that is
// to be replaced, or after its absence.
func (a *Authority) claim(ctx context.Context) (core.Claim, error) {
	floor, err := a.c.Floor(ctx)
	return core.Claim{
		Authority: a.name, Owner: a.me, TTL: a.cfg.timing.TTL, Note: a.cfg.note, Floor: floor, Attempt: a.c.NewID(), NowMS: a.c.NowMS(),
	}, err
}

// first begins an authority that never was. The floor is read again after the
// create: a jump may have raised it, and listed what it raises, before this head was
// there (LS12). Until it was read the leadership is nobody's; the next round then
// takes it over above the floor, whoever's round that is.
func (c *campaign) first(ctx context.Context) (*Leader, error) {
	a := c.a
	claim, err := a.claim(ctx)
	if err != nil {
		return nil, err
	}
	next, err := core.First(claim)
	if err == nil {
		err = c.neverLed(ctx)
	}
	if err != nil {
		return nil, err
	}
	return c.win(ctx, next, func(ctx context.Context) error {
		floor, err := a.c.Floor(ctx)
		if err == nil && floor >= next.Token {
			err = store.Errorf(store.ErrConflict, a.identity(), "lead", a.name, "the floor rose to %d meanwhile", floor)
		}
		return err
	})
}

// neverLed returns an error if the log has entries, though there is no head: a head is
// never deleted, so somebody lost it. Beginning anew would leave its whole log
// unreachable, and the next pruner would remove it. A listing that fails shows nothing,
// and stands in nobody's way.
func (c *campaign) neverLed(ctx context.Context) error {
	a := c.a
	for element, err := range a.elements(ctx, a.key(string(core.KindEntry), ""), "") {
		if err != nil {
			a.c.Log.Warn("authority: cannot list the log before it is begun", "authority", a.name, "error", err)
			return nil
		}
		s, err := a.read(ctx)
		switch {
		case err != nil:
			return err
		case s.head != nil: // somebody was faster
			return store.Errorf(store.ErrConflict, a.identity(), "lead", a.name, "it was begun meanwhile")
		}
		return store.Errorf(store.ErrCorrupt, a.identity(), "lead", a.headKey,
			"the head is gone, and its log is there (entry %s): put the head back, or move what is under %s away and begin anew", element, a.logKey)
	}
	return nil
}

// win writes next and publishes the leadership that it gives, if check agrees,
// before the deadline that counts from the first send (DL4). One that comes too late
// is none: the next round begins again, with the next token (LA6).
func (c *campaign) win(ctx context.Context, next *core.Head, check func(ctx context.Context) error) (*Leader, error) {
	a := c.a
	wctx, cancel := settle.Limit(ctx, a.c.Clock, a.cfg.timing.Life())
	defer cancel()
	res, err := a.write(wctx, next, nil)
	if err != nil {
		return nil, err
	}
	if !a.head.Leads(next.Last()) || a.head.Raised() {
		return nil, store.Errorf(store.ErrConflict, a.identity(), "lead", a.name, "the leadership of token %d ended before it was known", next.Token)
	}
	if check != nil {
		if err := check(wctx); err != nil {
			return nil, err
		}
	}
	a.mu.Lock()
	err = a.cand.Granted(a.head)
	a.mu.Unlock()
	if err != nil {
		return nil, err
	}
	l := newLeader(a, next)
	if !l.extend(res.Sent) || !l.work.Live() {
		l.end(fmt.Errorf("authority %q: %w", a.name, tenure.ErrExpired))
		a.mu.Lock()
		a.cand.Ended()
		a.mu.Unlock()
		return nil, store.Errorf(store.ErrUnavailable, a.identity(), "lead", a.name,
			"the grant of token %d came later than its TTL %v less margin and stop, or the session lives no longer: the store is too slow, raise the TTL", next.Token, a.cfg.timing.TTL)
	}
	a.reports.reset()
	a.leader.Store(l)
	l.began(res)
	l.start()
	return l, nil
}

// rest is how long after a leadership that was not renewed in time this process
// leads nothing, so that whatever is on its way under it comes to its end (LA6).
func (a *Authority) rest(now time.Duration) time.Duration {
	l := a.leader.Load()
	if l == nil || !errors.Is(l.own.Cause(), deadline.ErrExpired) {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(0, l.until+lease.Stretch(a.cfg.timing.TTL, a.cfg.timing.Rho)-now)
}

// await blocks until the head may have changed, its leader's session may be proven
// to be over, or left has passed.
func (c *campaign) await(ctx context.Context, s state, left time.Duration) {
	ctx, cancel := c.a.untilBoot(ctx, s.at+left)
	defer cancel()
	if s.head != nil && s.head.Led() && *s.head.Leader != c.a.me {
		c.watch(*s.head.Leader)
		defer context.AfterFunc(c.vigil.proven, cancel)()
	}
	c.a.awaitChange(ctx, s.ver)
}

// vigil waits for the end of one leader's session, for as long as the campaign
// lasts. All campaigns of this process share the observation (LS9).
type vigil struct {
	of     core.Owner
	proven context.Context // ends once there is evidence
	quit   context.CancelFunc
	done   chan struct{}
}

func (v *vigil) end() {
	if v != nil {
		v.quit()
		<-v.done
	}
}

// watch begins the vigil over o, in the place of the one over an earlier leader.
func (c *campaign) watch(o core.Owner) {
	if c.vigil != nil && c.vigil.of == o {
		return
	}
	c.vigil.end()
	a := c.a
	ctx, quit := context.WithCancel(a.over)
	proven, tell := context.WithCancel(context.Background())
	v := &vigil{of: o, proven: proven, quit: quit, done: make(chan struct{})}
	c.vigil = v
	go func() {
		defer close(v.done)
		defer quit()
		e, err := a.c.Identities.AwaitOver(ctx, o.Node, identity.Owner{Incarnation: o.Incarnation, Term: o.Term})
		switch {
		case err == nil:
			a.proven(o, e)
			tell()
		case ctx.Err() == nil: // the observation goes on without it
			a.c.Log.Warn("authority: cannot tell whether the leader's session is over", "authority", a.name, "node", o.Node, "error", err)
		}
	}()
}

// Run campaigns and runs lead while this process leads, again and again: when lead
// returns nil, or the leadership is lost, the next campaign begins. It returns nil
// when ctx ends, why the session is over when it is, and any other error of lead or
// of the campaign. lead must return soon after its context ends; while it does not,
// this process leads nothing again. Every leadership has a new token and a new
// deadline (LA6). A panic of lead ends the leadership before it goes on.
func (a *Authority) Run(ctx context.Context, lead func(ctx context.Context, l *Leader) error) error {
	for {
		l, err := a.Lead(ctx)
		if err == nil {
			err = l.run(ctx, lead)
		}
		switch {
		case a.over.Err() != nil:
			return context.Cause(a.over)
		case a.session.Accept.Err() != nil:
			return context.Cause(a.session.Accept)
		case ctx.Err() != nil:
			if errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx)) || errors.Is(err, tenure.ErrShutdown) {
				return nil
			}
			return err
		case err != nil && (!errors.Is(err, tenure.ErrLost) || errors.Is(err, tenure.ErrOverlap)):
			return err
		case err == nil: // whoever else wants to lead goes first
			a.pause(ctx, 2*a.c.Poll)
		}
	}
}

// run runs lead under the leadership, and gives it up after that.
func (l *Leader) run(ctx context.Context, lead func(ctx context.Context, l *Leader) error) (err error) {
	running := make(chan struct{})
	l.mu.Lock()
	l.running = running
	l.mu.Unlock()
	work, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(l.ctx, func() { cancel(context.Cause(l.ctx)) })()
	defer func() {
		p := recover()
		close(running)
		if p != nil {
			_ = l.lose(errPanic(p))
		}
		cause := l.Err()
		down := l.StepDown(ctx)
		if p != nil {
			panic(p)
		}
		if err != nil && errors.Is(err, context.Canceled) && cause != nil {
			err = cause
		}
		if errors.Is(down, tenure.ErrUnconfirmed) {
			down = nil // it lapses; the next campaign begins all the same
		}
		err = errors.Join(err, down)
	}()
	return lead(work, l)
}
