package balance_test

import (
	"fmt"
	"math"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tenure-project/tenure/internal/core/slots/balance"
)

// drawConfig draws limits of every kind.
func drawConfig(t *rapid.T) balance.Config {
	return balance.Config{
		MaxMoves: rapid.SampledFrom([]int{0, -1, 1, 2, 5, 1000}).Draw(t, "moves"),
		Settle:   time.Duration(rapid.IntRange(-1, 60).Draw(t, "settle")) * time.Second,
		Slack:    rapid.SampledFrom([]float64{0, -1, 0.05, 0.5}).Draw(t, "slack"),
		Window:   time.Duration(rapid.IntRange(0, 60).Draw(t, "window")) * time.Second,
		Burst:    rapid.SampledFrom([]int{0, -1, 1, 3, 1000}).Draw(t, "burst"),
		HardPins: rapid.Bool().Draw(t, "hard"),
	}
}

func drawHost(t *rapid.T, n int) balance.Host {
	return balance.Host{
		ID: hostID(n), Incarnation: fmt.Sprint(rapid.IntRange(1, 2).Draw(t, "incarnation")),
		Weight:   rapid.SampledFrom([]int{0, 1, 1, 1, 2, 5, 1000}).Draw(t, "weight"),
		Capacity: rapid.SampledFrom([]int{0, 0, 0, 1, 3, 7}).Draw(t, "capacity"),
		Leaving:  rapid.IntRange(0, 5).Draw(t, "leaving") == 0,
		Alive:    rapid.IntRange(0, 5).Draw(t, "alive") != 0,
		Since:    time.Duration(rapid.IntRange(0, 120).Draw(t, "since")) * time.Second,
	}
}

// drawWorld draws anything that a leader may meet, also targets that no plan would have
// set, hosts that nobody knows, and rows held by the dead.
func drawWorld(t *rapid.T) *world {
	var all []balance.Host
	for i := range rapid.IntRange(0, 6).Draw(t, "hosts") {
		all = append(all, drawHost(t, i))
	}
	s := shards(rapid.IntRange(1, 24).Draw(t, "shards"))
	equal := rapid.Bool().Draw(t, "equal")
	name := rapid.SampledFrom([]string{"", hostID(0), hostID(1), hostID(2), hostID(3), hostID(5), hostID(9)})
	for i := range s {
		s[i].Owner = name.Draw(t, "owner")
		s[i].Held = s[i].Owner != "" && rapid.Bool().Draw(t, "held")
		s[i].Target = name.Draw(t, "target")
		if rapid.IntRange(0, 5).Draw(t, "pinned") == 0 {
			s[i].Pin = name.Draw(t, "pin")
		}
		if !equal {
			s[i].Load = rapid.SampledFrom([]int64{1, 2, 3, 10, 100, balance.MaxLoad}).Draw(t, "load")
		}
	}
	w := newWorld(all, s, drawConfig(t))
	w.Now = 2 * time.Minute
	return w
}

// Whatever the input: what no plan may break holds (see checkPlan), and a plan made
// again from its own result, before any host has acted, changes nothing.
//
// SPEC SL8
func TestAnyPlanHoldsTheRulesAndIsStable(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		for range 3 {
			w.plan(t)
			again := w.plan(t)
			if c := changed(again); len(c) != 0 {
				t.Fatalf("the plan from its own result changes %+v", c)
			}
			if again.Voluntary != 0 || !reflect.DeepEqual(again.State.Recent, w.State.Recent) {
				t.Fatalf("the plan from its own result begins %d moves", again.Voluntary)
			}
			w.obey()
			w.Now += time.Duration(rapid.IntRange(0, 90).Draw(t, "pass")) * time.Second
		}
	})
}

// Hosts come, go, drain, restart and change, rows lapse, hosts obey or not: every plan
// holds the rules, and no more than Burst moves for balance begin in any window.
//
// SPEC SL8
func TestAnyHistoryHoldsTheRules(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		w.Config = balance.Config{MaxMoves: rapid.IntRange(1, 6).Draw(t, "max"), Settle: 10 * time.Second, Window: 20 * time.Second, Burst: 3,
			HardPins: rapid.Bool().Draw(t, "hard pins")}
		var began []time.Duration
		t.Repeat(map[string]func(*rapid.T){
			"plan": func(t *rapid.T) {
				w.Now += time.Duration(rapid.IntRange(0, 8).Draw(t, "pass")) * time.Second
				for range w.plan(t).Voluntary {
					began = append(began, w.Now)
				}
				if n := len(began); n > 3 && began[n-1]-began[n-4] < w.Config.Window {
					t.Fatalf("4 moves for balance from %v to %v", began[n-4], began[n-1])
				}
			},
			"host": func(t *rapid.T) {
				n := rapid.IntRange(0, 5).Draw(t, "host")
				h := drawHost(t, n)
				h.Since = w.Now
				w.Hosts = append([]balance.Host(nil), w.Hosts...)
				if old := w.host(hostID(n)); old != nil {
					*old = h
				} else {
					w.Hosts = append(w.Hosts, h)
				}
			},
			"gone": func(t *rapid.T) { w.kill(hostID(rapid.IntRange(0, 5).Draw(t, "host"))) },
			"obey": func(t *rapid.T) {
				for i := range w.Shards {
					s := &w.Shards[i]
					if h := w.host(s.Target); h != nil && h.Alive && rapid.Bool().Draw(t, "obeys") {
						s.Owner, s.Held = s.Target, true
					}
				}
			},
			"lapse": func(t *rapid.T) { w.Shards[rapid.IntRange(0, len(w.Shards)-1).Draw(t, "shard")].Held = false },
			"forget": func(t *rapid.T) {
				// A new leader, which begins its windows anew.
				w.State, began = balance.State{}, nil
			},
		})
	})
}

// equalShares are the shares of equal shards by weight and capacity, made by halving an
// interval: no code of the package.
func equalShares(all []balance.Host, n int) []float64 {
	at := func(level float64) (out []float64, sum float64) {
		for _, h := range all {
			v := 0.0
			if takes(h) {
				v = level * float64(h.Weight)
				if h.Capacity > 0 {
					v = min(v, float64(h.Capacity))
				}
			}
			out, sum = append(out, v), sum+v
		}
		return out, sum
	}
	low, high := 0.0, float64(n)
	for range 200 {
		mid := (low + high) / 2
		if _, sum := at(mid); sum < float64(n) {
			low = mid
		} else {
			high = mid
		}
	}
	out, _ := at(high)
	return out
}

// balanced: every host has its share, rounded up or down.
func balanced(count []int, want []float64) bool {
	for h, n := range count {
		if math.Abs(float64(n)-want[h]) > 1-1e-9 {
			return false
		}
	}
	return true
}

// fewest tries every way to divide the shards, and returns the fewest moves to balance.
func fewest(owner []int, want []float64) int {
	best := len(owner) + 1
	count := make([]int, len(want))
	var try func(i, moves int)
	try = func(i, moves int) {
		if moves >= best {
			return
		}
		if i == len(owner) {
			if balanced(count, want) {
				best = moves
			}
			return
		}
		for h := range want {
			count[h]++
			if h == owner[i] {
				try(i+1, moves)
			} else {
				try(i+1, moves+1)
			}
			count[h]--
		}
	}
	try(0, 0)
	return best
}

// From any start, with equal shards, planning reaches balance in the fewest moves that
// reach it, within any limits.
//
// SPEC SL8
func TestBalanceIsReachedInTheFewestMoves(t *testing.T) {
	t.Parallel()
	total := 0
	rapid.Check(t, func(t *rapid.T) {
		n, m := rapid.IntRange(2, 4).Draw(t, "hosts"), rapid.IntRange(1, 8).Draw(t, "shards")
		all := hosts(n)
		room := 0
		for i := range all {
			all[i].Weight = rapid.SampledFrom([]int{0, 1, 1, 2, 3, 7, 1000}).Draw(t, "weight")
			all[i].Capacity = rapid.IntRange(0, 5).Draw(t, "capacity")
			all[i].Leaving = rapid.IntRange(0, 4).Draw(t, "leaving") == 0
			if takes(all[i]) && all[i].Capacity == 0 {
				room += m
			} else if takes(all[i]) {
				room += all[i].Capacity
			}
		}
		if room < m {
			t.Skip("no room")
		}
		s := shards(m)
		owner := make([]int, m)
		for i := range s {
			owner[i] = rapid.IntRange(0, n-1).Draw(t, "owner")
			s[i].Owner, s[i].Held = hostID(owner[i]), true
		}
		c := free
		c.MaxMoves = rapid.SampledFrom([]int{1, 2, 100}).Draw(t, "moves")
		c.Burst = rapid.SampledFrom([]int{1, 2, 100}).Draw(t, "burst")
		w := newWorld(all, s, c)
		moved, _ := w.settle(t)
		want := equalShares(all, m)
		count := make([]int, n)
		for h := range count {
			count[h] = w.owned()[hostID(h)]
		}
		if !balanced(count, want) {
			t.Fatalf("%v for shares of %v", count, want)
		}
		if least := fewest(owner, want); moved != least {
			t.Fatalf("%d moves where %d do: from %v to %v, shares %v", moved, least, owner, count, want)
		}
		total += moved
	})
	t.Logf("%d moves, as few as can be", total)
}

// With unequal loads every host comes within the heaviest shard of its share, in
// finitely many moves. (The fewest moves would be a packing problem.)
//
// SPEC SL8
func TestUnequalLoadsComeWithinOneShard(t *testing.T) {
	t.Parallel()
	moves, least := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		n, m := rapid.IntRange(1, 5).Draw(t, "hosts"), rapid.IntRange(1, 40).Draw(t, "shards")
		all := hosts(n)
		var weight, load, most int64
		for i := range all {
			all[i].Weight = rapid.IntRange(1, 9).Draw(t, "weight")
			weight += int64(all[i].Weight)
		}
		s := shards(m)
		loads := make([]int64, n)
		for i := range s {
			h := rapid.IntRange(0, n-1).Draw(t, "owner")
			s[i].Owner, s[i].Held = hostID(h), true
			s[i].Load = int64(rapid.IntRange(1, 100).Draw(t, "load"))
			load, most = load+s[i].Load, max(most, s[i].Load)
			loads[h] += s[i].Load
		}
		for h := range all {
			least += int(max(0, float64(loads[h])-float64(load)*float64(all[h].Weight)/float64(weight)) / float64(most))
		}
		c := free
		c.MaxMoves = rapid.SampledFrom([]int{1, 3, 100}).Draw(t, "moves")
		w := newWorld(all, s, c)
		moved, _ := w.settle(t)
		moves += moved
		for _, h := range w.last.Hosts {
			share := float64(load) * float64(h.Weight) / float64(weight)
			if math.Abs(float64(h.HoldsLoad)-share) > float64(most) {
				t.Fatalf("%s has %d of %v; the heaviest shard is %d", h.ID, h.HoldsLoad, share, most)
			}
		}
	})
	t.Logf("%d moves; no plan could do with fewer than %d", moves, least)
}

// With slack, nothing moves within it; whoever is outside it ends inside.
//
// SPEC SL8
func TestSlackIsWhereItEnds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n, m := rapid.IntRange(1, 6).Draw(t, "hosts"), rapid.IntRange(1, 64).Draw(t, "shards")
		s := shards(m)
		for i := range s {
			s[i].Owner, s[i].Held = hostID(rapid.IntRange(0, n-1).Draw(t, "owner")), true
		}
		w := newWorld(hosts(n), s, balance.Config{Settle: -1, Slack: 0.2, Burst: 1000})
		share := float64(m) / float64(n)
		allowed := func() bool {
			for h := range n {
				d := math.Abs(float64(w.owned()[hostID(h)]) - share)
				if d > 0.2*share+1e-9 && d >= 1-1e-9 {
					return false
				}
			}
			return true
		}
		inside := allowed()
		moved, _ := w.settle(t)
		if inside != (moved == 0) || !allowed() {
			t.Fatalf("within the slack before: %v; %d moves; within it after: %v", inside, moved, allowed())
		}
	})
}
