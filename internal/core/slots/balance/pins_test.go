package balance_test

import (
	"strings"
	"testing"

	"github.com/tenure-project/tenure/internal/core/slots/balance"
)

// SPEC SL8
func TestPins(t *testing.T) {
	t.Parallel()
	w := settled(t, 4, 64, balance.Config{MaxMoves: 100, Settle: -1})
	for i := range 24 {
		w.Shards[i].Pin = hostID(0)
	}
	w.settle(t)
	for i := range 24 {
		if w.Shards[i].Owner != hostID(0) {
			t.Errorf("%v is pinned and at %s", w.Shards[i].Range, w.Shards[i].Owner)
		}
	}
	if o := w.owned(); o[hostID(0)] != 24 || o[hostID(1)] > 14 {
		t.Errorf("pins beyond the share: %v", o)
	}
	w.kill(hostID(0))
	p := w.plan(t)
	if q := problem(p, balance.PinAbsent); q == nil || q.Host != hostID(0) || q.Shards != 24 {
		t.Errorf("problems %+v", p.Problems)
	}
	w.obey()
	if n := len(w.owned()); n != 3 || w.owned()[hostID(1)] < 21 {
		t.Errorf("while the pin waits: %v", w.owned())
	}
	w.Hosts = append(w.Hosts, balance.Host{ID: hostID(0), Incarnation: "2", Weight: 1, Alive: true, Capacity: 20})
	w.settle(t)
	if o := w.owned(); o[hostID(0)] != 20 {
		t.Errorf("it came back with a capacity of 20: %v", o)
	}
	if q := problem(w.last, balance.PinBeyondCapacity); q == nil || q.Shards != 4 || q.Host != hostID(0) {
		t.Errorf("problems %+v", w.last.Problems)
	}
}

// SPEC SL8
func TestHardPins(t *testing.T) {
	t.Parallel()
	w := settled(t, 4, 64, balance.Config{MaxMoves: 100, Settle: -1, HardPins: true})
	w.Shards[0].Pin, w.Shards[1].Pin = "absent", hostID(0)
	was := w.Shards[0].Owner
	w.settle(t)
	if w.Shards[0].Owner != was || w.Shards[1].Owner != hostID(0) {
		t.Errorf("%+v", w.Shards[:2])
	}
	w.kill(was)
	w.kill(hostID(0))
	p := w.plan(t)
	for _, r := range p.Rows[:2] {
		if r.Target != "" || r.Reason != balance.Unplaced {
			t.Errorf("%+v", r)
		}
	}
	if q := problem(p, balance.PinAbsent); q == nil || !strings.Contains(q.Detail, "nobody else") {
		t.Errorf("%+v", p.Problems)
	}
}

// A shard that nobody has takes the place at its hard pin that a drained one leaves, and
// one that is pinned there too, but served elsewhere, waits.
//
// SPEC SL8
func TestAHardPinIsFilledAsSoonAsThereIsRoom(t *testing.T) {
	t.Parallel()
	s := shards(4)
	for i, owner := range []string{hostID(0), hostID(1), "", hostID(1)} {
		s[i].Owner, s[i].Held, s[i].Target = owner, owner != "", owner
	}
	s[1].Pin, s[2].Pin = hostID(0), hostID(0)
	w := newWorld(hosts(2), s, balance.Config{HardPins: true, Settle: -1, MaxMoves: 1})
	w.Hosts[0].Capacity = 1
	p := w.plan(t)
	// One move: the shard of the full host goes. The place is for the one without owner.
	if p.Rows[0].Target != hostID(1) || p.Rows[1].Target != hostID(1) || p.Rows[2].Target != hostID(0) || p.Rows[2].Reason != balance.Ownerless {
		t.Fatalf("%+v", p.Rows)
	}
}

// A capacity below the number of pinned shards there: what is beyond it leaves, and is
// told as a pin that cannot be kept.
//
// SPEC SL8
func TestACapacityBelowThePins(t *testing.T) {
	t.Parallel()
	w := settled(t, 2, 16, balance.Config{Settle: -1})
	for i := range w.Shards {
		if s := &w.Shards[i]; s.Owner == hostID(0) {
			s.Pin = hostID(0)
		}
	}
	w.Hosts[0].Capacity = 3
	moved, _ := w.settle(t)
	if q := problem(w.last, balance.PinBeyondCapacity); moved != 5 || q == nil || q.Shards != 5 || w.owned()[hostID(0)] != 3 {
		t.Fatalf("%d moves, %v, %+v", moved, w.owned(), w.last.Problems)
	}
}

// Two full hosts can only swap pinned shards in one plan.
//
// SPEC SL8
func TestFullHostsSwapPinnedShards(t *testing.T) {
	t.Parallel()
	w := newWorld(hosts(2), shards(8), balance.Config{Settle: -1})
	w.Hosts[0].Capacity, w.Hosts[1].Capacity = 4, 4
	w.settle(t)
	for i := range w.Shards {
		s := &w.Shards[i]
		if s.Owner == hostID(0) && s.Range.A < 4096 {
			s.Pin = hostID(1)
		}
	}
	pinned := 0
	for _, s := range w.Shards {
		if s.Pin != "" {
			pinned++
		}
	}
	moved, _ := w.settle(t)
	if moved != 2*pinned || pinned == 0 || len(waiting(w.last)) != 0 {
		t.Errorf("%d moves for %d pins", moved, pinned)
	}
	w.Config.MaxMoves = 1
	w.Shards[0].Pin, w.Shards[1].Pin = hostID(0), hostID(0)
	if w.Shards[0].Owner == hostID(0) {
		t.Fatal("the first shard is there already")
	}
	p := w.plan(t)
	if len(changed(p)) != 0 || p.Rows[0].Wait != balance.Room {
		t.Errorf("a swap within one move: %+v", p.Rows)
	}
}
