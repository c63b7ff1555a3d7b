package world

import (
	"context"
	"errors"
	"slices"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/core/lease"
)

// operate acts as a person would who looks after the leases: it steals,
// vouches, raises counters, releases for the dead, and prunes.
func (a *actor) operate(ctx context.Context) {
	for a.p.Sleep(ctx, about(a.r, a.ttl()/2)) {
		name := a.name()
		var err error
		switch n := a.r.IntN(20); {
		case n < 9:
			err = a.end(ctx, name)
		case n < 11:
			err = a.jump(ctx, name)
		case n == 11:
			err = a.jumpAll(ctx)
		case n < 16 && a.w.Plan.Retention:
			err = a.prune(ctx)
		default:
			err = a.history(ctx, name)
		}
		if errors.Is(err, tenure.ErrClosed) {
			return
		}
		a.blame(err)
	}
}

// end ends a tenure for its holder: by force, or on good evidence at once.
func (a *actor) end(ctx context.Context, name string) error {
	s, err := a.p.Client.Status(ctx, name)
	if err != nil || s.State != tenure.Held {
		return err
	}
	dead := a.w.holderDied(s)
	m := a.w.mutation
	if !dead && !m.thief && !m.liar && chance(a.r, 0.6) {
		return nil // it seems to be well
	}
	if (dead || m.thief) && s.Kind == string(lease.Self) && chance(a.r, 0.3) {
		err = a.p.Client.ReleaseByProof(ctx, name, s.Token, s.Owner)
		a.w.trace.add(a.p.name, "%s: release token %d by proof: %s", name, s.Token, kind(err))
		a.ended(name, s, err, lease.HowReleased)
		return err
	}
	o := tenure.StealOptions{Token: s.Token, Reason: "the simulation wants it", By: a.p.name, Vouch: (dead || m.liar) && chance(a.r, 0.6)}
	_, err = a.p.Client.Steal(ctx, name, o)
	a.w.trace.add(a.p.name, "%s: steal token %d, vouched %v: %s", name, s.Token, o.Vouch, kind(err))
	a.ended(name, s, err, lease.HowForced, lease.HowVouched, lease.HowRevoked)
	return err
}

// ended judges the answer of an operator's act (R12).
func (a *actor) ended(name string, s tenure.Status, err error, hows ...string) {
	o := a.w.oracle
	o.mu.Lock()
	defer o.mu.Unlock()
	t := o.byName[name].tenancy(tenureID{s.Owner, s.Token})
	switch {
	case t == nil || a.p.misled() || o.byName[name].pruned:
	case err == nil && t.how == "":
		o.fail("R12", "%s: token %d was ended by %s, and it still lasts", name, s.Token, a.p.name)
	case (errors.Is(err, tenure.ErrLost) || errors.Is(err, tenure.ErrConflict)) && t.byProc == a.p && !t.taken && slices.Contains(hows, t.how):
		o.fail("R12", "%s: the end of token %d took effect, and its answer is: %v", name, s.Token, err)
	}
}

func (a *actor) jump(ctx context.Context, name string) error {
	s, err := a.p.Client.Status(ctx, name)
	if err != nil || s.State == tenure.Absent {
		return err
	}
	above := s.Counter + uint64(a.r.IntN(4))
	err = a.p.Client.Jump(ctx, name, above)
	a.w.trace.add(a.p.name, "%s: jump above %d: %s", name, above, kind(err))
	if err == nil {
		a.raised(name, above)
	}
	if errors.Is(err, tenure.ErrNotFound) { // pruned meanwhile
		return nil
	}
	return err
}

// raised judges that the counter of a lease is at least above (R12).
func (a *actor) raised(name string, above uint64) {
	o := a.w.oracle
	o.mu.Lock()
	defer o.mu.Unlock()
	r := o.byName[name].rec
	if r != nil && r.Counter < above && o.floor < above && !a.p.misled() {
		o.fail("R12", "%s: raised to %d, and its counter is %d and the floor %d", name, above, r.Counter, o.floor)
	}
	o.stats["raised"]++
}

func (a *actor) jumpAll(ctx context.Context) error {
	s, err := a.p.Client.Settings(ctx)
	if err != nil {
		return err
	}
	above := s.Floor + 1 + uint64(a.r.IntN(4))
	n, err := a.p.Client.JumpAll(ctx, above)
	a.w.trace.add(a.p.name, "jump all above %d: %d, %s", above, n, kind(err))
	if err != nil {
		return err
	}
	for _, name := range a.w.Plan.Names() {
		a.raised(name, above)
	}
	for _, node := range a.w.Plan.NodeNames() {
		a.raisedNode(node, above, nil)
	}
	return nil
}

func (a *actor) prune(ctx context.Context) error {
	p, err := a.p.Client.Prune(ctx)
	a.w.trace.add(a.p.name, "prune: %d leases, %d archives, floor %d: %s", p.Leases, p.Archives, p.Floor, kind(err))
	return err
}

// history judges what is told of a lease's past (R9).
func (a *actor) history(ctx context.Context, name string) error {
	h, err := a.p.Client.History(ctx, name)
	if err != nil {
		if errors.Is(err, tenure.ErrNotFound) {
			return nil
		}
		return err
	}
	if !a.p.misled() {
		a.w.oracle.told(h)
	}
	return nil
}

// told judges a history: everything in it was in the record. Whether all is in
// it can be said only where nothing is going on (complete).
func (o *oracle) told(h tenure.History) {
	o.mu.Lock()
	defer o.mu.Unlock()
	ls := o.byName[h.Name]
	last := uint64(0)
	for _, t := range h.Tenures {
		k := ls.tenancy(tenureID{t.Owner, t.Token})
		if k == nil || k.token != t.Token || t.How != "" && t.How != k.how || t.Token <= last {
			o.fail("R9", "%s: the history tells token %d, %q, after token %d", h.Name, t.Token, t.How, last)
		}
		last = t.Token
	}
}

// complete judges a history that was read while nothing else was going on: what
// it does not tell was counted as dropped.
func (o *oracle) complete(h tenure.History) {
	o.told(h)
	o.mu.Lock()
	defer o.mu.Unlock()
	ls := o.byName[h.Name]
	if ls.pruned {
		return
	}
	gone := len(ls.tenures) - len(h.Tenures)
	if gone > int(h.Dropped) {
		o.fail("R9", "%s: the history lacks %d of %d tenures and counts %d as dropped", h.Name, gone, len(ls.tenures), h.Dropped)
	}
}
