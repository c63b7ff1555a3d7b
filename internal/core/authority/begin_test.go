package authority

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tenure-project/tenure/internal/core/identity"
	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

// An authority begins with token 1, or above the namespace's floor; a rival is
// refused until it observed the leader for the TTL in the head, and then gets the
// next token and carries everything on.
//
// SPEC LA3 LS12
func TestBegin(t *testing.T) {
	t.Parallel()
	h := first()
	if h.Token != 1 || h.Counter != 1 || h.Sequence != 1 || h.Last() != ownA.Proof(1) {
		t.Errorf("first: %+v", h)
	}
	if f := forms()["above-the-floor"]; f.Token != 501 {
		t.Errorf("above the floor: %+v", f)
	}
	h = full(shelf{})
	o := Observation{}.Observe(h, time.Second)
	need := lease.Stretch(15*time.Second, rho)
	if _, left, err := o.Ground(h, "v", ownA, time.Second+need-1, rho); err != nil || left != 1 {
		t.Errorf("early: %v, %v", left, err)
	}
	g, left, err := o.Ground(h, "v", ownA, time.Second+need, rho)
	if err != nil || left != 0 || g.How() != lease.HowObserved || g.Version() != "v" {
		t.Fatalf("ripe: %+v, %v, %v", g, left, err)
	}
	next := must(Takeover(h, claim(ownA, try(90)), g))
	if next.Last() != ownA.Proof(3) || next.Sequence != h.Sequence+1 || next.Renewal != h.Renewal+1 || next.Began != next.Sequence || next.Valid() != nil {
		t.Errorf("taken over: %+v, %v", next, next.Valid())
	}
	if raised := must(Takeover(h, above(claim(ownA, try(90)), 41), g)); raised.Token != 42 || raised.Valid() != nil {
		t.Errorf("above the floor: %+v, %v", raised, raised.Valid())
	}
	if l := next.Recent[1]; l.Token != 2 || l.Last != h.Sequence || l.First != h.Began || l.How != lease.HowObserved || l.Owner != ownB {
		t.Errorf("the history says %+v", l)
	}
	for _, name := range ChainNames() {
		if !next.Chain(name).same(h.Chain(name)) {
			t.Errorf("chain %s was not carried on", name)
		}
	}
	if next.Round == nil || len(next.Slots) != 2 || next.Revision != h.Revision {
		t.Error("faults or round were not carried on")
	}
}

// What others write moves the sequence and is no sign of the leader's life; any
// write of the leader is.
//
// SPEC LA2 LA3 RF
func TestObservation(t *testing.T) {
	t.Parallel()
	h := first()
	o := Observation{}.Observe(h, 1)
	fault, _, err := h.Fold(try(2), Report{Node: "db-9", Incarnation: idC, Term: 1, Request: 1})
	for what, by := range map[string]*Head{"a fault": must(fault, err), "a jump": must(h.Jump(try(2), Above{Token: 9}))} {
		if got := o.Observe(by, 50); got != o {
			t.Errorf("%s began the observation anew: %+v", what, got)
		}
	}
	s := shelf{}
	for what, by := range map[string]*Head{
		"a renewal":   renew(h, try(2)),
		"a decision":  s.append(h, toys{chain: Checkpoint}, toy{Key: 1}, 2),
		"a round":     must(h.BeginRound(h.Last(), try(2), DigestOf("plan", nil))),
		"a new token": taken(h, ownB, try(2)),
		"a release":   must(h.StepDown(h.Last(), try(2), now0)),
	} {
		if got := o.Observe(by, 50); got.From != 50 {
			t.Errorf("%s was no sign of life", what)
		}
	}
	if got := o.Observe(h, 0); got.From != 0 {
		t.Error("a clock that went back was trusted")
	}
	if _, _, err := o.Ground(nil, "v", ownB, 0, rho); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("a head that vanished: %v", err)
	}
	if _, _, err := o.Ground(h, "v", ownA, time.Hour, rho); !errors.Is(err, store.ErrConflict) {
		t.Errorf("its own head: %v", err)
	}
	late := must(h.Jump(try(2), Above{Token: record.MaxJump}))
	late.Counter = record.MaxNumber
	if _, _, err := o.Ground(late, "v", ownB, time.Hour, rho); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("no token left: %v", err)
	}
}

// A release and a vouched end free the head at once, a forced one after the
// superseded TTL, also for the one that was forced out.
//
// SPEC LA3 LS11
func TestWaitAfterAnEnd(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]time.Duration{"released": 0, "vouched": 0, "forced": lease.Stretch(15*time.Second, rho)} {
		h := forms()[name]
		for _, me := range []Owner{ownA, ownB} {
			g, left, err := Observation{}.Ground(h, "v", me, 7, rho)
			if err != nil || left != want || want == 0 && g.How() != h.Ended().How {
				t.Errorf("%s: %v, %v, %v", name, g.How(), left, err)
			}
		}
	}
}

// Proof that the leader's exact process start is over needs no second wait, but
// after force; anything else than that proof takes nothing.
//
// SPEC LA3 LS11
func TestEvidence(t *testing.T) {
	t.Parallel()
	h := first()
	e := Evidence{Node: "db-1", Owner: identity.Owner{Incarnation: idA, Term: 3}, From: time.Second,
		Verdict: identity.Verdict{State: identity.Over, How: lease.HowReleased}}
	g, left, err := e.Ground(h, "v", ownB, time.Second, rho)
	if err != nil || left != 0 || g.How() != lease.HowReleased {
		t.Fatalf("%+v, %v, %v", g, left, err)
	}
	if next := must(Takeover(h, claim(ownB, try(2)), g)); next.Token != 2 || next.Recent[0].How != lease.HowReleased {
		t.Errorf("taken: %+v", next)
	}
	e.Verdict.How, e.Verdict.Wait = lease.HowForced, 10*time.Second
	need := lease.Stretch(10*time.Second, rho)
	if _, left, err := e.Ground(h, "v", ownB, time.Second+need-1, rho); err != nil || left != 1 {
		t.Errorf("forced, early: %v, %v", left, err)
	}
	if g, left, err := e.Ground(h, "v", ownB, time.Second+need, rho); err != nil || left != 0 || g.How() != lease.HowForced {
		t.Errorf("forced: %+v, %v, %v", g, left, err)
	}
	folded := e
	folded.Verdict = identity.Verdict{State: identity.Over, Folded: true}
	if g, _, err := folded.Ground(h, "v", ownB, 0, rho); err != nil || g.How() != lease.HowObserved {
		t.Errorf("folded: %+v, %v", g, err)
	}
	if _, _, err := e.Ground(nil, "v", ownB, 0, rho); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("a head that vanished: %v", err)
	}
	for what, x := range map[string]struct {
		change func(e *Evidence)
		h      *Head
		me     Owner
		want   error
	}{
		"alive":               {func(e *Evidence) { e.Verdict.State = identity.Current }, h, ownB, store.ErrInvalid},
		"missing":             {func(e *Evidence) { e.Verdict.State = identity.Missing }, h, ownB, store.ErrInvalid},
		"no term":             {func(e *Evidence) { e.Owner.Term = 0 }, h, ownB, store.ErrInvalid},
		"another term":        {func(e *Evidence) { e.Owner.Term = 2 }, h, ownB, store.ErrConflict},
		"another node":        {func(e *Evidence) { e.Node = "db-2" }, h, ownB, store.ErrConflict},
		"another certificate": {func(e *Evidence) { e.Verdict.Certificate = &identity.Certificate{Node: "db-1"} }, h, ownB, store.ErrInvalid},
		"nobody leads":        {func(*Evidence) {}, forms()["released"], ownB, store.ErrConflict},
		"itself":              {func(*Evidence) {}, h, ownA, store.ErrInvalid},
	} {
		bad := e
		x.change(&bad)
		if g, left, err := bad.Ground(x.h, "v", x.me, 100*time.Hour, rho); !errors.Is(err, x.want) {
			t.Errorf("%s: %+v, %v, %v", what, g, left, err)
		}
	}
}

// A ground is for one state and one candidate.
//
// SPEC LA2 LA3
func TestTakeoverNeedsItsGround(t *testing.T) {
	t.Parallel()
	h := first()
	g := ripe(h, ownB)
	for what, x := range map[string]struct {
		prev  *Head
		c     Claim
		g     Ground
		wants error
	}{
		"none":            {h, claim(ownB, try(2)), Ground{}, store.ErrInvalid},
		"another's":       {h, claim(Owner{Node: "db-3", Incarnation: idC, Term: 1}, try(2)), g, store.ErrInvalid},
		"another state":   {renew(h, try(3)), claim(ownB, try(2)), g, store.ErrConflict},
		"a used attempt":  {h, claim(ownB, try(1)), g, store.ErrInvalid},
		"no attempt":      {h, claim(ownB, "x"), g, store.ErrInvalid},
		"other authority": {h, func() Claim { c := claim(ownB, try(2)); c.Authority = "other"; return c }(), g, store.ErrInvalid},
		"a bad TTL":       {h, func() Claim { c := claim(ownB, try(2)); c.TTL = time.Millisecond; return c }(), g, store.ErrInvalid},
		"no token left":   {h, above(claim(ownB, try(2)), record.MaxNumber), g, store.ErrInvalid},
		"a bad owner":     {h, claim(Owner{Node: "db-2", Incarnation: idB}, try(2)), g, store.ErrInvalid},
	} {
		if next, err := Takeover(x.prev, x.c, x.g); !errors.Is(err, x.wants) {
			t.Errorf("%s: %+v, %v", what, next, err)
		}
	}
}

// The same process start leads again with a new token, without a wait, but only by
// the proof that its earlier leadership ended in it and nothing of it is in doubt.
//
// SPEC LA3 LA6 LA7
func TestBeginAgain(t *testing.T) {
	t.Parallel()
	c := NewCandidacy(ownA)
	refused := func(what string) {
		t.Helper()
		if _, err := c.Quiet(); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("before it ever led")
	h := first()
	c.Sending(try(1))
	c.Settled(try(1), true)
	if err := c.Granted(h); err != nil || !c.Mine(try(1)) {
		t.Fatal(err)
	}
	if c.Granted(h) == nil {
		t.Error("one leadership was granted twice")
	}
	refused("while it leads")
	c.Sending(try(2))
	c.Ended()
	refused("with a write in doubt")
	if fmt.Sprint(c.InDoubt()) != "["+try(2)+"]" {
		t.Errorf("in doubt: %v", c.InDoubt())
	}
	c.Settled(try(2), false)
	q := must(c.Quiet())
	g := must(q.Ground(h, "v"))
	next := must(Takeover(h, claim(ownA, try(3)), g))
	if next.Token != 2 || next.Recent[0].How != lease.HowReleased || next.Leads(ownA.Proof(1)) {
		t.Errorf("again: %+v", next)
	}
	if _, err := q.Ground(next, "v"); !errors.Is(err, store.ErrConflict) {
		t.Errorf("one end, two beginnings: %v", err)
	}
	if _, err := q.Ground(nil, "v"); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("a head that vanished: %v", err)
	}
	if _, err := (Quiet{}).Ground(h, "v"); !errors.Is(err, store.ErrConflict) {
		t.Errorf("no proof at all: %v", err)
	}
	if _, err := q.Ground(taken(h, ownB, try(3)), "v"); !errors.Is(err, store.ErrConflict) {
		t.Errorf("a rival's head: %v", err)
	}
	if c.Granted(taken(h, ownB, try(3))) == nil || c.Granted(h) == nil {
		t.Error("a rival's or an old leadership was granted")
	}
	if err := c.Granted(next); err != nil {
		t.Error(err)
	}
	if p, ok := c.Proof(); !ok || p != ownA.Proof(2) {
		t.Errorf("it leads by %+v", p)
	}
}
