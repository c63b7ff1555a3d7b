package world

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/authority"
	"github.com/tenure-project/tenure/authority/assignment"
	"github.com/tenure-project/tenure/authority/catalog"
	"github.com/tenure-project/tenure/authority/checkpoint"
	core "github.com/tenure-project/tenure/internal/core/authority"
	coreassignment "github.com/tenure-project/tenure/internal/core/authority/assignment"
	corecatalog "github.com/tenure-project/tenure/internal/core/authority/catalog"
	corecheckpoint "github.com/tenure-project/tenure/internal/core/authority/checkpoint"
	corerecovery "github.com/tenure-project/tenure/internal/core/authority/recovery"
	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/store"
)

// settledSlots is how many slots the assignments of a world have.
const settledSlots = 6

// newFence names some assignment, under which checkpoints are settled.
func newFence(version uint64) *assignment.Fence {
	return &assignment.Fence{
		Version: version + 1, Slots: 1, Digest: core.DigestOf("map", nil),
		Participants: []assignment.Participant{{Node: "n1", Incarnation: Deployment}},
	}
}

// settle commits or aborts a checkpoint: mostly the next one, sometimes one that
// others settled, or that is long over.
func (a *actor) settle(ctx context.Context, x *Authority, p tenure.Proof) error {
	at := a.nextAttempt(x)
	fence := newFence(a.r.Uint64N(1 << 40)) // nobody decides the same twice
	o := &corecheckpoint.Outcome{Verdict: corecheckpoint.Abort, Attempt: at, Deployment: Deployment, Fence: fence}
	decide := func() (checkpoint.Result, error) { return x.Checkpoints.Abort(ctx, p, at, fence) }
	if chance(a.r, 0.5) {
		data := []byte(fmt.Sprint(a.p.name, " ", a.r.Uint64()))
		made := corecheckpoint.Capsule{V: 1, Attempt: at, Deployment: Deployment, Fence: fence, Data: data}
		body, err := made.Encode()
		if err != nil {
			return err
		}
		o = corecheckpoint.NewCommit(&made, Deployment, body)
		decide = func() (checkpoint.Result, error) {
			return x.Checkpoints.Commit(ctx, p, checkpoint.Capsule{Attempt: at, Fence: fence, Data: data})
		}
	}
	for range 1 + a.r.IntN(5)/4 {
		d := x.deciding(core.Checkpoint, say(o), p)
		res, err := decide()
		x.answered(d, res.Result, err)
		if err != nil && !errors.Is(err, tenure.ErrUnknown) {
			return err
		}
	}
	return nil
}

// nextAttempt is what the deployment settles next, or an epoch that is over.
func (a *actor) nextAttempt(x *Authority) checkpoint.Attempt {
	o := a.w.oracle
	o.mu.Lock()
	defer o.mu.Unlock()
	at := x.state().after()
	if chance(a.r, 0.15) {
		at.Epoch = max(1, at.Epoch-min(at.Epoch, uint64(a.r.IntN(30))))
	}
	at.Epoch, at.Checkpoint = at.Epoch+uint64(a.r.IntN(2)), at.Checkpoint+uint64(a.r.IntN(3))
	return at
}

// after is the first attempt after all that was settled. Under mu.
func (as *authorityState) after() checkpoint.Attempt {
	last := as.chains[core.Checkpoint].last()
	if last == nil {
		return checkpoint.Attempt{Epoch: 1, Checkpoint: 1}
	}
	return checkpoint.Attempt{Epoch: last.link.Key + 1, Checkpoint: last.link.ID + 1}
}

// seal seals the catalog, or another one.
func (a *actor) seal(ctx context.Context, x *Authority, p tenure.Proof) error {
	text := fmt.Sprint("catalog ", a.r.IntN(2))
	if a.w.Plan.Seed%3 == 0 {
		text = strings.Repeat(text, 8<<10) // a blob of its own
	}
	definitions := []catalog.Definition{{Name: "t", Text: text}}
	d := x.deciding(core.Catalog, say(&corecatalog.Manifest{V: 1, Definitions: definitions}), p)
	res, err := catalog.Seal(ctx, x.Authority, p, definitions)
	x.answered(d, res.Result, err)
	return err
}

// recover begins a round, lets some time pass, and releases it, or an older one.
func (a *actor) recover(ctx context.Context, x *Authority, p tenure.Proof) error {
	began := time.Now()
	round, err := x.Recoveries.Begin(ctx, p, []byte("plan"))
	a.w.trace.add(a.p.name, "authority %s: begins a round: %s", x.Name(), kind(err))
	if err == nil {
		a.began(x, round, p, began)
	} else if !errors.Is(err, authority.ErrFenced) && !errors.Is(err, authority.ErrInventoryChanged) {
		return err
	}
	x.mu.Lock()
	if err == nil {
		x.rounds = append(x.rounds, round)
	}
	if n := len(x.rounds); n > 0 && chance(a.r, 0.2) {
		round, err = x.rounds[a.r.IntN(n)], nil
	}
	x.mu.Unlock()
	if err != nil {
		return nil
	}
	a.p.Sleep(ctx, about(a.r, a.ttl()/20))
	stopped := a.stopped(x)
	for range 1 + a.r.IntN(5)/4 {
		d := x.deciding(core.Recovery, say(corerecovery.NewRelease(&core.Round{
			Generation: round.Generation, ID: round.ID, Revision: round.Revision, Plan: round.Plan,
		}, stopped)), p)
		var res authority.Result
		res, err = x.Recoveries.Release(ctx, p, round, stopped)
		x.answered(d, res, err)
	}
	if errors.Is(err, authority.ErrInventoryChanged) {
		a.w.oracle.count("inventory changed")
		return nil
	}
	return err
}

// began judges that a round which somebody was told to have begun was (R32).
func (a *actor) began(x *Authority, r authority.Round, p tenure.Proof, since time.Time) {
	o := a.w.oracle
	o.mu.Lock()
	defer o.mu.Unlock()
	if a.p.misled() || a.p.crashed.Load() {
		return
	}
	if !x.state().since(since, func(h *core.Head) bool {
		return h.Round != nil && h.Round.ID == r.ID && h.Round.Revision == r.Revision && h.Round.Proof == core.Proof(p)
	}) {
		o.fail("R32", "%s: %s was told that it began round %d, and the head never showed it", x.Name(), a.p.name, r.Generation)
	}
}

// stopped are some of the processes whose faults are active, and one that has none.
func (a *actor) stopped(x *Authority) (all []assignment.Participant) {
	o := a.w.oracle
	o.mu.Lock()
	h := x.state().head
	o.mu.Unlock()
	for _, f := range h.Slots {
		if chance(a.r, 0.7) {
			all = append(all, assignment.Participant{Node: f.Node, Incarnation: f.Incarnation})
		}
	}
	if chance(a.r, 0.2) {
		all = append(all, assignment.Participant{Node: "zz", Incarnation: Deployment})
	}
	return all
}

// assign moves slots: it seeds, drains, commits, aborts, replaces the dead, writes
// down and gives up.
func (a *actor) assign(ctx context.Context, x *Authority, p tenure.Proof) error {
	cur, err := a.current(ctx, x)
	if errors.Is(err, store.ErrNotFound) {
		_, _, err = x.Assignments.Seed(ctx, a.owners(x))
		if errors.Is(err, store.ErrConflict) {
			return nil
		}
	}
	if err != nil || cur == nil {
		return err
	}
	switch n := a.r.IntN(10); {
	case n < 5:
		err = a.drain(ctx, x, p)
	case n < 8:
		err = a.replace(ctx, x, p, cur)
	case n < 9:
		_, err = x.Assignments.Materialize(ctx)
	default:
		_, err = x.Assignments.Prune(ctx, p, cur.Fence.Version-min(cur.Fence.Version-1, uint64(a.r.IntN(3))))
	}
	if errors.Is(err, authority.ErrFenced) || errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrNotFound) {
		return nil // somebody else was faster
	}
	return err
}

// owners are some process starts, for each slot one.
func (a *actor) owners(x *Authority) (owners []assignment.Participant) {
	o := a.w.oracle
	o.mu.Lock()
	defer o.mu.Unlock()
	me := x.s.Proof()
	all := []assignment.Participant{{Node: me.Node, Incarnation: me.Incarnation}}
	for _, name := range o.w.Plan.NodeNames() {
		if r := o.nodes[name].rec; r != nil && r.Held() && name != me.Node && r.Revoker == nil {
			all = append(all, assignment.Participant{Node: name, Incarnation: r.Incarnation})
		}
	}
	for range settledSlots {
		owners = append(owners, all[a.r.IntN(len(all))])
	}
	return owners
}

// drain begins to move slots to others, or goes on with what was begun, and decides.
func (a *actor) drain(ctx context.Context, x *Authority, p tenure.Proof) error {
	t, err := x.Assignments.BeginDrain(ctx, p, a.owners(x))
	if pending := new(assignment.PendingError); errors.As(err, &pending) {
		a.w.oracle.count("drains found")
		t, err = pending.Pending, nil
	}
	if err != nil || chance(a.r, 0.2) {
		return err
	}
	a.p.Sleep(ctx, about(a.r, a.ttl()/40))
	verdict, decide := coreassignment.Abort, x.Assignments.AbortDrain
	if t.Begun == p && chance(a.r, 0.7) {
		verdict, decide = coreassignment.Commit, x.Assignments.CommitDrain
	}
	d := x.deciding(core.Assignment, say(&coreassignment.Decision{
		Kind: coreassignment.Drain, Verdict: verdict, Predecessor: t.Predecessor, Target: t.Target,
	}), p)
	res, err := decide(ctx, p, t)
	x.answered(d, res.Result, err)
	return err
}

// replace replaces those participants that are over, each with its certificate.
func (a *actor) replace(ctx context.Context, x *Authority, p tenure.Proof, cur *assignment.Current) error {
	var certificates [][]byte
	fresh := a.owners(x)
	owners := make([]assignment.Participant, settledSlots)
	for i := range owners {
		owners[i], _ = cur.Map.Owner(i)
	}
	for _, gone := range cur.Fence.Participants {
		if !a.isOver(gone) {
			continue
		}
		c, err := a.p.Client.FenceIncarnation(ctx, gone.Node, gone.Incarnation, a.ttl())
		if err != nil {
			return ignore(err, tenure.ErrMissingEvidence, tenure.ErrAlive, tenure.ErrHeld)
		}
		certificates = append(certificates, c.Body)
		for i := range owners {
			if owners[i] == gone || owners[i].Node == gone.Node {
				owners[i] = fresh[i]
			}
		}
	}
	if len(certificates) == 0 {
		return nil
	}
	proposal, err := x.Assignments.Stage(ctx, owners)
	if err != nil {
		return ignore(err, store.ErrInvalid) // a node with two starts in one map
	}
	if proposal.Map.Version != cur.Fence.Version+1 {
		return nil // somebody else was faster, and may have replaced them
	}
	d := x.deciding(core.Assignment, say(&coreassignment.Decision{
		Kind: coreassignment.Replace, Predecessor: cur.Fence, Target: proposal.Map.Fence(),
	}), p)
	res, err := x.Assignments.Recover(ctx, p, proposal, certificates...)
	x.answered(d, res.Result, err)
	return ignore(err, tenure.ErrMissingEvidence)
}

// isOver reports whether a participant's start is over, as a person knows it.
func (a *actor) isOver(g assignment.Participant) bool {
	o := a.w.oracle
	o.mu.Lock()
	defer o.mu.Unlock()
	ns := o.nodes[g.Node]
	return ns != nil && ns.starts[g.Incarnation] != nil && ns.starts[g.Incarnation].how != "" && ns.starts[g.Incarnation].how != lease.HowForced
}

// ignore is err unless it is of one of the kinds.
func ignore(err error, kinds ...error) error {
	for _, k := range kinds {
		if errors.Is(err, k) {
			return nil
		}
	}
	return err
}

// advance moves a bound up, and judges that it is there (R30).
func (a *actor) advance(ctx context.Context, x *Authority, p tenure.Proof) error {
	chain := []string{core.Checkpoint, core.Recovery, core.Checkpoint}[a.r.IntN(3)]
	o := a.w.oracle
	o.mu.Lock()
	last, mark := x.state().chains[chain].last(), x.state().chains[core.Checkpoint].mark()
	o.mu.Unlock()
	if last == nil {
		return nil
	}
	floor, horizon := last.link.Key-min(last.link.Key-1, uint64(a.r.IntN(8))), uint64(0)
	var err error
	switch {
	case chain == core.Checkpoint && chance(a.r, 0.6):
		if mark == nil {
			return nil
		}
		floor, horizon = 0, mark.Key-min(mark.Key-1, uint64(a.r.IntN(5)))
		_, err = x.Checkpoints.Advance(ctx, p, horizon, func(context.Context, *checkpoint.Outcome, *checkpoint.Capsule) error { return nil })
	default:
		_, err = x.Advance(ctx, p, chain, floor, 0, nil)
	}
	a.w.trace.add(a.p.name, "authority %s: advance %s to %d, horizon %d: %s", x.Name(), chain, floor, horizon, kind(err))
	o.mu.Lock()
	defer o.mu.Unlock()
	if c := x.state().chains[chain]; err == nil && !a.p.misled() && (c.floor < floor || c.horizon < horizon) {
		o.fail("R30", "%s: %s was told that chain %s was advanced to %d and %d, and it is at %d and %d", x.Name(), a.p.name, chain, floor, horizon, c.floor, c.horizon)
	}
	return ignore(err, authority.ErrFenced, store.ErrConflict, store.ErrNotFound)
}

// clean removes what is no longer needed, as anybody may.
func (a *actor) clean(ctx context.Context, x *Authority) (err error) {
	switch a.r.IntN(5) {
	case 0:
		_, err = x.Prune(ctx)
	case 1:
		_, err = authority.Prune(ctx, a.p.Client, x.Name())
	case 2:
		_, err = x.Checkpoints.Sweep(ctx)
	case 3:
		_, err = checkpoint.Read(x.Reader()).Sweep(ctx)
	default:
		_, err = assignment.Read(x.Reader()).Prune(ctx)
	}
	if store.KindOf(err) != store.ErrCorrupt {
		err = ignore(err, store.ErrNotFound, store.ErrConflict)
	}
	return err
}
