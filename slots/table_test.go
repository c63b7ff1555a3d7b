package slots

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	tenure "github.com/tenure-project/tenure"
	core "github.com/tenure-project/tenure/internal/core/slots"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

// A table is made once, is found with the same settings, and is missed where it is not.
//
// SPEC SL2 ST11
func TestCreateOpenList(t *testing.T) {
	inTables(t, func(t *testing.T, w *tableWorld) {
		c := w.client("c", nil).c
		form, other := []Option{Register()}, []Option(nil)
		if w.form == RowsForm {
			form, other = other, form
		}
		long := strings.Repeat("Ω", store.MaxName/2)
		for _, name := range []string{orders, long} {
			table, err := Create(t.Context(), c, name, append(slices.Clone(form), Shards(8))...)
			if err != nil || table.Form() != w.form || table.Name() != name {
				t.Fatalf("%v, %v", table, err)
			}
			p, err := table.Plan(t.Context())
			if err != nil || len(p.Shards) != 8 || p.Shards[0].Range != rng(0, 2047) || p.Shards[7].Range != rng(14336, 16383) {
				t.Errorf("%+v, %v", p, err)
			}
			if again, err := Create(t.Context(), c, name, Shards(8)); err != nil && w.form == RowsForm || again != nil && again.birth != table.birth {
				t.Errorf("%v, %v", again, err)
			}
			_, err = Create(t.Context(), c, name, append(slices.Clone(form), Shards(7))...)
			wantKinds(t, err, store.ErrExists)
		}
		if w.form == RowsForm {
			_, err := Create(t.Context(), c, orders, other...)
			wantKinds(t, err, store.ErrExists)
		}
		var names []string
		for name, err := range Tables(t.Context(), c) {
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, name)
		}
		if slices.Sort(names); !slices.Equal(names, []string{orders, long}) {
			t.Errorf("%q", names)
		}
		_, err := Open(t.Context(), c, "absent")
		wantKinds(t, err, store.ErrNotFound)
		if !strings.Contains(err.Error(), "slots.Create") {
			t.Errorf("%v does not say what to do", err)
		}
		for _, opts := range [][]Option{{Shards(0)}, {Shards(Count + 1)}, {ShardRanges(rng(0, 9), rng(9, 10))}} {
			_, err := Create(t.Context(), c, "bad", opts...)
			wantKinds(t, err, store.ErrInvalid)
		}
		_, err = Create(t.Context(), c, "")
		wantKinds(t, err, store.ErrInvalid)
	})
}

// Epochs of a new table are above the namespace's floor.
//
// SPEC LS12 SL2
func TestTableBeginsAboveTheFloor(t *testing.T) {
	inTables(t, func(t *testing.T, w *tableWorld) {
		c := w.client("c", nil)
		if _, err := c.c.JumpAll(t.Context(), 40); err != nil {
			t.Fatal(err)
		}
		table, err := Create(t.Context(), c.c, "late")
		if err != nil {
			t.Fatal(err)
		}
		h, err := table.Host(HostConfig{Owner: "a", Ranges: []Range{All}})
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		h.Refresh(t.Context()).is(t, "claimed 0-16383@41")
	})
}

// A jump raises every table, gives nothing to anybody, and later epochs are above it.
//
// SPEC LS12
func TestJump(t *testing.T) {
	inTables(t, func(t *testing.T, w *tableWorld) {
		a := w.host("a", []Range{rng(0, 9)})
		a.refresh().is(t, "claimed 0-9@1")
		if n, err := JumpAll(t.Context(), a.c, 70); n != 1 || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
		if n, err := JumpAll(t.Context(), a.c, 70); n != 0 || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
		a.refresh().is(t, "renewed 0-9")
		a.epoch(0, 1)
		w.host("b", []Range{rng(10, 19)}).refresh().is(t, "claimed 10-19@71")
		_, err := a.table.Jump(t.Context(), 1<<60)
		wantKinds(t, err, store.ErrInvalid)
	})
}

// Who has seen a higher counter than the store shows says so and acts on nothing, until a
// jump mends it (LS12).
//
// SPEC LS12
func TestStoreThatFell(t *testing.T) {
	inTables(t, func(t *testing.T, w *tableWorld) {
		a := w.host("a", []Range{rng(0, 9)})
		backup := w.copy()
		a.refresh().is(t, "claimed 0-9@1")
		b := w.host("b", []Range{rng(10, 19)})
		b.refresh().is(t, "claimed 10-19@2")
		if _, err := b.table.Read(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.restore(backup)
		_, err := b.table.Read(t.Context())
		wantKinds(t, err, tenure.ErrRegressed)
		if r := b.refresh(); len(r.Claimed)+len(r.Renewed) > 0 {
			t.Errorf("%+v", r)
		}
		wantKinds(t, b.refresh().Failed[0].Err, tenure.ErrRegressed)
		_, err = b.table.Jump(t.Context(), 1)
		wantKinds(t, err, store.ErrInvalid)
		if changed, err := b.table.Jump(t.Context(), 9); !changed || err != nil {
			t.Fatalf("%v, %v", changed, err)
		}
		if r := b.refresh(); len(r.Lost) == 1 { // it held on in the register, unrenewed
			r = b.refresh()
			r.is(t, "claimed 10-19@10")
		}
		b.epoch(10, 10)
	})
}

// copy is what the store holds of tables.
func (w *tableWorld) copy() map[string]string {
	all := map[string]string{}
	for key, err := range w.st.List(context.Background(), "default/slots", "") {
		if err != nil {
			w.t.Fatal(err)
		}
		o, err := w.st.Get(context.Background(), key, core.MaxTable)
		if err != nil {
			w.t.Fatal(err)
		}
		all[key] = string(o.Body)
	}
	return all
}

// restore makes the store hold that again.
func (w *tableWorld) restore(all map[string]string) {
	ctx := context.Background()
	for key := range w.copy() {
		if err := w.st.Delete(ctx, key); err != nil {
			w.t.Fatal(err)
		}
	}
	for key, body := range all {
		if _, err := w.st.Create(ctx, key, []byte(body)); err != nil {
			w.t.Fatal(err)
		}
	}
}

// A theft ends an ownership, and everybody watches for the superseded TTL; vouched for, the
// range is free at once.
//
// SPEC LS11
func TestSteal(t *testing.T) {
	inTables(t, func(t *testing.T, w *tableWorld) {
		a, b := w.host("a", []Range{rng(0, 9)}), w.host("b", []Range{rng(0, 9)})
		a.run()
		bubbleSleep(time.Second)
		_, err := b.table.Steal(t.Context(), StealOptions{Range: rng(0, 9), Epoch: 2, Why: "test"})
		wantKinds(t, err, store.ErrConflict)
		_, err = b.table.Steal(t.Context(), StealOptions{Range: rng(0, 9), Epoch: 1})
		wantKinds(t, err, store.ErrInvalid)
		row, err := b.table.Steal(t.Context(), StealOptions{Range: rng(0, 9), Epoch: 1, Why: "test", By: "me"})
		if err != nil || row.Held() || row.Freed.By != "me" {
			t.Fatalf("%+v, %v", row, err)
		}
		b.run()
		w.pass(hostTTL - time.Second)
		b.epoch(0, 0)
		w.pass(2 * time.Second)
		if e, ok := b.EpochFor(0); !ok {
			if e, ok = a.EpochFor(0); !ok || e != 3 {
				t.Errorf("nobody serves; rows %+v", w.rows())
			}
		} else if e != 3 {
			t.Errorf("epoch %d, want 3: the counter was raised", e)
		}
	})
}

// SPEC LS11 ST9
func TestStealVouched(t *testing.T) {
	inTables(t, func(t *testing.T, w *tableWorld) {
		a, b := w.host("a", []Range{rng(0, 9)}), w.host("b", []Range{rng(0, 9)})
		a.refresh()
		a.die()
		b.link.Add(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpReplace, faultstore.OpCommit}, Times: 1, Fault: faultstore.LoseReply()})
		if _, err := b.table.Steal(t.Context(), StealOptions{Range: rng(0, 9), Epoch: 1, Why: "it burned", Vouch: true}); err != nil {
			t.Fatal(err)
		}
		b.refresh().is(t, "claimed 0-9@3")
	})
}

// A claim over more rows than one commit changes goes through, in steps.
//
// SPEC SL3 SL4
func TestClaimOverManyRows(t *testing.T) {
	inTables(t, func(t *testing.T, w *tableWorld) {
		var many []Range
		for i := range 150 {
			many = append(many, rng(uint16(2*i), uint16(2*i+1)))
		}
		a := w.host("a", many)
		a.refresh()
		a.refresh()
		if n := len(a.Held()); n != 150 {
			t.Fatalf("%d ranges", n)
		}
		b := w.host("b", []Range{rng(1, 298)})
		b.refresh().is(t, "waiting 1-298")
		if err := a.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		c := w.host("c", many[:75])
		c.refresh()
		c.refresh()
		c.die() // of what is in b's way one half is free, and one dead
		b.refresh().is(t, "waiting 1-298")
		w.pass(stretchedTTL)
		for range 3 {
			if r := b.refresh(); len(r.Claimed) == 1 {
				break
			}
		}
		if held := b.Held(); len(held) != 1 || !held[0].Serving {
			t.Errorf("it holds %v", held)
		}
		if rows := w.rows(); len(rows) != 1 {
			t.Errorf("%d rows", len(rows))
		}
	})
}

// Pins are kept and taken away.
//
// SPEC SL8
func TestPin(t *testing.T) {
	inTables(t, func(t *testing.T, w *tableWorld) {
		c := w.client("c", nil).c
		table, err := Open(t.Context(), c, orders)
		if err != nil {
			t.Fatal(err)
		}
		_, err = table.Pin(t.Context(), rng(0, 9), "a")
		wantKinds(t, err, store.ErrNotFound)
		if table, err = Create(t.Context(), c, "sharded", ShardRanges(rng(10, 19), rng(0, 9))); err != nil {
			t.Fatal(err)
		}
		p, err := table.Pin(t.Context(), rng(10, 19), "a")
		if err != nil || p.Shards[1].Pin != "a" {
			t.Fatalf("%+v, %v", p, err)
		}
		_, err = table.Pin(t.Context(), rng(10, 18), "a")
		wantKinds(t, err, store.ErrInvalid)
		if p, err = table.Pin(t.Context(), rng(10, 19), ""); err != nil || p.Shards[1].Pin != "" {
			t.Fatalf("%+v, %v", p, err)
		}
	})
}

// Who watches is told of claims, and not of signs of life.
//
// SPEC SL9
func TestWatchTable(t *testing.T) {
	inTables(t, func(t *testing.T, w *tableWorld) {
		a := w.host("a", []Range{rng(0, 9)})
		c := w.client("watcher", nil)
		table, err := Open(t.Context(), c.c, orders)
		if err != nil {
			t.Fatal(err)
		}
		told := make(chan int, 100)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- table.Watch(ctx, func() {
				routes, err := table.Routes(ctx)
				if err == nil {
					told <- len(routes)
				}
			})
		}()
		if n := <-told; n != 0 {
			t.Errorf("%d routes", n)
		}
		a.run()
		if n := <-told; n != 1 {
			t.Errorf("%d routes", n)
		}
		bubbleSleep(5 * hostTTL)
		if n := len(told); n != 0 {
			t.Errorf("told %d times of nothing", n)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// Bad input is refused before anything happens, and so is what the store cannot take.
//
// SPEC SL1 SL5 ST14
func TestHostConfig(t *testing.T) {
	inTables(t, func(t *testing.T, w *tableWorld) {
		slow := w.client("slow", &hostSetup{link: faultstore.Options{Info: func(i store.Info) store.Info { i.WritesPerSecond = 1; return i }}})
		table, err := Open(t.Context(), slow.c, orders)
		if err != nil {
			t.Fatal(err)
		}
		one := []Range{rng(0, 9)}
		for name, cfg := range map[string]HostConfig{
			"no range":   {Owner: "a"},
			"overlap":    {Owner: "a", Ranges: []Range{rng(0, 9), rng(9, 20)}},
			"upside":     {Owner: "a", Ranges: []Range{rng(9, 0)}},
			"beyond":     {Owner: "a", Ranges: []Range{rng(9, Count)}},
			"no owner":   {Ranges: one},
			"short":      {Owner: "a", Ranges: one, TTL: MinTTL - 1},
			"long":       {Owner: "a", Ranges: one, TTL: MaxTTL + time.Millisecond},
			"odd":        {Owner: "a", Ranges: one, TTL: MinTTL + 1},
			"too often":  {Owner: "a", Ranges: one, TTL: 7 * time.Second},
			"an address": {Owner: "a", Ranges: one, Addr: strings.Repeat("x", 1000)},
		} {
			if _, err := table.Host(cfg); store.KindOf(err) != store.ErrInvalid {
				t.Errorf("%s: %v", name, err)
			}
		}
		if calls := slow.used(func() { _, _ = table.Host(HostConfig{Owner: "a"}) }); calls != "" {
			t.Errorf("refused after %q", calls)
		}
	})
}

// In a register that takes few writes only so many hosts renew.
//
// SPEC SL5 ST14
func TestCrowdedRegister(t *testing.T) {
	t.Parallel()
	inTable(t, RegisterForm, func(t *testing.T, w *tableWorld) {
		slow := func(s *hostSetup) {
			s.link.Info = func(i store.Info) store.Info { i.WritesPerSecond = 1; return i }
		}
		for i, owner := range []string{"a", "b", "c"} {
			w.host(owner, []Range{rng(uint16(i), uint16(i))}, slow).refresh()
		}
		d := w.host("d", []Range{rng(9, 9)}, slow)
		wantKinds(t, d.refresh().Failed[0].Err, store.ErrInvalid)
	})
}
