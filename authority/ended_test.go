package authority

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	tenure "github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/core/authority/checkpoint"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

// The end of a leadership ends the decisions under it: none is sent after it, and
// none holds the end up.
//
// SPEC LA2 LA4 LA6
func TestNothingIsSentAfterTheEnd(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, q := w.proc(), w.proc()
		l := p.lead()
		p.link.Add(faultstore.Rule{Match: besides, Ops: []faultstore.Op{faultstore.OpCreate}, Times: 1, Fault: faultstore.Delay(time.Second, time.Second)})
		told := make(chan Answer, 1)
		go func() {
			res, err := p.Append(t.Context(), l.Proof(), checkpoint.Rules{}, abort(1))
			if err != nil {
				t.Error(err)
			}
			told <- res.Answer
		}()
		rested(t, 500*time.Millisecond)
		within(t, "stepping down", took(func() { w.stepDown(l) }), 0, 100*time.Millisecond)
		q.lead()
		if a := <-told; a != Fenced || w.head().Checkpoint != nil {
			t.Errorf("told %v, %+v", a, w.head().Checkpoint)
		}
	})
}

// Giving up a leadership that lapsed does not end a later one of the same process.
//
// SPEC LA6
func TestOldHandleEndsNothing(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.proc()
		l := p.lead()
		p.link.Add(faultstore.Rule{Match: heads, Fault: faultstore.Hang()})
		<-l.own.Done()
		p.link.Clear()
		m := p.lead()
		wantErr(t, l.StepDown(t.Context()), tenure.ErrExpired)
		if h := w.head(); !h.Led() || h.Token != m.Token() {
			t.Errorf("token %d, led %v", h.Token, h.Led())
		}
		rested(t, 2*ttl)
		if !m.Live() {
			t.Error(m.Err())
		}
	})
}

// Nothing begins once the end of the session did, also not for a campaign that does
// not know yet.
//
// SPEC LA6 LA1
func TestNothingBeginsAfterTheSession(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.proc()
		w.stepDown(p.lead())
		if err := p.s.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		before := w.head().Sequence
		c := campaign{a: p.Authority}
		_, _, _, err := c.attempt(context.WithoutCancel(t.Context()))
		wantErr(t, err, tenure.ErrShutdown)
		if h := w.head(); h.Sequence != before {
			t.Errorf("it wrote %+v", h)
		}
	})
}

// A change whose outcome is not known is settled in the background, also when its
// leadership is over and nobody campaigns.
//
// SPEC ST9 LA6
func TestChangeInDoubtIsSettled(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.proc()
		l := p.lead()
		p.link.Add(faultstore.Rule{Match: headWrites, Times: 1, Fault: faultstore.HangApplied()},
			faultstore.Rule{Match: heads, Fault: faultstore.Hang()})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := p.BeginRound(ctx, l.Proof(), nil)
		wantErr(t, err, store.ErrUnknown)
		<-l.own.Done()
		if n := p.Health().InDoubt; n != 1 {
			t.Fatalf("%d writes are in doubt", n)
		}
		p.link.Clear()
		rested(t, 2*ttl)
		if n := p.Health().InDoubt; n != 0 {
			t.Errorf("%d writes are in doubt for ever", n)
		}
	})
}

// A leadership that was won and never handed out is nobody's: a proof of it, which
// anybody can read, admits nothing here. It is left to the campaign that is under way,
// and given up once there is none.
//
// SPEC LA3 LA4 LA6
func TestWonAndNotHandedOut(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.proc()
		looks := 0
		p.c.Floor = func(ctx context.Context) (uint64, error) {
			if looks++; looks > 1 { // the second look takes longer than the campaign
				<-ctx.Done()
			}
			return 0, ctx.Err()
		}
		p.want(1) // a second campaign, as it were
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := p.Lead(ctx)
		wantErr(t, err, context.DeadlineExceeded)
		rested(t, ttl)
		proof, led := must(p.Reader().Snapshot(t.Context())).Leader()
		if !led || proof.Incarnation != p.me.Incarnation {
			t.Fatalf("%+v leads: what the campaign won was given up", proof)
		}
		_, err = p.Append(t.Context(), proof, checkpoint.Rules{}, abort(1))
		wantErr(t, err, store.ErrInvalid)
		p.want(-1)
		p.settleLater()
		synctest.Wait()
		if h := w.head(); h.Led() || h.Checkpoint != nil {
			t.Errorf("%+v leads", h.Leader)
		}
	})
}
