package slotstest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	tenure "github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/slots"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

// takeover: who stopped renewing is followed after a whole TTL, not before, by a higher
// epoch; who comes back finds the range lost.
func takeover(w *world) {
	pa, pb := w.proc(), w.proc()
	a, b := pa.host("a", rng(0, 99)), pb.host("b", rng(0, 99))
	w.claim(a, 1)
	w.serves(a, 5, 1)
	if r := b.Refresh(w.within()); len(r.Waiting) != 1 {
		w.Fatalf("%+v", r)
	} else {
		w.check("waiting", r.Waiting[0].Err, tenure.ErrHeld)
	}
	w.run(b)
	seen := time.Now()
	w.until("b serves", func() bool {
		_, taken := b.EpochFor(5)
		if _, still := a.EpochFor(5); still && taken {
			w.Fatal("both serve")
		}
		return taken
	})
	if d := time.Since(seen); d < ttl-100*time.Millisecond {
		w.Errorf("b claimed %v after it first saw the row", d)
	}
	w.serves(b, 5, 2)
	w.until("a knows", func() bool { return len(a.Refresh(w.within()).Lost) == 1 })
}

// races: whatever hosts claim at once, each range has one owner and each epoch one range.
func races(w *world) {
	const hosts, ranges = 4, 6
	var all []slots.Range
	for i := range ranges {
		all = append(all, rng(uint16(10*i), uint16(10*i+9)))
	}
	var hs []*slots.Host
	for i := range hosts {
		hs = append(hs, w.proc().host(fmt.Sprint("h", i), all...))
	}
	w.until("everything is owned", func() bool {
		var wg sync.WaitGroup
		for _, h := range hs {
			wg.Go(func() { h.Refresh(w.Context()) })
		}
		wg.Wait()
		owned := 0
		for _, h := range hs {
			owned += len(h.Held())
		}
		return owned == ranges
	})
	epochs := map[uint64]bool{}
	for _, r := range all {
		var who []string
		for _, h := range hs {
			if e, ok := h.EpochFor(r.A); ok {
				who = append(who, h.Owner())
				epochs[e] = true
			}
		}
		if len(who) > 1 {
			w.Errorf("%v is served by %v", r, who)
		}
	}
	for _, r := range w.proc().rows() {
		if r.Epoch > ranges || len(r.From) > 0 {
			w.Errorf("%+v", r)
		}
	}
}

// manyRows: a claim over more free and dead rows than one commit changes.
func manyRows(w *world) {
	const n = 48
	var many []slots.Range
	for i := range n {
		many = append(many, rng(uint16(i), uint16(i)))
	}
	pa, pb, pc := w.proc(), w.proc(), w.proc()
	a := pa.host("a", many[:n/2]...)
	w.claim(a, n/2)
	w.check("release", a.Release(w.within()), nil)
	b := pb.host("b", many[n/2:]...)
	w.claim(b, n/2)
	pb.die()
	c := pc.host("c", rng(0, n-1))
	w.run(c)
	w.until("c serves", func() bool { _, ok := c.EpochFor(0); return ok })
	if rows := pc.rows(); len(rows) != 1 || rows[0].Epoch <= n {
		w.Errorf("%d rows, epoch %d", len(rows), rows[0].Epoch)
	}
}

// requests: what a claim, a renewal and a release take.
func requests(w *world) {
	p := w.proc()
	hosts := "list slots-host"
	if _, can := store.AsCommitter(p.link); can {
		hosts = "scan slots-host"
	}
	h := p.host("a", rng(10, 19))
	for _, step := range []struct {
		what       string
		f          func()
		rows, regi string
	}{
		{"claim", func() { h.Refresh(w.within()) }, "get slots, scan slots-row, scan slots-row, commit slots-row", "get slots, replace slots"},
		{"renew", func() { h.Refresh(w.within()) }, "replace slots-row", "replace slots"},
		{"release", func() { _ = h.Release(w.within()) }, "replace slots-row", "get slots, replace slots"},
		{"read", func() { p.rows() }, "scan slots-row, get slots, get slots-plan, " + hosts, "get slots, get slots-plan, " + hosts},
	} {
		want := step.rows
		if w.form == slots.RegisterForm {
			want = step.regi
		}
		if calls, sound := p.used(step.f); sound && calls != want {
			w.Errorf("%s took %q, want %q", step.what, calls, want)
		}
	}
}

// lateWrite: a renewal that the network delivers after a takeover changes nothing.
func lateWrite(w *world) {
	pa, pb := w.proc(), w.proc()
	a, b := pa.host("a", rng(0, 9)), pb.host("b", rng(0, 9))
	w.claim(a, 1)
	pa.link.Add(faultstore.Rule{Ops: writes, Match: onTables, Times: 1, Fault: faultstore.LandLate(ttl+ttl/2, ttl+ttl/2)})
	a.Refresh(w.within())
	pa.link.SetLink(faultstore.Refused)
	w.run(b)
	w.until("b serves", func() bool { _, ok := b.EpochFor(0); return ok })
	if _, ok := a.EpochFor(0); ok {
		w.Error("a serves, too")
	}
	<-time.After(ttl / 2) // it landed
	w.serves(b, 0, 2)
	if rows := pb.rows(); rows[0].Host.Owner != "b" || rows[0].Epoch != 2 {
		w.Errorf("%+v", rows[0])
	}
}

// sessions: ranges that live by a session take no renewals, and fall with it.
func sessions(w *world) {
	pa, pb := w.proc(), w.proc()
	var all []slots.Range
	for i := range 30 {
		all = append(all, rng(uint16(i), uint16(i)))
	}
	join := func(p *proc, node string) *slots.Host {
		s, err := p.client.Join(w.within(), node)
		if err != nil {
			w.Fatalf("join: %v", err)
		}
		return p.hostOf(slots.HostConfig{Session: s, Ranges: all})
	}
	a, b := join(pa, "a"), join(pb, "b")
	w.claim(a, len(all))
	w.run(b)
	calls, _ := pa.used(func() {
		<-time.After(time.Second)
		a.Refresh(w.within())
	})
	if strings.Contains(calls, "replace") || strings.Contains(calls, "commit") {
		w.Errorf("to keep the ranges took %q", calls)
	}
	w.serves(a, 7, 0)
	pa.die()
	w.until("b serves everything", func() bool {
		for _, r := range all {
			if _, ok := b.EpochFor(r.A); !ok {
				return false
			}
		}
		return true
	})
	if rows := pb.rows(); rows[0].From[0].Evidence == "" {
		w.Errorf("%+v cites nothing", rows[0])
	}
}

// handOver: a release is found at once, and the epoch rises.
func handOver(w *world) {
	a, b := w.proc().host("a", rng(0, 9)), w.proc().host("b", rng(0, 9))
	stop := w.run(a)
	w.until("a serves", func() bool { _, ok := a.EpochFor(0); return ok })
	w.run(b)
	w.until("b waits", func() bool { return len(b.Health().Waiting) == 1 })
	w.check("stop", stop(), nil)
	w.until("b serves", func() bool { _, ok := b.EpochFor(0); return ok })
	w.serves(b, 0, 2)
}

// plans: shards and pins are kept.
func plans(w *world) {
	p := w.proc()
	t := w.open(p.client, "sharded", slots.Shards(8))
	plan, err := t.Pin(w.within(), rng(0, 2047), "a")
	w.check("pin", err, nil)
	if again, err := w.proc().planOf("sharded"); err != nil || again.Seq != plan.Seq || again.Shards[0].Pin != "a" || len(again.Shards) != 8 {
		w.Errorf("%+v, %v", again, err)
	}
}

func (p *proc) planOf(name string) (*slots.Plan, error) {
	t, err := slots.Open(p.w.within(), p.client, name)
	if err != nil {
		return nil, err
	}
	return t.Plan(p.w.within())
}

// losses: every second answer is lost, and nothing is taken twice or forgotten.
func losses(w *world) {
	p := w.proc()
	h := p.host("a", rng(0, 9), rng(20, 29))
	p.link.Add(faultstore.Rule{Ops: writes, Match: onTables, Every: 2, Fault: faultstore.LoseReply()})
	w.claim(h, 2)
	rows := p.rows()
	for range 3 {
		h.Refresh(w.within())
	}
	for _, r := range rows {
		w.serves(h, r.Range.A, r.Epoch)
	}
	p.link.Clear()
	p.link.Add(faultstore.Rule{Ops: writes, Match: onTables, Times: 1, Fault: faultstore.LoseReply()})
	w.check("release", h.Release(w.within()), nil)
	for _, r := range p.rows() {
		if r.Held() {
			w.Errorf("%+v is held", r)
		}
	}
}

// thefts: an operator ends an ownership; vouched for, the range is free at once.
func thefts(w *world) {
	pa, pb := w.proc(), w.proc()
	a, b := pa.host("a", rng(0, 9)), pb.host("b", rng(0, 9))
	w.claim(a, 1)
	_, err := pb.Steal(w.within(), slots.StealOptions{Range: rng(0, 9), Epoch: 9, Why: "test"})
	w.check("steal another epoch", err, store.ErrConflict)
	_, err = pb.Steal(w.within(), slots.StealOptions{Range: rng(0, 9), Epoch: 1, Why: "test", Vouch: true})
	w.check("steal", err, nil)
	w.claim(b, 1)
	w.serves(b, 0, 3)
	w.until("a knows", func() bool { return len(a.Refresh(w.within()).Lost) == 1 })
}

// jumps: later epochs are above, and holders stay.
func jumps(w *world) {
	p := w.proc()
	a := p.host("a", rng(0, 9))
	w.claim(a, 1)
	if n, err := slots.JumpAll(w.within(), p.client, 50); n != 1 || err != nil {
		w.Fatalf("jump: %d, %v", n, err)
	}
	a.Refresh(w.within())
	w.serves(a, 0, 1)
	b := w.proc().host("b", rng(10, 19))
	w.claim(b, 1)
	w.serves(b, 10, 51)
}

// watches: who watches learns of a new owner.
func watches(w *world) {
	p := w.proc()
	ctx, cancel := context.WithCancel(w.within())
	told, done := make(chan struct{}, 1000), make(chan error, 1)
	go func() { done <- p.Watch(ctx, func() { told <- struct{}{} }) }()
	<-told
	h := w.proc().host("a", rng(0, 9))
	w.claim(h, 1)
	select {
	case <-told:
	case <-ctx.Done():
		w.Error("nothing was told")
	}
	routes, err := p.Routes(ctx)
	if err != nil || len(routes) != 1 || routes[0].Owner != "a" || routes[0].Addr != "a:80" || routes[0].Epoch != 1 {
		w.Errorf("%+v, %v", routes, err)
	}
	cancel()
	w.check("watch", <-done, nil)
}

// tables: names of every kind are listed.
func tables(w *world) {
	p := w.proc()
	want := []string{table, "Ω " + strings.Repeat("x", store.MaxName-4), "a/b"}
	for _, name := range want {
		w.open(p.client, name)
	}
	var names []string
	for name, err := range slots.Tables(w.within(), p.client) {
		if err != nil {
			w.Fatal(err)
		}
		names = append(names, name)
	}
	slices.Sort(names)
	if slices.Sort(want); !slices.Equal(names, want) {
		w.Errorf("%q, want %q", names, want)
	}
	_, err := slots.Open(w.within(), p.client, "absent")
	w.check("open", err, store.ErrNotFound)
}
