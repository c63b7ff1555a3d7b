package recovery_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	tenure "github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/authority"
	"github.com/tenure-project/tenure/authority/assignment"
	"github.com/tenure-project/tenure/authority/internal/chaintest"
	"github.com/tenure-project/tenure/authority/recovery"
	"github.com/tenure-project/tenure/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type peer struct {
	*chaintest.Process
	c  *recovery.Client
	me assignment.Participant
	p  tenure.Proof
}

func start(w *chaintest.World, node string) *peer {
	w.Helper()
	x := &peer{Process: w.Start(node)}
	x.c = recovery.Open(x.A)
	x.me = assignment.Participant{Node: node, Incarnation: x.Session.Proof().Incarnation}
	return x
}

func lead(w *chaintest.World, node string) *peer {
	w.Helper()
	x := start(w, node)
	x.p = x.Lead()
	return x
}

func (x *peer) report() authority.Fault {
	x.W.Helper()
	f, err := x.c.Report(x.W.Context(), "disk full")
	if err != nil {
		x.W.Fatalf("report of %s: %v", x.me.Node, err)
	}
	return f
}

func (x *peer) begin() authority.Round {
	x.W.Helper()
	r, err := x.c.Begin(x.W.Context(), x.p, []byte("restart from 7"))
	if err != nil {
		x.W.Fatalf("begin a round: %v", err)
	}
	return r
}

func (x *peer) release(r authority.Round, want authority.Answer, stopped ...assignment.Participant) {
	x.W.Helper()
	res, err := x.c.Release(x.W.Context(), x.p, r, stopped)
	x.W.Want("release", res, err, want)
}

func (x *peer) admission() recovery.Admission {
	x.W.Helper()
	a, err := x.c.Admission(x.W.Context())
	if err != nil {
		x.W.Fatal(err)
	}
	return a
}

// active lists the nodes whose faults are active.
func (x *peer) active() string {
	x.W.Helper()
	s, err := x.A.Reader().Snapshot(x.W.Context())
	if err != nil {
		x.W.Fatal(err)
	}
	all, _ := s.Faults()
	nodes := ""
	for _, f := range all {
		if f.Active {
			nodes += f.Proof.Node
		}
	}
	return nodes
}

// A round ends with a release that clears exactly the faults of the processes that
// stopped; the same release again is unchanged.
//
// SPEC RF
func TestRound(t *testing.T) {
	chaintest.Run(t, func(w *chaintest.World) {
		ctx := w.Context()
		a, b, c := lead(w, "a"), start(w, "b"), start(w, "c")
		if last, err := a.c.Last(ctx); last != nil || err != nil {
			t.Errorf("before the first: %+v, %v", last, err)
		}
		if f := b.report(); !f.Active || f.Request != 1 || f.Proof.Incarnation != b.me.Incarnation {
			t.Errorf("fault %+v", f)
		}
		c.report()
		if got := a.active(); got != "bc" {
			t.Errorf("active: %s", got)
		}
		r := a.begin()
		a.release(r, authority.Created, b.me)
		if got := a.active(); got != "c" {
			t.Errorf("active after b stopped: %s", got)
		}
		a.release(r, authority.Unchanged, b.me)
		last, err := b.c.Last(ctx)
		if err != nil || last.Generation != r.Generation || last.Round != r.ID || last.Plan != r.Plan || len(last.Stopped) != 1 || last.Proof != a.p {
			t.Errorf("last release %+v, %v", last, err)
		}
		r2 := a.begin()
		if r2.Generation <= r.Generation {
			t.Errorf("generation %d after %d", r2.Generation, r.Generation)
		}
		a.release(r2, authority.Created, c.me)
		if got := a.active(); got != "" {
			t.Errorf("active: %s", got)
		}
		var generations []uint64
		for x, err := range a.c.Releases(ctx) {
			if err != nil {
				t.Fatal(err)
			}
			generations = append(generations, x.Generation)
		}
		if len(generations) != 2 || generations[0] <= generations[1] {
			t.Errorf("releases %v", generations)
		}
		if f := b.report(); f.Request != 2 || !f.Active {
			t.Errorf("a new fault: %+v", f)
		}
		w.Sound(a.A.Reader())
	})
}

// A report that waits at its key when the round is about to be released is folded
// first, and forces a new round; its reporter learns so at once.
//
// SPEC RF
func TestAPendingReportForcesANewRound(t *testing.T) {
	chaintest.Run(t, func(w *chaintest.World) {
		ctx := w.Context()
		a, b, c := lead(w, "a"), start(w, "b"), start(w, "c")
		b.report()
		r := a.begin()
		made := make(chan error, 1)
		go func() {
			_, err := c.c.Report(ctx, "disk full")
			made <- err
		}()
		synctest.Wait() // the report stands at its key, and no renewal came since
		if pending, err := a.A.Reader().Pending(ctx); err != nil || len(pending) != 1 || a.active() != "b" {
			t.Fatalf("pending %v, active %s, %v", pending, a.active(), err)
		}
		before := time.Now()
		if _, err := a.c.Release(ctx, a.p, r, []assignment.Participant{b.me, c.me}); !errors.Is(err, authority.ErrInventoryChanged) {
			t.Errorf("release: %v", err)
		}
		if got := a.active(); got != "bc" || time.Since(before) > 0 {
			t.Errorf("active: %s, after %v", got, time.Since(before))
		}
		if err := <-made; err != nil {
			t.Error(err)
		}
		a.release(a.begin(), authority.Created, b.me, c.me)
		if got := a.active(); got != "" {
			t.Errorf("active: %s", got)
		}
	})
}

// A fault that is made while a round runs is never cleared by the round's release: it
// forces a new round.
//
// SPEC RF
func TestAFaultForcesANewRound(t *testing.T) {
	chaintest.Run(t, func(w *chaintest.World) {
		ctx := w.Context()
		a, b, c := lead(w, "a"), start(w, "b"), start(w, "c")
		b.report()
		r := a.begin()
		c.report()
		if _, err := a.c.Release(ctx, a.p, r, []assignment.Participant{b.me, c.me}); !errors.Is(err, authority.ErrInventoryChanged) || !errors.Is(err, store.ErrConflict) {
			t.Errorf("release: %v", err)
		}
		if got := a.active(); got != "bc" {
			t.Errorf("active: %s", got)
		}
		r = a.begin()
		a.release(r, authority.Created, b.me, c.me)
		if got := a.active(); got != "" {
			t.Errorf("active: %s", got)
		}
	})
}

// A round dies with its leadership: only the leader that began it releases it.
//
// SPEC RF LA2
func TestARoundIsItsLeaders(t *testing.T) {
	chaintest.Run(t, func(w *chaintest.World) {
		ctx := w.Context()
		a, b := lead(w, "a"), start(w, "b")
		b.report()
		r := a.begin()
		a.StepDown()
		b.p = b.Lead()
		if _, err := b.c.Release(ctx, b.p, r, []assignment.Participant{b.me}); err == nil {
			t.Error("another leader released the round")
		}
		res, err := a.c.Release(ctx, a.p, r, []assignment.Participant{b.me})
		if err == nil && res.Answer != authority.Fenced || err != nil && !errors.Is(err, authority.ErrFenced) {
			t.Errorf("the old leader's release: %v, %v", res.Answer, err)
		}
		if _, err := a.c.Begin(ctx, a.p, nil); !errors.Is(err, authority.ErrFenced) {
			t.Errorf("the old leader's round: %v", err)
		}
		if got := b.active(); got != "b" {
			t.Errorf("active: %s", got)
		}
		r2 := b.begin()
		if r2.Generation <= r.Generation {
			t.Errorf("generation %d after %d", r2.Generation, r.Generation)
		}
		b.release(r2, authority.Created, b.me)
		w.Sound(b.A.Reader())
	})
}

// A process takes up work only if what it saw before it gathered its evidence still
// holds: no fault, no release and no other leader came between.
//
// SPEC RF
func TestAdmission(t *testing.T) {
	chaintest.Run(t, func(w *chaintest.World) {
		ctx := w.Context()
		a, b := lead(w, "a"), start(w, "b")
		seen := b.admission()
		if err := seen.Check(ctx, a.p); err != nil || seen.Faulty() {
			t.Errorf("nothing happened: %v", err)
		}
		b.report()
		if err := seen.Check(ctx, a.p); !errors.Is(err, authority.ErrChanged) {
			t.Errorf("a fault since: %v", err)
		}
		faulty := b.admission()
		if err := faulty.Check(ctx, a.p); !errors.Is(err, authority.ErrChanged) || !faulty.Faulty() {
			t.Errorf("a fault that is active: %v", err)
		}
		a.release(a.begin(), authority.Created, b.me)
		for what, s := range map[string]recovery.Admission{"before the fault": seen, "with the fault": faulty} {
			if err := s.Check(ctx, a.p); !errors.Is(err, authority.ErrChanged) {
				t.Errorf("a snapshot %s, after a release: %v", what, err)
			}
		}
		fresh := b.admission()
		if err := fresh.Check(ctx, a.p); err != nil {
			t.Errorf("after the release: %v", err)
		}
		a.StepDown()
		if err := fresh.Check(ctx, a.p); !errors.Is(err, authority.ErrChanged) {
			t.Errorf("nobody leads: %v", err)
		}
		b.p = b.Lead()
		if err := fresh.Check(ctx, a.p); !errors.Is(err, authority.ErrChanged) {
			t.Errorf("another leads: %v", err)
		}
		if err := fresh.Check(ctx, b.p); err != nil {
			t.Errorf("under the next leader: %v", err)
		}
	})
}

// A reason out of bounds is refused before anything is written.
//
// SPEC RF
func TestReasonIsBounded(t *testing.T) {
	chaintest.Run(t, func(w *chaintest.World) {
		a := lead(w, "a")
		long := make([]byte, recovery.MaxWhy+1)
		for i := range long {
			long[i] = 'x'
		}
		if _, err := a.c.Report(w.Context(), string(long)); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("a long reason: %v", err)
		}
		if got := a.active(); got != "" {
			t.Errorf("active: %s", got)
		}
	})
}

// A release names each node once, in any order: two starts of one are told apart
// before anything is written.
//
// SPEC RF
func TestReleaseNamesNodesOnce(t *testing.T) {
	chaintest.Run(t, func(w *chaintest.World) {
		a, b := lead(w, "a"), start(w, "b")
		b.report()
		r := a.begin()
		earlier := assignment.Participant{Node: "b", Incarnation: a.me.Incarnation}
		if _, err := a.c.Release(w.Context(), a.p, r, []assignment.Participant{b.me, earlier}); !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "named twice") {
			t.Errorf("two starts of one node: %v", err)
		}
		if got := a.active(); got != "b" {
			t.Errorf("active: %s", got)
		}
		a.release(r, authority.Created, b.me, a.me)
		if got := a.active(); got != "" {
			t.Errorf("active after the release: %s", got)
		}
	})
}
