package slots

import (
	"testing"
	"testing/synctest"
	"time"

	tenure "github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/clock"
)

// A host claims; another waits, and claims when the first stopped renewing; the first,
// when it comes back, finds the range lost and waits.
//
// SPEC SL3 SL4 SL5 SL6 LS2 DL4
func TestClaimWaitLapseLose(t *testing.T) {
	inTables(t, func(t *testing.T, w *tableWorld) {
		a, b := w.host("a", []Range{rng(0, 99)}), w.host("b", []Range{rng(0, 99)})
		a.refresh().is(t, "claimed 0-99@1")
		a.epoch(5, 1)
		a.epoch(100, 0)
		b.refresh().is(t, "waiting 0-99")
		w.pass(10 * time.Second)
		a.refresh().is(t, "renewed 0-99")
		b.refresh().is(t, "waiting 0-99") // sees the renewal: its watch begins anew
		w.pass(20*time.Second + time.Millisecond)
		a.epoch(5, 0) // two thirds of the TTL after the renewal was sent
		w.pass(10 * time.Second)
		b.refresh().is(t, "waiting 0-99")
		w.pass(hostTTL / 100)
		b.refresh().is(t, "claimed 0-99@2")
		b.epoch(5, 2)
		a.refresh().is(t, "lost 0-99")
		if held := a.Held(); len(held) != 0 {
			t.Errorf("a holds %v", held)
		}
		a.refresh().is(t, "waiting 0-99")
		synctest.Wait()
		if len(a.begun) != 1 || len(b.begun) != 1 {
			t.Fatalf("grants: %v, %v", a.begun, b.begun)
		}
		wantKinds(t, a.ended[a.begun[0]], tenure.ErrExpired)
		if g := a.begun[0]; g.Context().Err() == nil || g.Live() || g.Epoch() != 1 || g.Range() != rng(0, 99) {
			t.Errorf("%v goes on", g)
		}
	})
}

// A renewal after a lapse that nobody used keeps the epoch, under a new grant: whoever
// served saw the end of the old one.
//
// SPEC SL4 DL1
func TestRenewAfterLapse(t *testing.T) {
	inTables(t, func(t *testing.T, w *tableWorld) {
		a := w.host("a", []Range{rng(0, 99)})
		a.refresh().is(t, "claimed 0-99@1")
		old, _ := a.Grant(7)
		w.pass(hostTTL)
		if h := a.Health(); h.Up || len(h.Held) != 1 || h.Held[0].Serving {
			t.Errorf("a lapsed range, and health is %+v", h)
		}
		a.refresh().is(t, "renewed 0-99")
		a.epoch(7, 1)
		g, ok := a.Grant(7)
		if !ok || g == old || old.Live() || old.Context().Err() == nil {
			t.Errorf("the old grant %v goes on as %v", old, g)
		}
		if h := a.Health(); !h.Up || !h.Held[0].Serving {
			t.Errorf("health is %+v", h)
		}
	})
}

// What is released may be claimed at once; a range that was lost to a fence is not
// released, and its row stays the host's until it lapses.
//
// SPEC SL4 SL6 SL7 LS5
func TestLoseAndRelease(t *testing.T) {
	inTables(t, func(t *testing.T, w *tableWorld) {
		a := w.host("a", []Range{rng(0, 9), rng(10, 19)})
		r := a.refresh()
		if len(r.Claimed) != 2 || r.Claimed[0].Range != rng(0, 9) {
			t.Fatalf("%+v", r)
		}
		if h := a.Health(); !h.Up || h.Owner != "a" || len(h.Held) != 2 || !h.Held[0].Serving {
			t.Errorf("health is %+v", h)
		}
		first, _ := a.EpochFor(3)
		second, _ := a.EpochFor(15)
		if first+second != 3 || first == second {
			t.Errorf("epochs %d and %d, want 1 and 2", first, second)
		}
		if a.Lose(3, first) {
			t.Error("the same epoch is not newer")
		}
		if !a.Lose(3, 9) {
			t.Error("9 is newer")
		}
		a.epoch(3, 0)
		a.epoch(15, second)
		if held := a.Held(); len(held) != 1 || held[0].Range != rng(10, 19) {
			t.Errorf("it holds %v", held)
		}
		if err := a.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(a.Held()) != 0 || a.Health().Up {
			t.Errorf("after the release: %+v", a.Health())
		}
		wantKinds(t, a.Refresh(t.Context()).Failed[0].Err, tenure.ErrReleased)
		b := w.host("b", []Range{rng(10, 19), rng(0, 9)})
		r = b.refresh()
		if len(r.Claimed) != 2 || r.Claimed[0].Range != rng(10, 19) || r.Claimed[0].Epoch+r.Claimed[1].Epoch != 7 {
			t.Errorf("%+v", r)
		}
	})
}

// A range that was fenced is claimed above the fence, and the others go on.
//
// SPEC SL6
func TestFenceOneRange(t *testing.T) {
	inTables(t, func(t *testing.T, w *tableWorld) {
		a := w.host("a", []Range{rng(0, 9), rng(10, 19)})
		a.refresh()
		second, _ := a.EpochFor(15)
		if !a.Lose(3, 9) {
			t.Fatal("not lost")
		}
		a.refresh().is(t, "claimed 0-9@10, renewed 10-19")
		a.epoch(15, second)
		rows := w.rows()
		if len(rows) != 2 || rows[0].Epoch != 10 || rows[0].From[0].How != "raised" {
			t.Errorf("%+v", rows)
		}
	})
}

// Another shape than the live rows' is refused, also to their owner; what lapsed of any
// shape goes, and epochs go on above all.
//
// SPEC SL2 SL3
func TestReshape(t *testing.T) {
	inTables(t, func(t *testing.T, w *tableWorld) {
		a := w.host("a", []Range{rng(0, 99)})
		a.refresh().is(t, "claimed 0-99@1")
		again := w.host("a", []Range{rng(0, 49)})
		again.refresh().is(t, "waiting 0-49")
		b := w.host("b", []Range{rng(50, 149)})
		b.refresh().is(t, "waiting 50-149")
		a.die()
		w.pass(stretchedTTL)
		b.refresh().is(t, "claimed 50-149@2")
		again.refresh().is(t, "claimed 0-49@3")
		if rows := w.rows(); len(rows) != 2 || rows[1].From[0].Owner != "a" {
			t.Errorf("%+v", rows)
		}
	})
}

// A second process of the same owner is a rival.
//
// SPEC SL3
func TestSameOwnerIsARival(t *testing.T) {
	inTables(t, func(t *testing.T, w *tableWorld) {
		a := w.host("a", []Range{rng(0, 99)})
		a.refresh().is(t, "claimed 0-99@1")
		b := w.host("a", []Range{rng(0, 99)})
		b.refresh().is(t, "waiting 0-99")
		a.refresh().is(t, "renewed 0-99")
	})
}

// With the loop: two hosts, one dies, the other serves as soon as it may, without a
// refresh being due; what it costs to renew is one request per range or per register.
//
// SPEC SL5
func TestRun(t *testing.T) {
	inTables(t, func(t *testing.T, w *tableWorld) {
		a, b := w.host("a", []Range{rng(0, 99)}), w.host("b", []Range{rng(0, 99)})
		a.run()
		synctest.Wait()
		a.epoch(0, 1)
		b.run()
		w.pass(time.Minute)
		a.epoch(0, 1)
		if calls := a.used(func() { w.pass(4 * (hostTTL / 4)) }); calls != "replace slots-row, replace slots-row, replace slots-row, replace slots-row" && w.form == RowsForm ||
			calls != "replace slots, replace slots, replace slots, replace slots" && w.form == RegisterForm {
			t.Errorf("renewals took %q", calls)
		}
		a.die()
		died := time.Now()
		for {
			w.pass(100 * time.Millisecond)
			if _, ok := b.EpochFor(0); ok {
				break
			}
			if time.Since(died) > stretchedTTL+200*time.Millisecond {
				t.Fatalf("nobody serves %v after the end", time.Since(died))
			}
		}
		b.epoch(0, 2)
	})
}

// A release wakes whoever waits; a stopped loop releases.
//
// SPEC SL5 SL7 LS9
func TestRunReleases(t *testing.T) {
	inTables(t, func(t *testing.T, w *tableWorld) {
		a, b := w.host("a", []Range{rng(0, 99), rng(200, 299)}), w.host("b", []Range{rng(0, 99), rng(200, 299)})
		stop := a.run()
		synctest.Wait()
		b.run()
		w.pass(time.Second)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		w.pass(time.Second)
		first, _ := b.EpochFor(0)
		if second, _ := b.EpochFor(200); first+second != 7 {
			t.Errorf("epochs %d and %d, want 3 and 4", first, second)
		}
		if h := b.Health(); !h.Up {
			t.Errorf("health is %+v", h)
		}
	})
}

// What one short command saw of a silent rival, a later one of the same machine goes on
// from: it claims at once, and not before its time.
//
// SPEC LS2
func TestObservationOutlivesACommand(t *testing.T) {
	inTables(t, func(t *testing.T, w *tableWorld) {
		a := w.host("a", []Range{rng(0, 9)})
		a.refresh().is(t, "claimed 0-9@1")
		a.die()
		clk, dir := clock.NewVirtual(1), t.TempDir()
		command := func(want string) {
			t.Helper()
			p := w.host("b", []Range{rng(0, 9)}, func(s *hostSetup) {
				s.clk, s.more = clk, []tenure.Option{tenure.WithStateDir(dir)}
			})
			p.refresh().is(t, want)
			p.Close()
		}
		command("waiting 0-9")
		w.pass(hostTTL / 2)
		command("waiting 0-9")
		w.pass(stretchedTTL - hostTTL/2)
		command("claimed 0-9@2")
	})
}
