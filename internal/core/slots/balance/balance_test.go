package balance_test

import (
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tenure-project/tenure/internal/core/slots/balance"
	"github.com/tenure-project/tenure/store"
)

// settled is a world of n equal hosts and m equal shards in balance.
func settled(t *testing.T, n, m int, c balance.Config) *world {
	t.Helper()
	w := newWorld(hosts(n), shards(m), c)
	if moved, _ := w.settle(t); moved != 0 {
		t.Fatalf("%d moves to place shards that nobody has", moved)
	}
	return w
}

func within(t *testing.T, w *world, least, most int) {
	t.Helper()
	owned := w.owned()
	for _, h := range w.Hosts {
		if n := owned[h.ID]; n < least || n > most {
			t.Errorf("host %s has %d shards, not %d to %d", h.ID, n, least, most)
		}
	}
}

// SPEC SL8
func TestTheEleventhHostTakesAnEleventh(t *testing.T) {
	t.Parallel()
	for _, c := range []balance.Config{{Settle: -1}, free} {
		w := settled(t, 10, 256, c)
		within(t, w, 25, 26)
		w.Hosts = append(w.Hosts, balance.Host{ID: "new", Weight: 1, Alive: true, Since: w.Now})
		before := append([]balance.Shard(nil), w.Shards...)
		moved, rounds := w.settle(t)
		// 256 / 11 = 23.3
		if moved != 23 || w.owned()["new"] != 23 {
			t.Errorf("%d shards moved, %d to the new host, not 23", moved, w.owned()["new"])
		}
		for i, s := range w.Shards {
			if s.Owner != before[i].Owner && s.Owner != "new" {
				t.Errorf("%v went from %s to %s", s.Range, before[i].Owner, s.Owner)
			}
		}
		within(t, w, 23, 24)
		t.Logf("MaxMoves %d: 23 of 256 moved in %d rounds", c.MaxMoves, rounds)
	}
}

// SPEC SL8
func TestADeadHostsShardsAreSpreadAtOnce(t *testing.T) {
	t.Parallel()
	w := settled(t, 11, 256, balance.Config{})
	before := append([]balance.Shard(nil), w.Shards...)
	w.kill(hostID(4))
	p := w.plan(t)
	to := map[string]int{}
	for i, r := range p.Rows {
		mine := before[i].Owner == hostID(4)
		if mine != r.Changed() {
			t.Errorf("%v of %s: %+v", r.Range, before[i].Owner, r)
		}
		if mine {
			to[r.Target]++
			if r.Reason != balance.Ownerless {
				t.Errorf("%v: reason %v", r.Range, r.Reason)
			}
		}
	}
	for id, n := range to {
		if n > 3 {
			t.Errorf("%d shards of the dead host go to %s", n, id)
		}
	}
	if p.Voluntary != 0 || p.InFlight != 0 || len(to) != 10 {
		t.Errorf("%d voluntary, %d in flight, to %d hosts", p.Voluntary, p.InFlight, len(to))
	}
	if moved := w.obey(); moved != 0 {
		t.Errorf("%d shards of live hosts moved", moved)
	}
	within(t, w, 25, 26)
	if moved, _ := w.settle(t); moved != 0 {
		t.Errorf("%d moves afterwards", moved)
	}
}

// One empty host beside full ones does not have to recover all that a dead one had: a
// settled one gets at most twice its part, a new one its part at most.
//
// SPEC SL8
func TestADeadHostsShardsDoNotAllGoToTheEmptyHost(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name          string
		others, since time.Duration
		most          int
	}{{"settled", 0, 0, 6}, {"new", 0, time.Hour, 2}, {"all new", time.Hour, time.Hour, 6}} {
		w := settled(t, 10, 256, balance.Config{Burst: -1})
		w.Hosts = append(w.Hosts, balance.Host{ID: "empty", Weight: 1, Alive: true, Since: tc.since})
		for i := range 10 {
			w.Hosts[i].Since = tc.others
		}
		w.State = balance.State{} // a new leader
		w.kill(hostID(0))
		w.plan(t)
		w.obey()
		if n := w.owned()["empty"]; n != tc.most {
			t.Errorf("%s: the empty host got %d of 26, not %d", tc.name, n, tc.most)
		}
	}
}

// SPEC SL8
func TestANewHostSettlesFirst(t *testing.T) {
	t.Parallel()
	w := settled(t, 4, 64, balance.Config{Settle: time.Minute, MaxMoves: 100})
	w.Hosts = append(w.Hosts, balance.Host{ID: "new", Weight: 1, Alive: true, Since: w.Now})
	for range 6 {
		p := w.plan(t)
		if n := len(changed(p)); n != 0 {
			t.Fatalf("%d changes before the host has settled", n)
		}
		if row := p.Hosts[4]; row.ID != "new" || row.Settled || row.SettlesIn <= 0 || row.Share != 12.8*256 {
			t.Fatalf("row %+v", row)
		}
		w.Now += 10 * time.Second
	}
	w.Now += 10 * time.Second
	if n := len(changed(w.plan(t))); n != 12 {
		t.Fatalf("%d changes once it has, not 12", n)
	}
	// A restart between two plans shows in the incarnation only.
	w.obey()
	w.host("new").Incarnation = "2"
	w.plan(t)
	if p := w.plan(t); p.Hosts[4].Settled || len(changed(p)) != 0 {
		t.Fatalf("a restarted host has settled at once, or lost shards that it holds: %+v", p.Hosts[4])
	}
	w.Hosts = w.Hosts[:4]
	w.plan(t)
	w.Hosts = append(w.Hosts, balance.Host{ID: "new", Weight: 1, Alive: true, Incarnation: "2"})
	if p := w.plan(t); p.Hosts[4].Settled {
		t.Fatal("a host that was away for a plan has settled at once")
	}
}

// SPEC SL8
func TestALeavingHostGivesEverythingAway(t *testing.T) {
	t.Parallel()
	w := settled(t, 5, 100, balance.Config{MaxMoves: 3})
	w.host(hostID(2)).Leaving = true
	p := w.plan(t)
	if p.InFlight != 3 || p.Voluntary != 0 {
		t.Fatalf("%d in flight, %d voluntary", p.InFlight, p.Voluntary)
	}
	all := 0
	for _, r := range p.Rows {
		if r.Wanted != hostID(2) && r.Owner == hostID(2) {
			all++
			if r.Waiting() && (r.Wait != balance.InFlight || r.WantedReason != balance.Leaving) {
				t.Fatalf("%+v", r)
			}
		}
	}
	if all != 20 {
		t.Fatalf("without limits %d shards leave, not 20", all)
	}
	w.obey()
	moved, rounds := w.settle(t)
	if moved+3 != 20 || rounds < 6 || w.owned()[hostID(2)] != 0 {
		t.Fatalf("%d moves in %d rounds; it has %d", moved+3, rounds, w.owned()[hostID(2)])
	}
}

// SPEC SL8
func TestWeights(t *testing.T) {
	t.Parallel()
	w := settled(t, 3, 128, free)
	w.Hosts[0].Weight, w.Hosts[1].Weight, w.Hosts[2].Weight = 1, 2, 5
	w.settle(t)
	if o := w.owned(); o[hostID(0)] != 16 || o[hostID(1)] != 32 || o[hostID(2)] != 80 {
		t.Errorf("%v", o)
	}
	w.Hosts[2].Weight = 0
	w.settle(t)
	if o := w.owned(); o[hostID(2)] != 0 || o[hostID(1)] < 85 || o[hostID(1)] > 86 {
		t.Errorf("with weight 0: %v", o)
	}
}

// SPEC SL8
func TestASmallImbalanceIsLeftAlone(t *testing.T) {
	t.Parallel()
	w := settled(t, 2, 200, balance.Config{MaxMoves: 100})
	for i := range w.Shards { // 108 and 92
		if s := &w.Shards[i]; s.Owner == hostID(1) && w.owned()[hostID(0)] < 108 {
			s.Owner, s.Target = hostID(0), hostID(0)
		}
	}
	if moved, _ := w.settle(t); moved != 0 {
		t.Errorf("8 %% too much: %d moves", moved)
	}
	for i := range w.Shards { // 112 and 88
		if s := &w.Shards[i]; s.Owner == hostID(1) && w.owned()[hostID(0)] < 112 {
			s.Owner, s.Target = hostID(0), hostID(0)
		}
	}
	w.Config.MaxMoves = 5 // the memory of it must last over several plans
	if moved, _ := w.settle(t); moved != 12 {
		t.Errorf("12 %% too much: %d moves, not 12", moved)
	}
}

// SPEC SL8
func TestCapacity(t *testing.T) {
	t.Parallel()
	w := newWorld(hosts(3), shards(64), balance.Config{})
	w.Hosts[0].Capacity, w.Hosts[1].Capacity, w.Hosts[2].Capacity = 10, 20, 30
	p := w.plan(t)
	w.obey()
	if q := problem(p, balance.NoRoom); q == nil || q.Shards != 4 {
		t.Errorf("60 places for 64 shards: %+v", p.Problems)
	}
	if o := w.owned(); o[hostID(0)] != 10 || o[hostID(1)] != 20 || o[hostID(2)] != 30 {
		t.Errorf("%v", o)
	}
	w.Hosts[0].Capacity, w.Hosts[1].Capacity = 4, 0
	w.settle(t)
	if o := w.owned(); o[hostID(0)] != 4 || o[hostID(2)] != 30 || o[hostID(1)] != 30 {
		t.Errorf("a capacity that fell: %v", o)
	}
	p = newWorld(nil, shards(4), balance.Config{}).plan(t)
	if q := problem(p, balance.NoHost); q == nil || q.Shards != 4 {
		t.Errorf("no host at all: %+v", p.Problems)
	}
}

// A live row whose host's presence is lost gets a new target at once; if the host comes
// back before its rows lapse, everything stays with it.
//
// SPEC SL8
func TestAPresenceLostForAMomentMovesNothing(t *testing.T) {
	t.Parallel()
	w := settled(t, 4, 64, balance.Config{})
	w.Hosts[1].Alive = false
	if n := len(changed(w.plan(t))); n != 16 {
		t.Fatalf("%d changes, not 16", n)
	}
	w.Hosts[1].Alive = true
	p := w.plan(t)
	for _, r := range changed(p) {
		if r.Reason != balance.Returned || r.Target != hostID(1) {
			t.Fatalf("%+v", r)
		}
	}
	if moved := w.obey(); moved != 0 || len(changed(p)) != 16 {
		t.Fatalf("%d moves, %d changes", moved, len(changed(p)))
	}
}

// SPEC SL8
func TestTheBurstIsHeldInEveryWindow(t *testing.T) {
	t.Parallel()
	w := settled(t, 1, 64, balance.Config{Settle: -1, MaxMoves: 100, Burst: 5, Window: time.Minute})
	w.Hosts = hosts(2)
	for i := range 24 {
		p := w.plan(t)
		want := 0
		if i%6 == 0 {
			want = 5
		}
		if p.Voluntary != want || p.Recent != 5 {
			t.Fatalf("plan %d: %d voluntary, %d in the window", i, p.Voluntary, p.Recent)
		}
		if i%6 != 0 && (len(waiting(p)) == 0 || waiting(p)[0].Wait != balance.Window) {
			t.Fatalf("plan %d: waiting %+v", i, waiting(p))
		}
		w.obey()
		w.Now += 10 * time.Second
	}
	w.Config.Burst = -1
	if p := w.plan(t); p.Voluntary != 0 || p.Balancing || len(waiting(p)) != 0 {
		t.Fatal("balance was turned off")
	}
}

// SPEC SL8
func TestBadInputIsRefused(t *testing.T) {
	t.Parallel()
	host := balance.Host{ID: "a", Weight: 1, Alive: true}
	shard := balance.Shard{Range: balance.Range{A: 10, B: 20}}
	for want, change := range map[string]func(*balance.Input){
		"no name":         func(in *balance.Input) { in.Hosts[0].ID = "" },
		"there twice":     func(in *balance.Input) { in.Hosts = append(in.Hosts, host) },
		"weight -1":       func(in *balance.Input) { in.Hosts[0].Weight = -1 },
		"weight 65537":    func(in *balance.Input) { in.Hosts[0].Weight = 65537 },
		"capacity -1":     func(in *balance.Input) { in.Hosts[0].Capacity = -1 },
		"4097 hosts":      func(in *balance.Input) { in.Hosts = hosts(4097) },
		"range 20-10":     func(in *balance.Input) { in.Shards[0].Range = balance.Range{A: 20, B: 10} },
		"range 16384":     func(in *balance.Input) { in.Shards[0].Range = balance.Range{A: 16384, B: 16384} },
		"overlap":         func(in *balance.Input) { in.Shards = append(in.Shards, shard) },
		"load -1":         func(in *balance.Input) { in.Shards[0].Load = -1 },
		"load 1048577":    func(in *balance.Input) { in.Shards[0].Load = 1<<20 + 1 },
		"held by nobody":  func(in *balance.Input) { in.Shards[0].Held = true },
		"slack NaN":       func(in *balance.Input) { in.Config.Slack = math.NaN() },
		"is not a number": func(in *balance.Input) { in.Config.Slack = math.Inf(1) },
	} {
		in := balance.Input{Hosts: []balance.Host{host}, Shards: []balance.Shard{shard}}
		change(&in)
		if _, err := balance.Compute(in); !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// SPEC SL8
func TestTheOrderOfTheInputDoesNotMatter(t *testing.T) {
	t.Parallel()
	w := settled(t, 7, 128, balance.Config{MaxMoves: 9, Settle: -1})
	w.Hosts = append(w.Hosts, balance.Host{ID: "new", Weight: 3, Alive: true})
	w.host(hostID(1)).Leaving = true
	w.kill(hostID(2))
	w.Shards[3].Pin = "new"
	w.plan(t) // so that moves are remembered
	w.Shards[5].Pin = "new"
	if len(w.State.Moves) < 9 {
		t.Fatalf("%d moves are under way", len(w.State.Moves))
	}
	first, err := balance.Compute(w.Input)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		r.Shuffle(len(w.Hosts), func(i, j int) { w.Hosts[i], w.Hosts[j] = w.Hosts[j], w.Hosts[i] })
		r.Shuffle(len(w.Shards), func(i, j int) { w.Shards[i], w.Shards[j] = w.Shards[j], w.Shards[i] })
		r.Shuffle(len(w.State.Moves), func(i, j int) { w.State.Moves[i], w.State.Moves[j] = w.State.Moves[j], w.State.Moves[i] })
		r.Shuffle(len(w.State.Hosts), func(i, j int) { w.State.Hosts[i], w.State.Hosts[j] = w.State.Hosts[j], w.State.Hosts[i] })
		if next, err := balance.Compute(w.Input); err != nil || !reflect.DeepEqual(first, next) {
			t.Fatalf("another order, another plan (%v)", err)
		}
	}
}

// SPEC SL8
func TestStateAndRowsSurviveJSON(t *testing.T) {
	t.Parallel()
	w := settled(t, 3, 32, balance.Config{Settle: -1})
	w.Hosts = hosts(5)
	p := w.plan(t)
	text, err := json.Marshal(p.State)
	if err != nil {
		t.Fatal(err)
	}
	var back balance.State
	if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(back, p.State) {
		t.Fatalf("%s: %v", text, err)
	}
	if len(back.Moves) == 0 || len(back.Recent) == 0 || !strings.Contains(string(text), `"reason":"balance"`) {
		t.Fatalf("the state is empty: %s", text)
	}
	w.Config.MaxMoves = -1
	var rows []balance.Row
	text, err = json.Marshal(w.plan(t).Rows)
	if err == nil {
		err = json.Unmarshal(text, &rows)
	}
	if !reflect.DeepEqual(rows, w.last.Rows) {
		t.Fatalf("rows do not survive JSON: %s", text)
	}
	if err != nil || !strings.Contains(string(text), `"wanted_reason":"balance","wait":"in flight"`) {
		t.Fatalf("%s: %v", text, err)
	}
	if err := json.Unmarshal([]byte(`{"wait":"long"}`), new(balance.Row)); !errors.Is(err, store.ErrInvalid) {
		t.Fatalf("an unknown wait: %v", err)
	}
	if err := json.Unmarshal([]byte(`{"moves":[{"reason":"whim"}]}`), &back); !errors.Is(err, store.ErrInvalid) {
		t.Fatalf("an unknown reason: %v", err)
	}
}
