package tenure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenure-project/tenure/internal/bootid"
	"github.com/tenure-project/tenure/internal/core/identity"
	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/store"
)

// never is a ripeness that does not come.
const never = time.Duration(1<<63 - 1)

// fall is how the present holder of a lease falls, what whoever ended it said, and the
// evidence for it that the next record cites. It is empty where nobody holds the
// lease.
type fall struct{ how, why, by, evidence string }

// judge says from when on (boot clock) the record found may be replaced by a
// new holder's, and on what evidence the present holder then falls.
func (a *acquirer) judge(ctx context.Context, f found) (fell fall, ripeAt time.Duration, err error) {
	if f.rec == nil {
		return fall{}, 0, nil
	}
	if f.rec.Held() && f.rec.Kind == lease.Session {
		return a.judgeSession(ctx, *f.rec.Owner)
	}
	need, _ := f.rec.Wait(a.req.as)
	if need == 0 {
		return fall{}, 0, nil
	}
	gone, err := a.c.provenGone(ctx, f.rec)
	if err != nil {
		a.c.log.Warn("lease: cannot tell whether the holder's process is gone", "lease", a.name, "error", err)
	}
	if gone {
		return fall{how: lease.HowProven}, 0, nil
	}
	if a.c.silentByStoreClock(ctx, f, a.req.timing) {
		return fall{how: lease.HowStoreClock}, 0, nil
	}
	if err := a.observe(f); err != nil {
		return fall{}, 0, err
	}
	if f.rec.Held() {
		fell.how = lease.HowObserved
	}
	return fell, a.obs.RipeAt(need, a.req.timing.Rho), nil
}

// observe continues or begins the observation of f, which a short command
// leaves for the next one to continue.
func (a *acquirer) observe(f found) error {
	if a.c.memory.dir == "" {
		a.obs = a.obs.Observe(f.rec, f.ver, f.at)
		return nil
	}
	body, err := f.rec.Encode()
	if err != nil {
		return err
	}
	if a.obs == (lease.Observation{}) {
		a.obs = a.c.memory.recall(a.name, body)
	}
	before := a.obs
	a.obs = a.obs.Observe(f.rec, f.ver, f.at)
	if a.obs != before {
		a.c.memory.remember(a.name, &a.obs, body)
	}
	return nil
}

// provenGone reports whether the kernel proves that nothing of the holder is
// left (LS14).
func (c *Client) provenGone(ctx context.Context, r *lease.Record) (bool, error) {
	p, can := store.AsProver(c.st)
	if r.Lock == nil || !r.Held() || !can {
		return false, nil
	}
	// Of an earlier boot of this kernel nothing is left, whatever tree it was.
	tree := r.Lock.Tree == "cgroup" && r.Lock.Boot == bootid.Boot()
	if tree && c.treeEmpty == nil {
		return false, nil
	}
	gone, err := p.Gone(ctx, r.Lock.Mark)
	if err != nil || !gone || !tree {
		return gone, err
	}
	return c.treeEmpty(r.Lock.Cgroup)
}

// fenceCalls is how many attempt limits one who does not wait may take where a dead
// session is found: to judge it, seal what it left, supersede it, seal that, and
// then take the lease.
const fenceCalls = 12

// judgeSession says whether the lease of the session o may be taken: only evidence
// that this exact session is over counts, never how long the lease was silent
// (LS8). Whoever waits asks for it while waiting, together with everybody else in
// this process.
func (a *acquirer) judgeSession(ctx context.Context, o lease.Owner) (fall, time.Duration, error) {
	who := identity.Owner{Incarnation: o.Incarnation, Term: o.Term}
	e := a.c.ids.Known(o.Node, who)
	if e == nil && !a.wait {
		// To end a dead session takes several calls more, and none of them twice.
		a.limit.Stop()
		a.limit = a.c.clk.AfterFunc(fenceCalls*a.req.timing.Attempt, a.late)
		var err error
		switch e, _, err = a.c.ids.Over(ctx, o.Node, who); {
		case errors.Is(err, ErrMissingEvidence): // it must be taken for alive
			a.c.log.Warn("lease: the store does not know its holder's session", "lease", a.name, "node", o.Node, "error", err)
		case err != nil:
			return fall{}, 0, fmt.Errorf("lease %q: is its holder's session over? %w", a.name, err)
		}
	}
	if e == nil {
		return fall{}, never, nil
	}
	return fall{how: e.How, why: e.Why, by: e.By, evidence: e.Cite}, 0, nil
}

// awaitSession waits until there is evidence that the session o is over, which
// judgeSession then knows.
func (a *acquirer) awaitSession(ctx context.Context, o lease.Owner) bool {
	_, err := a.c.ids.AwaitOver(ctx, o.Node, identity.Owner{Incarnation: o.Incarnation, Term: o.Term})
	if err != nil {
		if ctx.Err() == nil && !a.warned {
			a.warned = true
			a.c.log.Warn("lease: cannot tell whether its holder's session is over", "lease", a.name, "node", o.Node, "error", err)
		}
		return false
	}
	return true
}

// sessionVigil is this acquirer's wait for the end of one session. It goes on over
// any number of looks at the lease: what it has begun takes many store calls.
type sessionVigil struct {
	of   lease.Owner
	over context.Context // ends when the session is over, or cannot be judged now
	quit context.CancelFunc
	gone chan struct{}
}

// vigilOver is a context that ends when the session o is over.
func (a *acquirer) vigilOver(ctx context.Context, o lease.Owner) context.Context {
	if v := a.vigil; v != nil && v.of == o {
		select {
		case <-v.gone:
		default:
			return v.over
		}
	}
	a.endVigil()
	wait, quit := context.WithCancel(ctx)
	over, end := context.WithCancelCause(context.Background())
	v := &sessionVigil{of: o, over: over, quit: quit, gone: make(chan struct{})}
	a.vigil = v
	go func() {
		defer close(v.gone)
		if a.awaitSession(wait, o) {
			end(nil)
		}
	}()
	return over
}

// endVigil ends the wait and returns once it has ended.
func (a *acquirer) endVigil() {
	if a.vigil != nil {
		a.vigil.quit()
		<-a.vigil.gone
		a.vigil = nil
	}
}
