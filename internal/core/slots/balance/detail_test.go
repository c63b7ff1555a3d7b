package balance_test

import (
	"testing"
	"time"

	"github.com/tenure-project/tenure/internal/core/slots/balance"
)

// held gives each host of a list the number of shards in it, in the order of ranges.
func held(m int, counts ...int) []balance.Shard {
	out := shards(m)
	i := 0
	for h, n := range counts {
		for range n {
			out[i].Owner, out[i].Held, out[i].Target = hostID(h), true, hostID(h)
			i++
		}
	}
	return out
}

// move finds the remembered move of a range.
func move(p *balance.Plan, r balance.Range) balance.Move {
	for _, m := range p.State.Moves {
		if m.Range == r {
			return m
		}
	}
	return balance.Move{}
}

// With fewer moves allowed than are under way, those for balance are called off, and not
// those off a leaving host.
//
// SPEC SL8
func TestTheLeastUrgentMovesAreCalledOff(t *testing.T) {
	t.Parallel()
	w := newWorld(hosts(4), held(32, 4, 14, 14), balance.Config{Settle: -1, MaxMoves: 6})
	w.host(hostID(0)).Leaving = true
	p := w.plan(t)
	if p.InFlight != 6 || p.Voluntary != 2 {
		t.Fatalf("%d in flight, %d for balance, not 4 + 2", p.InFlight, p.Voluntary)
	}
	w.Config.MaxMoves = 4
	p = w.plan(t)
	for _, r := range changed(p) {
		if r.Reason != balance.Returned || r.Owner == hostID(0) {
			t.Errorf("%+v", r)
		}
	}
	if n := len(changed(p)); n != 2 || p.InFlight != 4 {
		t.Errorf("%d moves called off, %d under way", n, p.InFlight)
	}
}

// A host that has not settled neither takes nor gives for balance, and the others share
// what it leaves them.
//
// SPEC SL8
func TestAHostThatHasNotSettledKeepsWhatItHas(t *testing.T) {
	t.Parallel()
	w := newWorld(hosts(3), held(64, 20, 4, 40), balance.Config{MaxMoves: 100})
	w.host(hostID(2)).Since = w.Now
	moved, _ := w.settle(t) // until nothing is wanted: no time passes
	if o := w.owned(); moved != 8 || o[hostID(0)] != 12 || o[hostID(1)] != 12 || o[hostID(2)] != 40 {
		t.Fatalf("%d moves: %v", moved, o)
	}
	w.Now += 2 * time.Minute
	moved, _ = w.settle(t)
	if o := w.owned(); moved < 18 || moved > 19 || o[hostID(2)] > 22 {
		t.Fatalf("once it has settled, %d moves: %v", moved, o)
	}
}

// A held shard goes to its pin when that has settled; one that nobody holds at once.
//
// SPEC SL8
func TestAPinWaitsForItsHostToSettle(t *testing.T) {
	t.Parallel()
	w := newWorld(hosts(2), held(8, 6), balance.Config{})
	w.host(hostID(1)).Since = w.Now
	w.Shards[0].Pin, w.Shards[7].Pin = hostID(1), hostID(1)
	p := w.plan(t)
	if p.Rows[0].Changed() || p.Rows[0].Waiting() || p.Rows[7].Target != hostID(1) {
		t.Fatalf("%+v", p.Rows)
	}
	w.obey()
	w.Now += balance.DefaultSettle
	if r := w.plan(t).Rows[0]; r.Target != hostID(1) || r.Reason != balance.Pin {
		t.Fatalf("%+v", r)
	}
}

// Capacity counts shards, whatever they weigh: a full host with a small load gets no
// more, and the others need not give it any.
//
// SPEC SL8
func TestAFullHostOfLightShardsGetsNoMore(t *testing.T) {
	t.Parallel()
	w := newWorld(hosts(2), held(8, 2, 6), balance.Config{Settle: -1, Slack: -1})
	w.Hosts[0].Capacity = 2
	for i := range w.Shards {
		w.Shards[i].Load = []int64{1, 100}[min(i/2, 1)]
	}
	p := w.plan(t)
	if len(changed(p)) != 0 || len(waiting(p)) != 0 || p.Hosts[0].Wanted != 2 {
		t.Fatalf("%+v", p.Rows)
	}
}

// A shard on its way is not sent elsewhere for balance.
//
// SPEC SL8
func TestAShardOnItsWayIsLeftAlone(t *testing.T) {
	t.Parallel()
	s := held(12, 6, 6)
	for i := range 6 {
		s[i].Target = hostID(1) // all on their way to the other
	}
	w := newWorld(hosts(3), s, balance.Config{Settle: -1})
	for _, r := range changed(w.plan(t)) {
		if r.Owner == hostID(0) {
			t.Fatalf("%+v", r)
		}
	}
}

// Of equal shards, those go first for balance that nobody holds: nothing has to drain.
//
// SPEC SL8
func TestShardsThatNobodyHoldsGoFirst(t *testing.T) {
	t.Parallel()
	s := held(8, 8)
	s[2].Held, s[5].Held = false, false
	w := newWorld(hosts(2), s, balance.Config{Settle: -1, Burst: 2})
	p := w.plan(t)
	if len(changed(p)) != 2 || p.Rows[2].Target != hostID(1) || p.Rows[5].Target != hostID(1) {
		t.Fatalf("%+v", p.Rows)
	}
}

// A pin turns a shard round that is on its way: it is one move still.
//
// SPEC SL8
func TestAPinTurnsAMoveRound(t *testing.T) {
	t.Parallel()
	s := held(6, 2, 2, 2)
	s[0].Target = hostID(1)
	w := newWorld(hosts(3), s, balance.Config{Settle: -1, MaxMoves: 1, Burst: -1})
	w.Shards[0].Pin = hostID(2)
	p := w.plan(t)
	if p.Rows[0].Target != hostID(2) || p.InFlight != 1 {
		t.Fatalf("%+v", p.Rows[0])
	}
	w.Shards[0].Pin = hostID(0)
	p = w.plan(t)
	if p.Rows[0].Target != hostID(0) || p.InFlight != 0 {
		t.Fatalf("back home: %+v", p.Rows[0])
	}
}

// When a move's target dies after the old owner has released, the shard is an ownerless
// one again; and if the old owner is quicker than the next target, it keeps it.
//
// SPEC SL8
func TestAMoveWhoseTargetDiesIsForgotten(t *testing.T) {
	t.Parallel()
	w := newWorld(hosts(3), held(9, 9), balance.Config{Settle: -1, MaxMoves: 1})
	row := changed(w.plan(t))[0]
	for i := range w.Shards {
		if w.Shards[i].Range == row.Range {
			w.Shards[i].Held = false
		}
	}
	if m := move(w.plan(t), row.Range); m.Reason != balance.Balance || m.To != row.Target {
		t.Fatalf("%+v", m)
	}
	w.kill(row.Target)
	p := w.plan(t)
	m := move(p, row.Range)
	if m.Reason != balance.Ownerless || m.To == row.Target {
		t.Fatalf("%+v", m)
	}
	for i := range w.Shards {
		if w.Shards[i].Range == row.Range {
			w.Shards[i].Held = true
		}
	}
	w.Config.Burst = -1
	for _, r := range w.plan(t).Rows {
		if r.Range == row.Range && m.To != hostID(0) && (r.Target != hostID(0) || r.Reason != balance.Returned) {
			t.Fatalf("%+v", r)
		}
	}
}

// Less than an average shard too much is left alone, also if light shards could even it
// out, and whatever the slack.
//
// SPEC SL8
func TestLessThanAShardIsLeftAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(hosts(2), held(8, 5, 3), balance.Config{Settle: -1, Slack: -1})
	for i, load := range []int64{10, 10, 1, 1, 1, 10, 9, 1} { // 23 and 20; the mean is 5
		w.Shards[i].Load = load
	}
	if p := w.plan(t); len(changed(p)) != 0 || p.Balancing {
		t.Fatalf("%+v", changed(p))
	}
}

// What a leaving host cannot give away, because it is pinned hard, is no part of what
// the others share.
//
// SPEC SL8
func TestOthersBalanceBesideALeavingHostWithHardPins(t *testing.T) {
	t.Parallel()
	w := newWorld(hosts(3), held(16, 8, 6, 2), balance.Config{Settle: -1, HardPins: true})
	w.host(hostID(0)).Leaving = true
	for i := range 8 {
		w.Shards[i].Pin = "absent"
	}
	moved, _ := w.settle(t)
	if o := w.owned(); moved != 2 || o[hostID(0)] != 8 || o[hostID(1)] != 4 {
		t.Fatalf("%d moves: %v", moved, o)
	}
}

// A full host that gives a heavy shard away has room for a lighter one in the same plan.
//
// SPEC SL8
func TestAFullHostThatGivesMayTake(t *testing.T) {
	t.Parallel()
	w := newWorld(hosts(3), held(16, 1, 5, 10), balance.Config{Settle: -1})
	w.Hosts[0].Capacity, w.Hosts[1].Capacity = 1, 7
	for i := range w.Shards {
		w.Shards[i].Load = 1
	}
	w.Shards[0].Load, w.Shards[1].Load, w.Shards[2].Load = balance.MaxLoad, balance.MaxLoad, 10
	w.plan(t)
	w.plan(t)
	if p := w.last; len(changed(p)) != 0 || p.Hosts[0].Targets != 1 || p.Hosts[0].TargetLoad != 10 {
		t.Fatalf("%+v %+v", changed(p), p.Hosts)
	}
}

// To give a shard that nobody has to its hard pin takes no place among MaxMoves; what
// makes room for it does. And what nobody holds yet makes room first.
//
// SPEC SL8
func TestOnlyWhatMakesRoomForAHardPinIsLimited(t *testing.T) {
	t.Parallel()
	s := held(6, 3, 2)
	s[0].Held = false
	s[5].Pin = hostID(0)
	s[4].Pin = hostID(2)
	w := newWorld(hosts(3), s, balance.Config{Settle: -1, HardPins: true, MaxMoves: 2, Burst: -1})
	w.Hosts[0].Capacity = 3
	p := w.plan(t)
	if p.Rows[5].Target != hostID(0) || p.Rows[4].Target != hostID(2) || p.Rows[0].Reason != balance.Capacity {
		t.Fatalf("%+v", p.Rows)
	}
}

// A shard on its way that is turned to its pin leaves its place to another one's pin.
//
// SPEC SL8
func TestAShardTurnedToItsPinLeavesItsPlace(t *testing.T) {
	t.Parallel()
	s := held(4, 4)
	s[0].Target, s[0].Pin, s[3].Pin = hostID(2), hostID(1), hostID(2)
	w := newWorld(hosts(3), s, balance.Config{Settle: -1, Burst: -1})
	w.Hosts[2].Capacity = 1
	p := w.plan(t)
	if p.Rows[0].Target != hostID(1) || p.Rows[3].Target != hostID(2) {
		t.Fatalf("%+v", p.Rows)
	}
}
