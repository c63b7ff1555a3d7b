package world

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/authority"
	core "github.com/tenure-project/tenure/internal/core/authority"
	"github.com/tenure-project/tenure/store"
)

// govern opens one or two authorities under a session, and lets some callers
// campaign, decide, report, read and clean up in each until work ends.
func (a *actor) govern(work context.Context, s *Session, n int, callers *sync.WaitGroup) {
	names := a.w.Plan.AuthorityNames()
	first := a.r.IntN(len(names))
	for i := range min(len(names), 1+a.r.IntN(2)) {
		name := names[(first+i)%len(names)]
		x, err := s.Open(work, name, a.authorityOptions()...)
		if err != nil {
			if s.Err() == nil && work.Err() == nil {
				a.blame(err)
			}
			continue
		}
		if _, err := s.Open(work, name); err == nil {
			a.w.oracle.failNow("R33", "%s: %s opened it twice under one session", name, a.p.name)
		}
		purpose := fmt.Sprint("in ", name, " under ", s.Proof().Term, " ", n, " ")
		ruler, helper := a.p.actor(purpose+"ruler"), a.p.actor(purpose+"helper")
		if chance(a.r, 0.8) {
			callers.Go(func() { ruler.campaign(work, x) })
		}
		callers.Go(func() { helper.assist(work, x) })
	}
}

func (a *actor) authorityOptions() []authority.Option {
	var opts []authority.Option
	if chance(a.r, 0.2) && !a.w.Plan.Calm {
		opts = append(opts, authority.TTL(a.ttl()/2*time.Duration(1+a.r.IntN(4))))
	}
	if chance(a.r, 0.3) {
		opts = append(opts, authority.Stop(a.ttl()/20))
	}
	if chance(a.r, 0.3) {
		opts = append(opts, authority.Note("by "+a.p.name))
	}
	if chance(a.r, 0.5) {
		opts = append(opts, authority.PruneEvery(a.ttl()/time.Duration(1+a.r.IntN(3))))
	}
	return opts
}

// lasting is ctx, ended a little after the session.
func (a *actor) lasting(ctx context.Context, s *Session) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	s.onEnd(time.Microsecond+between(a.r, 0, time.Millisecond), cancel)
	return ctx, cancel
}

// judge blames an error of a call on an authority, unless the session ended.
func (a *actor) judge(x *Authority, err error) {
	if err == nil || x.s.Err() != nil || a.w.Plan.NoDelete && errors.Is(err, tenure.ErrDenied) {
		return
	}
	a.blame(err)
}

// campaign leads again and again.
func (a *actor) campaign(ctx context.Context, x *Authority) {
	ctx, cancel := a.lasting(ctx, x.s)
	defer cancel()
	for a.p.Sleep(ctx, about(a.r, a.ttl()/4)) {
		wctx, cancel := a.p.Within(ctx, a.ttl()+about(a.r, 3*a.ttl()))
		var err error
		switch n := a.r.IntN(10); {
		case n < 5:
			err = a.leads(wctx, x, x.Lead)
		case n < 7:
			err = a.leads(wctx, x, x.TryLead)
		default:
			err = x.Run(wctx, func(ctx context.Context, l *authority.Leader) error {
				a.reign(ctx, x.Led(l))
				return nil
			})
			a.w.trace.add(a.p.name, "authority %s: run: %s", x.Name(), kind(err))
		}
		cancel()
		if errors.Is(err, tenure.ErrClosed) {
			return
		}
		a.judge(x, err)
	}
}

// leads leads once, decides, and steps down or lets go.
func (a *actor) leads(ctx context.Context, x *Authority, lead func(ctx context.Context) (*authority.Leader, error)) error {
	l, err := lead(ctx)
	if err != nil {
		a.w.trace.add(a.p.name, "authority %s: lead: %s", x.Name(), kind(err))
		return err
	}
	h := x.Led(l)
	a.reign(ctx, h)
	switch n := a.r.IntN(10); {
	case n < 2:
		a.p.Sleep(l.Context(), 4*a.ttl()) // it leads and decides nothing
	case n < 4 && ctx.Err() == nil:
		a.decide(ctx, x, l.Proof())
	}
	if errors.Is(h.StepDown(ctx), tenure.ErrUnconfirmed) && chance(a.r, 0.5) {
		a.p.Sleep(ctx, about(a.r, a.ttl()))
		_ = h.StepDown(ctx)
	}
	return nil
}

// reign decides one thing after the other; some go on though they lead no more.
func (a *actor) reign(ctx context.Context, l *Leadership) {
	for range 1 + a.r.IntN(20*a.w.Plan.Haste) {
		if !a.p.Sleep(ctx, about(a.r, a.ttl()/time.Duration(20*a.w.Plan.Haste))) || l.Err() != nil && chance(a.r, 0.5) {
			return
		}
		a.decide(ctx, l.a, l.Proof())
	}
}

// decide makes one decision under a leadership, with little patience or more.
func (a *actor) decide(ctx context.Context, x *Authority, p tenure.Proof) {
	ctx, cancel := a.p.Within(ctx, a.ttl()/50+about(a.r, 2*a.ttl()))
	defer cancel()
	var err error
	n := a.r.IntN(20)
	if a.w.Plan.Haste >= 8 && chance(a.r, 0.95) {
		n = []int{0, 0, 0, 14}[n%4] // a long history of outcomes, and of releases
	}
	switch {
	case n < 10:
		err = a.settle(ctx, x, p)
	case n < 14:
		err = a.assign(ctx, x, p)
	case n < 17:
		err = a.recover(ctx, x, p)
	case n < 18:
		err = a.seal(ctx, x, p)
	default:
		err = a.advance(ctx, x, p)
	}
	a.judge(x, err)
}

// assist does what needs no leadership until ctx ends or the session is over.
func (a *actor) assist(ctx context.Context, x *Authority) {
	ctx, cancel := a.lasting(ctx, x.s)
	defer cancel()
	for a.p.Sleep(ctx, about(a.r, a.ttl()/time.Duration(2*a.w.Plan.Haste))) {
		wctx, cancel := a.p.Within(ctx, a.ttl()/20+about(a.r, 3*a.ttl()))
		var err error
		switch n := a.r.IntN(20); {
		case n < 5:
			err = a.report(wctx, x)
		case n < 8:
			err = a.stale(wctx, x)
		case n < 12:
			err = a.clean(wctx, x)
		case n < 16:
			err = a.observe(wctx, x)
		default:
			err = a.read(wctx, x)
		}
		cancel()
		if errors.Is(err, tenure.ErrClosed) {
			return
		}
		a.judge(x, err)
	}
}

// report reports a fault and judges the answer (R32).
func (a *actor) report(ctx context.Context, x *Authority) error {
	f, err := x.Report(ctx, "the simulation wants it")
	a.w.trace.add(a.p.name, "authority %s: report: %s", x.Name(), kind(err))
	o := a.w.oracle
	o.mu.Lock()
	defer o.mu.Unlock()
	o.count2("report", err)
	if err != nil || a.p.misled() || a.p.crashed.Load() {
		if errors.Is(err, authority.ErrSuperseded) {
			return nil
		}
		return err
	}
	as, me := x.state(), x.s.Proof()
	mine := core.Report{Node: me.Node, Incarnation: me.Incarnation, Term: me.Term, Request: f.Request}
	if f.Proof.Node != me.Node || f.Proof.Incarnation != me.Incarnation || !as.made[mine] {
		o.fail("R32", "%s: %s was told that its fault %d is made, and the head never showed it", as.name, a.p.name, f.Request)
	}
	return nil
}

// stale appends under a leadership that is over, or is somebody else's.
func (a *actor) stale(ctx context.Context, x *Authority) error {
	x.mu.Lock()
	past := x.past
	x.mu.Unlock()
	if len(past) > 0 && chance(a.r, 0.7) {
		p := past[a.r.IntN(len(past))]
		if x.Leads(p) && p != past[len(past)-1] {
			a.w.oracle.failNow("R27", "%s: %s is said to lead with token %d, which it has no more", x.Name(), a.p.name, p.Token)
		}
		a.decide(ctx, x, p)
		return nil
	}
	o := a.w.oracle
	o.mu.Lock()
	h := x.state().head
	o.mu.Unlock()
	if h == nil || h.Last().Owner() == core.Proof(x.s.Proof()).Owner() {
		return nil
	}
	err := a.settle(ctx, x, tenure.Proof(h.Last()))
	if errors.Is(err, store.ErrInvalid) {
		o.count("foreign proofs refused")
		return nil
	}
	return err
}
