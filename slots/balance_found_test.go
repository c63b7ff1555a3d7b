package slots

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tenure-project/tenure/internal/core/lease"
	core "github.com/tenure-project/tenure/internal/core/slots"
	"github.com/tenure-project/tenure/internal/core/slots/balance"
	"github.com/tenure-project/tenure/internal/record"
)

// A drain that ignores its context keeps its range no longer than its limit, and the host
// no longer than anything else.
//
// SPEC SL8 SL7
func TestDrainThatNeverReturns(t *testing.T) {
	t.Parallel()
	inTable(t, RowsForm, func(t *testing.T, w *tableWorld) {
		w.shardsOf(4)
		hang := make(chan struct{})
		a := w.balanced("a", func(s *hostSetup) {
			s.cfg.Drain = func(context.Context, *Grant) error { <-hang; return nil }
			s.cfg.DrainLimit = 10 * time.Second
		})
		defer close(hang)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- a.Run(ctx) }()
		w.shared(4, time.Minute, "a")
		w.balanced("b").run()
		w.shared(4, 10*time.Minute, "a", "b")
		cancel()
		bubbleSleep(2 * hostTTL)
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run returned %v", err)
			}
		default:
			t.Error("Run has not returned two TTLs after its context ended")
		}
	})
}

// What thousands of hosts left behind stops no planning.
//
// SPEC SL8
func TestMoreAnnouncementsThanAPlanTakes(t *testing.T) {
	t.Parallel()
	inTable(t, RowsForm, func(t *testing.T, w *tableWorld) {
		table := w.shardsOf(4)
		for i := range balance.MaxHosts {
			owner := fmt.Sprintf("pod-%05d", i)
			host := core.Host{Owner: owner, Kind: lease.Session, Incarnation: table.k.NewID(), Node: owner, Term: 1, TTLMS: 30000}
			x := core.Announce{V: record.Level, Table: orders, Birth: table.birth, Host: host, Weight: 1, Beat: 1, Since: 1, Leaving: true, Attempt: table.k.NewID()}
			body, err := x.Encode()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.st.Peer().Create(t.Context(), table.hostKey(owner), body); err != nil {
				t.Fatal(err)
			}
		}
		w.balanced("z").run()
		w.shared(4, time.Minute, "z")
	})
}

// One announcement that cannot be read, as during an upgrade, holds up nobody else.
//
// SPEC SL8 ST15
func TestAnnouncementOfANewerProgram(t *testing.T) {
	inTables(t, func(t *testing.T, w *tableWorld) {
		table := w.shardsOf(4)
		if _, err := w.st.Peer().Create(t.Context(), table.hostKey("x"), []byte(`{"v":2,"table":"orders"}`)); err != nil {
			t.Fatal(err)
		}
		w.balanced("a").run()
		w.shared(4, time.Minute, "a")
		v, err := table.Read(t.Context())
		if err != nil || len(v.Hosts) != 1 || v.Hosts[0].Host.Owner != "a" {
			t.Errorf("read %v, %v", v.Hosts, err)
		}
	})
}

// A plan that was restored to an older one is the plan.
//
// SPEC SL8 LS12
func TestRestoredPlan(t *testing.T) {
	t.Parallel()
	inTable(t, RowsForm, func(t *testing.T, w *tableWorld) {
		table := w.shardsOf(4)
		w.balanced("a").run()
		w.shared(4, time.Minute, "a")
		st := w.st.Peer()
		old, err := st.Get(t.Context(), table.planKey, core.MaxPlan)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 40 { // the plan's number rises
			if _, err := table.Pin(t.Context(), rng(0, 4095), []string{"p", ""}[i%2]); err != nil {
				t.Fatal(err)
			}
		}
		bubbleSleep(time.Minute)
		now, err := st.Get(t.Context(), table.planKey, core.MaxPlan)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := st.Replace(t.Context(), table.planKey, old.Body, now.Version); err != nil {
			t.Fatal(err)
		}
		w.balanced("b").run()
		w.shared(4, 5*time.Minute, "a", "b")
	})
}
