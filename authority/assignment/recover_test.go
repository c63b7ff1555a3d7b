package assignment_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	tenure "github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/authority"
	"github.com/tenure-project/tenure/authority/assignment"
	"github.com/tenure-project/tenure/authority/internal/chaintest"
	"github.com/tenure-project/tenure/store"
)

// die kills x and returns the certificate that it is over.
func (x *peer) die(by *peer) tenure.Certificate {
	x.W.Helper()
	x.Die()
	c, err := by.Client.FenceIncarnation(x.W.Context(), x.me.Node, x.me.Incarnation, 4*chaintest.TTL)
	if err != nil {
		x.W.Fatalf("fence %s: %v", x.me.Node, err)
	}
	return c
}

func (x *peer) stage(owners ...assignment.Participant) *assignment.Proposal {
	x.W.Helper()
	p, err := x.c.Stage(x.W.Context(), spread(owners...))
	if err != nil {
		x.W.Fatalf("stage: %v", err)
	}
	return p
}

// A process is replaced only with the certificate that exactly it is over.
//
// SPEC AS PL6
func TestRecovery(t *testing.T) {
	chaintest.Run(t, func(w *chaintest.World) {
		ctx := w.Context()
		a, b, c := lead(w, "a"), start(w, "b"), start(w, "c")
		a.seed(a.me, b.me, c.me)
		proposal := a.stage(a.me, c.me)
		if _, err := a.c.Recover(ctx, a.p, proposal); !errors.Is(err, tenure.ErrMissingEvidence) {
			t.Errorf("without a certificate: %v", err)
		}
		cert := b.die(a)
		wrong := start(w, "d")
		other := wrong.die(a)
		var unproven *assignment.UnprovenError
		if _, err := a.c.Recover(ctx, a.p, proposal, other.Body); !errors.As(err, &unproven) || unproven.Participant != b.me {
			t.Errorf("with another one's certificate: %v", err)
		}
		if _, err := a.c.Recover(ctx, a.p, proposal, []byte("{}")); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("with no certificate at all: %v", err)
		}
		forged := []byte(string(cert.Body[:len(cert.Body)-1]) + " }")
		if _, err := a.c.Recover(ctx, a.p, proposal, forged); err == nil {
			t.Error("a changed certificate was taken")
		}
		// Well formed, of a process that lives, and in no store.
		invented := strings.NewReplacer(`"node":"d"`, `"node":"c"`, wrong.me.Incarnation, c.me.Incarnation).Replace(string(other.Body))
		if _, err := a.c.Recover(ctx, a.p, a.stage(a.me, b.me), []byte(invented)); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("with an invented certificate, ahead of the node's record: %v", err)
		}
		a.current(1, a.me, b.me, c.me)
		res, err := a.c.Recover(ctx, a.p, proposal, other.Body, cert.Body)
		w.Want("recover", res.Result, err, authority.Created)
		if d := res.Decision; d.Kind != assignment.Recovery || len(d.Removed) != 1 || d.Removed[0] != b.me {
			t.Errorf("decision %+v", d)
		}
		res, err = a.c.Recover(ctx, a.p, proposal, cert.Body)
		w.Want("again", res.Result, err, authority.Unchanged)
		a.current(2, a.me, c.me)
		a.materialize()
		a.current(2, a.me, c.me)
		if _, err := a.c.Recover(ctx, a.p, a.stage(c.me, a.me)); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("a recovery that replaces nobody: %v", err)
		}
		w.Sound(a.A.Reader())
	})
}

// A restart of a participant is another process: it keeps no slot by its node's name.
//
// SPEC AS
func TestARestartIsAnotherParticipant(t *testing.T) {
	chaintest.Run(t, func(w *chaintest.World) {
		ctx := w.Context()
		a, b := lead(w, "a"), start(w, "b")
		a.seed(a.me, b.me)
		cert := b.die(a)
		b2 := start(w, "b")
		res, err := a.c.Recover(ctx, a.p, a.stage(a.me, b2.me), cert.Body)
		w.Want("recover", res.Result, err, authority.Created)
		if got := res.Decision.Removed; len(got) != 1 || got[0] != b.me {
			t.Errorf("removed %+v", got)
		}
		a.current(2, a.me, b2.me)
	})
}

// A certificate that rests on force proves the death only after its wait, on the
// leader's own clock.
//
// SPEC AS LS11
func TestForcedCertificateWaits(t *testing.T) {
	chaintest.Run(t, func(w *chaintest.World) {
		ctx := w.Context()
		a, b := lead(w, "a"), start(w, "b")
		a.seed(a.me, b.me)
		old := b.Session.Proof()
		b.Die()
		if err := a.Client.ForceNode(ctx, old, tenure.StealOptions{Token: old.Term, Reason: "test", By: "op"}); err != nil {
			t.Fatal(err)
		}
		cert, err := a.Client.FenceIncarnation(ctx, old.Node, old.Incarnation, 4*chaintest.TTL)
		if err != nil {
			t.Fatal(err)
		}
		if cert.Wait != chaintest.TTL {
			t.Fatalf("the certificate waits %v", cert.Wait)
		}
		from := time.Now()
		res, err := a.c.Recover(ctx, a.p, a.stage(a.me), cert.Body)
		w.Want("recover", res.Result, err, authority.Created)
		if took := time.Since(from); took < chaintest.TTL {
			t.Errorf("decided after %v", took)
		}
	})
}

// One decision of a version across both kinds: a recovery and a drain exclude each
// other, in both orders, whatever comes late.
//
// SPEC AS LA2
func TestOneDecisionOfAVersion(t *testing.T) {
	for _, drainFirst := range []bool{true, false} {
		t.Run(fmt.Sprintf("drain first %v", drainFirst), func(t *testing.T) {
			chaintest.Run(t, func(w *chaintest.World) {
				ctx := w.Context()
				a, b, c := lead(w, "a"), start(w, "b"), start(w, "c")
				a.seed(a.me, b.me)
				tr := a.begin(a.me, b.me, c.me)
				proposal := a.stage(a.me, c.me)
				cert := b.die(a)
				if drainFirst {
					won := a.commit(tr, authority.Created)
					res, err := a.c.Recover(ctx, a.p, proposal, cert.Body)
					w.Want("the recovery", res.Result, err, authority.Conflict)
					if res.Decision.Link != won.Winner {
						t.Errorf("it lost to %+v", res.Decision)
					}
					a.current(2, a.me, b.me, c.me)
					return
				}
				res, err := a.c.Recover(ctx, a.p, proposal, cert.Body)
				w.Want("the recovery", res.Result, err, authority.Created)
				a.commit(tr, authority.Conflict)
				a.abort(tr, authority.Conflict)
				a.current(2, a.me, c.me)
				a.materialize()
				a.current(2, a.me, c.me)
			})
		})
	}
}

// Another leader finds what was staged, and decides on exactly that.
//
// SPEC AS
func TestProposals(t *testing.T) {
	chaintest.Run(t, func(w *chaintest.World) {
		ctx := w.Context()
		a, b, c := lead(w, "a"), start(w, "b"), start(w, "c")
		a.seed(a.me, b.me, c.me)
		a.stage(a.me, b.me)
		a.stage(b.me)
		a.StepDown()
		b.p = b.Lead()
		all, err := b.c.Proposals(ctx)
		if err != nil || len(all) != 2 {
			t.Fatalf("staged: %v, %v", all, err)
		}
		i := slices.IndexFunc(all, func(p *assignment.Proposal) bool { return len(p.Map.Participants) == 1 })
		certs := [][]byte{a.die(b).Body, c.die(b).Body}
		res, err := b.c.Recover(ctx, b.p, all[i], certs...)
		w.Want("recover", res.Result, err, authority.Created)
		b.current(2, b.me)
		if all, err := b.c.Proposals(ctx); err != nil || len(all) != 0 {
			t.Errorf("staged for version 3: %v, %v", all, err)
		}
	})
}

// As many participants as there may be, of names that take the most room, make decisions that are
// blobs of their own, and are read back.
//
// SPEC AS LA4
func TestManyParticipants(t *testing.T) {
	chaintest.Run(t, func(w *chaintest.World) {
		ctx := w.Context()
		a := lead(w, "a")
		var many []assignment.Participant
		for i := range assignment.MaxParticipants {
			many = append(many, assignment.Participant{Node: fmt.Sprintf("%03d", i) + strings.Repeat(`"`, store.MaxName-3), Incarnation: fmt.Sprintf("00000000-0000-4000-8000-%012d", i)})
		}
		if _, ours, err := a.c.Seed(ctx, many); err != nil || !ours {
			t.Fatalf("seed: %v, %v", ours, err)
		}
		moved := append(slices.Clone(many[1:]), many[0])
		tr, err := a.c.BeginDrain(ctx, a.p, moved)
		if err != nil {
			t.Fatal(err)
		}
		a.commit(tr, authority.Created)
		if n := len(w.Keys(a.A, "blob")); n != 1 {
			t.Errorf("%d blobs", n)
		}
		a.materialize()
		c, err := a.c.Current(ctx)
		if err != nil || c.Fence.Version != 2 {
			t.Fatalf("current: %v", err)
		}
		if got, _ := c.Map.Owner(0); got != many[1] || len(c.Fence.Participants) != assignment.MaxParticipants {
			t.Errorf("slot 0 is %+v's", got)
		}
		one := assignment.Participant{Node: "one more", Incarnation: many[0].Incarnation}
		if _, err := assignment.NewMap(3, append(slices.Clone(many), one)); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("one more: %v", err)
		}
		w.Sound(a.A.Reader())
	})
}
