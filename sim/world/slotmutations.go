package world

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tenure-project/tenure/internal/core/lease"
	core "github.com/tenure-project/tenure/internal/core/slots"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

// mutated lets e do what a mutation makes of it.
func (e *effect) mutated(pl *place) {
	m := pl.w.mutation
	if m.recast != nil && e.op == faultstore.OpCommit {
		if changes := m.recast(*e); changes != nil {
			asked, made := e.changes, e.made
			e.changes = changes
			e.do = func(ctx context.Context) (store.Version, error) {
				got, err := pl.mem.Commit(ctx, changes)
				*made = make([]store.Version, len(asked))
				for i, c := range asked {
					if k := slices.IndexFunc(changes, func(d store.Change) bool { return d.Key == c.Key }); k >= 0 && err == nil {
						(*made)[i] = got[k]
					}
				}
				return "", err
			}
		}
	}
	if m.blind != nil && e.op == faultstore.OpReplace && m.blind(*e) {
		key, body := e.key, e.body
		e.do = func(ctx context.Context) (store.Version, error) {
			now, err := pl.mem.Get(ctx, key, core.MaxTable)
			if err != nil {
				return "", err
			}
			return pl.mem.Replace(ctx, key, body, now.Version)
		}
	}
}

// brokenSlots breaks what tables of slots rest on, or what they promise.
func brokenSlots() []Mutation {
	all := slices.Concat(brokenTables(), brokenHosts())
	for i := range all {
		all[i].slots = true
	}
	return all
}

// onSlots picks calls on tables and rows.
func onSlots(c faultstore.Call) bool { return strings.HasPrefix(c.Key, Namespace+"/slots") }

// rowsPlan makes a world of one table with rows of their own and hosts that fall silent,
// which find each other's ranges; registerPlan one of a register.
func rowsPlan(p *Plan) {
	noisy(p)
	p.Powers |= store.CanCommit
	p.Tables, p.Balanced, p.Nodes = 1, false, p.Slots
}

// selfPlan is rowsPlan without sessions.
func selfPlan(p *Plan) {
	rowsPlan(p)
	p.Nodes = 0
}

func registerPlan(p *Plan) {
	rowsPlan(p)
	p.Powers &^= store.CanCommit
}

func brokenTables() []Mutation {
	return []Mutation{
		{Name: "ranges are renewed without a condition", Found: []string{"R43", "R42"}, Prepare: rowsPlan, Rules: []faultstore.Rule{
			{Ops: replace, Odds: 0.3, Match: onSlots, Fault: faultstore.IgnoreCondition()}}},
		{Name: "a register is written without a condition", Found: []string{"R43", "R42"}, Prepare: registerPlan, Rules: []faultstore.Rule{
			{Ops: replace, Odds: 0.1, Match: onSlots, Fault: faultstore.IgnoreCondition()}}},
		{Name: "a claim leaves the counter as it was", Found: []string{"R43"}, Prepare: rowsPlan, recast: func(e effect) []store.Change {
			ts := e.from.w.oracle.tableOf(e.key)
			if ts == nil || len(e.changes) < 2 {
				return nil
			}
			return slices.DeleteFunc(slices.Clone(e.changes), func(c store.Change) bool { return c.Key == ts.key })
		}},
		{Name: "a range is released by its bounds alone", Found: []string{"R43"}, Prepare: rowsPlan, blow: pause, blind: func(e effect) bool {
			ts, r := rowIn(e.from, e.key, e.body)
			return ts != nil && !r.Held() && r.Freed.How == lease.HowReleased
		}},
		{Name: "a restart keeps its epoch without a proof", Found: []string{"R43"}, Prepare: rowsPlan, recast: keepsEpoch},
		{Name: "a table is restored from a backup", Found: []string{"R43"}, Prepare: registerPlan, rollback: true},
	}
}

func brokenHosts() []Mutation {
	return []Mutation{
		{Name: "a host's trust counts from the reply", Found: []string{"R42"}, late: time.Minute, onlyLate: "/slots-row/", blow: cut, Prepare: func(p *Plan) {
			rowsPlan(p)
			p.Rho, p.Margin = 0.001, p.TTL/100
			p.Latency, p.SlowReplies, p.Intensity = p.TTL/200, p.TTL/7, 0
		}},
		{Name: "a rival watches for half the TTL", Found: []string{"R44"}, Prepare: selfPlan, clock: func(slot int, c *simClock) {
			if slot%2 == 1 {
				c.rate = 2
			}
		}},
		{Name: "a host's clock does not count suspend", Found: []string{"R42"}, blow: suspend, Prepare: selfPlan, clock: func(_ int, c *simClock) { c.deaf = true }},
		{Name: "a session's row falls without evidence", Found: []string{"R22"}, Prepare: rowsPlan, mirage: readsAsSelf},
		{Name: "the resource of the slots takes every epoch", Found: []string{"R45"}, openGuard: true, blow: pause, Prepare: func(p *Plan) {
			registerPlan(p)
			p.Length *= 3
		}},
	}
}

// rowIn is the table and the row that a body for a key is; nil if it is no row.
func rowIn(p *Proc, key string, body []byte) (*tableState, *core.Row) {
	if p == nil || !strings.HasPrefix(key, store.Prefix(Namespace, "slots-row")) {
		return nil, nil
	}
	ts := p.w.oracle.tableOf(key)
	first, err := strconv.ParseUint(strings.TrimPrefix(key, ts.rowsKey), 10, 16)
	if err != nil || ts.head == nil {
		return nil, nil
	}
	r, err := ts.head.DecodeRow(key, uint16(first), body)
	if err != nil {
		return nil, nil
	}
	return ts, &r
}

// keepsEpoch gives a host of the name of the one before it the epoch of that one.
func keepsEpoch(e effect) []store.Change {
	var all []store.Change
	kept := false
	for _, c := range e.changes {
		ts, r := rowIn(e.from, c.Key, c.Body)
		if ts != nil && r.Held() {
			if was := ts.table.RowAt(r.Range); was != nil && was.Held() && was.Host.Owner == r.Host.Owner && !was.Host.Is(r.Host) {
				r.Epoch, r.Renewal, r.From, kept = was.Epoch, was.Renewal+1, nil, true
				if body, err := ts.head.EncodeRow(r); err == nil {
					c.Body = body
				}
			}
		}
		all = append(all, c)
	}
	if !kept {
		return nil
	}
	return slices.DeleteFunc(all, func(c store.Change) bool { return c.Key == e.from.w.oracle.tableOf(e.key).key })
}

// readsAsSelf shows the rows of others' sessions as rows that lapse.
func readsAsSelf(p *Proc, key string, body []byte) []byte {
	ts, r := rowIn(p, key, body)
	if ts == nil || p.w.calmed.Load() || !r.Held() || r.Host.Kind != lease.Session || r.Host.Owner == p.Slot() {
		return nil
	}
	h := *r.Host
	h.Kind, h.Node, h.Term = lease.Self, "", 0
	r.Host = &h
	out, err := ts.head.EncodeRow(r)
	if err != nil {
		return nil
	}
	return out
}
