package authority

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	tenure "github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/core/authority/checkpoint"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

// story is one life of an authority: a first leader decides, a fault is reported, a
// round begun and released, the floor raised, an object swept, a leader steps down,
// another leads and decides, is stolen from, and the first one comes back. p is the
// process whose link is bad, q has a good one.
func story(t *testing.T, w *world, p, q *proc) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*ttl)
	defer cancel()
	stands := map[uint64]bool{}
	epoch := uint64(0)
	// decide appends as whoever leads, until one decision stands, with retries as a
	// caller would: what is told to stand must, and what is told not to must not.
	decide := func(p *proc) {
		t.Helper()
		for epoch++; ; {
			l := p.Leader()
			if l == nil {
				var err error
				if l, err = p.Lead(ctx); err != nil {
					t.Fatalf("lead: %v", err)
				}
			}
			res, err := p.Append(ctx, l.Proof(), checkpoint.Rules{}, abort(epoch))
			switch {
			case err == nil && res.Stands():
				stands[epoch] = true
				return
			case err == nil && res.Answer == Fenced:
				stands[epoch] = false
				epoch++
			case err != nil && ctx.Err() != nil:
				t.Fatalf("append: %v", err)
			case err == nil:
				t.Fatalf("epoch %d: %v", epoch, res.Answer)
			}
		}
	}
	lead := func(p *proc) *Leader {
		t.Helper()
		l, err := p.Lead(ctx)
		if err != nil {
			t.Fatalf("lead: %v", err)
		}
		w.leading(l)
		return l
	}
	lead(p)
	decide(p)
	decide(p)
	fault, err := q.Report(ctx, "disk")
	if err != nil || !fault.Active {
		t.Fatalf("report: %+v, %v", fault, err)
	}
	recovered := func(p *proc) {
		t.Helper()
		for {
			l := p.Leader()
			if l == nil {
				l = lead(p)
			}
			round, err := p.BeginRound(ctx, l.Proof(), []byte("plan"))
			if err == nil {
				var res Result
				if res, err = p.Release(ctx, l.Proof(), round, []Stopped{{Node: fault.Proof.Node, Incarnation: fault.Proof.Incarnation}}); err == nil && res.Stands() {
					return
				}
			}
			if ctx.Err() != nil {
				t.Fatalf("release: %v", err)
			}
		}
	}
	recovered(p)
	if _, err := p.Report(ctx, "net"); err != nil {
		t.Errorf("report: %v", err)
	}
	decide(p)
	for { // the floor
		l := p.Leader()
		if l == nil {
			l = lead(p)
		}
		if _, err := p.Advance(ctx, l.Proof(), Checkpoint, 2, 0, nil); err == nil {
			break
		}
		if ctx.Err() != nil {
			t.Fatal("the floor is not raised")
		}
	}
	if err := p.Leader().StepDown(ctx); err != nil && !errors.Is(err, tenure.ErrUnconfirmed) && !errors.Is(err, tenure.ErrLost) {
		t.Errorf("step down: %v", err)
	}
	m := lead(q)
	decide(q)
	if _, err := Steal(ctx, p.client, theOne, StealOptions{Token: m.Token(), Why: "so", By: "me"}); err != nil {
		t.Errorf("steal: %v", err)
	}
	last := lead(p)
	decide(p)
	if last.Token() < m.Token()+2 {
		t.Errorf("token %d after %d was stolen", last.Token(), m.Token())
	}
	if _, err := p.Prune(ctx); err != nil && !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("prune: %v", err)
	}
	if err := p.s.Leave(ctx); err != nil && !errors.Is(err, tenure.ErrUnconfirmed) {
		t.Errorf("leave: %v", err)
	}
	rested(t, 3*ttl) // what is on its way lands
	w.audit(q.Reader())
	found := map[uint64]bool{}
	for e, err := range q.Reader().Entries(ctx, Checkpoint) {
		if err != nil {
			t.Fatal(err)
		}
		found[e.Link.Key] = true
	}
	for e, want := range stands {
		if e >= 2 && found[e] != want {
			t.Errorf("epoch %d stands: %v, and its caller was told %v", e, found[e], want)
		}
	}
	if h := w.head(); len(h.Faults()) != 1 || h.Faults()[0].Node != "n1" || h.Recovery == nil {
		t.Errorf("faults %+v", h.Faults())
	}
}

// ours are the calls on the authority's own keys.
func ours(c faultstore.Call) bool { return strings.Contains(c.Key, "/"+kindHead) }

// Whichever write of an authority's life loses its answer, its request, or both, or
// lands late or twice, the story ends the same.
//
// SPEC ST9 LA2 LA3 LA4 LA6
func TestEveryWriteInDoubt(t *testing.T) {
	writes := []faultstore.Op{faultstore.OpCreate, faultstore.OpReplace, faultstore.OpDelete}
	for name, fault := range map[string]faultstore.Fault{
		"reply lost": faultstore.LoseReply(), "request lost": faultstore.LoseRequest(), "unavailable": faultstore.Fail(store.ErrUnavailable),
		"hangs": faultstore.Hang(), "hangs applied": faultstore.HangApplied(), "lands late": faultstore.LandLate(time.Millisecond, 2*ttl),
		"lands twice": faultstore.Duplicate(time.Millisecond, 2*ttl), "retries itself": faultstore.RetrySelf(),
	} {
		for n := 0; n < 48; n += everyNth {
			t.Run(fmt.Sprintf("%s/%d", name, n), func(t *testing.T) {
				inWorld(t, func(t *testing.T, w *world) {
					p := w.proc(func(s *setup) {
						s.link.Seed = uint64(n)
						s.link.Rules = []faultstore.Rule{{Ops: writes, Match: ours, Skip: n, Times: 1, Fault: fault}}
					})
					story(t, w, p, w.proc())
					sent := 0
					for _, call := range p.sent {
						if !strings.HasPrefix(call, "get") && !strings.HasPrefix(call, "list") {
							sent++
						}
					}
					if fired := len(p.link.Fired()) > 0; fired != (n < sent) || n == 47 && fired {
						t.Errorf("the fault at write %d of %d: %v", n, sent, fired)
					}
				})
			})
		}
	}
}

// The same for a run of calls that fail, of every kind.
//
// SPEC ST9 ST13 LA6
func TestManyCallsFail(t *testing.T) {
	guarded := []faultstore.Op{faultstore.OpCreate, faultstore.OpReplace}
	for name, rule := range map[string]faultstore.Rule{
		"reads":                   {Ops: []faultstore.Op{faultstore.OpGet}, Match: ours, Every: 2, Times: 20, Fault: faultstore.Fail(store.ErrUnavailable)},
		"every third write":       {Ops: guarded, Match: ours, Every: 3, Fault: faultstore.LoseReply()},
		"every second request":    {Ops: guarded, Match: ours, Every: 2, Fault: faultstore.LoseRequest()},
		"half of all replies":     {Ops: guarded, Odds: 0.5, Fault: faultstore.LoseReply()},
		"late landings":           {Ops: guarded, Match: ours, Every: 4, Fault: faultstore.LandLate(time.Millisecond, ttl)},
		"hangs":                   {Ops: guarded, Match: ours, Every: 7, Fault: faultstore.HangApplied()},
		"a long outage":           {Match: ours, Skip: 12, Times: 60, Fault: faultstore.Hang()},
		"listings":                {Ops: []faultstore.Op{faultstore.OpList}, Match: ours, Every: 2, Times: 10, Fault: faultstore.Fail(store.ErrUnavailable)},
		"watches":                 {Ops: []faultstore.Op{faultstore.OpWatch}, Fault: faultstore.Fail(store.ErrUnavailable)},
		"all answers are slow":    {Fault: faultstore.DelayReply(0, 300*time.Millisecond)},
		"all requests are slow":   {Fault: faultstore.Delay(0, 300*time.Millisecond)},
		"heads come back as late": {Ops: guarded, Match: heads, Every: 2, Fault: faultstore.DelayReply(0, 2*time.Second)},
	} {
		for seed := range 4 {
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

// A caller that goes leaves its decision in doubt: it is told so, and the decision is
// settled before the session leaves. Asking again tells what became of it.
//
// SPEC LA4 LS8 ST9
func TestCallerGoes(t *testing.T) {
	for name, x := range map[string]struct {
		fault faultstore.Fault
		want  Answer
	}{"applied": {faultstore.HangApplied(), Unchanged}, "never sent": {faultstore.Hang(), Created}} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				p := w.proc()
				l := p.lead()
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				p.link.Add(faultstore.Rule{Match: heads, Ops: []faultstore.Op{faultstore.OpReplace}, Times: 1, Fault: x.fault})
				_, err := p.Append(ctx, l.Proof(), checkpoint.Rules{}, abort(1))
				wantErr(t, err, store.ErrUnknown, context.DeadlineExceeded)
				rested(t, time.Second)
				if n := p.Health().InDoubt; n != 0 {
					t.Errorf("%d writes are in doubt", n)
				}
				p.append(l, abort(1), Unchanged) // the settling sends the same bytes again
				rested(t, 2*ttl)
				if !l.Live() {
					t.Error(l.Err())
				}
				w.audit(p.Reader())
			})
		})
	}
	inWorldNamed(t, "before anything was sent", func(t *testing.T, w *world) {
		p := w.proc()
		l := p.lead()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		p.link.Add(faultstore.Rule{Match: func(c faultstore.Call) bool { return ours(c) && !heads(c) }, Ops: []faultstore.Op{faultstore.OpCreate}, Fault: faultstore.HangApplied()})
		_, err := p.Append(ctx, l.Proof(), checkpoint.Rules{}, abort(1))
		wantErr(t, err, store.ErrUnavailable, context.DeadlineExceeded)
		p.link.Clear()
		rested(t, time.Second)
		if w.head().Checkpoint != nil {
			t.Error("it stands, and its caller was told that nothing was admitted")
		}
		p.append(l, abort(1), Created)
	})
}

// What a caller that went had on its way is settled, and not tried again: here its
// head was refused, and nothing of it stands.
//
// SPEC LA4 ST9
func TestSettlingAdmitsNothing(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, q := w.proc(), w.proc()
		l := p.lead()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		p.link.Add(faultstore.Rule{Match: heads, Ops: []faultstore.Op{faultstore.OpReplace}, Times: 1, Fault: faultstore.Hang()})
		told := make(chan error, 1)
		go func() { told <- second(p.Append(ctx, l.Proof(), checkpoint.Rules{}, abort(1))) }()
		rested(t, 50*time.Millisecond)
		s := must(q.stands(t.Context()))
		next, _, err := s.head.Fold(q.c.NewID(), coreReport(q))
		if _, err = q.c.Store.Replace(t.Context(), q.headKey, must(must(next, err).Encode()), s.ver); err != nil {
			t.Fatal(err)
		}
		wantErr(t, <-told, store.ErrUnknown)
		rested(t, ttl)
		if w.head().Checkpoint != nil || !l.Live() {
			t.Errorf("%+v, %v", w.head().Checkpoint, l.Err())
		}
		p.append(l, abort(1), Created)
	})
}

// A driver whose own retry turns a success into a conflict does not turn Created into
// a rival's decision.
//
// SPEC ST9 LA4
func TestRetriedByTheDriver(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.proc()
		l := p.lead()
		p.link.Add(faultstore.Rule{Match: heads, Ops: []faultstore.Op{faultstore.OpReplace}, Times: 1, Fault: faultstore.RetrySelf()})
		p.append(l, abort(1), Created)
		p.append(l, abort(2), Created)
	})
}

func inWorldNamed(t *testing.T, name string, f func(t *testing.T, w *world)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { inWorld(t, f) })
}

// A stale leader's writes that land after a takeover change nothing: neither its
// renewals nor its decisions, however late.
//
// SPEC LA2 LA4
func TestStaleLeadersWrites(t *testing.T) {
	for name, late := range map[string]time.Duration{"before the takeover": ttl / 2, "after it": 2 * ttl} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				p, q := w.proc(), w.proc()
				l := p.lead()
				p.append(l, abort(1), Created)
				// From here on every write of the head lands late, and nothing else is heard.
				p.link.Add(faultstore.Rule{Match: heads, Ops: []faultstore.Op{faultstore.OpReplace}, Times: 1, Fault: faultstore.LandLate(late, late+time.Second)},
					faultstore.Rule{Match: heads, Skip: 1, Fault: faultstore.Hang()})
				ctx, cancel := context.WithTimeout(t.Context(), 10*ttl)
				defer cancel()
				type answer struct {
					res Result
					err error
				}
				told := make(chan answer, 1)
				go func() {
					res, err := p.Append(ctx, l.Proof(), checkpoint.Rules{}, abort(2))
					told <- answer{res, err}
				}()
				m := q.lead()
				q.append(m, abort(3), Created)
				rested(t, 3*ttl)
				p.link.Clear()
				got := <-told
				stood := false
				for e, err := range q.Reader().Entries(t.Context(), Checkpoint) {
					if err != nil {
						t.Fatal(err)
					}
					stood = stood || e.Link.Key == 2
				}
				if got.err != nil || got.res.Stands() != stood {
					t.Errorf("%v, %v; it stands: %v", got.res.Answer, got.err, stood)
				}
				if stood != (late < ttl) {
					t.Errorf("a write that landed after %v stands: %v", late, stood)
				}
				if h := w.head(); !h.Leads(m.core()) {
					t.Errorf("%+v leads", h.Leader)
				}
				w.audit(q.Reader())
			})
		})
	}
}

// A proof of another process admits nothing here.
//
// SPEC LA4
func TestForeignProof(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, q := w.proc(), w.proc()
		l := p.lead()
		_, err := q.Append(t.Context(), l.Proof(), checkpoint.Rules{}, abort(1))
		wantErr(t, err, store.ErrInvalid)
		p.append(l, abort(1), Created)
		if res, err := q.Append(t.Context(), l.Proof(), checkpoint.Rules{}, abort(1)); err != nil || res.Answer != Unchanged {
			t.Errorf("%v, %v", res.Answer, err)
		}
		if _, err := q.BeginRound(t.Context(), l.Proof(), nil); !errors.Is(err, ErrFenced) {
			t.Error(err)
		}
	})
}
