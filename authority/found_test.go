package authority

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	tenure "github.com/tenure-project/tenure"
	core "github.com/tenure-project/tenure/internal/core/authority"
	"github.com/tenure-project/tenure/internal/core/authority/checkpoint"
	"github.com/tenure-project/tenure/internal/core/authority/recovery"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
	"github.com/tenure-project/tenure/store/memstore"
)

// The floor rises while the first head is created, and whoever began it cannot look
// again, or dies before. Nobody gets a token below it, and nobody is shown a
// leadership before it was looked at.
//
// SPEC LS12 LA3
func TestFloorIsLookedAtAgain(t *testing.T) {
	floors := func(p *proc, second func(ctx context.Context) (uint64, error)) {
		calls := 0
		p.c.Floor = func(ctx context.Context) (uint64, error) {
			switch calls++; calls {
			case 1:
				return 0, nil
			case 2:
				return second(ctx)
			}
			return 41, nil
		}
	}
	for name, second := range map[string]func(p *proc) func(ctx context.Context) (uint64, error){
		"the look fails": func(*proc) func(context.Context) (uint64, error) {
			return func(context.Context) (uint64, error) {
				return 0, store.Errorf(store.ErrUnavailable, "", "floor", "x", "by the test")
			}
		},
		"it is not shown before": func(p *proc) func(context.Context) (uint64, error) {
			return func(context.Context) (uint64, error) {
				if l := p.Leader(); l != nil {
					t.Errorf("token %d is shown", l.Token())
				}
				return 41, nil
			}
		},
		"its process dies": func(p *proc) func(context.Context) (uint64, error) {
			return func(ctx context.Context) (uint64, error) {
				p.die()
				<-ctx.Done()
				return 0, ctx.Err()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				p, q := w.proc(), w.proc()
				floors(p, second(p))
				q.c.Floor = func(context.Context) (uint64, error) { return 41, nil }
				ctx, cancel := context.WithTimeout(t.Context(), ttl/2)
				defer cancel()
				l, err := p.Lead(ctx)
				if err != nil {
					l = q.lead()
				}
				if l.Token() != 42 || w.head().Counter != 42 {
					t.Errorf("token %d, counter %d", l.Token(), w.head().Counter)
				}
			})
		})
	}
}

// A head whose slots are full of active faults has no room: whoever reports is told,
// leader or not, and does not wait for ever.
//
// SPEC RF LA9
func TestReportWithoutRoom(t *testing.T) {
	for _, own := range []bool{false, true} {
		t.Run(fmt.Sprint("the leader's own ", own), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				p, q := w.proc(), w.proc()
				l := p.lead()
				for i := range core.MaxSlots {
					r := &recovery.Pending{V: 1, Authority: theOne, Attempt: p.c.NewID(), At: 1}
					r.Node, r.Incarnation, r.Term, r.Request = fmt.Sprintf("x%03d", i), p.c.NewID(), record.MaxNumber, record.MaxNumber
					w.set(p.key(kindReport, reportElement(r.Report)), must(r.Encode()))
				}
				rested(t, 2*p.cfg.timing.Renew)
				if n := len(w.head().Faults()); n != core.MaxSlots {
					t.Fatalf("%d faults", n)
				}
				who := map[bool]*proc{true: p, false: q}[own]
				began := time.Now()
				_, err := who.Report(t.Context(), "disk")
				wantErr(t, err, store.ErrUnavailable)
				within(t, "the answer", time.Since(began), 0, 2*ttl)
				if !l.Live() {
					t.Error(l.Err())
				}
			})
		})
	}
}

// eager lists reports at once, and tells later, the first time.
type eager struct {
	*memstore.Store
	once atomic.Bool
	wait time.Duration
}

func (e *eager) List(ctx context.Context, prefix, after string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		all, err := []string(nil), error(nil)
		for k, bad := range e.Store.List(ctx, prefix, after) {
			if all = append(all, k); bad != nil {
				err = bad
			}
		}
		if strings.Contains(prefix, "/report/") && !e.once.Swap(true) {
			time.Sleep(e.wait)
		}
		for _, k := range all {
			if !yield(k, err) {
				return
			}
		}
	}
}

// A listing that began before a report was written and ends after it was found does
// not take it away again: a release that found it right before does not overlook it.
//
// SPEC RF
func TestOldListingTakesNothingAway(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		slow := &eager{Store: w.st.Peer(), wait: 1200 * time.Millisecond}
		p, q := w.proc(func(s *setup) { s.inner = slow }), w.proc()
		l := p.lead()
		round := must(p.BeginRound(t.Context(), l.Proof(), nil))
		replaces := func(c faultstore.Call) bool { return heads(c) && c.Op == faultstore.OpReplace }
		rested(t, p.cfg.timing.Renew/2+100*time.Millisecond)
		if !slow.once.Load() {
			t.Fatal("the collector does not list")
		}
		r := &recovery.Pending{V: 1, Authority: theOne, Attempt: p.c.NewID(), At: 1, Report: coreReport(q)}
		w.set(p.key(kindReport, reportElement(r.Report)), must(r.Encode()))
		// A slow decision holds the head until the collector's listing has come back.
		p.link.Add(faultstore.Rule{Match: replaces, Times: 1, Fault: faultstore.DelayReply(1300*time.Millisecond, 1300*time.Millisecond)})
		decided := make(chan struct{})
		go func() { defer close(decided); p.append(l, abort(1), Created) }()
		rested(t, 100*time.Millisecond)
		_, err := p.Release(t.Context(), l.Proof(), round, nil)
		<-decided
		wantErr(t, err, ErrInventoryChanged)
		if h := w.head(); len(h.Faults()) != 1 {
			t.Errorf("the faults are %+v", h.Slots)
		}
	})
}

// Campaigns that fail in an outage leave one goroutine behind, which all of them ask,
// and not one each.
//
// SPEC LA6
func TestOutageGathersNoCrowd(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.proc()
		l := p.lead()
		p.link.Add(faultstore.Rule{Match: heads, Fault: faultstore.Hang()})
		<-l.own.Done()
		for range 100 {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			if _, err := p.TryLead(ctx); err == nil {
				t.Fatal("leads")
			}
			cancel()
		}
		p.mu.Lock()
		asked := p.untidy
		p.mu.Unlock()
		if asked < 50 {
			t.Errorf("%d asked for what is settled", asked)
		}
		p.link.Clear()
		second := p.lead()
		p.append(second, abort(1), Created)
		rested(t, ttl)
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.untidy != 0 {
			t.Errorf("%d wait yet", p.untidy)
		}
	})
}

// A new leader's decisions get in while it walks a long chain on a slow store, and
// the chain is compacted once it has.
//
// SPEC CK LA4
func TestDecisionsDoNotWaitForTheWalk(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, q := w.proc(), w.proc()
		l := p.lead()
		for e := uint64(1); e <= 200; e++ {
			c := &checkpoint.Capsule{V: 1, Attempt: checkpoint.Attempt{Epoch: e, Checkpoint: e}, Deployment: deployment, Fence: fence}
			name := checkpoint.CapsuleName{Epoch: e, Token: l.Token(), Attempt: p.c.NewID()}
			w.set(p.key("capsule", name.Element()), must(c.Encode()))
			p.append(l, must(checkpoint.NewCommit(c, name.Attempt, must(c.Encode())).Encode()), Created)
		}
		next := uint64(201)
		for ; w.head().Checkpoint.Live < 64; next++ {
			p.append(l, abort(next), Created)
		}
		w.stepDown(l)
		slow := func(c faultstore.Call) bool { return c.Op == faultstore.OpGet && besides(c) }
		q.link.Add(faultstore.Rule{Match: slow, Fault: faultstore.Delay(500*time.Millisecond, 500*time.Millisecond)})
		m := q.lead()
		decide := func() {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if res, err := q.Append(ctx, m.Proof(), checkpoint.Rules{}, abort(next)); err != nil || res.Answer != Created {
				t.Fatalf("epoch %d: %v, %v", next, res.Answer, err)
			}
			next++
		}
		for range 3 {
			decide()
		}
		if c := w.head().Checkpoint; c.Live < 64 {
			t.Fatalf("compacted without a walk: %+v", c)
		}
		rested(t, 2*time.Minute)
		decide()
		if c := w.head().Checkpoint; c.Live > 20 || q.Health().CompactErr != nil {
			t.Errorf("%d live, %v", c.Live, q.Health().CompactErr)
		}
		q.link.Clear()
		w.audit(q.Reader())
	})
}

// A chain that is broken where nobody looks is told while decisions go on.
//
// SPEC LA5 CK
func TestBrokenChainIsTold(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, q := w.proc(), w.proc()
		l := p.lead()
		var third Link
		for e := uint64(1); e <= 64; e++ {
			if res := p.append(l, abort(e), Created); e == 3 {
				third = res.Winner
			}
		}
		w.set(p.key("entry", third.Name().Element()), []byte("{}"))
		w.stepDown(l)
		m := q.lead()
		for e := uint64(65); e <= 68; e++ {
			q.append(m, abort(e), Created)
		}
		synctest.Wait()
		var b *BrokenError
		if err := q.Health().CompactErr; !errors.As(err, &b) || b.Link != third {
			t.Errorf("%v", err)
		}
	})
}

// A decision that was sent is never told to be refused before something final is
// known of it: not when what settles its head is known and the chain cannot be read,
// nor when a driver repeated the write and met its own success.
//
// SPEC LA4 ST8
// CASE B02
func TestSentIsNotRefused(t *testing.T) {
	reads := func(of func(faultstore.Call) bool) func(faultstore.Call) bool {
		return func(c faultstore.Call) bool { return c.Op == faultstore.OpGet && of(c) }
	}
	replaces := func(c faultstore.Call) bool { return heads(c) && c.Op == faultstore.OpReplace }
	for name, x := range map[string]struct {
		write  faultstore.Fault
		limit  time.Duration
		lapses bool
	}{
		"it lapses, then the head can be read": {faultstore.HangApplied(), 6 * ttl, true},
		"the driver repeats it":                {faultstore.RetrySelf(), 3 * time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				p := w.proc()
				l := p.lead()
				p.append(l, abort(1), Created)
				p.link.Add(faultstore.Rule{Match: replaces, Times: 1, Fault: x.write},
					faultstore.Rule{Match: reads(heads), Fault: faultstore.Hang()}, faultstore.Rule{Match: reads(besides), Fault: faultstore.Hang()})
				ctx, cancel := context.WithTimeout(t.Context(), x.limit)
				defer cancel()
				told := make(chan error, 1)
				go func() {
					res, err := p.Append(ctx, l.Proof(), checkpoint.Rules{}, abort(2))
					if err == nil && res.Answer != Created {
						err = fmt.Errorf("told %v", res.Answer)
					}
					told <- err
				}()
				if x.lapses {
					<-l.own.Done()
					rested(t, time.Second)
					p.link.Clear()
					p.link.Add(faultstore.Rule{Match: reads(besides), Fault: faultstore.Hang()})
				}
				err := <-told
				if w.head().Checkpoint.Head.Key != 2 {
					t.Fatal("it does not stand")
				}
				if err != nil && !errors.Is(err, store.ErrUnknown) {
					t.Errorf("it stands, and is told to be %v", err)
				}
				if x.lapses && err != nil {
					t.Errorf("the head tells that it stands: %v", err)
				}
			})
		})
	}
}

// Reads of the head hang, and writes work: the leadership lives by its writes, also
// when somebody asks for an answer that needs a read.
//
// SPEC LA6 LS4
func TestAnAnswerCostsNoLeadership(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.proc()
		l := p.lead()
		p.append(l, abort(1), Created)
		p.link.Add(faultstore.Rule{Match: func(c faultstore.Call) bool { return heads(c) && c.Op == faultstore.OpGet }, Fault: faultstore.Hang()})
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		if _, err := p.Append(ctx, l.Proof(), checkpoint.Rules{}, abort(1)); err == nil {
			t.Error("answered without a read")
		}
		rested(t, 3*ttl)
		if !l.Live() {
			t.Error(l.Err())
		}
	})
}

// Two process starts that claim one term are corruption: the leader says so, and does
// not remove what shows it.
//
// SPEC RF
func TestClashIsTold(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.proc()
		l := p.lead()
		for i := range uint64(2) {
			r := &recovery.Pending{V: 1, Authority: theOne, Attempt: p.c.NewID(), At: 1}
			r.Node, r.Incarnation, r.Term, r.Request = "x", p.c.NewID(), 1, i+1
			w.set(p.key(kindReport, reportElement(r.Report)), must(r.Encode()))
		}
		rested(t, 4*p.cfg.timing.Renew)
		if h := p.Health(); !errors.Is(h.FoldErr, store.ErrCorrupt) || !l.Live() {
			t.Errorf("%+v", h)
		}
		if n := len(w.keys(kindReport)); n != 1 {
			t.Errorf("%d reports are kept", n)
		}
	})
}

// A candidate that tries now and then, each time with a process of its own, comes to
// lead after the TTL like one that waits.
//
// SPEC LS2 LA3
func TestObservationOutlivesACommand(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.proc()
		l := p.lead()
		if _, err := Steal(t.Context(), p.client, theOne, StealOptions{Token: l.Token(), Why: "test"}); err != nil {
			t.Fatal(err)
		}
		<-l.Done()
		p.die()
		dir, began := t.TempDir(), time.Now()
		for tries := 0; ; tries++ {
			q := w.proc(func(s *setup) { s.more = []tenure.Option{tenure.WithStateDir(dir), tenure.WithClock(p.clk)} })
			l, err := q.TryLead(t.Context())
			if err == nil {
				within(t, "the takeover", time.Since(began), stretched, stretched+2*time.Second)
				w.leading(l)
				return
			}
			wantErr(t, err, tenure.ErrHeld)
			if tries == 20 {
				t.Fatal("it never leads")
			}
			q.die()
			rested(t, time.Second)
		}
	})
}
