package membership

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tenure-project/tenure/internal/core/identity"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

// story is one life of a name: first join, renewals, a release, a takeover after
// silence, a revocation, a fence, a force, a jump, a last release. p is the process
// whose link is bad, q has a good one.
func story(t *testing.T, w *world, p, q *proc) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 40*ttl)
	defer cancel()
	settled := func(what string, err error) {
		t.Helper()
		if err != nil && !errors.Is(err, ErrSuperseded) {
			t.Errorf("%s: %v", what, err)
		}
	}
	join := func(p *proc) *Member {
		t.Helper()
		m, err := p.tryJoin(ctx, true, nil)
		if err != nil {
			t.Fatalf("join: %v", err)
		}
		return m
	}
	m := join(p)
	time.Sleep(ttl / 2)
	settled("revoke", q.Revoke(ctx, node, m.Owner(), identity.Revocation{Resource: "r", Token: 1}))
	time.Sleep(ttl / 2)
	settled("release", m.Release(ctx))
	first := m.Owner()

	m = join(q)
	settled("revoke", p.Revoke(ctx, node, m.Owner(), identity.Revocation{Resource: "r", Token: 2}))
	time.Sleep(ttl / 2)
	m.Abandon(errors.New("stopped"))
	silent := m.Owner()
	e, err := p.AwaitOver(ctx, node, silent)
	if err != nil {
		t.Fatalf("await: %v", err)
	}
	m = join(p)
	settled("force", p.Force(ctx, node, m.Owner(), identity.Operator{Why: "so", Vouch: true}))
	forced := m.Owner()
	m.Abandon(errors.New("as the operator says"))
	m = join(p)
	if _, err := p.Jump(ctx, node, 50); err != nil {
		t.Errorf("jump: %v", err)
	}
	select {
	case <-m.Deadline().Done():
	case <-ctx.Done():
		t.Fatal("the jump did not end the session")
	}
	settled("release", m.Release(ctx))
	last := join(p)
	settled("release", last.Release(ctx))
	if last.Owner().Term < 51 {
		t.Errorf("the last term is %d", last.Owner().Term)
	}
	time.Sleep(3 * ttl) // what goes on in the background comes to its end
	join(q)
	for _, o := range []identity.Owner{first, silent, forced, last.Owner()} {
		if v, _, err := q.Judge(ctx, node, o); err != nil || v.State != identity.Over {
			t.Errorf("%+v: %+v, %v", o, v, err)
		}
	}
	if c := e.Verdict.Certificate; c == nil || !c.Equal(w.sealed()[silent.Incarnation]) {
		t.Errorf("the evidence was %+v", e)
	}
}

// Whichever write of a name's life loses its answer, its request, or both, or lands
// late or twice, the story ends the same.
//
// SPEC ST9 PL3 PL4 PL8
func TestEveryWriteInDoubt(t *testing.T) {
	writes := []faultstore.Op{faultstore.OpCreate, faultstore.OpReplace}
	for name, fault := range map[string]faultstore.Fault{
		"reply lost": faultstore.LoseReply(), "request lost": faultstore.LoseRequest(), "unavailable": faultstore.Fail(store.ErrUnavailable),
		"hangs": faultstore.Hang(), "hangs applied": faultstore.HangApplied(), "lands late": faultstore.LandLate(time.Millisecond, 2*ttl),
		"lands twice": faultstore.Duplicate(time.Millisecond, 2*ttl),
	} {
		for n := 0; n < 40; n += everyNth { // 40 are more than the story writes over p's link
			t.Run(fmt.Sprintf("%s/%d", name, n), func(t *testing.T) {
				inWorld(t, func(t *testing.T, w *world) {
					p := w.proc(func(s *setup) {
						s.link.Seed = uint64(n)
						s.link.Rules = []faultstore.Rule{{Ops: writes, Skip: n, Times: 1, Fault: fault}}
					})
					story(t, w, p, w.proc())
					if fired := len(p.link.Fired()) > 0; fired != (n < p.link.Counts()[faultstore.OpCreate]+p.link.Counts()[faultstore.OpReplace]) || n == 39 && fired {
						t.Errorf("the fault at write %d: %v", n, p.link.Counts())
					}
				})
			})
		}
	}
}

// Reads that fail, and a run of writes that do, change nothing in the end either.
//
// SPEC ST9 ST13 PL8
func TestEveryReadFails(t *testing.T) {
	for name, rule := range map[string]faultstore.Rule{
		"reads":                 {Ops: []faultstore.Op{faultstore.OpGet}, Every: 2, Times: 20, Fault: faultstore.Fail(store.ErrUnavailable)},
		"every third write":     {Ops: []faultstore.Op{faultstore.OpCreate, faultstore.OpReplace}, Every: 3, Fault: faultstore.LoseReply()},
		"every second request":  {Ops: []faultstore.Op{faultstore.OpCreate, faultstore.OpReplace}, Every: 2, Fault: faultstore.LoseRequest()},
		"watches":               {Ops: []faultstore.Op{faultstore.OpWatch}, Fault: faultstore.Fail(store.ErrUnavailable)},
		"all answers are slow":  {Fault: faultstore.DelayReply(0, 300*time.Millisecond)},
		"all requests are slow": {Fault: faultstore.Delay(0, 300*time.Millisecond)},
	} {
		for seed := range 5 {
			t.Run(fmt.Sprintf("%s/%d", name, seed), func(t *testing.T) {
				inWorld(t, func(t *testing.T, w *world) {
					p := w.proc(func(s *setup) {
						s.link.Seed = uint64(seed)
						s.link.Rules = []faultstore.Rule{rule}
					})
					story(t, w, p, w.proc())
				})
			})
		}
	}
}
