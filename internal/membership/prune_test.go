package membership

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tenure-project/tenure/internal/core/identity"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

// history writes a node whose owners changed n times, at wall-clock 0, straight
// into the store.
func (w *world) history(n int) *identity.Record {
	w.t.Helper()
	ctx := context.Background()
	claim := func() identity.Claim {
		return identity.Claim{Node: node, Incarnation: w.newID(), TTL: ttl}
	}
	r := must[*identity.Record](w.t)(identity.First(claim(), 0))
	for range n {
		released := must[*identity.Record](w.t)(r.Release(r.Last(), identity.Renewal{Attempt: w.newID()}))
		g, _, err := identity.Observation{}.Ground(released, "v", 0, rho)
		if err != nil {
			w.t.Fatal(err)
		}
		sealed := identity.Sealed{}
		if c := released.Certificate; c != nil {
			body := must[[]byte](w.t)(c.Encode())
			sealed = must[identity.Sealed](w.t)(identity.Seal(c, [2][]byte{body, body}))
		}
		r = must[*identity.Record](w.t)(identity.Takeover(released, claim(), g, sealed))
		body := must[[]byte](w.t)(r.Certificate.Encode())
		for _, name := range r.Certificate.Names() {
			must[store.Version](w.t)(w.st.Create(ctx, store.Key("ns", "certificate", node)+"/"+name, body))
		}
	}
	must[store.Version](w.t)(w.st.Create(ctx, recordKey, must[[]byte](w.t)(r.Encode())))
	return r
}

// An oversized history is worked off over bounded calls; what is needed to verify
// stays, and so does every answer about a named term.
//
// SPEC PL5, hazard 13
func TestPruneOversizedHistory(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		const changes = 4_150
		w.history(changes)
		p := w.proc()
		some := must[[]*identity.Certificate](t)(p.History(t.Context(), node))
		if len(some) != changes {
			t.Fatalf("%d certificates", len(some))
		}
		calls, removed := 0, 0
		for more := true; more; calls++ {
			before := p.link.Counts()
			done, err := p.Prune(t.Context(), node, time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			if n := p.link.Counts()[faultstore.OpDelete] - before[faultstore.OpDelete]; n > batchDeletes {
				t.Fatalf("one batch deleted %d", n)
			}
			removed += done.Removed
			more = done.More
		}
		if removed != changes-1 || calls < changes*2/batchDeletes {
			t.Errorf("%d removed in %d calls", removed, calls)
		}
		left := w.sealed()
		if c := w.head().Certificate; len(left) != 1 || left[c.Predecessor.Incarnation] == nil {
			t.Errorf("%d are left", len(left))
		}
		for _, c := range []*identity.Certificate{some[0], some[changes/2], some[changes-1]} {
			o := identity.Owner{Incarnation: c.Predecessor.Incarnation, Term: c.Predecessor.Term}
			if v, _, err := p.Judge(t.Context(), node, o); err != nil || v.State != identity.Over {
				t.Errorf("term %d: %+v, %v", o.Term, v, err)
			}
		}
		if done, err := p.Prune(t.Context(), node, time.Hour); err != nil || done != (Pruned{Kept: 2}) {
			t.Errorf("once more: %+v, %v", done, err)
		}
	})
}

// Young certificates stay, and so does one that is the only memory of a force.
//
// SPEC PL5
func TestPruneKeeps(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.proc()
		for range 4 {
			w.release(p.join())
			time.Sleep(time.Hour)
		}
		if done, err := p.Prune(t.Context(), node, 150*time.Minute); err != nil || done.Removed != 1 || done.Kept != 4 || done.More {
			t.Errorf("%+v, %v", done, err)
		}
		if done, err := p.Prune(t.Context(), "stranger", 0); err != nil || done != (Pruned{}) {
			t.Errorf("a stranger: %+v, %v", done, err)
		}
		_, err := p.Prune(t.Context(), node, -1)
		wantErr(t, err, store.ErrInvalid)
		w.sealed()
	})
}

// A batch goes past what cannot be read or removed, and tells it.
//
// SPEC PL5 ST7
func TestPruneFailures(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.history(20)
		p := w.proc()
		prefix := p.certificates(node)
		must[store.Version](t)(w.st.Create(t.Context(), prefix+"predecessor-0", []byte("?")))
		_, err := p.Prune(t.Context(), node, 0)
		wantErr(t, err, store.ErrCorrupt)
		p.link.Add(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpDelete}, Times: 2, Fault: faultstore.Fail(store.ErrDenied)})
		for range 2 {
			_, err = p.Prune(t.Context(), node, 0)
			wantErr(t, err, store.ErrDenied)
		}
		removed := 0
		for range 3 {
			done, _ := p.Prune(t.Context(), node, 0)
			removed += done.Removed
		}
		if removed != 19 {
			t.Errorf("%d removed", removed)
		}
		p.link.Add(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpList}, Fault: faultstore.Fail(store.ErrUnavailable)})
		_, err = p.Prune(t.Context(), node, 0)
		wantErr(t, err, store.ErrUnavailable)
	})
}

// Nothing that the pruner meets stands in the way of a renewal: each stays on time,
// with one request, and Health alone tells of it.
//
// SPEC PL5 PL8 LS4, hazard 1, hazard 12, hazard 13
func TestMaintenanceNeverDelaysRenewals(t *testing.T) {
	list, del := []faultstore.Op{faultstore.OpList}, []faultstore.Op{faultstore.OpDelete}
	for name, rule := range map[string]faultstore.Rule{
		"delete denied": {Ops: del, Fault: faultstore.Fail(store.ErrDenied)},
		"delete hangs":  {Ops: del, Fault: faultstore.Hang()},
		"list fails":    {Ops: list, Fault: faultstore.Fail(store.ErrUnavailable)},
		"list hangs":    {Ops: list, Fault: faultstore.Hang()},
		"list breaks":   {Ops: list, Fault: faultstore.BreakList(100)},
		"list is slow":  {Ops: []faultstore.Op{faultstore.OpList, faultstore.OpGet}, Fault: faultstore.Delay(time.Second, time.Second)},
		"panics":        {},
		"no fault":      {},
	} {
		inWorldNamed(t, name, func(t *testing.T, w *world) {
			r := w.history(4_150)
			w.put(must[*identity.Record](t)(r.Release(r.Last(), identity.Renewal{Attempt: w.newID()})))
			lists := 0
			p := w.proc(func(s *setup) {
				s.cfg.PruneEvery = 2 * ttl
				s.link.Trace = func(e faultstore.Event) {
					if e.Op == faultstore.OpList && !e.Done {
						if lists++; name == "panics" {
							panic("a list that panics")
						}
					}
				}
			})
			m := p.join()
			if rule.Fault.String() != "" {
				p.link.Add(rule)
			}
			began, before := w.head().Sequence, p.link.Counts()[faultstore.OpReplace]
			time.Sleep(20 * ttl)
			renewals := w.head().Sequence - began
			if renewals < 20*5 || int(renewals) != p.link.Counts()[faultstore.OpReplace]-before {
				t.Errorf("%d renewals with %d requests", renewals, p.link.Counts()[faultstore.OpReplace]-before)
			}
			h := m.Health()
			if !m.Deadline().Live() || h.Err != nil || (lists < 5 || h.Pruned == 0) && name != "list is slow" {
				t.Errorf("%+v, %d lists", h, lists)
			}
			if bad := name != "no fault" && name != "list is slow"; bad != (h.PruneErr != nil) {
				t.Errorf("health says %v", h.PruneErr)
			}
			if left := len(w.sealed()); name == "no fault" && left != 1 {
				t.Errorf("%d certificates are left", left)
			}
			if name == "panics" && !strings.Contains(fmt.Sprint(h.PruneErr), "panic") {
				t.Errorf("health says %v", h.PruneErr)
			}
			w.release(m)
		})
	}
}

// A pruner stays out of the way while renewals are late.
//
// SPEC PL5
func TestPrunerWaitsForRenewals(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.release(w.proc().join())
		p := w.proc(func(s *setup) { s.cfg.PruneEvery = ttl / 10 })
		m := p.join()
		time.Sleep(3 * ttl)
		p.link.Add(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpReplace}, Fault: faultstore.Fail(store.ErrUnavailable)})
		time.Sleep(ttl * 6 / 10)
		if h := m.Health(); store.KindOf(h.PruneErr) != store.ErrUnavailable || h.Err == nil {
			t.Errorf("%+v", h)
		}
		p.link.Clear()
		time.Sleep(ttl)
		if h := m.Health(); h.PruneErr != nil || h.Err != nil {
			t.Errorf("%+v", h)
		}
		w.release(m)
	})
}
