package authority

import (
	"context"
	"errors"
	"testing"
	"time"

	tenure "github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/core/authority/checkpoint"
	"github.com/tenure-project/tenure/internal/core/identity"
	"github.com/tenure-project/tenure/internal/membership"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

// heads are the calls on the head alone.
func heads(c faultstore.Call) bool {
	return c.Key == store.Key("default", kindHead, theOne)
}

// One session has one candidacy in an authority; another session, and the same one
// in another authority, have theirs. A store that takes few writes refuses a short
// interval, and bad input is told before anything happens.
//
// SPEC LA1 LA3 ST14
func TestOpen(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, q := w.proc(), w.proc()
		_, err := Open(t.Context(), p.s, theOne)
		wantErr(t, err, store.ErrInvalid)
		other, err := Open(t.Context(), p.s, "other", PruneEvery(-1))
		if err != nil {
			t.Fatal(err)
		}
		if l, err := other.Lead(t.Context()); err != nil || l.Token() != 1 {
			t.Errorf("%v", err)
		}
		for what, o := range map[string][]Option{
			"a TTL":           {TTL(time.Millisecond)},
			"a renew":         {RenewEvery(ttl)},
			"a note":          {Note(string(make([]byte, 2000)))},
			"a stop":          {Stop(ttl)},
			"a stop limit":    {StopLimit(-1)},
			"a negative stop": {Stop(-time.Second)},
		} {
			if _, err := Open(t.Context(), q.s, "x", o...); !errors.Is(err, store.ErrInvalid) {
				t.Errorf("%s: %v", what, err)
			}
		}
		_, err = Open(t.Context(), q.s, " x")
		wantErr(t, err, store.ErrInvalid)
		slow := w.proc(func(s *setup) {
			s.link.Info = func(i store.Info) store.Info { i.WritesPerSecond = 1; return i }
		})
		_, err = Open(t.Context(), slow.s, "fast", TTL(5*time.Second))
		wantErr(t, err, store.ErrInvalid)
		if err := p.s.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err = Open(t.Context(), p.s, "late")
		wantErr(t, err, tenure.ErrShutdown)
		_, err = p.Lead(t.Context())
		wantErr(t, err, tenure.ErrShutdown)
	})
}

// A leader that cannot reach the store leads until its deadline and no longer; its
// rival leads after it observed the head for the TTL, not before.
//
// SPEC LA3 LA7 DL4
func TestTakeoverAfterSilence(t *testing.T) {
	for name, edit := range map[string]func(*setup){"watching": func(*setup) {}, "polling": polling} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				p, q := w.proc(edit), w.proc(edit)
				l := p.lead()
				rested(t, ttl)
				p.link.Add(faultstore.Rule{Match: heads, Fault: faultstore.Hang()}) // its session lives on
				var m *Leader
				d := took(func() { m = q.lead() })
				within(t, "the takeover", d, stretched-p.cfg.timing.Renew, stretched+2*time.Second)
				if l.Live() || m.Token() != 2 {
					t.Errorf("the old one is live: %v; token %d", l.Live(), m.Token())
				}
				wantErr(t, l.Err(), tenure.ErrExpired, tenure.ErrLost)
				if past := w.head().Recent; len(past) != 1 || past[0].How != "observed" {
					t.Errorf("past %+v", past)
				}
			})
		})
	}
}

// The certificate of the exact session lets a rival take over without a second wait:
// in one TTL after the death, not two.
//
// SPEC LA3 LA1
func TestTakeoverByEvidence(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, q, r := w.proc(func(s *setup) { s.opts = []Option{TTL(time.Hour)} }), w.proc(), w.proc()
		l := p.lead()
		rested(t, ttl)
		p.die()
		// Somebody else has proven the session's end.
		if _, err := q.c.Identities.AwaitOver(t.Context(), "n1", p.session.Owner); err != nil {
			t.Fatal(err)
		}
		var m *Leader
		within(t, "the takeover", took(func() { m = r.lead() }), 0, time.Second)
		if past := w.head().Recent; m.Token() != 2 || l.Live() || len(past) != 1 {
			t.Errorf("token %d, %+v", m.Token(), past)
		}
		r.append(m, abort(1), Created)

		// Without any, the campaign itself observes the session, for its TTL and not for
		// the authority's.
		r.die()
		within(t, "the takeover", took(func() { m = q.lead() }), ttl/2, stretched+2*time.Second)
		w.audit(q.Reader())
	})
}

// Evidence that rests on force is waited for once.
//
// SPEC LA3 LS11
func TestTakeoverByForce(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, q := w.proc(func(s *setup) { s.opts = []Option{TTL(time.Hour)} }), w.proc()
		p.lead()
		p.die()
		if err := q.c.Identities.Force(t.Context(), "n1", p.session.Owner, identity.Operator{Why: "so", By: "me"}); err != nil {
			t.Fatal(err)
		}
		within(t, "the takeover", took(func() { q.lead() }), stretched, stretched+2*time.Second)
		if past := w.head().Recent; len(past) != 1 || past[0].How != "forced" {
			t.Errorf("past %+v", past)
		}
	})
}

// A TryLead that finds the end proven leads at once.
//
// SPEC LA3
func TestTryLeadByEvidence(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, q := w.proc(func(s *setup) { s.opts = []Option{TTL(time.Hour)} }), w.proc()
		p.lead()
		p.die()
		_, err := q.TryLead(t.Context())
		wantErr(t, err, tenure.ErrHeld)
		if _, err := q.c.Identities.AwaitOver(t.Context(), "n1", p.session.Owner); err != nil {
			t.Fatal(err)
		}
		if l, err := q.TryLead(t.Context()); err != nil || l.Token() != 2 {
			t.Errorf("%v", err)
		}
	})
}

// A lapse while leading withdraws, waits one TTL, and the same process leads again
// without a restart: with a new token and a new deadline. The old handle stays over.
//
// SPEC LA6 LA3 DL1
func TestLapseAndComeBack(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.proc()
		l := p.lead()
		rested(t, ttl)
		p.link.Add(faultstore.Rule{Match: heads, Fault: faultstore.Hang()})
		<-l.Done()
		lapsed := time.Now()
		wantErr(t, l.Err(), tenure.ErrExpired)
		p.link.Clear()
		_, err := p.TryLead(t.Context())
		wantErr(t, err, store.ErrUnavailable)
		rested(t, time.Second)
		if !w.head().Led() { // what acted under it may act yet
			t.Error("a leadership that lapsed was given up, and nobody asked for it")
		}
		m := p.lead()
		within(t, "coming back", time.Since(lapsed), ttl-time.Second, stretched+time.Second)
		if m.Token() <= l.Token() || l.Live() || p.Leads(l.Proof()) || !p.Leads(m.Proof()) || m.own == l.own {
			t.Errorf("token %d after %d", m.Token(), l.Token())
		}
		p.append(m, abort(1), Created)
		p.append(l, abort(2), Fenced)
		rested(t, 3*ttl)
		if !m.Live() || p.s.Err() != nil {
			t.Errorf("%v, %v", m.Err(), p.s.Err())
		}
	})
}

// A slow attempt while nothing is held ends nothing: the campaign goes on.
//
// SPEC LA6 DL4
func TestSlowWhileHoldingNothing(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.proc()
		p.link.Add(faultstore.Rule{Match: heads, Ops: []faultstore.Op{faultstore.OpCreate}, Times: 1, Fault: faultstore.HangApplied()},
			faultstore.Rule{Match: heads, Ops: []faultstore.Op{faultstore.OpGet}, Skip: 1, Times: 30, Fault: faultstore.Hang()})
		l := p.lead()
		if l.Token() < 2 || !l.Live() {
			t.Errorf("token %d", l.Token())
		}
		if err := p.s.Leave(t.Context()); err != nil {
			t.Error(err)
		}
		if h := w.head(); h.Led() {
			t.Errorf("%+v leads", h.Leader)
		}
	})
}

// A campaign that is given up leaves nothing behind, whatever became of its write.
//
// SPEC LA3 ST9
func TestCampaignGivenUp(t *testing.T) {
	for name, fault := range map[string]faultstore.Fault{"hangs applied": faultstore.HangApplied(), "hangs": faultstore.Hang()} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				p, q := w.proc(), w.proc()
				w.stepDown(p.lead())
				p.link.Add(faultstore.Rule{Match: heads, Ops: []faultstore.Op{faultstore.OpReplace}, Times: 1, Fault: fault})
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, err := p.Lead(ctx)
				wantErr(t, err, context.DeadlineExceeded)
				rested(t, 2*ttl)
				if h := w.head(); h.Led() || p.Health().InDoubt != 0 {
					t.Errorf("%+v leads, %+v", h.Leader, p.Health())
				}
				within(t, "the next one", took(func() { q.lead() }), 0, time.Second)
				if err := p.s.Leave(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// Leaving ends the leadership first: its work is stopped, and the next process leads
// at once. A leadership that cannot be given up makes the session's name lapse.
//
// SPEC LA6 PL8
func TestLeaveEndsLeadership(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, q := w.proc(), w.proc()
		stopped := make(chan error, 1)
		go func() {
			stopped <- p.Run(context.Background(), func(ctx context.Context, l *Leader) error {
				<-ctx.Done()
				if !l.Live() {
					t.Error("the work was stopped after the leadership, not before")
				}
				rested(t, time.Second)
				return context.Cause(ctx)
			})
		}()
		rested(t, ttl)
		within(t, "leaving", took(func() {
			if err := p.s.Leave(t.Context()); err != nil {
				t.Error(err)
			}
		}), time.Second, 2*time.Second)
		if err := <-stopped; !errors.Is(err, tenure.ErrReleased) && !errors.Is(err, tenure.ErrShutdown) {
			t.Error(err)
		}
		if h := w.head(); h.Led() || h.Ended().How != "released" {
			t.Errorf("%+v", h)
		}
		l := q.lead()
		q.link.Add(faultstore.Rule{Match: heads, Ops: []faultstore.Op{faultstore.OpReplace}, Fault: faultstore.Hang()})
		wantErr(t, q.s.Leave(t.Context()), tenure.ErrUnconfirmed)
		if l.Live() || !w.head().Led() {
			t.Error("the leadership is gone, or lives")
		}
		v, _, err := p.c.Identities.Judge(t.Context(), "n2", q.session.Owner)
		if err != nil || v.How == "released" {
			t.Errorf("the name was given up: %+v, %v", v, err)
		}
	})
}

// Work that does not stop makes the name lapse, and is told.
//
// SPEC LA6 PL8
func TestLeaveWithWorkThatRunsOn(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.proc(func(s *setup) { s.opts = []Option{StopLimit(3 * time.Second)} })
		release, ended := make(chan struct{}), make(chan error, 1)
		go func() {
			ended <- p.Run(context.Background(), func(context.Context, *Leader) error { <-release; return nil })
		}()
		rested(t, time.Second)
		wantErr(t, p.s.Leave(t.Context()), tenure.ErrUnconfirmed, tenure.ErrOverlap)
		if !w.head().Led() {
			t.Error("the leadership was given up while its work runs")
		}
		close(release)
		<-ended
	})
}

// The end of the session is the end of its leadership, at the same instant.
//
// SPEC LA1 LA7 DL6
func TestSessionEnds(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.proc(func(s *setup) { s.opts = []Option{TTL(time.Hour)} })
		l := p.lead()
		proof := l.Proof()
		p.link.Add(faultstore.Rule{Match: func(c faultstore.Call) bool { return c.Key == store.Key("default", "identity", "n1") }, Fault: faultstore.Hang()})
		<-p.s.Lost()
		if l.Live() || l.Leads(proof) || p.Leads(proof) {
			t.Error("it leads without its session")
		}
		<-l.Done()
		wantErr(t, l.Err(), tenure.ErrExpired)
		res, err := p.Append(t.Context(), proof, checkpoint.Rules{}, abort(1))
		if err == nil && res.Answer != Fenced || w.head().Checkpoint != nil {
			t.Error("it decided without its session")
		}
		if _, err := p.Lead(t.Context()); err == nil {
			t.Error("it led without its session")
		}
		if p.Kit().Session().Deadline.Cause() == membership.ErrReleased {
			t.Error("the session was left")
		}
	})
}

// Two sessions that fight for one authority never lead at once, and each gets its
// turn.
//
// SPEC LA3 LA6 LA1
func TestTwoFight(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*ttl)
		defer cancel()
		procs := []*proc{w.proc(), w.proc(polling)}
		turns := make([]int, 2)
		ends := make(chan error, 2)
		for i, p := range procs {
			go func() {
				ends <- p.Run(ctx, func(ctx context.Context, l *Leader) error {
					w.leading(l)
					turns[i]++
					if _, err := p.Append(ctx, l.Proof(), checkpoint.Rules{}, abort(w.next())); err != nil {
						t.Errorf("append: %v", err)
					}
					if i == turns[i]%2 { // sometimes it hangs instead
						p.link.Add(faultstore.Rule{Match: heads, Times: 40, Fault: faultstore.Hang()})
						<-ctx.Done()
						p.link.Clear()
						return context.Cause(ctx)
					}
					return nil
				})
			}()
		}
		for range procs {
			if err := <-ends; err != nil {
				t.Error(err)
			}
		}
		if turns[0] < 3 || turns[1] < 3 {
			t.Errorf("turns %v", turns)
		}
		w.audit(procs[0].Reader())
	})
}

func (w *world) next() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sealed++
	return w.sealed
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
