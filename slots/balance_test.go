package slots

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	tenure "github.com/tenure-project/tenure"
	core "github.com/tenure-project/tenure/internal/core/slots"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

// swift is a policy under which a test need not wait long.
var swift = Balance{Settle: 10 * time.Second, Window: 10 * time.Second, Burst: 16, MaxMoves: 4, Slack: -1}

// shardsOf gives the world's table a plan of n shards.
func (w *tableWorld) shardsOf(n int) *Table {
	w.t.Helper()
	c := w.client("shards", nil)
	t, err := Create(w.t.Context(), c.c, orders, Shards(n))
	if w.form == RegisterForm {
		t, err = Create(w.t.Context(), c.c, orders, Shards(n), Register())
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return t
}

// balanced starts a balanced host, and its loop.
func (w *tableWorld) balanced(owner string, edit ...func(*hostSetup)) *hostProc {
	w.t.Helper()
	edit = append([]func(*hostSetup){as("node-" + owner), func(s *hostSetup) { s.cfg.Balanced, s.cfg.Balance = true, swift }}, edit...)
	return w.host(owner, nil, edit...)
}

// serving counts the shards that each host serves, and fails the test if two serve one.
func (w *tableWorld) serving(shards int) map[string]int {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	n := map[string]int{}
	for i := range shards {
		var who []string
		for _, p := range w.hosts {
			if _, ok := p.EpochFor(uint16(i * Count / shards)); ok {
				who = append(who, p.Owner())
			}
		}
		if len(who) > 1 {
			w.t.Fatalf("shard %d is served by %v", i, who)
		}
		if len(who) == 1 {
			n[who[0]]++
		}
	}
	return n
}

// shared waits until these hosts alone serve all shards, none two more than another.
func (w *tableWorld) shared(shards int, most time.Duration, owners ...string) time.Duration {
	w.t.Helper()
	return w.becomes(shards, most, func(n map[string]int) bool {
		all, least, highest := 0, shards, 0
		for _, o := range owners {
			all, least, highest = all+n[o], min(least, n[o]), max(highest, n[o])
		}
		return all == shards && len(n) == len(owners) && highest-least <= 2
	})
}

// becomes waits until what is served is as wanted, looking all the time.
func (w *tableWorld) becomes(shards int, most time.Duration, want func(n map[string]int) bool) time.Duration {
	w.t.Helper()
	began := time.Now()
	for !want(w.serving(shards)) {
		if time.Since(began) > most {
			w.t.Fatalf("after %v they serve %v; plan %+v", most, w.serving(shards), w.view().Plan)
		}
		bubbleSleep(100 * time.Millisecond)
	}
	return time.Since(began)
}

// Hosts share the shards; one more gets its part and nothing else moves; one that dies has
// its shards spread; one that leaves hands everything over.
//
// SPEC SL8
func TestBalance(t *testing.T) {
	inTables(t, func(t *testing.T, w *tableWorld) {
		table := w.shardsOf(30)
		a := w.balanced("a")
		a.run()
		w.shared(30, time.Minute, "a")
		b := w.balanced("b")
		b.run()
		w.shared(30, 3*time.Minute, "a", "b")
		c := w.balanced("c")
		stopC := c.run()
		took := w.shared(30, 3*time.Minute, "a", "b", "c")
		rows := w.rows()
		moved := 0
		for _, r := range rows {
			if r.Host.Owner == "c" {
				moved++
				if len(r.From) != 1 || r.From[0].How != "released" {
					t.Errorf("%+v was not handed over", r)
				}
			}
		}
		if n := len(c.Held()); moved != n || n < 9 || n > 11 {
			t.Errorf("%d shards moved to a host that serves %d", moved, n)
		}
		t.Logf("the third host had its part after %v", took)
		b.die()
		took = w.shared(30, 3*time.Minute, "a", "c")
		t.Logf("the dead host's shards were spread after %v", took)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := c.Leave(ctx); err != nil {
			t.Fatal(err)
		}
		w.shared(30, time.Minute, "a")
		if err := stopC(); err != nil {
			t.Fatal(err)
		}
		if v, err := table.Read(t.Context()); err != nil || len(v.Hosts) != 3 || !v.Hosts[2].Leaving || v.Plan.Token == 0 {
			t.Errorf("%+v, %v", v, err)
		}
		p, err := table.Preview(t.Context(), swift)
		if err != nil || len(p.Rows) != 30 || len(p.Hosts) != 3 || p.InFlight != 0 {
			t.Errorf("%+v, %v", p, err)
		}
	})
}

// A hand-over drains first, is served by the successor within two writes, and by nobody in
// between; the grant's end says to whom it went.
//
// SPEC SL8 LS10
func TestHandOver(t *testing.T) {
	inTables(t, func(t *testing.T, w *tableWorld) {
		table := w.shardsOf(2)
		var mu sync.Mutex
		var drained []Range
		pinned := func(s *hostSetup) { s.cfg.Balance.Burst = -1 } // nothing moves but by pins
		a := w.balanced("a", pinned, func(s *hostSetup) {
			s.cfg.Drain = func(ctx context.Context, g *Grant) error {
				if !g.Live() {
					t.Error("the grant is over before its work was drained")
				}
				bubbleSleep(2 * time.Second)
				mu.Lock()
				defer mu.Unlock()
				drained = append(drained, g.Range())
				return nil
			}
		})
		a.run()
		w.shared(2, time.Minute, "a")
		b := w.balanced("b", pinned)
		b.run()
		bubbleSleep(20 * time.Second)
		var theirs string
		ours := a.used(func() {
			theirs = b.used(func() {
				if _, err := table.Pin(t.Context(), rng(0, 8191), "b"); err != nil {
					t.Fatal(err)
				}
				w.shared(2, time.Minute, "a", "b")
				synctest.Wait()
			})
		})
		for who, calls := range map[string]string{"a": ours, "b": theirs} {
			writes := strings.Count(calls, "replace slots-row") + strings.Count(calls, "commit") + strings.Count(calls+",", "replace slots,")
			if writes != 1 {
				t.Errorf("the move took %s %q", who, calls)
			}
		}
		if len(drained) != 1 || drained[0] != rng(0, 8191) {
			t.Errorf("drained %v", drained)
		}
		for g, err := range a.ended {
			wantKinds(t, err, tenure.ErrReleased)
			if !strings.Contains(err.Error(), `"b"`) {
				t.Errorf("%v does not say to whom", err)
			}
			gap := b.times[b.begun[0]][0].Sub(a.times[g][1])
			t.Logf("not served for %v of bubble time", gap)
			if gap > 10*time.Millisecond {
				t.Errorf("nobody served for %v", gap)
			}
		}
		if r := w.rows()[0]; r.Host.Owner != "b" || r.From[0].Owner != "a" || r.From[0].How != "released" {
			t.Errorf("%+v", r)
		}
	})
}

// A drain that cannot, keeps the range; one that hangs costs its limit.
//
// SPEC SL8
func TestDrainThatFails(t *testing.T) {
	t.Parallel()
	inTable(t, RowsForm, func(t *testing.T, w *tableWorld) {
		table := w.shardsOf(2)
		refuse := true
		var mu sync.Mutex
		a := w.balanced("a", func(s *hostSetup) {
			s.cfg.DrainLimit = 5 * time.Second
			s.cfg.Drain = func(ctx context.Context, g *Grant) error {
				mu.Lock()
				no := refuse
				mu.Unlock()
				if no {
					return errors.New("not now")
				}
				<-ctx.Done() // hangs
				return ctx.Err()
			}
		})
		a.run()
		w.shared(2, time.Minute, "a")
		b := w.balanced("b")
		b.run()
		if _, err := table.Pin(t.Context(), rng(0, 8191), "b"); err != nil {
			t.Fatal(err)
		}
		w.pass(2 * time.Minute)
		if n := w.serving(2); n["a"] != 2 {
			t.Errorf("they serve %v", n)
		}
		mu.Lock()
		refuse = false
		mu.Unlock()
		w.shared(2, time.Minute, "a", "b")
	})
}

// A successor that does not come costs the hold, and no more: others have the range then.
//
// SPEC SL8 LS10
func TestSuccessorThatDies(t *testing.T) {
	inTables(t, func(t *testing.T, w *tableWorld) {
		table := w.shardsOf(4)
		a, b := w.balanced("a"), w.balanced("b")
		a.run()
		w.shared(4, time.Minute, "a")
		b.run()
		w.shared(4, 3*time.Minute, "a", "b")
		b.link.Add(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpCommit}, Fault: faultstore.Fail(store.ErrUnavailable)})
		if w.form == RegisterForm {
			b.link.Add(faultstore.Rule{Key: store.Key("default", kindTable, orders), Ops: []faultstore.Op{faultstore.OpReplace}, Fault: faultstore.Fail(store.ErrUnavailable)})
		}
		for _, s := range []Range{rng(0, 4095), rng(4096, 8191), rng(8192, 12287), rng(12288, 16383)} {
			if _, err := table.Pin(t.Context(), s, "b"); err != nil {
				t.Fatal(err)
			}
		}
		bubbleSleep(10 * time.Second)
		b.die()
		w.shared(4, 5*time.Minute, "a")
	})
}

// An older leader's plan is refused once a newer one published.
//
// SPEC SL8
func TestOlderLeaderIsFenced(t *testing.T) {
	inTables(t, func(t *testing.T, w *tableWorld) {
		w.shardsOf(4)
		a, b := w.balanced("a"), w.balanced("b")
		a.run()
		w.shared(4, time.Minute, "a")
		b.run()
		w.shared(4, 3*time.Minute, "a", "b")
		old := w.view().Plan
		a.die()
		w.shared(4, 3*time.Minute, "b")
		now := w.view().Plan
		if now.Token <= old.Token || now.Seq <= old.Seq {
			t.Fatalf("token %d after %d", now.Token, old.Token)
		}
		_, err := now.Publish(&core.Table{Name: orders, Birth: b.birth}, core.Publication{Token: old.Token, Seq: now.Seq, Shards: now.Shards, Attempt: old.Attempt})
		if fenced := (*core.FencedError)(nil); !errors.As(err, &fenced) {
			t.Errorf("%v", err)
		}
	})
}

// Hosts that come and go all the time do not make a storm: what moves is bounded by the
// policy and by what the dead held.
//
// SPEC SL8
func TestFlappingHosts(t *testing.T) {
	t.Parallel()
	inTable(t, RowsForm, func(t *testing.T, w *tableWorld) {
		const shards = 24
		w.shardsOf(shards)
		for _, name := range []string{"a", "b", "c"} {
			w.balanced(name).run()
		}
		w.shared(shards, 5*time.Minute, "a", "b", "c")
		counter := w.view().Counter
		for i := range 10 { // each stays for less than it takes to settle
			x := w.balanced(fmt.Sprint("x", i))
			stop := x.run()
			w.pass(8 * time.Second)
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			_ = x.cfg.Session.Leave(t.Context())
		}
		if moved := w.view().Counter - counter; moved != 0 {
			t.Errorf("%d shards moved for hosts that did not stay", moved)
		}
	})
}

// SPEC SL8
func TestBalancedConfig(t *testing.T) {
	t.Parallel()
	inTable(t, RowsForm, func(t *testing.T, w *tableWorld) {
		a := w.balanced("a")
		s := a.cfg.Session
		for name, cfg := range map[string]HostConfig{
			"no session": {Owner: "a", Balanced: true},
			"ranges":     {Balanced: true, Session: s, Ranges: []Range{All}},
			"weight":     {Balanced: true, Session: s, Weight: 1 << 20},
			"capacity":   {Balanced: true, Session: s, Capacity: -1},
			"limit":      {Balanced: true, Session: s, DrainLimit: -1},
		} {
			if _, err := a.table.Host(cfg); store.KindOf(err) != store.ErrInvalid {
				t.Errorf("%s: %v", name, err)
			}
		}
		if long := LeaseName(strings.Repeat("x", store.MaxName)); store.CheckName("lease", long) != nil || LeaseName("t") != "slots/t" {
			t.Errorf("%q", long)
		}
	})
}
