package world

import (
	"context"
	"errors"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/authority"
	"github.com/tenure-project/tenure/authority/assignment"
	"github.com/tenure-project/tenure/authority/catalog"
	core "github.com/tenure-project/tenure/internal/core/authority"
	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/store"
)

// observe takes a snapshot, or an admission, and validates it a little later (R35).
func (a *actor) observe(ctx context.Context, x *Authority) error {
	if chance(a.r, 0.3) {
		return a.admit(ctx, x)
	}
	o, began := a.w.oracle, time.Now()
	s, err := x.Reader().Snapshot(ctx)
	if err != nil {
		return ignore(err, store.ErrNotFound)
	}
	o.saw(a.p, s.Kit(), began)
	a.p.Sleep(ctx, about(a.r, a.ttl()/50))
	all := []authority.Part{authority.PartLeader, authority.PartFaults, authority.PartRound, authority.PartCheckpoint,
		authority.PartAssignment, authority.PartRecovery, authority.PartCatalog}
	parts := all[:1+a.r.IntN(len(all))]
	began = time.Now()
	err = s.Validate(ctx, parts...)
	o.validated(a.p, s.Kit(), parts, began, err)
	return ignore(err, authority.ErrChanged)
}

// admit reads an admission and checks it just before work would begin (R35): it is
// refused where a fault is active, or was made or cleared since.
func (a *actor) admit(ctx context.Context, x *Authority) error {
	m, err := x.Recoveries.Admission(ctx)
	if err != nil {
		return ignore(err, store.ErrNotFound)
	}
	a.p.Sleep(ctx, about(a.r, a.ttl()/50))
	p, _ := m.Snapshot.Leader()
	began := time.Now()
	err = m.Check(ctx, p)
	o := a.w.oracle
	o.mu.Lock()
	defer o.mu.Unlock()
	o.count2("admission", err)
	if err != nil || a.p.misled() || a.p.crashed.Load() {
		return ignore(err, authority.ErrChanged)
	}
	_, revision := m.Snapshot.Faults()
	if !x.state().since(began, func(h *core.Head) bool {
		return len(h.Faults()) == 0 && h.Revision == revision && h.Leads(core.Proof(p)) && !h.Raised()
	}) {
		o.fail("R35", "%s: %s was admitted, and at no instant nothing stood in the way", x.Name(), a.p.name)
	}
	return nil
}

// read reads one chain or walks all of them, and judges what it is told (R35).
func (a *actor) read(ctx context.Context, x *Authority) (err error) {
	began := time.Now()
	switch a.r.IntN(8) {
	case 0, 1:
		var report authority.AuditReport
		if report, err = x.Reader().Audit(ctx); err == nil {
			a.w.oracle.saw(a.p, report.Snapshot.Kit(), began.Add(-a.ttl()*10))
			a.w.oracle.count("audits")
		}
	case 2:
		err = a.newest(ctx, x)
	case 3:
		err = a.chronicle(ctx, x)
	case 4:
		for _, err = range x.Recoveries.Releases(ctx) {
			if err != nil {
				break
			}
		}
	case 5:
		_, err = catalog.Read(ctx, x.Reader())
	case 6:
		_, err = x.Assignments.Draining(ctx)
	default:
		_, err = x.Assignments.Proposals(ctx)
	}
	if err != nil {
		a.w.trace.add(a.p.name, "authority %s: read: %s", x.Name(), kind(err))
	}
	if errors.Is(err, store.ErrNotFound) && store.KindOf(err) != store.ErrCorrupt {
		return nil // nothing of it was ever there, or it was given up meanwhile
	}
	return err
}

// newest reads the newest outcome and commit: they stood at one instant.
func (a *actor) newest(ctx context.Context, x *Authority) error {
	began := time.Now()
	terminal, commit, err := x.Checkpoints.Newest(ctx)
	if err != nil {
		return err
	}
	o := a.w.oracle
	o.mu.Lock()
	defer o.mu.Unlock()
	if a.p.misled() || a.p.crashed.Load() {
		return nil
	}
	if !x.state().since(began, func(h *core.Head) bool {
		c := h.Checkpoint
		if c == nil || terminal == nil {
			return c == nil && terminal == nil
		}
		return core.Link(terminal.Link) == c.Head && (commit == nil) == (c.Mark == nil) && (commit == nil || core.Link(commit.Link) == *c.Mark)
	}) {
		o.fail("R35", "%s: %s was shown a newest outcome and commit that never were", x.Name(), a.p.name)
	}
	return nil
}

// current reads the assignment that stands: it did at one instant.
func (a *actor) current(ctx context.Context, x *Authority) (*assignment.Current, error) {
	began := time.Now()
	cur, err := x.Assignments.Current(ctx)
	if err != nil {
		return nil, err
	}
	o := a.w.oracle
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stats["assignments read"]++
	if !a.p.misled() && !a.p.crashed.Load() && !x.state().since(began, func(h *core.Head) bool {
		if h.Assignment == nil {
			return cur.Fence.Version == 1
		}
		return h.Assignment.State == cur.Fence.State() && cur.Map.Fence().State() == cur.Fence.State()
	}) {
		o.fail("R35", "%s: %s was told that version %d of the assignment stands, and it did at no instant", x.Name(), a.p.name, cur.Fence.Version)
	}
	return cur, nil
}

// chronicle reads the outcomes: they are what stands at the state that they are of,
// and each commit from the horizon on has its capsule.
func (a *actor) chronicle(ctx context.Context, x *Authority) error {
	h, err := x.Checkpoints.History(ctx)
	if err != nil {
		return err
	}
	all := h.Inventory()
	o := a.w.oracle
	o.mu.Lock()
	m := x.state().chains[core.Checkpoint]
	for _, w := range all {
		if m.found(core.Link(w.Link)) == nil && !a.p.misled() {
			o.fail("R35", "%s: %s was told of an outcome of epoch %d that never stood", x.Name(), a.p.name, w.Epoch)
		}
	}
	o.mu.Unlock()
	top := h.HighestCommit()
	if top == nil {
		return nil
	}
	_, err = x.Checkpoints.Capsule(ctx, top)
	if !errors.Is(err, store.ErrNotFound) || a.p.misled() {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if m.horizon <= top.Epoch {
		o.fail("R35", "%s: %s finds no capsule of the newest commit, of epoch %d, and the horizon is %d", x.Name(), a.p.name, top.Epoch, m.horizon)
	}
	return nil
}

// overrule acts on an authority as a person would: it ends leaderships by force, and
// raises numbers.
func (a *actor) overrule(ctx context.Context) {
	for a.p.Sleep(ctx, about(a.r, a.ttl())) {
		names := a.w.Plan.AuthorityNames()
		name := names[a.r.IntN(len(names))]
		var err error
		switch n := a.r.IntN(10); {
		case n < 5:
			err = a.depose(ctx, name)
		case n < 7:
			err = a.raise(ctx, name)
		default:
			_, err = authority.Prune(ctx, a.p.Client, name)
		}
		if errors.Is(err, tenure.ErrClosed) {
			return
		}
		err = ignore(err, store.ErrNotFound, store.ErrConflict)
		if err != nil && !(a.w.Plan.NoDelete && errors.Is(err, tenure.ErrDenied)) {
			a.blame(err)
		}
	}
}

func (a *actor) depose(ctx context.Context, name string) error {
	r, err := authority.Read(ctx, a.p.Client, name)
	if err != nil {
		return err
	}
	s, err := r.Snapshot(ctx)
	if err != nil {
		return err
	}
	p, led := s.Leader()
	if !led {
		return nil
	}
	o := a.w.oracle
	o.mu.Lock()
	_, st := o.startOf(lease.Owner(core.Proof(p).Owner()))
	dead := st.dead()
	o.mu.Unlock()
	if !dead && chance(a.r, 0.5) {
		return nil // it seems to be well
	}
	_, err = authority.Steal(ctx, a.p.Client, name, authority.StealOptions{Token: p.Token, Why: "the simulation wants it", By: a.p.name, Vouch: dead && chance(a.r, 0.6) || a.w.mutation.liar})
	a.w.trace.add(a.p.name, "authority %s: steal token %d: %s", name, p.Token, kind(err))
	o.mu.Lock()
	defer o.mu.Unlock()
	o.count2("depose", err)
	if r := o.authorities[name].tokens[p.Token]; err == nil && r != nil && r.how == "" && !a.p.misled() {
		o.fail("R12", "%s: token %d was ended by %s, and the head names it yet", name, p.Token, a.p.name)
	}
	return err
}

func (a *actor) raise(ctx context.Context, name string) error {
	o := a.w.oracle
	o.mu.Lock()
	h := o.authorities[name].head
	o.mu.Unlock()
	if h == nil {
		return nil
	}
	to := authority.JumpTo{Sequence: h.Sequence + uint64(a.r.IntN(5))}
	if chance(a.r, 0.5) {
		to.Token = h.Counter + uint64(a.r.IntN(3))
	}
	_, err := authority.Jump(ctx, a.p.Client, name, to)
	a.w.trace.add(a.p.name, "authority %s: jump above %d, %d: %s", name, to.Token, to.Sequence, kind(err))
	o.mu.Lock()
	defer o.mu.Unlock()
	if now := o.authorities[name].head; err == nil && !a.p.misled() && (now.Counter < to.Token || now.Sequence <= to.Sequence) {
		o.fail("R12", "%s: raised to token %d and sequence %d, and it is at %d and %d", name, to.Token, to.Sequence, now.Counter, now.Sequence)
	}
	return err
}
