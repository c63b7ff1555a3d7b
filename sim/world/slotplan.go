package world

import (
	"time"

	"github.com/tenure-project/tenure/slots"
	"github.com/tenure-project/tenure/store"
)

// TableNames are the tables of slots.
func (p Plan) TableNames() []string { return []string{"orders", "carts"}[:p.Tables] }

// tableLeases are the leases of who balances the tables.
func (p Plan) tableLeases() (names []string) {
	if p.Balanced {
		for _, table := range p.TableNames() {
			names = append(names, slots.LeaseName(table))
		}
	}
	return names
}

// NewSlotPlan draws from a seed the plan of a world whose processes serve ranges of slots,
// each under a stable name, by itself or under a session of a node of its own. Where the
// store commits several keys at once, the first table has rows of their own.
func NewSlotPlan(seed uint64) Plan {
	r := dice(seed, "slot plan")
	p := NewPlan(seed)
	if p.TTL < slots.MinTTL {
		p.stretch(int64((slots.MinTTL + p.TTL - 1) / p.TTL))
	}
	p.Tables = 1 + r.IntN(2)
	if p.Balanced = chance(r, 0.3); p.Balanced {
		p.Tables, p.Shards = 1, 4+r.IntN(6)
	}
	p.Slots = 3 + r.IntN(3)
	p.Split = chance(r, 0.4)
	p.Nodes = p.Slots * p.Tables
	p.Leases, p.Outage, p.Retention = 0, false, false
	p.Length = time.Duration(10+r.IntN(14)) * p.TTL
	p.NoDelete, p.NoList = chance(r, 0.1), chance(r, 0.1)
	if chance(r, 0.5) {
		p.Powers |= store.CanCommit
	}
	if p.Calm {
		p.Latency = min(p.Latency, p.TTL/100)
	}
	return p
}

// stretch makes everything that takes time take n times as long.
func (p *Plan) stretch(n int64) {
	for _, d := range []*time.Duration{&p.TTL, &p.Attempt, &p.Margin, &p.Poll, &p.Release, &p.Latency, &p.Length, &p.SlowReplies, &p.Every} {
		*d *= time.Duration(n)
	}
}

// shapes are the ranges that hosts without a plan want: of one shape several hosts are
// rivals for each range, and of two no host can have what another has.
var shapes = [][]slots.Range{
	{{A: 0, B: 19}, {A: 20, B: 39}, {A: 40, B: 59}},
	{{A: 0, B: 19}, {A: 20, B: 39}, {A: 40, B: 59}},
	{{A: 0, B: 29}, {A: 30, B: 59}},
	{{A: 10, B: 49}},
}

// wholeShape is what who inherits a table takes.
var wholeShape = slots.Range{A: 0, B: 59}

// sampleSlots are the slots that the oracle looks at, one of each piece that shapes or
// shards cut.
func (p Plan) sampleSlots() (all []uint16) {
	if !p.Balanced {
		return []uint16{0, 5, 10, 19, 20, 29, 30, 39, 40, 49, 50, 59}
	}
	for i := range p.Shards {
		all = append(all, uint16(i*slots.Count/p.Shards))
	}
	return all
}
