package authority

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	core "github.com/tenure-project/tenure/internal/core/authority"
	"github.com/tenure-project/tenure/internal/core/authority/checkpoint"
	"github.com/tenure-project/tenure/internal/core/authority/recovery"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

// slow is a place that takes one write per second of each key, and refuses the
// others, like a bucket that answers 429.
type slow struct {
	store.Store
	g *gate
}

type gate struct {
	mu      sync.Mutex
	last    map[string]time.Time
	refused int
}

// met is how many writes met a busy key.
func (g *gate) met() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.refused
}

func (s slow) Info() store.Info {
	i := s.Store.Info()
	i.WritesPerSecond, i.Can = 1, 0
	return i
}

func (s slow) Replace(ctx context.Context, key string, body []byte, v store.Version) (store.Version, error) {
	s.g.mu.Lock()
	if last, known := s.g.last[key]; known && time.Since(last) < time.Second {
		s.g.refused++
		s.g.mu.Unlock()
		return "", store.Errorf(store.ErrUnavailable, "slow", "replace", key, "429: slow down")
	}
	s.g.last[key] = time.Now()
	s.g.mu.Unlock()
	return s.Store.Replace(ctx, key, body, v)
}

// crowd are a leader and many reporters on a slow place.
func crowd(w *world, n int, leader ...func(*setup)) (*proc, []*proc, *gate) {
	g := &gate{last: map[string]time.Time{}}
	slowly := func(s *setup) { s.inner = slow{s.inner, g} }
	lead := w.proc(append(leader, slowly)...)
	var all []*proc
	for range n {
		all = append(all, w.proc(slowly))
	}
	return lead, all, g
}

// reported has all report at once, and returns how long the last one took.
func reported(t *testing.T, all []*proc) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*ttl)
	defer cancel()
	began := time.Now()
	errs := make(chan error, len(all))
	for _, p := range all {
		go func() {
			f, err := p.Report(ctx, "disk")
			if err == nil && (!f.Active || f.Proof.Incarnation != p.s.Proof().Incarnation) {
				err = fmt.Errorf("%+v is not active, or another's", f)
			}
			errs <- err
		}()
	}
	for range all {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	return time.Since(began)
}

// 129 processes report at once where one key takes one write per second: the leader
// folds all of them into one or two of its renewals, keeps its lease, and goes on
// deciding.
//
// SPEC RF LA9 ST14
func TestManyReportersLeaderFolds(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, all, _ := crowd(w, 129)
		l := p.lead()
		rested(t, ttl)
		before := w.head()
		renew := p.cfg.timing.Renew
		within(t, "the last report", reported(t, all), 0, 2*renew+renew/2)
		if n := len(w.head().Faults()); n != 129 {
			t.Errorf("%d faults", n)
		}
		if h := w.head(); h.Sequence-before.Sequence != h.Renewal-before.Renewal {
			t.Errorf("%d writes, %d of them the leader's", h.Sequence-before.Sequence, h.Renewal-before.Renewal)
		}
		p.append(l, abort(1), Created)
		rested(t, 3*ttl)
		if !l.Live() || p.Health().RenewErr != nil {
			t.Errorf("%v, %v", l.Err(), p.Health().RenewErr)
		}
		if left := w.keys(kindReport); len(left) != 0 {
			t.Errorf("%d reports lie about", len(left))
		}
	})
}

// Where the leader folds nothing, the reporters do, one for all, after one TTL and
// with a back-off that leaves the key to the leader.
//
// SPEC RF ST14
func TestManyReportersFoldThemselves(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, all, g := crowd(w, 129, func(s *setup) {
			s.link.Rules = []faultstore.Rule{{Ops: []faultstore.Op{faultstore.OpList}, Match: ours, Fault: faultstore.Fail(store.ErrUnavailable)}}
		})
		l := p.lead()
		before := w.head()
		within(t, "the last report", reported(t, all), stretched, stretched+ttl)
		h := w.head()
		if others := h.Sequence - before.Sequence - (h.Renewal - before.Renewal); len(h.Faults()) != 129 || others > 4 {
			t.Errorf("%d faults, %d writes of reporters", len(h.Faults()), others)
		}
		if n := g.met(); n > 60 { // all 129 would be, without any
			t.Errorf("%d writes met a busy key: the back-off leaves the leader no room", n)
		}
		rested(t, 2*ttl)
		if !l.Live() || p.Health().FoldErr == nil {
			t.Errorf("%v, %v", l.Err(), p.Health().FoldErr)
		}
	})
}

// Without any leader alive they do the same, and whoever leads next clears what
// lies about.
//
// SPEC RF
func TestReportersWithoutLeader(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, all, _ := crowd(w, 20)
		p.lead()
		p.die()
		within(t, "the last report", reported(t, all), stretched, stretched+ttl)
		before := w.head()
		q := all[0]
		l := q.lead()
		if h := w.head(); len(h.Faults()) != 20 || h.Token != before.Token+1 {
			t.Errorf("%d faults, token %d", len(h.Faults()), h.Token)
		}
		round, err := q.BeginRound(t.Context(), l.Proof(), nil)
		if err != nil {
			t.Fatal(err)
		}
		var stopped []Stopped
		for _, p := range all[3:] {
			stopped = append(stopped, Stopped{Node: p.s.Node(), Incarnation: p.s.Proof().Incarnation})
		}
		if res, err := q.Release(t.Context(), l.Proof(), round, stopped); err != nil || res.Answer != Created {
			t.Fatalf("%v, %v", res.Answer, err)
		}
		if n := len(w.head().Faults()); n != 3 {
			t.Errorf("%d faults are left", n)
		}
		w.audit(q.Reader())
	})
}

// The full house: 516 reporters fill every slot, and the head stays within its bound.
//
// SPEC LA9 RF
func TestEverySlot(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.proc()
		l := p.lead()
		for i := range 520 {
			node := fmt.Sprintf("%s-%03d", strings.Repeat("n", 124), i)
			r := &recovery.Pending{V: 1, Authority: theOne, Attempt: p.c.NewID(), At: 1}
			r.Node, r.Incarnation, r.Term, r.Request = node, p.c.NewID(), record.MaxNumber, record.MaxNumber
			body := must(r.Encode())
			if _, err := w.st.Create(t.Context(), p.key(kindReport, reportElement(r.Report)), body); err != nil {
				t.Fatal(err)
			}
		}
		rested(t, 2*p.cfg.timing.Renew)
		h := w.head()
		if n := len(h.Faults()); n != 516 || len(must(h.Encode())) > 256<<10-32<<10 {
			t.Errorf("%d faults, %d bytes", n, len(must(h.Encode())))
		}
		p.append(l, abort(1), Created)
		round := must(p.BeginRound(t.Context(), l.Proof(), nil))
		var stopped []Stopped
		for _, f := range h.Faults() {
			stopped = append(stopped, Stopped{f.Node, f.Incarnation})
		}
		if res, err := p.Release(t.Context(), l.Proof(), round, stopped); err != nil || res.Answer != Created {
			t.Errorf("%v, %v", res.Answer, err)
		}
		if pending, err := p.Reader().Pending(t.Context()); err != nil || len(pending) != 4 {
			t.Errorf("%d pending, %v", len(pending), err)
		}
		rested(t, 2*p.cfg.timing.Renew)
		if n := len(w.head().Faults()); n != 4 {
			t.Errorf("%d faults after the release", n)
		}
		w.audit(p.Reader())
		if !l.Live() {
			t.Error(l.Err())
		}
	})
}

// A report that comes during a round changes the inventory: right before the release
// the pending ones are folded, and a new round is due.
//
// SPEC RF
func TestReportDuringRound(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, q := w.proc(), w.proc()
		l := p.lead()
		if _, err := q.Report(t.Context(), "disk"); err != nil {
			t.Fatal(err)
		}
		round := must(p.BeginRound(t.Context(), l.Proof(), []byte("plan")))
		s := must(p.Reader().Snapshot(t.Context()))
		if r, ok := s.Round(); !ok || r != round {
			t.Errorf("round %+v", r)
		}
		done := make(chan error, 1)
		go func() {
			f, err := q.Report(t.Context(), "again")
			if err == nil && f.Request != 2 {
				err = fmt.Errorf("%+v", f)
			}
			done <- err
		}()
		rested(t, 10*time.Millisecond)
		_, err := p.Release(t.Context(), l.Proof(), round, []Stopped{{q.s.Node(), q.s.Proof().Incarnation}})
		wantErr(t, err, ErrInventoryChanged, store.ErrConflict)
		if err := <-done; err != nil {
			t.Error(err)
		}
		wantErr(t, s.Validate(t.Context(), PartFaults), ErrChanged)
		again := must(p.BeginRound(t.Context(), l.Proof(), []byte("plan")))
		if again.Generation != round.Generation+1 {
			t.Errorf("generation %d", again.Generation)
		}
		for range 2 { // asking again converges
			res, err := p.Release(t.Context(), l.Proof(), again, []Stopped{{q.s.Node(), q.s.Proof().Incarnation}})
			if err != nil || !res.Stands() {
				t.Errorf("%v, %v", res.Answer, err)
			}
		}
		if all, _ := must(p.Reader().Snapshot(t.Context())).Faults(); len(all) != 1 || all[0].Active {
			t.Errorf("faults %+v", all)
		}
	})
}

// Reports never keep a dead leader in office: they are no sign of its life.
//
// SPEC LA3 RF
func TestReportsAreNoSignOfLife(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, q, r := w.proc(), w.proc(), w.proc()
		p.lead()
		p.link.Add(faultstore.Rule{Match: heads, Fault: faultstore.Hang()}) // its session lives
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			for r := coreReport(q); ctx.Err() == nil; r.Request++ {
				s, err := q.stands(ctx)
				if err != nil {
					continue
				}
				next, _, err := s.head.Fold(q.c.NewID(), r)
				if err == nil && next != nil {
					_, _ = q.c.Store.Replace(ctx, q.headKey, must(next.Encode()), s.ver)
				}
				rested(t, time.Second)
			}
		}()
		within(t, "the takeover", took(func() { r.lead() }), stretched-2*time.Second, stretched+2*time.Second)
		cancel()
		<-done
		if h := w.head(); len(h.Faults()) != 1 || h.Faults()[0].Request < 8 {
			t.Errorf("faults %+v", h.Faults())
		}
	})
}

func coreReport(p *proc) core.Report {
	o := p.me
	return core.Report{Node: o.Node, Incarnation: o.Incarnation, Term: o.Term, Request: 1}
}

// A report whose key is damaged, or is another's, is not folded, and is told.
//
// SPEC RF ST7
func TestDamagedReport(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, q := w.proc(), w.proc()
		l := p.lead()
		r := &recovery.Pending{V: 1, Authority: theOne, Attempt: p.c.NewID(), Report: coreReport(q)}
		for element, body := range map[string]string{
			"n7/0000000000000001-0000000000000001": string(must(r.Encode())), // another node's key
			"n8/0000000000000001-0000000000000001": "{}",
			"n9/0000000000000001-0000000000000001": strings.Repeat("x", 5000),
		} {
			if _, err := w.st.Create(t.Context(), p.key(kindReport, element), []byte(body)); err != nil {
				t.Fatal(err)
			}
		}
		rested(t, 2*p.cfg.timing.Renew)
		if err := p.Health().FoldErr; !errors.Is(err, store.ErrCorrupt) || len(w.head().Slots) != 0 || !l.Live() {
			t.Errorf("%v, %+v", err, w.head().Slots)
		}
		if _, err := q.Report(t.Context(), "disk"); err != nil { // others are
			t.Error(err)
		}
		_, err := q.Report(t.Context(), strings.Repeat("x", 2000))
		wantErr(t, err, store.ErrInvalid)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		none := w.proc(func(s *setup) { s.name = "never led" })
		_, err = none.Report(ctx, "x")
		wantErr(t, err, store.ErrUnknown, context.DeadlineExceeded)
		p.append(l, must(checkpoint.NewAbort(checkpoint.Attempt{Epoch: 1, Checkpoint: 1}, deployment, fence).Encode()), Created)
	})
}

// A leader that decides all the time, and so needs no renewal, folds what is pending
// in the same bound.
//
// SPEC RF LA2
func TestReportsWhileDecisionsRenew(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, q := w.proc(), w.proc()
		l := p.lead()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		renew := p.cfg.timing.Renew
		go func() {
			defer close(done)
			for epoch := uint64(1); ctx.Err() == nil; epoch++ {
				p.append(l, abort(epoch), Created)
				rested(t, renew/4)
			}
		}()
		within(t, "the report", reported(t, []*proc{q}), 0, 2*renew+renew/2)
		cancel()
		<-done
		if h := w.head(); h.Renewal != h.Sequence {
			t.Errorf("a reporter wrote the head: %d, %d", h.Renewal, h.Sequence)
		}
	})
}

// A process whose reporter is about to write the head wins it first. Then its keeper
// folds the report: the reporter's own write would hide the attempt by which the
// leader knows the head for its own.
//
// SPEC RF LA6 ST9
func TestAReporterThatWinsMeanwhile(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.proc()
		w.stepDown(p.lead())
		free := must(p.take(t.Context(), p.lock))
		var wg sync.WaitGroup
		var l *Leader
		wg.Go(func() { l = p.lead() })
		synctest.Wait() // it waits for the lock, and is the first
		me := p.me
		r := reporter{a: p.Authority, report: core.Report{Node: me.Node, Incarnation: me.Incarnation, Term: me.Term, Request: 1}}
		pending := recovery.Pending{V: record.Level, Authority: theOne, Report: r.report, Attempt: deployment}
		if err := p.put(t.Context(), p.key(kindReport, reportElement(r.report)), must(pending.Encode()), recovery.MaxPending); err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			if err := r.fold(t.Context()); err != nil {
				t.Errorf("fold: %v", err)
			}
		})
		synctest.Wait()
		free()
		wg.Wait()
		free = must(p.take(t.Context(), p.lock))
		p.ver = "" // as after any write that lost a race: the head is read again
		free()
		p.append(l, abort(1), Created)
		rested(t, ttl/4) // the next renewal
		if !l.Live() || len(w.head().Faults()) != 1 {
			t.Errorf("the leader deposed itself (%v), or the fault was not made", l.Err())
		}
	})
}

// Where listings fail, a report is still made, by its reporter after a TTL.
//
// SPEC RF
func TestReportWithoutLists(t *testing.T) {
	for _, fault := range []faultstore.Fault{faultstore.Hang(), faultstore.Fail(store.ErrDenied)} {
		t.Run(fault.String(), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				p, q := w.proc(), w.proc()
				p.lead()
				for _, x := range []*proc{p, q} {
					x.link.Add(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpList}, Fault: fault})
				}
				ctx, cancel := context.WithTimeout(t.Context(), 4*ttl)
				defer cancel()
				if f, err := q.Report(ctx, "disk"); err != nil || !f.Active {
					t.Errorf("%+v, %v", f, err)
				}
			})
		})
	}
}
