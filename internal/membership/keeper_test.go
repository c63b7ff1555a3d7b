package membership

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tenure-project/tenure/internal/core/identity"
	"github.com/tenure-project/tenure/internal/deadline"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

var errExpired = deadline.ErrExpired

// A member whose store hangs ends at its deadline, for good, and can then be
// joined anew.
//
// SPEC PL8 DL1 DL4, hazard 4
func TestMissedDeadline(t *testing.T) {
	for name, fault := range map[string]faultstore.Fault{
		"hangs": faultstore.Hang(), "hangs applied": faultstore.HangApplied(), "fails": faultstore.Fail(store.ErrUnavailable),
		"denies": faultstore.Fail(store.ErrDenied), "answers late": faultstore.DelayReply(ttl, ttl),
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				p := w.proc()
				m := p.join()
				time.Sleep(ttl)
				until, _ := m.Deadline().T()
				p.link.Add(faultstore.Rule{Fault: fault}) // reads, too: a read back would confirm
				<-m.Deadline().Done()
				until, ended := max(until, m.lastT(p)), p.clk.Boot()
				if ended < until || ended > until+100*time.Millisecond {
					t.Errorf("it ended at %v, its deadline was %v", ended, until)
				}
				wantErr(t, m.Deadline().Cause(), errExpired)
				p.link.Clear()
				time.Sleep(ttl)
				if m.Deadline().Live() {
					t.Error("it came back to life")
				}
				if err := m.Release(t.Context()); err != nil { // it may still be its own
					t.Errorf("release: %v", err)
				}
				again := p.join()
				if again.Owner().Term != 2 || again.Owner().Incarnation == m.Owner().Incarnation {
					t.Errorf("it joined again as %+v", again.Owner())
				}
				w.release(again)
			})
		})
	}
}

// lastT is the deadline that the last renewal gave.
func (m *Member) lastT(p *proc) time.Duration { return m.Health().RenewedAt + p.cfg.Timing.Life() }

// A failed renewal is tried again soon, not at the next tick, and the deadline
// does not move for it.
//
// SPEC PL8 LS4, hazard 2
func TestOutageIsRiddenOut(t *testing.T) {
	for name, fault := range map[string]faultstore.Fault{
		"refused": faultstore.Fail(store.ErrUnavailable), "reply lost": faultstore.LoseReply(), "request lost": faultstore.LoseRequest(), "hangs": faultstore.Hang(),
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				p := w.proc()
				var mu sync.Mutex
				var failed []RenewalEvent
				m, err := p.tryJoin(t.Context(), true, func(c *Claim) {
					c.Observe = func(e RenewalEvent) {
						mu.Lock()
						defer mu.Unlock()
						if e.Err != nil {
							failed = append(failed, e)
						}
					}
				})
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(ttl)
				p.link.Add(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpReplace}, Times: 3, Fault: fault})
				time.Sleep(4 * ttl)
				if !m.Deadline().Live() || m.Health().Err != nil {
					t.Fatalf("%v, %+v", m.Deadline().Cause(), m.Health())
				}
				mu.Lock()
				// A lost answer that the read back makes good is no failure.
				if (len(failed) == 0) != (name != "refused") || len(failed) > 0 && failed[0].Margin > p.cfg.Timing.Life() {
					t.Errorf("events %+v", failed)
				}
				mu.Unlock()
				w.release(m)
			})
		})
	}
}

// A renewal that lands after the takeover changes nothing, and its sender learns
// that it lost the name.
//
// SPEC PL2 PL8 ST9, hazard 15
func TestLateRenewal(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.proc(), w.proc()
		first := a.join()
		time.Sleep(ttl)
		a.link.Add(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpReplace}, Times: 1, Fault: faultstore.LandOnCall()})
		a.link.Add(faultstore.Rule{Skip: 1, Fault: faultstore.Hang()})
		second := b.join()
		before := w.head()
		if a.link.Land() == 0 {
			t.Fatal("no renewal was on its way")
		}
		time.Sleep(time.Millisecond)
		if now := w.head(); now.Sequence < before.Sequence || !now.OwnedBy(second.Owner()) {
			t.Errorf("the late renewal left %+v", now)
		}
		a.link.Clear()
		err := first.Release(t.Context())
		wantErr(t, err, ErrSuperseded)
		if again := first.Release(t.Context()); !errors.Is(again, ErrSuperseded) {
			t.Errorf("a second release: %v", again)
		}
		w.release(second)
	})
}

// Clock rates within rho, and a suspend, never make two processes act.
//
// SPEC DL3 DL5 PL2, hazard 14
func TestClocks(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		slow := w.proc(func(s *setup) { s.rate = 0.995 })
		fast := w.proc(func(s *setup) { s.rate = 1.005 })
		first := slow.join()
		time.Sleep(ttl)
		slow.link.SetLink(faultstore.Cut)
		second := fast.join()
		w.release(second)

		third := slow.w.proc()
		m := third.join()
		time.Sleep(ttl / 3)
		third.clk.Suspend(ttl)
		time.Sleep(100 * time.Millisecond)
		if m.Deadline().Live() {
			t.Error("it lives after a suspend beyond its deadline")
		}
		wantErr(t, m.Deadline().Cause(), errExpired)
		_ = first
	})
}

// A lease taken from the session is told once, at its next renewal, and
// acknowledged at once; nothing else of the record changes.
//
// SPEC LS11 PL4
func TestRevocation(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, op := w.proc(), w.proc()
		var mu sync.Mutex
		var told []identity.Revocation
		m, err := a.tryJoin(t.Context(), true, func(c *Claim) {
			c.Revoked = func(v identity.Revocation) { mu.Lock(); defer mu.Unlock(); told = append(told, v) }
		})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(ttl)
		before := w.head()
		one, two := identity.Revocation{Resource: "one", Token: 3}, identity.Revocation{Resource: "two", Token: 4}
		op.link.Add(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpReplace}, Times: 1, Fault: faultstore.LoseReply()})
		for _, v := range []identity.Revocation{one, two, two} {
			if err := op.Revoke(t.Context(), node, m.Owner(), v); err != nil {
				t.Fatal(err)
			}
		}
		if now := w.head(); now.Sequence != before.Sequence || len(now.Revocations) != 2 {
			t.Errorf("the revocations left %+v", now)
		}
		time.Sleep(ttl / 4)
		mu.Lock()
		if !slices.Equal(told, []identity.Revocation{one, two}) {
			t.Errorf("told %v", told)
		}
		mu.Unlock()
		if now := w.head(); len(now.Revocations) != 0 || !m.Deadline().Live() {
			t.Errorf("not acknowledged: %+v", now)
		}
		for n := range identity.MaxRevocations {
			if err := op.Revoke(t.Context(), node, m.Owner(), identity.Revocation{Resource: "r", Token: uint64(n + 1)}); err != nil {
				t.Fatal(err)
			}
		}
		wantErr(t, op.Revoke(t.Context(), node, m.Owner(), one), store.ErrUnavailable)
		wantErr(t, op.Revoke(t.Context(), node, identity.Owner{Incarnation: m.Owner().Incarnation, Term: 9}, one), store.ErrConflict)
		w.release(m)
		wantErr(t, op.Revoke(t.Context(), node, m.Owner(), one), store.ErrConflict)
		wantErr(t, op.Revoke(t.Context(), "stranger", m.Owner(), one), store.ErrNotFound)
	})
}

// A jump ends the session at its next renewal; the session releases the name, and
// the next term is above.
//
// SPEC LS12 PL8
func TestJump(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, op := w.proc(), w.proc()
		m := a.join()
		op.link.Add(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpReplace}, Times: 1, Fault: faultstore.LoseReply()})
		if raised, err := op.Jump(t.Context(), node, 70); err != nil || !raised {
			t.Fatalf("%v, %v", raised, err)
		}
		if raised, err := op.Jump(t.Context(), node, 50); err != nil || raised {
			t.Fatalf("a second: %v, %v", raised, err)
		}
		<-m.Deadline().Done()
		wantErr(t, m.Deadline().Cause(), ErrRaised, ErrLost)
		if !w.head().Held() {
			t.Error("the name was released before the session's work may have ended")
		}
		w.release(m)
		within(t, "the join", took(func() { m = a.join() }), 0, 0)
		if m.Owner().Term != 71 {
			t.Errorf("term %d", m.Owner().Term)
		}
		w.release(m)
		_, err := op.Jump(t.Context(), "stranger", 5)
		wantErr(t, err, store.ErrNotFound)
	})
}

// A forced end stops the session at its next renewal. Who joins waits for the
// superseded TTL, unless the operator vouched.
//
// SPEC LS11 PL2
func TestForce(t *testing.T) {
	for _, vouch := range []bool{false, true} {
		inWorldNamed(t, map[bool]string{false: "forced", true: "vouched"}[vouch], func(t *testing.T, w *world) {
			a, b := w.proc(), w.proc()
			m := a.join()
			by := identity.Operator{Why: "it hangs", By: "ann", Vouch: vouch, NowMS: 1}
			wantErr(t, b.Force(t.Context(), node, identity.Owner{Incarnation: m.Owner().Incarnation, Term: 9}, by), store.ErrConflict)
			wantErr(t, b.Force(t.Context(), node, m.Owner(), identity.Operator{}), store.ErrInvalid)
			if vouch {
				a.die() // as the operator says
				time.Sleep(ttl)
			}
			b.link.Add(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpReplace}, Times: 1, Fault: faultstore.LoseReply()})
			if err := b.Force(t.Context(), node, m.Owner(), by); err != nil {
				t.Fatal(err)
			}
			if !vouch {
				var held *HeldError
				if _, err := b.tryJoin(t.Context(), false, nil); !errors.As(err, &held) || held.Free == "" || held.Owner.Term != 1 {
					t.Errorf("right after: %v", err)
				}
			}
			least := map[bool]time.Duration{false: stretched, true: 0}[vouch]
			var next *Member
			within(t, "the join", took(func() { next = b.join() }), least, least+time.Second)
			if !vouch {
				wantErr(t, m.Deadline().Cause(), ErrSuperseded)
				wantErr(t, m.Release(t.Context()), ErrSuperseded)
			}
			if next.Owner().Term != 3 {
				t.Errorf("term %d", next.Owner().Term)
			}
			w.release(next)
		})
	}
}

func inWorldNamed(t *testing.T, name string, f func(t *testing.T, w *world)) {
	t.Run(name, func(t *testing.T) { inWorld(t, f) })
}

// A release that the store does not confirm says so and goes on; the name lapses
// at the worst. An abandoned member sends nothing more.
//
// SPEC PL8 LS5
func TestUnconfirmedRelease(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.proc()
		m := p.join()
		p.link.SetLink(faultstore.Cut)
		var err error
		within(t, "the release", took(func() { err = m.Release(t.Context()) }), p.cfg.Timing.Attempt, 3*p.cfg.Timing.Attempt+time.Millisecond)
		wantErr(t, err, ErrUnconfirmed)
		wantErr(t, m.Release(t.Context()), ErrUnconfirmed)
		p.link.SetLink(faultstore.Up)
		time.Sleep(ttl)
		if w.head().Held() {
			t.Error("it did not go on in the background")
		}
		if err := m.Release(t.Context()); err != nil {
			t.Errorf("afterwards: %v", err)
		}

		m = p.join()
		m.Abandon(errors.New("the work does not stop"))
		if m.Deadline().Live() || m.Release(t.Context()) == nil {
			t.Error("an abandoned member was released")
		}
		time.Sleep(ttl / 2)
		if !w.head().OwnedBy(m.Owner()) {
			t.Error("the name of an abandoned member did not lapse")
		}
		within(t, "the next join", took(func() { w.release(p.join()) }), stretched, stretched+time.Second)
	})
}

// Releases in doubt are recognised, whatever was lost and whoever came next.
//
// SPEC PL8 ST9
func TestReleaseInDoubt(t *testing.T) {
	for name, fault := range map[string]faultstore.Fault{"reply lost": faultstore.LoseReply(), "request lost": faultstore.LoseRequest(),
		"late": faultstore.LandLate(time.Second, time.Second), "hangs applied": faultstore.HangApplied()} {
		inWorldNamed(t, name, func(t *testing.T, w *world) {
			a, b := w.proc(), w.proc()
			first := a.join()
			time.Sleep(ttl)
			next := make(chan *Member)
			go func() { next <- b.join() }()
			time.Sleep(time.Second)
			a.link.Add(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpReplace}, Times: 1, Fault: fault})
			w.release(first)
			second := <-next
			if v, _, err := b.Judge(t.Context(), node, first.Owner()); err != nil || v.How != "released" {
				t.Errorf("%+v, %v", v, err)
			}
			w.release(second)
		})
	}
}
