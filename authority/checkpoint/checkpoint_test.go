package checkpoint_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.uber.org/goleak"

	tenure "github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/authority"
	"github.com/tenure-project/tenure/authority/assignment"
	"github.com/tenure-project/tenure/authority/checkpoint"
	"github.com/tenure-project/tenure/authority/internal/chaintest"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const idA, idB = "aaaaaaaa-1111-4111-8111-111111111111", "bbbbbbbb-2222-4222-8222-222222222222"

// fenceOf is an assignment of 4 slots to two processes.
func fenceOf(w *chaintest.World, version uint64) *assignment.Fence {
	a, b := assignment.Participant{Node: "a", Incarnation: idA}, assignment.Participant{Node: "b", Incarnation: idB}
	m, err := assignment.NewMap(version, []assignment.Participant{a, b, a, b})
	if err != nil {
		w.Fatal(err)
	}
	return m.Fence()
}

// leading is a process that leads, with its checkpoints.
type leading struct {
	*chaintest.Process
	c     *checkpoint.Client
	p     tenure.Proof
	fence *assignment.Fence
}

func lead(w *chaintest.World, node, deployment string) *leading {
	w.Helper()
	l := &leading{Process: w.Start(node), fence: fenceOf(w, 7)}
	c, err := checkpoint.Open(l.A, deployment)
	if err != nil {
		w.Fatal(err)
	}
	l.c, l.p = c, l.Lead()
	return l
}

func (l *leading) capsule(epoch uint64) checkpoint.Capsule {
	return checkpoint.Capsule{Attempt: attempt(epoch), Fence: l.fence, Data: fmt.Appendf(nil, "state of %d", epoch)}
}

func attempt(epoch uint64) checkpoint.Attempt {
	return checkpoint.Attempt{Epoch: epoch, Checkpoint: 10 * epoch}
}

func (l *leading) commit(epoch uint64, want authority.Answer) *checkpoint.Outcome {
	l.W.Helper()
	res, err := l.c.Commit(l.W.Context(), l.p, l.capsule(epoch))
	l.W.Want(fmt.Sprint("commit ", epoch), res.Result, err, want)
	return res.Outcome
}

func (l *leading) abort(epoch uint64, want authority.Answer) *checkpoint.Outcome {
	l.W.Helper()
	res, err := l.c.Abort(l.W.Context(), l.p, attempt(epoch), l.fence)
	l.W.Want(fmt.Sprint("abort ", epoch), res.Result, err, want)
	return res.Outcome
}

func (l *leading) history() *checkpoint.History {
	l.W.Helper()
	h, err := l.c.History(l.W.Context())
	if err != nil {
		l.W.Fatalf("history: %v", err)
	}
	return h
}

func accept(context.Context, *checkpoint.Outcome, *checkpoint.Capsule) error { return nil }

func (l *leading) advance(epoch uint64) {
	l.W.Helper()
	if changed, err := l.c.Advance(l.W.Context(), l.p, epoch, accept); err != nil || !changed {
		l.W.Fatalf("advance to %d: %v, %v", epoch, changed, err)
	}
}

// One outcome settles an attempt for good: the same again is unchanged, anything else
// a conflict with the winner, also by a later leader and for any lower checkpoint id.
//
// SPEC CK LA4
func TestOneOutcomeOfAnEpoch(t *testing.T) {
	chaintest.Run(t, func(w *chaintest.World) {
		ctx := w.Context()
		a := lead(w, "a", chaintest.Deployment)
		first := a.commit(1, authority.Created)
		if first.Verdict != checkpoint.Committed || first.Deployment != chaintest.Deployment || first.Proof != a.p || first.Attempt != attempt(1) {
			t.Errorf("created %+v", first)
		}
		if again := a.commit(1, authority.Unchanged); again.Link != first.Link {
			t.Errorf("the same again has the link %+v", again.Link)
		}
		a.abort(1, authority.Conflict)
		other := a.capsule(1)
		other.Data = []byte("state of X") // as long as the first
		res, err := a.c.Commit(ctx, a.p, other)
		w.Want("another capsule", res.Result, err, authority.Conflict)
		if res.Outcome.Link != first.Link {
			t.Errorf("the conflict shows %+v", res.Outcome)
		}
		a.abort(3, authority.Created)
		a.abort(3, authority.Unchanged)
		a.commit(2, authority.Conflict) // settled by a higher one
		low := a.capsule(4)
		low.Checkpoint = 30
		res, err = a.c.Commit(ctx, a.p, low)
		w.Want("a checkpoint id that was passed", res.Result, err, authority.Conflict)

		a.StepDown()
		b := lead(w, "b", chaintest.Deployment)
		if got := b.commit(1, authority.Conflict); got.Proof != a.p {
			t.Errorf("decided by %+v", got.Proof)
		}
		if got := a.commit(1, authority.Unchanged); got.Link != first.Link {
			t.Errorf("the stale leader is shown %+v", got)
		}
		a.commit(5, authority.Fenced)
		b.commit(5, authority.Created)
		w.Sound(b.A.Reader())
	})
}

// Outcomes of another deployment are a conflict, and a client without a deployment
// does not exist.
//
// SPEC CK
func TestDeployments(t *testing.T) {
	chaintest.Run(t, func(w *chaintest.World) {
		a := lead(w, "a", chaintest.Deployment)
		a.commit(1, authority.Created)
		var err error
		if a.c, err = checkpoint.Open(a.A, chaintest.Rebuilt); err != nil {
			t.Fatal(err)
		}
		if got := a.commit(2, authority.Conflict); got.Deployment != chaintest.Deployment {
			t.Errorf("the conflict shows %+v", got)
		}
		a.abort(3, authority.Conflict)
		if _, err := checkpoint.Open(a.A, "prod"); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("a deployment that is no id: %v", err)
		}
	})
}

// What is out of bounds is refused before anything is written.
//
// SPEC CK
func TestBadOutcomes(t *testing.T) {
	chaintest.Run(t, func(w *chaintest.World) {
		ctx := w.Context()
		a := lead(w, "a", chaintest.Deployment)
		bad := map[string]func(c *checkpoint.Capsule){
			"epoch 0":      func(c *checkpoint.Capsule) { c.Epoch = 0 },
			"checkpoint 0": func(c *checkpoint.Capsule) { c.Checkpoint = 0 },
			"no fence":     func(c *checkpoint.Capsule) { c.Fence = nil },
			"too large":    func(c *checkpoint.Capsule) { c.Data = make([]byte, checkpoint.MaxData+1) },
			"unsorted": func(c *checkpoint.Capsule) {
				f := *c.Fence
				f.Participants = []assignment.Participant{f.Participants[1], f.Participants[0]}
				c.Fence = &f
			},
		}
		for what, spoil := range bad {
			c := a.capsule(1)
			spoil(&c)
			if _, err := a.c.Commit(ctx, a.p, c); !errors.Is(err, store.ErrInvalid) {
				t.Errorf("commit with %s: %v", what, err)
			}
		}
		if _, err := a.c.Abort(ctx, a.p, checkpoint.Attempt{Epoch: 1}, a.fence); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("abort of checkpoint 0: %v", err)
		}
		if n := len(w.Keys(a.A, "capsule")) + len(w.Keys(a.A, "entry")); n != 0 {
			t.Errorf("%d objects were written", n)
		}
		largest := a.capsule(1)
		largest.Data = bytes.Repeat([]byte{250}, checkpoint.MaxData)
		res, err := a.c.Commit(ctx, a.p, largest)
		w.Want("the largest capsule", res.Result, err, authority.Created)
		if got, err := a.c.Capsule(ctx, res.Outcome); err != nil || !bytes.Equal(got.Data, largest.Data) {
			t.Errorf("read back: %v", err)
		}
	})
}

// A capsule is returned only with exactly the bytes that were committed.
//
// SPEC CK LA4
func TestCapsule(t *testing.T) {
	chaintest.Run(t, func(w *chaintest.World) {
		ctx := w.Context()
		a := lead(w, "a", chaintest.Deployment)
		one, two := a.commit(1, authority.Created), a.commit(2, authority.Created)
		three := a.abort(3, authority.Created)
		c, err := a.c.Capsule(ctx, one)
		if err != nil || string(c.Data) != "state of 1" || c.Attempt != attempt(1) || c.Fence.State() != a.fence.State() {
			t.Fatalf("capsule %+v, %v", c, err)
		}
		if _, err := a.c.Capsule(ctx, three); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("an abort's capsule: %v", err)
		}
		keys := w.Keys(a.A, "capsule")
		if len(keys) != 2 {
			t.Fatalf("capsules %v", keys)
		}
		other, err := w.Store.Get(ctx, keys[1], 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		for what, body := range map[string][]byte{"another's": other.Body, "no capsule": []byte("{}")} {
			w.Damage(keys[0], body)
			if got, err := a.c.Capsule(ctx, one); !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("%s bytes: %+v, %v", what, got, err)
			}
		}
		w.Damage(keys[0], nil)
		if _, err := a.c.Capsule(ctx, one); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("a missing capsule: %v", err)
		}
		if _, err := a.c.Capsule(ctx, two); err != nil {
			t.Error(err)
		}
	})
}

// The queries agree with each other, and say what they do not know.
//
// SPEC CK
func TestQueries(t *testing.T) {
	chaintest.Run(t, func(w *chaintest.World) {
		ctx := w.Context()
		a := lead(w, "a", chaintest.Deployment)
		empty := a.history()
		if empty.HighestTerminal() != nil || empty.HighestCommit() != nil || len(empty.Inventory()) != 0 || empty.Settlement(attempt(1)) != nil {
			t.Error("an empty history shows something")
		}
		top, mark, err := a.c.Newest(ctx)
		if top != nil || mark != nil || err != nil {
			t.Errorf("newest of none: %v, %v, %v", top, mark, err)
		}
		a.commit(1, authority.Created)
		a.abort(2, authority.Created)
		a.commit(5, authority.Created)
		a.abort(7, authority.Created)
		h := a.history()
		var epochs []uint64
		for _, o := range h.Inventory() {
			epochs = append(epochs, o.Epoch)
		}
		if fmt.Sprint(epochs) != "[1 2 5 7]" || h.HighestCommit().Epoch != 5 || h.HighestTerminal().Epoch != 7 {
			t.Errorf("inventory %v, commit %d, terminal %d", epochs, h.HighestCommit().Epoch, h.HighestTerminal().Epoch)
		}
		top, mark, err = a.c.Newest(ctx)
		if err != nil || top.Epoch != 7 || mark.Epoch != 5 {
			t.Errorf("newest %+v, %+v, %v", top, mark, err)
		}
		for epoch, want := range map[uint64]checkpoint.Verdict{1: checkpoint.Committed, 2: checkpoint.Aborted, 3: "", 7: checkpoint.Aborted, 8: ""} {
			o, known := h.Outcome(epoch)
			if !known || (o == nil) != (want == "") || o != nil && o.Verdict != want {
				t.Errorf("epoch %d: %+v, %v", epoch, o, known)
			}
		}
		for _, x := range []struct {
			a    checkpoint.Attempt
			want uint64 // 0: open
		}{{attempt(1), 1}, {attempt(3), 7}, {attempt(8), 0}, {checkpoint.Attempt{Epoch: 9, Checkpoint: 20}, 7}} {
			s := h.Settlement(x.a)
			if (s == nil) != (x.want == 0) || s != nil && s.Epoch != x.want {
				t.Errorf("%+v is settled by %+v", x.a, s)
			}
		}
	})
}

// The history of outcomes compacts itself; commits stay, are found at once, and keep
// their capsules; what was given up is not known, never absent.
//
// SPEC CK LA8
func TestCompaction(t *testing.T) {
	chaintest.Run(t, func(w *chaintest.World) {
		ctx := w.Context()
		a := lead(w, "a", chaintest.Deployment)
		one := a.commit(1, authority.Created)
		for epoch := uint64(2); epoch <= 3*checkpoint.CompactAt; epoch++ {
			a.abort(epoch, authority.Created)
		}
		s, err := a.A.Reader().Snapshot(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if c, _ := s.Chain(authority.Checkpoint); c.Live > checkpoint.CompactAt || c.Floor == 0 || c.Horizon != 0 {
			t.Errorf("the chain is %+v", c)
		}
		h := a.history()
		if got := h.HighestCommit(); got == nil || got.Link != one.Link {
			t.Errorf("highest commit %+v", got)
		}
		b := h.Boundary()
		if b.Floor == 0 || b.Horizon != 0 || b.Anchor == nil || b.Anchor.Epoch != b.Floor-1 || b.CommitAnchor != nil {
			t.Errorf("boundary %+v", b)
		}
		if o, known := h.Outcome(2); o != nil || known {
			t.Errorf("a compacted abort: %+v, %v", o, known)
		}
		if o, known := h.Outcome(1); o == nil || !known {
			t.Errorf("the commit below the floor: %+v, %v", o, known)
		}
		a.abort(2, authority.BelowFloor)
		if _, err := a.c.Capsule(ctx, one); err != nil {
			t.Errorf("its capsule: %v", err)
		}
		w.Sound(a.A.Reader())
	})
}

// The horizon moves only over a commit that remains, whose capsule and artifacts were
// accepted, and not past it.
//
// SPEC CK
func TestHorizon(t *testing.T) {
	chaintest.Run(t, func(w *chaintest.World) {
		ctx := w.Context()
		a := lead(w, "a", chaintest.Deployment)
		for epoch := uint64(1); epoch <= 4; epoch++ {
			a.commit(epoch, authority.Created)
		}
		a.abort(5, authority.Created)
		if _, err := a.c.Advance(ctx, a.p, 5, accept); !errors.Is(err, store.ErrConflict) {
			t.Errorf("past the last commit: %v", err)
		}
		if _, err := a.c.Advance(ctx, a.p, 3, nil); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("without a check: %v", err)
		}
		refused := errors.New("an artifact is missing")
		_, err := a.c.Advance(ctx, a.p, 3, func(_ context.Context, o *checkpoint.Outcome, c *checkpoint.Capsule) error {
			if o.Epoch != 4 || string(c.Data) != "state of 4" {
				t.Errorf("the check is shown %+v, %q", o, c.Data)
			}
			return refused
		})
		if !errors.Is(err, refused) || a.history().Boundary().Horizon != 0 {
			t.Errorf("a check that refuses: %v", err)
		}
		// Another outcome comes while the artifacts are checked.
		_, err = a.c.Advance(ctx, a.p, 3, func(context.Context, *checkpoint.Outcome, *checkpoint.Capsule) error {
			a.commit(6, authority.Created)
			return nil
		})
		if !errors.Is(err, store.ErrConflict) || a.history().Boundary().Horizon != 0 {
			t.Errorf("a history that changed: %v", err)
		}
		a.advance(3)
		if changed, err := a.c.Advance(ctx, a.p, 2, accept); changed || err != nil {
			t.Errorf("down again: %v, %v", changed, err)
		}
		b := a.history().Boundary()
		if b.Horizon != 3 || b.CommitAnchor == nil || b.CommitAnchor.Epoch != 2 {
			t.Errorf("boundary %+v", b)
		}
		if got := a.history().HighestCommit(); got.Epoch != 6 {
			t.Errorf("highest commit %d", got.Epoch)
		}
		a.StepDown()
		next := lead(w, "b", chaintest.Deployment)
		if _, err := a.c.Advance(ctx, a.p, 4, accept); !errors.Is(err, authority.ErrFenced) {
			t.Errorf("a stale leader: %v", err)
		}
		next.advance(4)
		w.Sound(next.A.Reader())
	})
}

// A commit whose capsule is damaged holds the horizon where it is.
//
// SPEC CK
func TestHorizonNeedsTheCapsule(t *testing.T) {
	chaintest.Run(t, func(w *chaintest.World) {
		a := lead(w, "a", chaintest.Deployment)
		a.commit(1, authority.Created)
		a.commit(2, authority.Created)
		keys := w.Keys(a.A, "capsule")
		w.Damage(keys[1], nil)
		if _, err := a.c.Advance(w.Context(), a.p, 2, accept); err == nil {
			t.Error("the horizon moved to a commit without its capsule")
		}
		if h := a.history().Boundary().Horizon; h != 0 {
			t.Errorf("horizon %d", h)
		}
	})
}

// A commit costs three writes and no read, an abort two.
//
// SPEC CK LA2
func TestRequests(t *testing.T) {
	chaintest.Run(t, func(w *chaintest.World) {
		a := lead(w, "a", chaintest.Deployment)
		a.commit(1, authority.Created)
		cost := func(f func()) map[faultstore.Op]int {
			before := a.Link.Counts()
			f()
			spent := a.Link.Counts()
			for op, n := range before {
				if spent[op] -= n; spent[op] == 0 || op == faultstore.OpWatch {
					delete(spent, op)
				}
			}
			return spent
		}
		if got := cost(func() { a.commit(2, authority.Created) }); got[faultstore.OpCreate] != 2 || got[faultstore.OpReplace] != 1 || len(got) != 2 {
			t.Errorf("a commit takes %v", got)
		}
		if got := cost(func() { a.abort(3, authority.Created) }); got[faultstore.OpCreate] != 1 || got[faultstore.OpReplace] != 1 || len(got) != 2 {
			t.Errorf("an abort takes %v", got)
		}
	})
}

// An outcome of the largest assignment fits into its entry.
//
// SPEC CK
func TestLargestFence(t *testing.T) {
	chaintest.Run(t, func(w *chaintest.World) {
		a := lead(w, "a", chaintest.Deployment)
		var many []assignment.Participant
		for i := range assignment.MaxParticipants {
			many = append(many, assignment.Participant{Node: fmt.Sprintf("%03d", i) + strings.Repeat(`"`, store.MaxName-3), Incarnation: fmt.Sprintf("00000000-0000-4000-8000-%012d", i)})
		}
		m, err := assignment.NewMap(9, many)
		if err != nil {
			t.Fatal(err)
		}
		a.fence = m.Fence()
		a.commit(1, authority.Created)
		a.abort(2, authority.Created)
		if got := a.history().HighestCommit(); got.Fence.State() != m.Fence().State() {
			t.Errorf("the fence is %+v", got.Fence)
		}
		w.Sound(a.A.Reader())
	})
}
