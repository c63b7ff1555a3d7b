package membertest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tenure-project/tenure/internal/core/identity"
	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/internal/membership"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

func joinAndRelease(w *world) {
	a, b := w.proc(nil), w.proc(nil)
	m := a.joinNow()
	w.until("a renewal", func() bool { return m.Record().Sequence > 2 })
	if ok, err := b.VerifyCurrent(w.Context(), node, m.Owner()); !ok || err != nil {
		w.Errorf("the owner is not current: %v", err)
	}
	if h, err := b.Read(w.Context(), node); err != nil || h.Record.Term != 1 || h.Record.Sequence < 2 {
		w.Errorf("%+v, %v", h.Record, err)
	}
	var held *membership.HeldError
	if _, err := b.try(false); !errors.As(err, &held) || held.Owner != m.Owner() {
		w.Errorf("beside the owner: %v", err)
	}
	w.release(m)
	if ok, err := b.VerifyCurrent(w.Context(), node, m.Owner()); ok || err != nil {
		w.Errorf("after the release: %v, %v", ok, err)
	}
	next := b.joinNow()
	if next.Owner().Term != 2 || next.Owner().Incarnation == m.Owner().Incarnation {
		w.Errorf("joined again as %+v", next.Owner())
	}
	a.judged(m.Owner(), lease.HowReleased)
	w.until("the certificate's drop", func() bool { return !next.Health().Unsealed })
	w.release(next)
}

func takeover(w *world) {
	a, b := w.proc(nil), w.proc(nil)
	m := a.join()
	m.Abandon(errors.New("killed"))
	began := time.Now()
	next := b.join()
	if d := time.Since(began); d < w.ttl {
		w.Errorf("the takeover took %v", d)
	}
	if next.Owner().Term != 2 {
		w.Errorf("the next owner is %+v", next.Owner())
	}
	a.judged(m.Owner(), lease.HowObserved)
	if err := m.Release(w.Context()); err == nil {
		w.Error("an abandoned member released the name")
	}
	w.release(next)
}

// certificates checks what is sealed, past package membership.
func certificates(w *world) {
	p := w.proc(nil)
	for range 3 {
		w.release(p.join())
	}
	all, err := p.History(w.Context(), node)
	if err != nil || len(all) != 2 {
		w.Fatalf("%d certificates, %v", len(all), err)
	}
	for _, c := range all {
		want, err := c.Encode()
		if err != nil {
			w.Fatal(err)
		}
		for _, name := range c.Names() {
			o, err := w.st.Get(w.Context(), store.Key("ns", "certificate", node)+"/"+name, identity.MaxCertificate)
			if err != nil || string(o.Body) != string(want) {
				w.Errorf("%s: %q, %v", name, o.Body, err)
			}
		}
		if v, err := p.VerifyCertificate(w.Context(), c); err != nil || v.State != identity.Over {
			w.Errorf("%+v, %v", v, err)
		}
		if _, err := p.Seal(w.Context(), c); err != nil {
			w.Errorf("sealing it again: %v", err)
		}
	}
}

func healing(w *world) {
	a := w.proc(nil)
	m := a.join()
	w.release(m)
	create := []faultstore.Op{faultstore.OpCreate}
	// The first seals no name. The second seals what it finds, and one name of its own.
	for _, creates := range []int{0, 3} {
		bad := w.proc(faulty(faultstore.Rule{Ops: create, Skip: creates, Fault: faultstore.Fail(store.ErrDenied)}))
		_, err := bad.try(true)
		w.check("a join without its certificate", err, store.ErrDenied)
		w.until("the release of what was won", func() bool {
			h, err := a.Read(w.Context(), node)
			return err == nil && !h.Record.Held() && h.Record.Certificate != nil
		})
	}
	next := a.joinNow()
	all, err := a.History(w.Context(), node)
	if err != nil || len(all) != 3 || next.Owner().Term != 4 {
		w.Fatalf("%d certificates, %v, %+v", len(all), err, next.Owner())
	}
	for _, c := range all {
		if _, err := a.Seal(w.Context(), c); err != nil {
			w.Error(err)
		}
		a.judged(identity.Owner{Incarnation: c.Predecessor.Incarnation, Term: c.Predecessor.Term}, lease.HowReleased)
	}
	w.release(next)
}

func evidence(w *world) {
	p := w.proc(nil)
	stranger := identity.Owner{Incarnation: newID(), Term: 9}
	if v, _, err := p.Judge(w.Context(), node, stranger); err != nil || v.State != identity.Missing {
		w.Errorf("without a record: %+v, %v", v, err)
	}
	var owners []identity.Owner
	for range 4 {
		m := p.join()
		owners = append(owners, m.Owner())
		w.release(m)
	}
	if _, _, err := p.Over(w.Context(), node, stranger); !errors.Is(err, membership.ErrMissingEvidence) {
		w.Errorf("a stranger: %v", err)
	}
	time.Sleep(10 * time.Millisecond) // poll: the certificates get older than nothing
	if done, err := p.Prune(w.Context(), node, 0); err != nil || done.Removed != 2 || done.More {
		w.Errorf("pruned %+v, %v", done, err)
	}
	for n, o := range owners {
		v, _, err := p.Judge(w.Context(), node, o)
		if err != nil || v.State != identity.Over || v.Folded != (n < 2) {
			w.Errorf("term %d: %+v, %v", o.Term, v, err)
		}
	}
	if v, _, err := p.Judge(w.Context(), node, identity.Owner{Incarnation: owners[0].Incarnation}); err != nil || v.State != identity.Missing {
		w.Errorf("folded, without a term: %+v, %v", v, err)
	}
	nodes := 0
	for h, err := range p.List(w.Context()) {
		if nodes++; err != nil || h.Node != node {
			w.Errorf("listed %q, %v", h.Node, err)
		}
	}
	if nodes != 1 {
		w.Errorf("%d nodes", nodes)
	}
}

func fence(w *world) {
	a, b := w.proc(nil), w.proc(nil)
	m := a.join()
	within := b.FenceTime(w.ttl) + w.h.Limit
	_, _, err := b.Fence(w.Context(), node, m.Owner().Incarnation, w.ttl)
	w.check("too short", err, membership.ErrTooShort)
	_, _, err = b.Fence(w.Context(), node, m.Owner().Incarnation, within)
	w.check("alive", err, membership.ErrAlive)
	_, _, err = b.Fence(w.Context(), node, newID(), within)
	w.check("a stranger", err, membership.ErrMissingEvidence)
	m.Abandon(errors.New("killed"))
	c, v, err := b.Fence(w.Context(), node, m.Owner().Incarnation, within)
	if errors.Is(err, membership.ErrAlive) { // its last renewal was on its way
		c, v, err = b.Fence(w.Context(), node, m.Owner().Incarnation, within)
	}
	if err != nil || c.How != lease.HowObserved || v.State != identity.Over {
		w.Fatalf("%+v, %+v, %v", c, v, err)
	}
	again, _, err := a.Fence(w.Context(), node, m.Owner().Incarnation, within)
	if err != nil || !again.Equal(c) {
		w.Errorf("again: %+v, %v", again, err)
	}
	next := a.joinNow()
	if next.Owner().Term != 3 {
		w.Errorf("the next owner is %+v", next.Owner())
	}
	w.release(next)
	if err := b.Retire(w.Context(), node, within); err != nil {
		w.Errorf("retire: %v", err)
	}
}

// losses joins and releases while every third write loses its answer, and some
// never arrive.
func losses(w *world) {
	p := w.proc(faulty(
		faultstore.Rule{Ops: []faultstore.Op{faultstore.OpCreate, faultstore.OpReplace}, Every: 3, Fault: faultstore.LoseReply()},
		faultstore.Rule{Ops: []faultstore.Op{faultstore.OpCreate, faultstore.OpReplace}, Every: 5, Fault: faultstore.LoseRequest()},
	))
	var owners []identity.Owner
	for range 4 {
		m := p.join()
		owners = append(owners, m.Owner())
		seq := m.Record().Sequence
		w.until("two renewals", func() bool { return m.Record().Sequence > seq+1 })
		if err := m.Release(w.Context()); err != nil {
			w.Fatalf("release: %v", err)
		}
	}
	q := w.proc(nil)
	for n, o := range owners {
		if o.Term != uint64(n)+1 {
			w.Errorf("the owner at %d is %+v", n, o)
		}
		q.judged(o, lease.HowReleased)
	}
}

// races lets many join at once: an absent name, a released one.
func races(w *world) {
	var procs []*proc
	for range 6 {
		procs = append(procs, w.proc(nil))
	}
	for round := range 2 {
		var wg sync.WaitGroup
		var mu sync.Mutex
		var winners []*membership.Member
		for _, p := range procs {
			wg.Go(func() {
				m, err := p.try(false)
				if err == nil {
					mu.Lock()
					defer mu.Unlock()
					winners = append(winners, m)
				} else if !errors.Is(err, membership.ErrHeld) && !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrExists) {
					w.Errorf("a loser was told %v", err)
				}
			})
		}
		wg.Wait()
		if len(winners) != 1 || winners[0].Owner().Term != uint64(round)+1 {
			w.Errorf("round %d: %d winners", round, len(winners))
		}
		for _, m := range winners {
			if err := m.Release(w.Context()); err != nil {
				w.Error(err)
			}
		}
	}
}

func waiters(w *world) {
	a, b := w.proc(nil), w.proc(nil)
	m := a.join()
	m.Abandon(errors.New("killed"))
	ctx, cancel := context.WithTimeout(w.Context(), 2*w.ttl+w.h.Limit)
	defer cancel()
	var wg sync.WaitGroup
	for n := range 100 {
		p := []*proc{a, b}[n%2]
		wg.Go(func() {
			e, err := p.AwaitOver(ctx, node, m.Owner())
			if err != nil || e.How != lease.HowObserved {
				w.Errorf("%+v, %v", e, err)
			}
		})
	}
	wg.Wait()
	if all, err := a.History(w.Context(), node); err != nil || len(all) != 1 {
		w.Errorf("%d certificates, %v", len(all), err)
	}
	w.release(a.joinNow())
}

func operators(w *world) {
	told := make(chan identity.Revocation, 1)
	a, b := w.proc(nil), w.proc(nil)
	m, err := a.Join(w.Context(), membership.Claim{Node: node, Timing: a.timing, Revoked: func(v identity.Revocation) { told <- v }}, false)
	if err != nil {
		w.Fatal(err)
	}
	a.joined = append(a.joined, m)
	v := identity.Revocation{Resource: "r", Token: 7}
	if err := b.Revoke(w.Context(), node, m.Owner(), v); err != nil {
		w.Fatal(err)
	}
	select {
	case got := <-told:
		if got != v {
			w.Errorf("told %+v", got)
		}
	case <-m.Deadline().Done():
		w.Fatalf("the session ended: %v", m.Deadline().Cause())
	}
	w.until("the acknowledgement", func() bool {
		h, err := b.Read(w.Context(), node)
		return err == nil && len(h.Record.Revocations) == 0
	})
	if err := b.Force(w.Context(), node, m.Owner(), identity.Operator{Why: "so", By: "ann"}); err != nil {
		w.Fatal(err)
	}
	began := time.Now()
	next := b.join()
	if d := time.Since(began); d < w.ttl {
		w.Errorf("the join after a force took %v", d)
	}
	w.check("the forced session's end", m.Deadline().Cause(), membership.ErrSuperseded)
	if next.Owner().Term != 3 {
		w.Errorf("the next owner is %+v", next.Owner())
	}
	w.release(next)
}

func jump(w *world) {
	a, b := w.proc(nil), w.proc(nil)
	m := a.join()
	if raised, err := b.Jump(w.Context(), node, 41); !raised || err != nil {
		w.Fatalf("%v, %v", raised, err)
	}
	w.until("the session's end", func() bool { return m.Deadline().Cause() != nil })
	w.check("its cause", m.Deadline().Cause(), membership.ErrRaised)
	w.release(m)
	next := b.joinNow()
	if next.Owner().Term != 42 {
		w.Errorf("the next owner is %+v", next.Owner())
	}
	w.release(next)
}

// storeClock runs where the store has a steady clock that stamps what is written.
func storeClock(w *world) {
	if !w.st.Info().Can.Has(store.CanClock | store.CanModTime) {
		return
	}
	clk, _ := store.AsClocker(w.st)
	use := func(c *membership.Config) {
		c.StoreClock = func(ctx context.Context) (string, time.Time, error) {
			r, err := clk.Now(ctx)
			return r.Instance, r.Time, err
		}
	}
	m := w.proc(nil, use).join()
	m.Abandon(errors.New("killed"))
	var e *membership.Evidence
	began := time.Now()
	w.until("evidence", func() bool {
		var err error
		e, _, err = w.proc(nil, use).Over(w.Context(), node, m.Owner()) // one that never looked before
		if err != nil {
			w.Fatal(err)
		}
		time.Sleep(w.ttl / 10) // poll
		return e != nil
	})
	if d := time.Since(began); e.How != lease.HowStoreClock || d < w.ttl {
		w.Errorf("%+v after %v", e, d)
	}
}
