package slots

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	tenure "github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

// as makes a host live by a session of a node.
func as(node string) func(*hostSetup) { return func(s *hostSetup) { s.node = node } }

// Under a session nothing is renewed: while it lives the ranges are served and the table is
// not written; a rival waits, however long nothing changes, until the session is over.
//
// SPEC SL5 LS8 DL6
func TestSessionHost(t *testing.T) {
	inTables(t, func(t *testing.T, w *tableWorld) {
		a, b := w.host("a", []Range{rng(0, 9), rng(20, 29)}, as("n1")), w.host("b", []Range{rng(0, 9), rng(20, 29)}, as("n2"))
		a.run()
		synctest.Wait()
		a.epoch(0, 1)
		a.epoch(25, 2)
		b.run()
		calls := a.used(func() { w.pass(10 * time.Minute) })
		if strings.Contains(calls, "replace") || strings.Contains(calls, "commit") || strings.Count(calls, ",") > 40 {
			t.Errorf("in ten minutes it made %q", calls)
		}
		a.epoch(0, 1)
		b.epoch(0, 0)
		a.die()
		w.pass(stretchedTTL + hostTTL/4)
		b.epoch(0, 3)
		b.epoch(20, 4)
		rows := w.rows()
		if p := rows[0].From[0]; p.Owner != "a" || p.How != "observed" || p.Evidence == "" {
			t.Errorf("%+v", p)
		}
	})
}

// A session that leaves gives up its ranges first, and whoever waits has them at once.
//
// SPEC SL7 LS8 PL8
func TestSessionLeaves(t *testing.T) {
	inTables(t, func(t *testing.T, w *tableWorld) {
		a, b := w.host("a", []Range{rng(0, 9)}, as("n1")), w.host("b", []Range{rng(0, 9)}, as("n2"))
		a.run()
		synctest.Wait()
		b.run()
		w.pass(time.Second)
		if err := a.cfg.Session.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.pass(time.Second)
		b.epoch(0, 2)
		if h := a.Health(); h.Up || h.Over == nil {
			t.Errorf("health is %+v", h)
		}
		synctest.Wait()
		wantKinds(t, a.ended[a.begun[0]], tenure.ErrReleased)
	})
}

// A session that is lost ends everything that lives by it at the same instant, and its host
// with it.
//
// SPEC DL6 SL6
func TestSessionLost(t *testing.T) {
	inTables(t, func(t *testing.T, w *tableWorld) {
		a := w.host("a", []Range{rng(0, 9)}, as("n1"))
		done := make(chan error, 1)
		go func() { done <- a.Run(context.Background()) }()
		synctest.Wait()
		g, _ := a.Grant(0)
		a.link.SetLink(faultstore.Refused)
		w.pass(hostTTL)
		a.epoch(0, 0)
		wantKinds(t, <-done, tenure.ErrExpired)
		wantKinds(t, g.Err(), tenure.ErrExpired)
	})
}

// A claim that lands after its host was closed, under a session that lives on, is found and
// freed: nothing would ever lapse.
//
// SPEC LS8 ST9
func TestLateClaimUnderASession(t *testing.T) {
	inTables(t, func(t *testing.T, w *tableWorld) {
		a := w.host("a", []Range{rng(0, 9)}, as("n1"))
		a.link.Add(faultstore.Rule{Match: w.onRow(0), Times: 1, Fault: faultstore.LandLate(10*time.Second, 10*time.Second)},
			faultstore.Rule{Match: w.onRow(0), Skip: 1, Fault: faultstore.Fail(store.ErrUnavailable)},
			faultstore.Rule{Ops: []faultstore.Op{faultstore.OpGet}, Skip: 1, Fault: faultstore.Fail(store.ErrUnavailable)})
		go a.Refresh(context.Background())
		bubbleSleep(2 * time.Second)
		a.Close()
		a.link.Clear()
		bubbleSleep(20 * time.Second) // it has landed, or cannot any more
		b := w.host("b", []Range{rng(0, 9)}, as("n2"))
		b.run()
		w.pass(2 * time.Minute)
		if _, ok := b.EpochFor(0); !ok {
			t.Errorf("b does not serve: %+v", w.rows())
		}
		if a.cfg.Session.Err() != nil {
			t.Error("the session is over, which proves nothing")
		}
	})
}

// A thief cannot take from a session that lives; the rows of one that is over are freed.
//
// SPEC LS11 LS8
func TestStealFromSession(t *testing.T) {
	inTables(t, func(t *testing.T, w *tableWorld) {
		a, b := w.host("a", []Range{rng(0, 9)}, as("n1")), w.host("b", []Range{rng(0, 9)}, as("n2"))
		a.refresh()
		o := StealOptions{Range: rng(0, 9), Epoch: 1, Why: "test"}
		_, err := b.table.Steal(t.Context(), o)
		wantKinds(t, err, store.ErrInvalid)
		a.die()
		w.pass(stretchedTTL + hostTTL)
		if _, err = b.table.Steal(t.Context(), o); err != nil {
			_, err = b.table.Steal(t.Context(), o) // the first look began the observation
		}
		if err != nil {
			w.pass(stretchedTTL)
			if _, err = b.table.Steal(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
		b.refresh().is(t, "claimed 0-9@3")
	})
}

// Thousands of ranges live by one session: one renewal of that, none of
// the table.
//
// SPEC SL5 LS8
func TestSixteenThousandRanges(t *testing.T) {
	inTables(t, func(t *testing.T, w *tableWorld) {
		ranges, wide := Count, uint16(1)
		if w.form == RowsForm { // one commit for every 39: a quarter is enough
			ranges, wide = Count/4, 4
		}
		var all []Range
		for i := range uint16(ranges) {
			all = append(all, Range{A: i * wide, B: i*wide + wide - 1})
		}
		a := w.host("a", all, as("n1"))
		began := time.Now()
		for range 20 {
			if a.refresh(); len(a.Held()) == ranges {
				break
			}
		}
		if n := len(a.Held()); n != ranges {
			t.Fatalf("%d ranges", n)
		}
		t.Logf("claimed in %v of bubble time, %d calls", time.Since(began), a.calls())
		calls := a.used(func() { bubbleSleep(time.Minute) })
		if calls != "" {
			t.Errorf("to keep them took %q", calls)
		}
		for _, slot := range []uint16{0, 1, 8000, Count - 1} {
			if _, ok := a.EpochFor(slot); !ok {
				t.Errorf("slot %d is not served", slot)
			}
		}
		if err := a.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if rows := w.rows(); slices.ContainsFunc(rows, func(r Row) bool { return r.Held() }) {
			t.Error("rows are held after the release")
		}
	})
}

// A host under a session takes from a self host by observation, and the other way by
// evidence.
//
// SPEC SL3 LS8
func TestKindsMix(t *testing.T) {
	inTables(t, func(t *testing.T, w *tableWorld) {
		self := w.host("a", []Range{rng(0, 9)})
		self.run()
		synctest.Wait()
		session := w.host("b", []Range{rng(0, 9)}, as("n2"))
		session.run()
		w.pass(time.Second)
		self.die()
		w.pass(stretchedTTL + hostTTL/4)
		session.epoch(0, 2)
		again := w.host("c", []Range{rng(0, 9)})
		again.run()
		w.pass(time.Minute)
		session.die()
		w.pass(stretchedTTL + hostTTL/4)
		again.epoch(0, 3)
		if rows := fmt.Sprint(w.rows()[0].Host.Kind); rows != "self" {
			t.Error(rows)
		}
	})
}

// Its Owner is the node's name by default; a TTL, or a session of another client, is
// refused.
//
// SPEC SL5
func TestSessionConfig(t *testing.T) {
	inTables(t, func(t *testing.T, w *tableWorld) {
		a, other := w.host("a", []Range{rng(0, 9)}, as("n1")), w.client("other", nil)
		s := a.cfg.Session
		if _, err := a.table.Host(HostConfig{Session: s, TTL: hostTTL, Ranges: []Range{All}}); store.KindOf(err) != store.ErrInvalid {
			t.Error(err)
		}
		foreign, err := Open(t.Context(), other.c, orders)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := foreign.Host(HostConfig{Session: s, Ranges: []Range{All}}); store.KindOf(err) != store.ErrInvalid {
			t.Error(err)
		}
		h, err := a.table.Host(HostConfig{Session: s, Ranges: []Range{rng(50, 59)}})
		if err != nil || h.Owner() != "n1" || h.TTL() != hostTTL {
			t.Fatalf("%v, %v", h, err)
		}
		h.Close()
	})
}
