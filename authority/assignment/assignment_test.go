package assignment_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	tenure "github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/authority"
	"github.com/tenure-project/tenure/authority/assignment"
	"github.com/tenure-project/tenure/authority/internal/chaintest"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// peer is a process that may lead, with its assignments.
type peer struct {
	*chaintest.Process
	c  *assignment.Client
	me assignment.Participant
	p  tenure.Proof
}

func start(w *chaintest.World, node string) *peer {
	w.Helper()
	x := &peer{Process: w.Start(node)}
	x.c = assignment.Open(x.A)
	x.me = assignment.Participant{Node: node, Incarnation: x.Session.Proof().Incarnation}
	return x
}

func lead(w *chaintest.World, node string) *peer {
	w.Helper()
	x := start(w, node)
	x.p = x.Lead()
	return x
}

// seed makes version 1 of six slots.
func (x *peer) seed(owners ...assignment.Participant) {
	x.W.Helper()
	if _, ours, err := x.c.Seed(x.W.Context(), spread(owners...)); err != nil || !ours {
		x.W.Fatalf("seed: %v, %v", ours, err)
	}
}

// spread deals six slots to owners in turn.
func spread(owners ...assignment.Participant) []assignment.Participant {
	var all []assignment.Participant
	for i := range 6 {
		all = append(all, owners[i%len(owners)])
	}
	return all
}

func (x *peer) begin(owners ...assignment.Participant) *assignment.Transition {
	x.W.Helper()
	t, err := x.c.BeginDrain(x.W.Context(), x.p, spread(owners...))
	if err != nil {
		x.W.Fatalf("begin a drain: %v", err)
	}
	return t
}

func (x *peer) commit(t *assignment.Transition, want authority.Answer) assignment.Result {
	x.W.Helper()
	res, err := x.c.CommitDrain(x.W.Context(), x.p, t)
	x.W.Want("commit the drain", res.Result, err, want)
	return res
}

func (x *peer) abort(t *assignment.Transition, want authority.Answer) assignment.Result {
	x.W.Helper()
	res, err := x.c.AbortDrain(x.W.Context(), x.p, t)
	x.W.Want("abort the drain", res.Result, err, want)
	return res
}

// current fails the test unless the current assignment is of version and owners.
func (x *peer) current(version uint64, owners ...assignment.Participant) *assignment.Current {
	x.W.Helper()
	c, err := x.c.Current(x.W.Context())
	if err != nil {
		x.W.Fatalf("current: %v", err)
	}
	want, err := assignment.NewMap(version, spread(owners...))
	if err != nil {
		x.W.Fatal(err)
	}
	if c.Fence.State() != want.Fence().State() {
		x.W.Fatalf("current is version %d of %v, want %d of %v", c.Fence.Version, c.Fence.Participants, version, want.Participants)
	}
	return c
}

func (x *peer) materialize() {
	x.W.Helper()
	if c, err := x.c.Materialize(x.W.Context()); err != nil || !c.Materialized {
		x.W.Fatalf("materialize: %v", err)
	}
}

// Version 1 is made once; every version after it comes through a decision.
//
// SPEC AS
func TestSeed(t *testing.T) {
	chaintest.Run(t, func(w *chaintest.World) {
		ctx := w.Context()
		a, b := lead(w, "a"), start(w, "b")
		if _, err := a.c.Current(ctx); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("before the seed: %v", err)
		}
		a.seed(a.me, b.me)
		m, ours, err := b.c.Seed(ctx, spread(b.me))
		if err != nil || ours || len(m.Participants) != 2 {
			t.Errorf("another seed: %+v, %v, %v", m, ours, err)
		}
		if _, ours, err := a.c.Seed(ctx, spread(a.me, b.me)); err != nil || !ours {
			t.Errorf("the same seed: %v, %v", ours, err)
		}
		if got := a.current(1, a.me, b.me); got.Decision != nil || !got.Materialized {
			t.Errorf("current %+v", got)
		}
		if _, _, err := a.c.Seed(ctx, nil); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("no slots: %v", err)
		}
		a.commit(a.begin(a.me), authority.Created)
		if _, _, err := a.c.Seed(ctx, spread(a.me)); !errors.Is(err, store.ErrConflict) {
			t.Errorf("a seed after a decision: %v", err)
		}
	})
}

// A drain is installed by its commit alone, at its version, and by the leader that
// began it.
//
// SPEC AS LA4
func TestDrain(t *testing.T) {
	chaintest.Run(t, func(w *chaintest.World) {
		ctx := w.Context()
		a, b := lead(w, "a"), start(w, "b")
		a.seed(a.me)
		if tr, err := b.c.Draining(ctx); tr != nil || err != nil {
			t.Errorf("draining nothing: %+v, %v", tr, err)
		}
		tr := a.begin(a.me, b.me)
		found, err := b.c.Draining(ctx)
		if err != nil || found.Target.State() != tr.Target.State() || found.Begun != a.p || found.Predecessor.Version != 1 {
			t.Errorf("participants find %+v, %v", found, err)
		}
		a.current(1, a.me) // begun is not installed
		again := a.begin(a.me, b.me)
		if again.Target.State() != tr.Target.State() {
			t.Error("the same drain again is another one")
		}
		var pending *assignment.PendingError
		if _, err := a.c.BeginDrain(ctx, a.p, spread(b.me)); !errors.As(err, &pending) || !errors.Is(err, store.ErrConflict) || pending.Pending.Begun != a.p {
			t.Errorf("another drain to the same version: %v", err)
		}
		if _, err := b.c.BeginDrain(ctx, a.p, spread(b.me, a.me)); !errors.As(err, new(*assignment.PendingError)) {
			t.Errorf("another one's drain: %v", err)
		}
		res := a.commit(tr, authority.Created)
		if d := res.Decision; d.Kind != assignment.Drain || d.Aborted || d.Begun != a.p || d.Result.Version != 2 {
			t.Errorf("decision %+v", d)
		}
		a.commit(tr, authority.Unchanged)
		if got := a.abort(tr, authority.Conflict); got.Decision.Link != res.Winner {
			t.Errorf("the abort lost to %+v", got.Decision)
		}
		if got := b.current(2, a.me, b.me); got.Materialized {
			t.Error("nobody wrote it down")
		}
		b.materialize()
		if got := a.current(2, a.me, b.me); !got.Materialized || got.Decision.Link != res.Winner {
			t.Errorf("current %+v", got)
		}
		if tr, err := a.c.Draining(ctx); tr != nil || err != nil {
			t.Errorf("still draining %+v, %v", tr, err)
		}
		w.Sound(a.A.Reader())
	})
}

// A later leader cannot commit what it did not begin; it restores the predecessor, at
// the target's version, and the first leader's late commit is refused.
//
// SPEC AS LA2
func TestDrainOfADeadLeader(t *testing.T) {
	chaintest.Run(t, func(w *chaintest.World) {
		ctx := w.Context()
		a := lead(w, "a")
		b := start(w, "b")
		a.seed(a.me, b.me)
		tr := a.begin(b.me)
		a.StepDown()
		b.p = b.Lead()
		found, err := b.c.Draining(ctx)
		if err != nil || found == nil {
			t.Fatalf("the drain that is left: %v", err)
		}
		if now, err := b.A.Reader().Snapshot(ctx); err != nil || now.Leads(found.Begun) {
			t.Errorf("its leader still leads (%v)", err)
		}
		if _, err := b.c.BeginDrain(ctx, b.p, spread(b.me)); !errors.As(err, new(*assignment.PendingError)) {
			t.Errorf("a drain beside it: %v", err)
		}
		if _, err := b.c.CommitDrain(ctx, b.p, found); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("another one's drain was committed: %v", err)
		}
		res := b.abort(found, authority.Created)
		if d := res.Decision; !d.Aborted || d.Begun != a.p || d.Proof != b.p || d.Result.Version != 2 {
			t.Errorf("decision %+v", d)
		}
		a.commit(tr, authority.Conflict)
		b.current(2, a.me, b.me)
		b.materialize()
		b.current(2, a.me, b.me)
		b.commit(b.begin(b.me), authority.Created)
		b.current(3, b.me)
		w.Sound(b.A.Reader())
	})
}

// Restored predecessors are found through any number of aborts that nobody wrote
// down.
//
// SPEC AS
func TestAbortsInARow(t *testing.T) {
	chaintest.Run(t, func(w *chaintest.World) {
		a, b := lead(w, "a"), start(w, "b")
		a.seed(a.me, b.me)
		a.commit(a.begin(b.me, a.me), authority.Created)
		for range 4 {
			a.abort(a.begin(a.me), authority.Created)
		}
		a.current(6, b.me, a.me)
		a.materialize()
		a.current(6, b.me, a.me)
		a.abort(a.begin(a.me), authority.Created)
		a.current(7, b.me, a.me)
	})
}

// What an old leader wrote late is never current: a transition, a staged map, or a map
// at a version that was decided otherwise.
//
// SPEC AS
func TestLateWritesWinNothing(t *testing.T) {
	chaintest.Run(t, func(w *chaintest.World) {
		ctx := w.Context()
		a, b := lead(w, "a"), start(w, "b")
		a.seed(a.me, b.me)
		drainKey := a.A.Kit().Key("drain", "0000000000000002")
		a.begin(b.me)
		late, err := w.Store.Get(ctx, drainKey, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		w.Damage(drainKey, nil) // it has not arrived yet
		a.StepDown()
		b.p = b.Lead()
		b.commit(b.begin(b.me, a.me), authority.Created)
		w.Damage(drainKey, late.Body)
		b.current(2, b.me, a.me)
		if tr, err := b.c.Draining(ctx); tr != nil || err != nil {
			t.Errorf("draining %+v, %v", tr, err)
		}
		other, err := assignment.NewMap(2, spread(b.me))
		if err != nil {
			t.Fatal(err)
		}
		body, err := other.Encode()
		if err != nil {
			t.Fatal(err)
		}
		w.Put(a.A.Kit().Key("assignment", "0000000000000002"), body)
		if got, err := b.c.Current(ctx); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("a map that was not decided on is current: %+v, %v", got, err)
		}
	})
}

// The number of slots never changes, nor is a stale leader's drain begun.
//
// SPEC AS
func TestBadDrains(t *testing.T) {
	chaintest.Run(t, func(w *chaintest.World) {
		ctx := w.Context()
		a, b := lead(w, "a"), start(w, "b")
		a.seed(a.me, b.me)
		if _, err := a.c.BeginDrain(ctx, a.p, []assignment.Participant{a.me}); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("another number of slots: %v", err)
		}
		if _, err := a.c.Stage(ctx, slices.Repeat([]assignment.Participant{a.me}, 7)); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("another number of slots staged: %v", err)
		}
		stale := a.stage(b.me)
		a.StepDown()
		b.p = b.Lead()
		if _, err := a.c.BeginDrain(ctx, a.p, spread(a.me)); !errors.Is(err, authority.ErrFenced) {
			t.Errorf("a stale leader: %v", err)
		}
		b.commit(b.begin(b.me, a.me), authority.Created)
		if _, err := b.c.Recover(ctx, b.p, stale); err == nil {
			t.Error("a proposal for a version that was decided on was taken")
		}
	})
}

// Old versions are given up, never the current one, and a store without the right to
// delete costs space only.
//
// SPEC AS LA8
func TestPrune(t *testing.T) {
	chaintest.Run(t, func(w *chaintest.World) {
		ctx := w.Context()
		a, b := lead(w, "a"), start(w, "b")
		a.seed(a.me, b.me)
		for i := range 5 {
			tr := a.begin(spread(a.me, b.me)[i%2:]...)
			a.commit(tr, authority.Created)
			a.materialize()
		}
		a.stage(b.me) // for version 7
		if _, err := a.c.Prune(ctx, a.p, 7); !errors.Is(err, store.ErrConflict) {
			t.Errorf("above the current version: %v", err)
		}
		a.Link.Add(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpDelete}, Times: 1, Fault: faultstore.Fail(store.ErrDenied)})
		got, err := a.c.Prune(ctx, a.p, 5)
		if err == nil || got.Failed != 1 || got.Floor != 5 {
			t.Errorf("prune: %+v, %v", got, err)
		}
		more, err := a.c.Prune(ctx, a.p, 5)
		if err != nil || more.Removed != 1 || more.More {
			t.Errorf("again: %+v, %v", more, err)
		}
		for kind, want := range map[string]int{"assignment": 2, "drain": 2, "proposal": 3} {
			if n := len(w.Keys(a.A, kind)); n != want {
				t.Errorf("%d objects of kind %s are left, want %d", n, kind, want)
			}
		}
		c := a.current(6, a.me, b.me)
		if !c.Materialized {
			t.Error("the current version is not written down")
		}
		a.commit(a.begin(b.me), authority.Created)
		a.current(7, b.me)
		w.Sound(a.A.Reader())
	})
}

// Lost replies and failing writes at every step of a drain converge.
//
// SPEC AS LA4
func TestDrainThroughFaults(t *testing.T) {
	faults := map[string]faultstore.Fault{
		"lost reply": faultstore.LoseReply(), "lost request": faultstore.LoseRequest(),
		"refused": faultstore.Fail(store.ErrUnavailable), "twice": faultstore.Duplicate(0, chaintest.TTL/4),
	}
	for name, f := range faults {
		for skip := range 5 { // proposal, transition, entry, head, map
			t.Run(fmt.Sprintf("%s at write %d", name, skip), func(t *testing.T) {
				chaintest.Run(t, func(w *chaintest.World) {
					a, b := lead(w, "a"), start(w, "b")
					a.seed(a.me)
					a.Link.Add(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpCreate, faultstore.OpReplace}, Skip: skip, Times: 1, Fault: f})
					tr := a.begin(b.me, a.me)
					res, err := a.c.CommitDrain(w.Context(), a.p, tr)
					for range 3 {
						if err == nil {
							break
						}
						res, err = a.c.CommitDrain(w.Context(), a.p, tr)
					}
					if err != nil || !res.Stands() {
						t.Fatalf("commit: %v, %v", res.Answer, err)
					}
					a.materialize()
					a.current(2, b.me, a.me)
					if len(a.Link.Fired()) != 1 {
						t.Errorf("faults %v", a.Link.Fired())
					}
					w.Sound(a.A.Reader())
				})
			})
		}
	}
}

// A process that does not lead removes only what is below the floor, and nothing while
// the current map stands nowhere but in what came before.
//
// SPEC AS LA8
func TestOutsiderPrunes(t *testing.T) {
	chaintest.Run(t, func(w *chaintest.World) {
		ctx := w.Context()
		a, b := lead(w, "a"), start(w, "b")
		a.seed(a.me, b.me)
		a.commit(a.begin(b.me, a.me), authority.Created)
		if got, err := assignment.Read(b.A.Reader()).Prune(ctx); err != nil || got.Removed != 0 {
			t.Errorf("without a floor: %+v, %v", got, err)
		}
		a.abort(a.begin(a.me), authority.Created) // version 3 is version 2's map
		if _, err := a.A.Advance(ctx, a.p, authority.Assignment, 3, 0, nil); err != nil {
			t.Fatal(err)
		}
		if got, err := b.c.Reader.Prune(ctx); err != nil || got != (assignment.Pruned{Floor: 3}) {
			t.Errorf("before the map is written down: %+v, %v", got, err)
		}
		b.current(3, b.me, a.me)
		a.materialize()
		got, err := b.c.Reader.Prune(ctx)
		if err != nil || got != (assignment.Pruned{Floor: 3, Removed: 3}) { // maps 1, proposals 2, drains 2
			t.Errorf("after it: %+v, %v", got, err)
		}
		b.current(3, b.me, a.me)
	})
}

// A staged map or a transition that was replaced by another one is corrupt, never
// current.
//
// SPEC AS LA5
func TestDamagedObjects(t *testing.T) {
	chaintest.Run(t, func(w *chaintest.World) {
		ctx := w.Context()
		a, b := lead(w, "a"), start(w, "b")
		a.seed(a.me, b.me)
		tr := a.begin(b.me, a.me)
		drain := a.A.Kit().Key("drain", "0000000000000002")
		o, err := w.Store.Get(ctx, drain, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		other := strings.Replace(string(o.Body), tr.Predecessor.Digest, tr.Target.Digest, 1)
		for what, body := range map[string]string{"of another predecessor": other, "no transition": "{}"} {
			w.Damage(drain, []byte(body))
			if got, err := b.c.Draining(ctx); !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("a transition that is %s: %+v, %v", what, got, err)
			}
		}
		a.commit(tr, authority.Created)
		proposal := w.Keys(a.A, "proposal")[0]
		m, err := assignment.NewMap(2, spread(b.me))
		if err != nil {
			t.Fatal(err)
		}
		body, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		w.Damage(proposal, body)
		if got, err := b.c.Current(ctx); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("another staged map: %+v, %v", got, err)
		}
		if got, err := a.c.Materialize(ctx); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("another staged map was written down: %+v, %v", got, err)
		}
		w.Damage(proposal, nil)
		if got, err := b.c.Current(ctx); !errors.Is(err, store.ErrCorrupt) || errors.Is(err, store.ErrNotFound) {
			t.Errorf("a staged map that is gone: %+v, %v", got, err)
		}
	})
}
