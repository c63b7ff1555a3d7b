package membership

import (
	"context"
	"fmt"
	"time"

	"github.com/tenure-project/tenure/internal/core/identity"
	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/internal/settle"
	"github.com/tenure-project/tenure/store"
)

// Evidence says that one exact process start is over.
type Evidence struct {
	// Verdict is the judgement; its Wait has passed.
	Verdict identity.Verdict
	// Cite is what the next record of a lease cites: the certificate's own bytes, or
	// those of an identity.Citation. At most lease.MaxEvidence bytes of UTF-8.
	Cite string
	// How is for the lease's history. Folded evidence is observed, or forced where
	// it may rest on force. Why and By are what whoever ended it said.
	How, Why, By string
}

// step is how far the judgement of one start has come.
type step struct {
	e    *Evidence
	left time.Duration // about how long it takes yet
	head Head
	sure bool // it is over, and only left has to pass
}

// Over says whether o is over, without waiting (LS8). Where o's identity has been
// silent before this process's eyes for its TTL, or its death is proven, it is
// fenced on the spot. left is about how long it will take yet if nothing changes.
// Evidence that rests on force counts only after its wait from this process's own
// first read of it (LS11). A start that nothing tells of is ErrMissingEvidence.
func (i *Identities) Over(ctx context.Context, node string, o identity.Owner) (e *Evidence, left time.Duration, err error) {
	k := start{node, o}
	if e := i.known(k); e != nil {
		return e, 0, nil
	}
	for tries := 0; ; tries++ {
		s, err := i.look(ctx, k)
		if err == nil {
			return s.e, s.left, nil
		}
		if tries == 2 || !settle.LostRace(err) {
			return nil, -1, err
		}
	}
}

func (i *Identities) known(k start) *Evidence {
	i.mu.Lock()
	defer i.mu.Unlock()
	e, _ := i.evidence.get(k)
	return e
}

// look judges k once, and fences it where that may be done.
func (i *Identities) look(ctx context.Context, k start) (step, error) {
	v, h, err := i.Judge(ctx, k.node, k.owner)
	if err != nil {
		return step{}, err
	}
	switch v.State {
	case identity.Over:
		return i.mature(k, v, h)
	case identity.Current:
	default:
		return step{}, fmt.Errorf("node %q, incarnation %s, term %d: %w: it must be taken for alive", k.node, k.owner.Incarnation, k.owner.Term, ErrMissingEvidence)
	}
	g, left, err := i.ground(ctx, h)
	if err != nil || left > 0 {
		return step{left: left, head: h}, err
	}
	next, err := i.revoke(ctx, h, k.owner.Incarnation, g)
	if err != nil {
		return step{}, err
	}
	h = Head{Node: h.Node, Record: next, At: i.cfg.Clock.Boot()}
	if v, err = identity.Judge(k.owner, next, next.Certificate); err != nil {
		return step{}, err
	}
	return i.mature(k, v, h)
}

// mature makes evidence of v once its wait has passed (LS11). The wait counts from
// when this process first saw any evidence that k is over: every renewal that k
// ever won was sent before that.
func (i *Identities) mature(k start, v identity.Verdict, h Head) (step, error) {
	if v.Wait > 0 {
		if left := i.firstOver(k, h.At) + lease.Stretch(v.Wait, i.cfg.Timing.Rho) - h.At; left > 0 {
			return step{left: left, head: h, sure: true}, nil
		}
	}
	cite, err := identity.Cite(k.owner, h.Record, v)
	if err != nil {
		return step{}, err
	}
	e := &Evidence{Verdict: v, Cite: cite, How: v.How}
	switch {
	case v.Folded && v.Wait > 0:
		e.How = lease.HowForced
	case v.Folded:
		e.How = lease.HowObserved
	}
	switch end := h.Record.Ended; {
	case v.Certificate != nil:
		e.Why, e.By = v.Certificate.Why, v.Certificate.By
	case end != nil && end.Incarnation == k.owner.Incarnation:
		e.Why, e.By = end.Why, end.By
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.evidence.put(k, e)
	return step{e: e, head: h}, nil
}

// firstOver is when k was first seen to be over, which is now at the latest.
func (i *Identities) firstOver(k start, now time.Duration) time.Duration {
	i.mu.Lock()
	from, known := i.over.get(k)
	i.mu.Unlock()
	if known {
		return from
	}
	from = now
	name := "over/" + k.node
	body := fmt.Appendf(nil, "%s %d", k.owner.Incarnation, k.owner.Term)
	if i.cfg.Recall != nil {
		if then, ok := i.cfg.Recall(name, body); ok {
			from = min(from, then)
		}
	}
	if i.cfg.Remember != nil {
		i.cfg.Remember(name, body, from)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.over.put(k, from)
	return from
}

// AwaitOver waits until o is over, or ctx ends. All callers for one start share one
// observation, one fence and one poll (LS9). Evidence that was found is cached. ctx
// must end when the owner of Config.Background closes.
func (i *Identities) AwaitOver(ctx context.Context, node string, o identity.Owner) (*Evidence, error) {
	k := start{node, o}
	if e := i.known(k); e != nil {
		return e, nil
	}
	if err := store.CtxErr(ctx, i.identityOfStore(), "await the end of", node); err != nil {
		return nil, err
	}
	v := i.enter(k)
	defer i.leave(k, v)
	select {
	case <-v.done:
		return v.e, v.err
	case <-ctx.Done():
		return nil, store.CtxErr(ctx, i.identityOfStore(), "await the end of", node)
	}
}

// vigil is the wait for the end of one start, shared by its callers.
type vigil struct {
	done    chan struct{} // closed when e or err is set
	e       *Evidence
	err     error
	callers int // guarded by Identities.mu
	ctx     context.Context
	quit    context.CancelFunc
}

func (i *Identities) enter(k start) *vigil {
	i.mu.Lock()
	v := i.vigils[k]
	begin := v == nil
	if begin {
		v = &vigil{done: make(chan struct{})}
		v.ctx, v.quit = context.WithCancel(context.Background())
		i.vigils[k] = v
		i.observed.atLeast(remembered + len(i.vigils)) // none is forgotten while it is waited for
		i.over.atLeast(remembered + len(i.vigils))
		i.evidence.atLeast(remembered + len(i.vigils))
	}
	v.callers++
	i.mu.Unlock()
	if begin {
		i.cfg.Background(func(ctx context.Context) {
			defer context.AfterFunc(ctx, v.quit)()
			i.keepVigil(k, v)
		})
	}
	return v
}

func (i *Identities) leave(k start, v *vigil) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if v.callers--; v.callers > 0 {
		return
	}
	v.quit()
	if i.vigils[k] == v {
		delete(i.vigils, k)
	}
}

// keepVigil looks until k is over, an error is final, or nobody waits any more.
func (i *Identities) keepVigil(k start, v *vigil) {
	e, err := i.watch(v.ctx, k)
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.vigils[k] == v { // who comes from now on begins anew, or finds the evidence
		delete(i.vigils, k)
	}
	v.e, v.err = e, err
	close(v.done)
}

func (i *Identities) watch(ctx context.Context, k start) (*Evidence, error) {
	for failures := 0; ; {
		s, err := i.look(ctx, k)
		switch {
		case err == nil && s.e != nil:
			return s.e, nil
		case ctx.Err() != nil:
			return nil, store.CtxErr(ctx, i.identityOfStore(), "await the end of", k.node)
		case err != nil && !retryable(err):
			return nil, err
		case err != nil:
			failures++
			i.cfg.Log.Debug("identity: cannot tell yet whether it is over, trying again", "node", k.node, "incarnation", k.owner.Incarnation, "error", err)
			i.pause(ctx, i.retryAfter(err, failures, i.cfg.Timing))
		case s.sure:
			failures = 0
			wait, cancel := i.untilBoot(ctx, s.head.At+s.left)
			<-wait.Done()
			cancel()
		default:
			failures = 0
			i.await(ctx, s.head, s.left)
		}
	}
}

// retryAfter is how long to wait after a failure; a race that was lost is no
// trouble.
func (i *Identities) retryAfter(err error, failures int, t lease.Timing) time.Duration {
	if settle.LostRace(err) {
		return t.Attempt / 16
	}
	return t.Renew * time.Duration(min(failures, 8)) / 4
}
