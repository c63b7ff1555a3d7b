package world

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tenure-project/tenure"
)

// belong joins nodes, one after the other, and holds leases under each session
// until ctx ends. first is the node that the caller tries most often.
func (a *actor) belong(ctx context.Context, first int) {
	for n := 0; a.p.Sleep(ctx, about(a.r, a.ttl()/8)); n++ {
		node := first
		if chance(a.r, 0.2) {
			node = a.r.IntN(a.w.Plan.Nodes)
		}
		s, err := a.join(ctx, a.w.Plan.NodeNames()[node])
		if errors.Is(err, tenure.ErrClosed) {
			return
		}
		if err != nil {
			a.blame(err)
			continue
		}
		if a.w.Plan.Retention && chance(a.r, 0.2) {
			a.p.StepWall(ahead) // its own certificate is old, too
		}
		a.serve(ctx, s, n)
	}
}

func (a *actor) join(ctx context.Context, node string) (*Session, error) {
	var opts []tenure.AcquireOption
	if chance(a.r, 0.2) && !a.w.Plan.Calm {
		opts = append(opts, tenure.TTL(a.ttl()/2*time.Duration(1+a.r.IntN(4))))
	}
	if chance(a.r, 0.5) {
		opts = append(opts, tenure.NoChildren())
	}
	if chance(a.r, 0.3) {
		opts = append(opts, tenure.Note("by "+a.p.name))
	}
	if chance(a.r, 0.2) {
		return a.p.TryJoin(ctx, node, opts...)
	}
	wctx, cancel := a.p.Within(ctx, a.ttl()+about(a.r, 2*a.ttl()))
	defer cancel()
	return a.p.Join(wctx, node, opts...)
}

// serve lets some callers use the session for a while, and ends it in one way or
// another.
func (a *actor) serve(ctx context.Context, s *Session, n int) {
	work, stop := context.WithCancel(ctx)
	defer stop()
	var callers sync.WaitGroup
	leases := a.r.IntN(3)
	if a.w.Plan.Authorities > 0 {
		leases = -1
		a.govern(work, s, n, &callers)
	}
	for i := range 1 + leases {
		b := a.p.actor(fmt.Sprint("under ", s.Proof().Term, " ", n, " caller ", i))
		callers.Go(func() { b.under(work, s) })
	}
	over, cancel := context.WithCancel(ctx)
	s.onEnd(2*time.Millisecond, cancel)
	a.p.Sleep(over, about(a.r, 4*a.ttl()))
	cancel()
	a.p.Sleep(context.Background(), time.Microsecond)
	how := a.r.IntN(10)
	if how < 4 {
		stop()
		callers.Wait()
	}
	switch {
	case how < 7:
		_ = s.Quit(func() error { return s.Leave(ctx) })
	case how < 9:
		o := tenure.DrainOptions{Limit: about(a.r, a.ttl())}
		if chance(a.r, 0.5) {
			to := a.successor()
			o.Successor = func(string) string { return to }
		}
		_ = s.Quit(func() error { return s.Drain(ctx, o) })
	default: // its client leaves for it, or the process dies with it
		<-ctx.Done()
	}
	stop()
	callers.Wait()
}

// onEnd calls f some time after the session's end. What the end itself sets going
// at one instant must not meet it.
func (s *Session) onEnd(d time.Duration, f func()) {
	context.AfterFunc(s.Context(), func() { s.p.clk.AfterFunc(d, f) })
}

// under is one caller that uses a session until ctx ends or the session is over.
func (a *actor) under(ctx context.Context, s *Session) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.onEnd(time.Microsecond+between(a.r, 0, time.Millisecond), cancel)
	var kept []*Handle
	for a.p.Sleep(ctx, about(a.r, a.ttl()/time.Duration(6*a.w.Plan.Haste))) {
		var err error
		switch n := a.r.IntN(20); {
		case n < 6:
			kept, err = a.collect(ctx, s, kept)
		case n < 8 && len(kept) > 0:
			i := a.r.IntN(len(kept))
			a.giveUp(ctx, kept[i])
			kept = append(kept[:i], kept[i+1:]...)
		case n < 10:
			err = a.acquireUnder(ctx, s)
		case n < 15:
			err = a.doUnder(ctx, s)
		case n < 17:
			err = a.elect(ctx, s)
		case n < 18:
			h := s.Health()
			a.w.trace.add(a.p.name, "%s: health: %d leases, %d stuck, %d in doubt", s.Node(), h.Leases, h.Stuck, h.InDoubt)
		default:
			err = a.verify(ctx, s)
		}
		if err != nil && s.Err() == nil {
			a.blame(err)
		}
	}
	for _, h := range kept { // some are left to the session's end
		if chance(a.r, 0.3) {
			a.giveUp(context.Background(), h)
		}
	}
}

// collect takes what is free of some leases, and keeps it.
func (a *actor) collect(ctx context.Context, s *Session, kept []*Handle) ([]*Handle, error) {
	for range 1 + a.r.IntN(8) {
		l, err := s.TryAcquire(ctx, a.name(), a.underOptions()...)
		switch {
		case err == nil:
			kept = append(kept, a.p.Handed(l))
		case !errors.Is(err, tenure.ErrHeld):
			return kept, err
		}
		if ctx.Err() != nil {
			return kept, nil
		}
	}
	return kept, nil
}

// giveUp releases a handle, to somebody now and then.
func (a *actor) giveUp(ctx context.Context, h *Handle) {
	h.Write(ctx, about(a.r, a.ttl()/50), about(a.r, a.ttl()/20))
	if chance(a.r, 0.2) {
		_ = h.HandOver(ctx, a.successor(), (h.TTL() / time.Duration(1+a.r.IntN(3))).Truncate(time.Millisecond))
		return
	}
	_ = h.GiveUp(ctx)
}

func (a *actor) underOptions() []tenure.AcquireOption {
	if chance(a.r, 0.2) {
		return []tenure.AcquireOption{tenure.Note("under a session of " + a.p.name)}
	}
	return nil
}

func (a *actor) acquireUnder(ctx context.Context, s *Session) error {
	name := a.name()
	wctx, cancel := a.p.Within(ctx, about(a.r, 2*a.ttl()))
	defer cancel()
	l, err := s.Acquire(wctx, name, a.underOptions()...)
	if err != nil {
		a.w.trace.add(a.p.name, "%s: acquire under %s: %s", name, s.Node(), kind(err))
		return err
	}
	a.hold(ctx, l)
	return nil
}

func (a *actor) doUnder(ctx context.Context, s *Session) error {
	wctx, cancel := a.p.Within(ctx, about(a.r, 4*a.ttl()))
	defer cancel()
	return s.Do(wctx, a.name(), a.workload(), a.underOptions()...)
}

// elect campaigns for a while, and leads a little each time.
func (a *actor) elect(ctx context.Context, s *Session) error {
	wctx, cancel := a.p.Within(ctx, about(a.r, 2*a.ttl()))
	defer cancel()
	err := s.Elect(wctx, a.name(), func(ctx context.Context, l *tenure.Lease) error {
		h := a.p.Handed(l)
		a.w.oracle.count("leaderships")
		h.Write(ctx, a.ttl()/50, a.ttl()/50)
		a.p.Sleep(ctx, a.ttl()/10)
		return nil
	})
	if errors.Is(err, tenure.ErrOverlap) || errors.Is(err, tenure.ErrUnconfirmed) {
		return nil
	}
	return err
}

// verify asks the store whether a session is current, and judges a yes (R12).
func (a *actor) verify(ctx context.Context, s *Session) error {
	began := time.Now()
	err := a.p.Client.VerifyCurrent(ctx, s.Proof())
	a.w.trace.add(a.p.name, "%s: verify term %d: %s", s.Node(), s.Proof().Term, kind(err))
	o := a.w.oracle
	o.mu.Lock()
	defer o.mu.Unlock()
	st := o.nodes[s.Node()].starts[s.Proof().Incarnation]
	switch {
	case a.p.misled() || a.p.crashed.Load() || st == nil:
	case err == nil && st.how != "" && st.ended.Before(began):
		o.fail("R12", "%s: term %d was verified to be current %v after it ended", s.Node(), st.Term, time.Since(st.ended))
	case errors.Is(err, tenure.ErrNotCurrent) && st.how == "":
		o.fail("R12", "%s: term %d is said not to be current, and the record names it", s.Node(), st.Term)
	}
	if errors.Is(err, tenure.ErrNotCurrent) {
		return nil
	}
	return err
}
