package world

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/tenure-project/tenure/authority"
	core "github.com/tenure-project/tenure/internal/core/authority"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

// isHead reports whether a key is that of an authority's head.
func isHead(key string) bool { return strings.HasPrefix(key, store.Prefix(Namespace, "authority")) }

func ofHeads(c faultstore.Call) bool { return isHead(c.Key) }

// headIn is the head in a body for a key, nil if it is none.
func headIn(key string, body []byte) *core.Head {
	if !isHead(key) {
		return nil
	}
	name, _, err := store.DecodeName(key[strings.LastIndexByte(key, '/')+1:])
	if err != nil {
		return nil
	}
	h, _ := core.Decode(key, name, body)
	return h
}

// twistHead is a twist that edits the heads that are written, where edit says that it
// did. prev is the head before.
func twistHead(edit func(prev, next *core.Head) bool) func(e effect) []byte {
	return func(e effect) []byte {
		next := headIn(e.key, e.body)
		if next == nil || e.from == nil {
			return nil
		}
		prev := e.from.w.oracle.authorityOf(e.key).head // nothing else is being applied
		next.Slots = slices.Clone(next.Slots)
		if prev == nil || !edit(prev, next) {
			return nil
		}
		body, err := next.Encode()
		if err != nil {
			return nil
		}
		return body
	}
}

// goesOn reports whether next is a write of the leader that prev names.
func goesOn(prev, next *core.Head) bool {
	return prev.Led() && next.Leads(prev.Last()) && next.Renewal > prev.Renewal
}

// brokenAuthorities breaks what authorities rest on, or what they promise.
func brokenAuthorities() []Mutation {
	all := slices.Concat(brokenHeads(), brokenDecisions(), brokenFaults())
	for i := range all {
		all[i].authorities = true
		if all[i].Prepare == nil {
			all[i].Prepare = noisy
		}
	}
	return all
}

func brokenHeads() []Mutation {
	return []Mutation{
		{Name: "a deposed leader's writes are admitted", Found: []string{"R28", "R29"}, Rules: []faultstore.Rule{
			{Ops: replace, Odds: 0.3, Match: ofHeads, Fault: faultstore.IgnoreCondition()}}},
		{Name: "late writes of a head ignore their condition", Found: []string{"R28", "R29"}, Rules: []faultstore.Rule{
			{Ops: replace, Odds: 0.2, Match: ofHeads, Fault: faultstore.IgnoreCondition()},
			{Ops: replace, Odds: 0.2, Match: ofHeads, Fault: faultstore.LandLate(0, time.Second)}}},
		{Name: "a deposed leader is shown that it leads", Found: []string{"R28", "R29"}, mirage: stillLeads},
		{Name: "a leadership's trust counts from the reply", Found: []string{"R27", "R31", "R18"}, late: time.Minute, onlyLate: "/authority/", blow: cut, Prepare: slow},
		{Name: "a leader's clock runs at half the rate", Found: []string{"R27", "R31", "R18"}, Prepare: noisy, clock: func(slot int, c *simClock) {
			if slot%2 == 1 {
				c.rate = 0.5
			}
		}},
		{Name: "a candidate for an authority waits half as long", Found: []string{"R31", "R20", "R27", "R18"}, Prepare: noisy, clock: func(slot int, c *simClock) {
			if slot%2 == 1 {
				c.rate = 2
			}
		}},
		{Name: "nobody waits after a leader was deposed", Found: []string{"R31", "R27", "R20", "R18", "R17"}, hurry: func(body []byte) bool {
			text := string(body)
			return strings.Contains(text, `"how":"forced"`) && strings.Contains(text, `"renewal"`) && !strings.Contains(text, `"leader"`)
		}},
		{Name: "acknowledged heads are forgotten", Found: []string{"R27", "R28", "R29", "R31", "R33", "R12", "R34"}, forget: func(e effect) bool {
			return e.op == faultstore.OpReplace && isHead(e.key) && !e.from.w.calmed.Load() && mix(hash(string(e.over)), now())%10 == 0
		}},
		{Name: "a head is restored from a backup", Found: []string{"R28", "R29"}, restores: true},
		{Name: "the operator vouches for living leaders", Found: []string{"R27", "R18", "R31"}, liar: true},
	}
}

// stillLeads shows a process that led once a head that it leads yet.
func stillLeads(p *Proc, key string, body []byte) []byte {
	h := headIn(key, body)
	if h == nil || !h.Led() {
		return nil
	}
	o := p.w.oracle
	o.mu.Lock()
	defer o.mu.Unlock()
	for token, r := range o.authorityOf(key).tokens {
		if r.p == p && r.how != "" && token < h.Token && h.Counter == h.Token && token+1 == h.Token {
			prev := o.authorityOf(key).heads
			for _, s := range slices.Backward(prev) {
				if s.head.Led() && s.head.Token == token {
					was, _ := s.head.Encode()
					return was
				}
			}
		}
	}
	return nil
}

func brokenDecisions() []Mutation {
	return []Mutation{
		{Name: "what a head reaches is removed", Found: []string{"R34"}, burns: true},
		{Name: "a floor falls", Found: []string{"R30"}, twist: twistHead(func(prev, next *core.Head) bool {
			if !goesOn(prev, next) {
				return false
			}
			for name, c := range map[string]**core.Chain{core.Checkpoint: &next.Checkpoint, core.Recovery: &next.Recovery} {
				if was := *c; was != nil && prev.Chain(name) != nil && prev.Chain(name).Floor == was.Floor && was.Anchor != nil && was.Floor > was.Anchor.Key+1 && was.Floor-1 > was.Horizon {
					fell := *was
					fell.Floor--
					*c = &fell
					return true
				}
			}
			return false
		})},
		{Name: "a seal is opened", Found: []string{"R29"}, twist: twistHead(func(prev, next *core.Head) bool {
			was := goesOn(prev, next) && prev.Catalog != nil && next.Catalog != nil && mix(next.Sequence, 1)%4 == 0
			if was {
				next.Catalog = nil
			}
			return was
		})},
		{Name: "a decision is taken back", Found: []string{"R29", "R30"}, twist: twistHead(func(prev, next *core.Head) bool {
			if prev.Checkpoint == nil || next.Checkpoint == nil || prev.Checkpoint.Head == next.Checkpoint.Head || len(next.Recent) == 0 {
				return false
			}
			next.Checkpoint.Live = prev.Checkpoint.Live // it is not counted
			return true
		})},
		{Name: "what was fenced is said to stand", Found: []string{"R33"}, answer: func(r authority.Result) authority.Result {
			if r.Answer == authority.Fenced {
				r.Answer = authority.Unchanged
			}
			return r
		}},
		{Name: "what stands is said to conflict", Found: []string{"R33"}, answer: func(r authority.Result) authority.Result {
			if r.Answer == authority.Created && r.Sequence%5 == 0 {
				r.Answer = authority.Conflict
			}
			return r
		}},
	}
}

func brokenFaults() []Mutation {
	return []Mutation{
		{Name: "a release clears what it did not freeze", Found: []string{"R32"}, twist: twistHead(func(prev, next *core.Head) bool {
			if prev.Round == nil || next.Recovery == nil || prev.Recovery != nil && prev.Recovery.Head == next.Recovery.Head {
				return false
			}
			active := false
			for i := range next.Slots {
				active, next.Slots[i].Active = active || next.Slots[i].Active, false
			}
			return active
		})},
		{Name: "a fault is made twice", Found: []string{"R32"}, twist: twistHead(func(prev, next *core.Head) bool {
			for i, s := range next.Slots {
				if goesOn(prev, next) && !s.Active && prev.Revision == next.Revision {
					next.Slots[i].Active = true
					return true
				}
			}
			return false
		})},
		{Name: "reports are forgotten", Found: []string{"R34", "R36", "R32", "R35", "R33"}, twist: twistHead(func(prev, next *core.Head) bool {
			if next.Revision == prev.Revision || next.Round == nil && prev.Round != nil {
				return false
			}
			next.Slots, next.Revision = prev.Slots, prev.Revision
			return true
		})},
	}
}

// vandalize burns what heads reach, or puts older heads back.
func (w *World) vandalize(ctx context.Context) {
	r := dice(w.Plan.Seed, "vandal")
	for wait(ctx, 2*w.Plan.TTL+about(r, w.Plan.TTL)) == nil {
		for _, name := range w.Plan.AuthorityNames() {
			if w.mutation.burns {
				w.burn(name)
			} else {
				w.restoreHead(ctx, name)
			}
		}
	}
}

// burn removes the oldest entry that a head reaches.
func (w *World) burn(name string) {
	w.oracle.mu.Lock()
	as := w.oracle.authorities[name]
	place := ""
	for _, chain := range core.ChainNames() {
		if all := as.chains[chain].stands(); len(all) > 0 {
			needed := all[len(all)-1].needed
			place = needed[len(needed)-1]
		}
	}
	w.oracle.mu.Unlock()
	if place == "" {
		return
	}
	key := as.logKey + place
	_, _ = w.place.apply(effect{op: faultstore.OpDelete, key: key, do: func(ctx context.Context) (store.Version, error) {
		return "", w.place.mem.Delete(ctx, key)
	}})
}

// restoreHead puts a head back to what it was a TTL ago.
func (w *World) restoreHead(ctx context.Context, name string) {
	key := store.Key(Namespace, "authority", name)
	o, err := w.place.mem.Get(ctx, key, core.MaxHead)
	if err == nil && wait(ctx, w.Plan.TTL) == nil {
		w.trace.add("world", "RESTORE of an older head")
		w.place.restore(key, o.Body)
	}
}
