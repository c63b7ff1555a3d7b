package world

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

// Mutations are the deliberate faults. Each breaks one promise, and names the
// rules of which at least one must find it.
func Mutations() map[string]Mutation {
	all := map[string]Mutation{}
	for _, m := range slices.Concat(brokenStores(), brokenClocks(), brokenPeople(), brokenNames(), brokenAuthorities(), brokenLedgers(), brokenSlots()) {
		all[m.Name] = m
	}
	return all
}

var replace = []faultstore.Op{faultstore.OpReplace}

func brokenStores() []Mutation {
	return []Mutation{
		{Name: "store ignores one condition in five", Found: []string{"R3", "R1", "R4", "R9"}, Rules: []faultstore.Rule{
			{Ops: replace, Odds: 0.2, Fault: faultstore.IgnoreCondition()}}},
		{Name: "store checks, and writes later", Found: []string{"R3", "R1", "R4", "R9"}, Rules: []faultstore.Rule{
			{Ops: replace, Odds: 0.3, Fault: faultstore.TearCondition(20 * time.Millisecond)}}},
		{Name: "late landings ignore their condition", Found: []string{"R3", "R1", "R4", "R9"}, Rules: []faultstore.Rule{
			{Ops: replace, Odds: 0.1, Fault: faultstore.IgnoreCondition()},
			{Ops: replace, Odds: 0.1, Fault: faultstore.LandLate(0, time.Second)}}},
		{Name: "store forgets acknowledged writes", Found: []string{"R1", "R3", "R4", "R12", "R2"}, forget: func(e effect) bool {
			return e.op == faultstore.OpReplace && mix(hash(string(e.over)), now())%10 == 0
		}},
		{Name: "store forgets the floor", Found: []string{"R10"}, Prepare: func(p *Plan) { p.Retention = true }, forget: func(e effect) bool {
			return e.op == faultstore.OpReplace && strings.Contains(e.key, "/meta/")
		}},
		{Name: "store forgets archives", Found: []string{"R9"}, forget: func(e effect) bool {
			return strings.HasPrefix(e.key, store.Prefix(Namespace, "hist")) && e.op == faultstore.OpCreate
		}},
		{Name: "store is restored from a backup", Found: []string{"R3"}, rollback: true},
		{Name: "a line whose front nobody reaches", Found: []string{"R14"}, ghost: true, Prepare: func(p *Plan) {
			p.Powers |= store.CanQueue
			p.Powers &^= store.CanProve
		}},
		{Name: "a stopped process is taken for a dead one", Found: []string{"R5"}, hasty: true, Prepare: func(p *Plan) {
			p.Powers |= store.CanProve
			p.Calm = false
		}},
	}
}

// noisy makes sure that holders fall silent.
func noisy(p *Plan) { p.Calm, p.Powers = false, p.Powers&^store.CanProve }

func brokenClocks() []Mutation {
	return []Mutation{
		{Name: "a holder's clock runs at half the rate", Found: []string{"R1"}, Prepare: noisy, clock: func(slot int, c *simClock) {
			if slot%2 == 1 {
				c.rate = 0.5
			}
		}},
		{Name: "a candidate's clock runs twice as fast", Found: []string{"R4"}, Prepare: noisy, clock: func(slot int, c *simClock) {
			if slot%2 == 1 {
				c.rate = 2
			}
		}},
		{Name: "a clock that does not count suspend", Found: []string{"R1", "R2"}, blow: suspend, Prepare: noisy, clock: func(_ int, c *simClock) { c.deaf = true }},
		{Name: "trust counts from the reply", Found: []string{"R1", "R2"}, late: time.Minute, blow: cut, Prepare: slow},
		{Name: "a holder's clock is slower than its bound", Found: []string{"R1"}, blow: cut, clock: func(slot int, c *simClock) {
			c.rate = []float64{0.985, 1.01}[slot%2]
		}, Prepare: func(p *Plan) {
			noisy(p)
			p.Rho, p.Margin, p.TTL, p.Latency = 0.01, 50*time.Millisecond+time.Microsecond, 5*time.Second, time.Millisecond
			p.Slots, p.Leases, p.Attempt, p.Length = 6, 1, 0, 300*time.Second
		}},
		{Name: "timers come late", Found: []string{"R17"}, Prepare: noisy, clock: func(_ int, c *simClock) { c.late = time.Minute }},
	}
}

// slow makes answers that take a good part of the TTL.
func slow(p *Plan) {
	noisy(p)
	p.Rho, p.Margin = 0.01, max(p.TTL/100, 10*time.Millisecond)+time.Microsecond
	p.Attempt, p.Latency, p.SlowReplies = p.TTL/4, p.TTL/100, p.TTL/5
	p.Intensity, p.Outage = 0.1, false
}

func brokenPeople() []Mutation {
	return []Mutation{
		{Name: "the operator vouches for the living", Found: []string{"R1"}, liar: true, Prepare: noisy},
		{Name: "the operator releases what is in use", Found: []string{"R6", "R1"}, thief: true, Prepare: noisy},
		{Name: "the guard takes every token", Found: []string{"R7"}, openGuard: true, Prepare: noisy},
	}
}

// restored is what rollBack puts back.
func (w *World) restored() string {
	if w.Plan.Tables > 0 {
		return store.Key(Namespace, "slots", w.Plan.TableNames()[0])
	}
	return store.Key(Namespace, "lease", w.Plan.Names()[0])
}

// rollBack puts a key back to what it was some time ago.
func (w *World) rollBack(ctx context.Context, key string) {
	for wait(ctx, w.Plan.TTL) == nil {
		o, err := w.place.mem.Get(ctx, key, 1<<20)
		if err != nil || wait(ctx, 3*w.Plan.TTL) != nil {
			continue
		}
		w.trace.add("world", "RESTORE of an older state")
		w.place.restore(key, o.Body)
	}
}
