package membership

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/tenure-project/tenure/internal/core/identity"
	"github.com/tenure-project/tenure/store/faultstore"
)

var replaces = []faultstore.Op{faultstore.OpReplace}

// A join that was given up leaves nothing behind, whenever its write arrives.
//
// SPEC PL8 ST9
func TestGivenUpJoin(t *testing.T) {
	for name, fault := range map[string]faultstore.Fault{"hangs applied": faultstore.HangApplied(), "lands late": faultstore.LandLate(time.Second, time.Second)} {
		inWorldNamed(t, name, func(t *testing.T, w *world) {
			w.release(w.proc().join())
			p := w.proc()
			p.link.Add(faultstore.Rule{Ops: replaces, Times: 1, Fault: fault})
			p.link.Add(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpGet}, Skip: 1, Times: 1, Fault: faultstore.Hang()})
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if _, err := p.tryJoin(ctx, true, nil); err == nil {
				t.Fatal("it joined")
			}
			time.Sleep(ttl / 2)
			if r := w.head(); r.Held() || r.Term != 2 {
				t.Errorf("it left %+v", r)
			}
		})
	}
}

// A revocation that arrives while another is acknowledged is told, and the other is
// not told again.
//
// SPEC LS11
func TestRevocationsInARow(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, op := w.proc(), w.proc()
		one, two := identity.Revocation{Resource: "one", Token: 1}, identity.Revocation{Resource: "two", Token: 2}
		var told []identity.Revocation
		var owner identity.Owner
		m, err := a.tryJoin(t.Context(), true, func(c *Claim) {
			c.Revoked = func(v identity.Revocation) {
				if told = append(told, v); len(told) == 1 {
					_ = op.Revoke(context.Background(), node, owner, two)
				}
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		owner = m.Owner()
		if err := op.Revoke(t.Context(), node, owner, one); err != nil {
			t.Fatal(err)
		}
		time.Sleep(ttl / 2)
		w.release(m)
		if !slices.Equal(told, []identity.Revocation{one, two}) {
			t.Errorf("told %v", told)
		}
	})
}

// A revocation that a renewal meets as it reads back is acknowledged at once.
//
// SPEC LS11 ST9
func TestRevocationMetByReadBack(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, op := w.proc(), w.proc()
		m := a.join()
		time.Sleep(ttl)
		a.link.Add(faultstore.Rule{Ops: replaces, Times: 1, Fault: faultstore.HangApplied()})
		for seq := w.head().Sequence; w.head().Sequence == seq; {
			time.Sleep(time.Millisecond)
		}
		if err := op.Revoke(t.Context(), node, m.Owner(), identity.Revocation{Resource: "r", Token: 1}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(a.cfg.Timing.Attempt + 10*time.Millisecond)
		if r := w.head(); len(r.Revocations) != 0 || !m.Deadline().Live() {
			t.Errorf("%+v", r)
		}
		w.release(m)
	})
}

// An operator's write whose answer was lost, and which others wrote over since, is
// recognised.
//
// SPEC LS11 LS12 ST9
func TestOperatorsInDoubt(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b, op := w.proc(), w.proc(), w.proc()
		m := a.join()
		a.die()
		m.Abandon(errExpired)
		op.link.Add(faultstore.Rule{Ops: replaces, Fault: faultstore.HangApplied(), Times: 1})
		forced := make(chan error)
		go func() {
			forced <- op.Force(t.Context(), node, m.Owner(), identity.Operator{Why: "so", By: "ann", Vouch: true})
		}()
		time.Sleep(100 * time.Millisecond)
		m = b.join()
		if err := <-forced; err != nil {
			t.Errorf("force: %v", err)
		}
		op.link.Add(faultstore.Rule{Ops: replaces, Fault: faultstore.HangApplied(), Times: 1})
		raised := make(chan bool)
		go func() {
			r, err := op.Jump(t.Context(), node, 50)
			raised <- r && err == nil
		}()
		time.Sleep(10 * time.Millisecond)
		if err := b.Revoke(t.Context(), node, m.Owner(), identity.Revocation{Resource: "r", Token: 1}); err != nil {
			t.Error(err)
		}
		if !<-raised {
			t.Error("the jump does not know that it raised the counter")
		}
	})
}

// Evidence that was folded between the reads of a head that had gone by then is no
// damage.
//
// SPEC PL7 PL5
func TestVerifyCurrentMeetsThePruner(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.proc(), w.proc()
		w.release(a.join())
		m := a.join()
		time.Sleep(ttl / 2)
		b.link.Add(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpGet}, Skip: 1, Times: 1, Fault: faultstore.Delay(time.Second, time.Second)})
		time.AfterFunc(time.Second/2, func() {
			w.release(m)
			for range 2 {
				w.release(a.join())
			}
			if done, err := a.Prune(context.Background(), node, 0); err != nil || done.Removed != 2 {
				t.Errorf("%+v, %v", done, err)
			}
		})
		if ok, err := b.VerifyCurrent(t.Context(), node, m.Owner()); ok || err != nil {
			t.Errorf("%v, %v", ok, err)
		}
	})
}
