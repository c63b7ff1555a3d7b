package world

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

// Mutations are the deliberate faults. Each breaks one promise, and names the
// rules of which at least one must find it.
func Mutations() map[string]Mutation {
	all := map[string]Mutation{}
	for _, m := range slices.Concat(brokenStores(), brokenClocks(), brokenPeople()) {
		all[m.Name] = m
	}
	return all
}

var replace = []faultstore.Op{faultstore.OpReplace}

func brokenStores() []Mutation {
	var n atomic.Uint64
	return []Mutation{
		{Name: "store ignores one condition in five", Rules: []faultstore.Rule{
			{Ops: replace, Odds: 0.2, Fault: faultstore.IgnoreCondition()}}},
		{Name: "store checks, and writes later", Rules: []faultstore.Rule{
			{Ops: replace, Odds: 0.3, Fault: faultstore.TearCondition(20 * time.Millisecond)}}},
		{Name: "late landings ignore their condition", Rules: []faultstore.Rule{
			{Ops: replace, Odds: 0.1, Fault: faultstore.IgnoreCondition()},
			{Ops: replace, Odds: 0.1, Fault: faultstore.LandLate(0, time.Second)}}},
		{Name: "store forgets acknowledged writes", forget: func(e effect) bool {
			return e.op == faultstore.OpReplace && mix(n.Add(1), now())%10 == 0
		}},
		{Name: "store forgets the floor", Prepare: func(p *Plan) { p.Retention = true }, forget: func(e effect) bool {
			return e.op == faultstore.OpReplace && strings.Contains(e.key, "/meta/")
		}},
		{Name: "store forgets archives", forget: func(e effect) bool {
			return strings.HasPrefix(e.key, store.Prefix(Namespace, "hist")) && e.op == faultstore.OpCreate
		}},
		{Name: "store is restored from a backup", rollback: true},
		{Name: "a line whose front nobody reaches", ghost: true, Prepare: func(p *Plan) {
			p.Powers |= store.CanQueue
			p.Powers &^= store.CanProve
		}},
		{Name: "a stopped process is taken for a dead one", hasty: true, Prepare: func(p *Plan) {
			p.Powers |= store.CanProve
			p.Calm = false
		}},
	}
}

// noisy makes sure that holders fall silent.
func noisy(p *Plan) { p.Calm, p.Powers = false, p.Powers&^store.CanProve }

func brokenClocks() []Mutation {
	return []Mutation{
		{Name: "a holder's clock runs at half the rate", Prepare: noisy, clock: func(slot int, c *simClock) {
			if slot%2 == 1 {
				c.rate = 0.5
			}
		}},
		{Name: "a candidate's clock runs twice as fast", Prepare: noisy, clock: func(slot int, c *simClock) {
			if slot%2 == 1 {
				c.rate = 2
			}
		}},
		{Name: "a clock that does not count suspend", dozing: true, Prepare: noisy, clock: func(_ int, c *simClock) { c.deaf = true }},
		{Name: "trust counts from the reply", late: time.Minute, Prepare: func(p *Plan) {
			noisy(p)
			p.Latency = p.TTL / 3
			p.Attempt, p.Margin = p.TTL/3, 0
		}},
		{Name: "timers come late", Prepare: noisy, clock: func(_ int, c *simClock) { c.late = time.Minute }},
	}
}

func brokenPeople() []Mutation {
	return []Mutation{
		{Name: "the operator vouches for the living", liar: true, Prepare: noisy},
		{Name: "the operator releases what is in use", thief: true, Prepare: noisy},
		{Name: "the guard takes every token", openGuard: true, Prepare: noisy},
	}
}

// rollBack puts the first lease back to what it was some time ago.
func (w *World) rollBack(ctx context.Context) {
	key := store.Key(Namespace, "lease", w.Plan.Names()[0])
	for wait(ctx, w.Plan.TTL) == nil {
		o, err := w.place.mem.Get(ctx, key, 1<<20)
		if err != nil || wait(ctx, 3*w.Plan.TTL) != nil {
			continue
		}
		w.trace.add("world", "RESTORE of an older state")
		w.place.restore(key, o.Body)
	}
}
