package balance_test

import (
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tenure-project/tenure/internal/core/slots/balance"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func hostID(n int) string { return fmt.Sprintf("h%03d", n) }

// hosts are n equal hosts that have been there for long.
func hosts(n int) []balance.Host {
	out := make([]balance.Host, n)
	for i := range out {
		out[i] = balance.Host{ID: hostID(i), Incarnation: "1", Weight: 1, Alive: true}
	}
	return out
}

// shards cuts all slots into n ranges of one size.
func shards(n int) []balance.Shard {
	size := balance.Slots / n
	out := make([]balance.Shard, n)
	for i := range out {
		out[i].Range = balance.Range{A: uint16(i * size), B: uint16((i+1)*size - 1)}
	}
	return out
}

// free has no limit but what a test sets.
var free = balance.Config{MaxMoves: 1 << 20, Settle: -1, Slack: -1, Burst: 1 << 20}

// world is a cluster as the leader sees it, in which every host does at once what the
// plan says.
type world struct {
	balance.Input
	last *balance.Plan
}

func newWorld(h []balance.Host, s []balance.Shard, c balance.Config) *world {
	return &world{Input: balance.Input{Now: time.Hour, Hosts: h, Shards: s, Config: c}}
}

type fataler interface {
	Helper()
	Fatalf(string, ...any)
}

// plan makes and publishes a plan.
func (w *world) plan(t fataler) *balance.Plan {
	t.Helper()
	p, err := balance.Compute(w.Input)
	if err != nil {
		t.Fatalf("plan: %v", err)
	}
	checkPlan(t, w.Input, p)
	w.State, w.last = p.State, p
	at := map[balance.Range]string{}
	for _, r := range p.Rows {
		at[r.Range] = r.Target
	}
	w.Shards = append([]balance.Shard(nil), w.Shards...)
	for i := range w.Shards {
		w.Shards[i].Target = at[w.Shards[i].Range]
	}
	return p
}

// obey hands every shard to its target, and counts those that a live owner gave up.
func (w *world) obey() (moved int) {
	for i := range w.Shards {
		s := &w.Shards[i]
		if s.Target == "" || (s.Held && s.Owner == s.Target) {
			continue
		}
		if s.Held {
			moved++
		}
		s.Owner, s.Held = s.Target, true
	}
	return moved
}

// settle plans and obeys until nothing changes any more.
func (w *world) settle(t fataler) (moved, rounds int) {
	t.Helper()
	for rounds = 0; ; rounds++ {
		if rounds > 100000 {
			t.Fatalf("no end after %d rounds", rounds)
		}
		p := w.plan(t)
		n := w.obey()
		moved += n
		if n == 0 && len(changed(p)) == 0 {
			if len(waiting(p)) == 0 {
				return moved, rounds
			}
			w.Now += time.Minute
		}
	}
}

// kill lets a host die: its rows lapse and its presence goes.
func (w *world) kill(id string) {
	w.drop(id)
	for i := range w.Hosts {
		if w.Hosts[i].ID == id {
			w.Hosts = append(append([]balance.Host(nil), w.Hosts[:i]...), w.Hosts[i+1:]...)
			return
		}
	}
}

func (w *world) drop(id string) (n int) {
	for i := range w.Shards {
		if s := &w.Shards[i]; s.Owner == id && s.Held {
			s.Held = false
			n++
		}
	}
	return n
}

func (w *world) owned() map[string]int {
	out := map[string]int{}
	for _, s := range w.Shards {
		if s.Held {
			out[s.Owner]++
		}
	}
	return out
}

func (w *world) host(id string) *balance.Host {
	for i := range w.Hosts {
		if w.Hosts[i].ID == id {
			return &w.Hosts[i]
		}
	}
	return nil
}

func changed(p *balance.Plan) (out []balance.Row) {
	for _, r := range p.Rows {
		if r.Changed() {
			out = append(out, r)
		}
	}
	return out
}

func waiting(p *balance.Plan) (out []balance.Row) {
	for _, r := range p.Rows {
		if r.Waiting() {
			out = append(out, r)
		}
	}
	return out
}

func problem(p *balance.Plan, k balance.ProblemKind) *balance.Problem {
	for i := range p.Problems {
		if p.Problems[i].Kind == k {
			return &p.Problems[i]
		}
	}
	return nil
}

// checkPlan holds every plan to what no plan may break, whatever the input.
func checkPlan(t fataler, in balance.Input, p *balance.Plan) {
	t.Helper()
	c := checker{t: t, in: in, p: p, hosts: map[string]balance.Host{}, shards: map[balance.Range]balance.Shard{}, targets: map[string]int{}}
	for _, h := range in.Hosts {
		c.hosts[h.ID] = h
	}
	for _, s := range in.Shards {
		c.shards[s.Range] = s
	}
	if len(p.Rows) != len(in.Shards) {
		t.Fatalf("%d rows for %d shards", len(p.Rows), len(in.Shards))
	}
	for _, r := range p.Rows {
		if r.Target != "" {
			c.targets[r.Target]++
		}
		c.row(r)
	}
	c.whole()
}

type checker struct {
	t       fataler
	in      balance.Input
	p       *balance.Plan
	hosts   map[string]balance.Host
	shards  map[balance.Range]balance.Shard
	targets map[string]int
	moving  int
}

func takes(h balance.Host) bool { return h.Alive && !h.Leaving && h.Weight > 0 }

func (c *checker) row(r balance.Row) {
	c.t.Helper()
	s := c.shards[r.Range]
	live := s.Held && c.hosts[s.Owner].Alive
	if live != (r.Owner != "") || (live && r.Owner != s.Owner) || r.Was != s.Target {
		c.t.Fatalf("row %+v is not of shard %+v", r, s)
	}
	// A target is a host that takes shards, or the live owner where it is.
	if r.Target != "" && !takes(c.hosts[r.Target]) && (!live || s.Owner != r.Target) {
		c.t.Fatalf("%v goes to %q, which takes nothing (%+v)", r.Range, r.Target, c.hosts[r.Target])
	}
	if live && r.Target == "" {
		c.t.Fatalf("%v is taken from its live owner for nobody", r.Range)
	}
	if (r.Reason == balance.Keep) != (r.Target == r.Was) && r.Reason != balance.Unplaced {
		c.t.Fatalf("%v from %q to %q with reason %v", r.Range, r.Was, r.Target, r.Reason)
	}
	if r.Waiting() != (r.Wait != balance.NoWait) {
		c.t.Fatalf("%v is at %q and wanted at %q, and waits for %q", r.Range, r.Target, r.Wanted, r.Wait)
	}
	if r.Moving() {
		c.moving++
	}
}

// whole checks the counts: moves under way, capacities, and that no shard is left
// without a target while a host has room.
func (c *checker) whole() {
	c.t.Helper()
	limit := c.in.Config.MaxMoves
	if limit == 0 {
		limit = balance.DefaultMaxMoves
	}
	if c.moving != c.p.InFlight || c.moving > max(limit, 0) {
		c.t.Fatalf("%d moves under way, %d told, %d allowed", c.moving, c.p.InFlight, limit)
	}
	room := false
	for id, h := range c.hosts {
		if h.Capacity == 0 || c.targets[id] < h.Capacity {
			room = room || takes(h)
			continue
		}
		// More than the capacity: then only what the host holds itself.
		if c.targets[id] > h.Capacity {
			for _, r := range c.p.Rows {
				if r.Target == id && r.Owner != id {
					c.t.Fatalf("%q has %d targets and room for %d, and %v goes to it", id, c.targets[id], h.Capacity, r.Range)
				}
			}
			if problem(c.p, balance.OverCapacity) == nil {
				c.t.Fatalf("%q is over its capacity and nothing is told", id)
			}
		}
	}
	for _, r := range c.p.Rows {
		if r.Target == "" && room && (!c.in.Config.HardPins || c.shards[r.Range].Pin == "") {
			c.t.Fatalf("%v has no target, and there is room: %+v", r.Range, c.p)
		}
	}
}
