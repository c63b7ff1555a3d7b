package authority

import (
	"context"
	"testing"
	"time"

	tenure "github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/core/identity"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

// The floor rises to the very token of the first leadership while that begins: the one
// that is handed out is above it.
//
// SPEC LS12 LA3
func TestFloorAtTheFirstToken(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.proc()
		looks := 0
		p.c.Floor = func(context.Context) (uint64, error) {
			looks++
			return min(uint64(looks)-1, 1), nil
		}
		if l := p.lead(); l.Token() != 2 {
			t.Errorf("token %d, the floor is 1", l.Token())
		}
	})
}

// A write of the head that is refused before any effect changes nothing of what is
// known: the leadership goes on by writes alone.
//
// SPEC LA6 ST9
func TestRefusalForgetsNothing(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.proc()
		l := p.lead()
		p.link.Add(faultstore.Rule{Match: headWrites, Times: 1, Fault: faultstore.Fail(store.ErrDenied)},
			faultstore.Rule{Match: heads, Ops: []faultstore.Op{faultstore.OpGet}, Fault: faultstore.Hang()})
		rested(t, 3*ttl)
		if h := p.Health(); !l.Live() || h.InDoubt != 0 || h.RenewErr != nil {
			t.Errorf("%v, %+v", l.Err(), h)
		}
	})
}

// Calls are limited by the authority's own TTL, where it is shorter than the
// session's: a few that hang do not cost the leadership.
//
// SPEC DL5 LA6 ST13
func TestOwnTimingLimitsCalls(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.proc(func(s *setup) { s.opts = []Option{TTL(ttl / 5)} })
		l := p.lead()
		p.link.Add(faultstore.Rule{Match: headWrites, Times: 1, Fault: faultstore.RetrySelf()}, // so that the head must be read
			faultstore.Rule{Match: heads, Ops: []faultstore.Op{faultstore.OpGet}, Times: 2, Fault: faultstore.Hang()})
		rested(t, ttl)
		if n := p.link.Fired()["hang"]; n != 2 || !l.Live() {
			t.Errorf("%d calls hung, %v", n, l.Err())
		}
	})
}

// What a leader keeps of reports that the head shows goes with their keys: it does not
// grow with every report.
//
// SPEC RF LA6
func TestShownReportsAreForgotten(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, q := w.proc(), w.proc()
		p.lead()
		const reports = 20
		for range reports {
			if _, err := q.Report(t.Context(), "disk"); err != nil {
				t.Fatal(err)
			}
		}
		rested(t, 3*p.cfg.timing.Renew)
		r := &p.reports
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.done)+len(r.pending)+len(r.since)+len(r.clash) != 0 || len(w.keys(kindReport)) != 0 {
			t.Errorf("kept: %d shown, %d pending, %d noted, %d that clash", len(r.done), len(r.pending), len(r.since), len(r.clash))
		}
	})
}

// One call begins one round, also where the driver repeats its write and takes its own
// success for a refusal.
//
// SPEC RF ST9
// CASE B02
func TestOneRoundOfACall(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.proc()
		l := p.lead()
		p.link.Add(faultstore.Rule{Match: headWrites, Times: 1, Fault: faultstore.RetrySelf()})
		first, err := p.BeginRound(t.Context(), l.Proof(), []byte("x"))
		if r := w.head().Round; err != nil || first.Generation != 1 || r.ID != first.ID || r.Generation != 1 {
			t.Errorf("%+v, %v, and %+v stands", first, err, r)
		}
		if next, err := p.BeginRound(t.Context(), l.Proof(), []byte("x")); err != nil || next.Generation != 2 || next.ID == first.ID {
			t.Errorf("another call: %+v, %v", next, err)
		}
	})
}

// A steal that is repeated by its operator finds that the leadership is over, and is
// no success; one that its driver repeated is one, once.
//
// SPEC LS11 ST9
func TestStolenOnce(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, q := w.proc(), w.proc()
		p.lead()
		o := StealOptions{Token: 1, Why: "it hangs", By: "me"}
		q.link.Add(faultstore.Rule{Match: headWrites, Times: 1, Fault: faultstore.RetrySelf()})
		s, err := Steal(t.Context(), q.client, theOne, o)
		if past, _ := s.Past(); err != nil || len(past) != 1 || past[0].Why != o.Why {
			t.Errorf("%v, %+v", err, past)
		}
		before := w.head().Sequence
		_, err = Steal(t.Context(), q.client, theOne, o)
		wantErr(t, err, store.ErrConflict)
		if w.head().Sequence != before {
			t.Error("it wrote again")
		}
	})
}

// The wait after a forced end counts from the first look at the evidence: a candidate
// that looked waits the rest only, and nobody waits less.
//
// SPEC LA3 LS11
func TestForceCountsFromTheFirstLook(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, q, r := w.proc(func(s *setup) { s.opts = []Option{TTL(time.Hour)} }), w.proc(), w.proc()
		p.lead()
		p.die()
		if err := q.c.Identities.Force(t.Context(), "n1", p.session.Owner, identity.Operator{Why: "so", By: "me"}); err != nil {
			t.Fatal(err)
		}
		rested(t, ttl) // which is nothing to somebody who did not look
		_, err := r.TryLead(t.Context())
		wantErr(t, err, tenure.ErrHeld)
		rested(t, ttl/2)
		_, err = r.TryLead(t.Context())
		wantErr(t, err, tenure.ErrHeld)
		within(t, "the takeover", took(func() { r.lead() }), stretched-ttl/2, stretched-ttl/2+time.Second)
	})
}
