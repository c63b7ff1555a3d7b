package world

import (
	"slices"
	"strings"
	"time"

	core "github.com/tenure-project/tenure/internal/core/ledger"
	"github.com/tenure-project/tenure/ledger"
	"github.com/tenure-project/tenure/store/faultstore"
)

// brokenLedgers breaks what ledgers rest on, or what they promise.
func brokenLedgers() []Mutation {
	all := slices.Concat(brokenLedgerHeads(), brokenRuns())
	for i := range all {
		all[i].jobs = true
		if all[i].Prepare == nil {
			all[i].Prepare = noisy
		}
	}
	return all
}

func ofLedgers(c faultstore.Call) bool { return ofLedger(c.Key) }

// ledgerPlan makes sure that holders fall silent, and that it matters.
func ledgerPlan(unknown ledger.Policy, guard Guarded) func(p *Plan) {
	return func(p *Plan) {
		noisy(p)
		p.Unknown, p.Guard = unknown, guard
	}
}

func brokenLedgerHeads() []Mutation {
	return []Mutation{
		{Name: "attempts are admitted without a condition", Found: []string{"R37"}, Rules: []faultstore.Rule{
			{Ops: replace, Odds: 0.3, Match: ofLedgers, Fault: faultstore.IgnoreCondition()}}},
		{Name: "late outcomes ignore their condition", Found: []string{"R37"}, Rules: []faultstore.Rule{
			{Ops: replace, Odds: 0.2, Match: ofLedgers, Fault: faultstore.IgnoreCondition()},
			{Ops: replace, Odds: 0.2, Match: ofLedgers, Fault: faultstore.LandLate(0, time.Second)}}},
		{Name: "acknowledged outcomes are forgotten", Found: []string{"R39"}, forget: func(e effect) bool {
			js, next := ledgerIn(e)
			return js != nil && !e.from.w.calmed.Load() && len(next.Open) < len(js.head.Open) && next.Epoch == js.head.Epoch && mix(hash(string(e.over)), now())%5 == 0
		}},
		{Name: "an operator's verdict forgets a late commit", Found: []string{"R37", "R39"}, twist: twistLedger(func(js *jobState, prev, next *core.Head) bool {
			changed := false
			for i := range next.Facts {
				if f := &next.Facts[i]; f.Committed && f.Abandoned != nil {
					f.Committed, changed = false, true
				}
			}
			return changed
		}), blow: pause, Prepare: func(p *Plan) {
			ledgerPlan(ledger.Retry, Unguarded)(p)
			p.Jobs, p.Every, p.Length, p.Merges = 2, p.TTL/3, 60*p.TTL, false
		}},
		{Name: "a retry does not say what it gave up", Found: []string{"R37"}, twist: twistLedger(func(js *jobState, prev, next *core.Head) bool {
			was := len(next.Facts)
			next.Facts = slices.DeleteFunc(next.Facts, func(f core.Fact) bool { return f.Abandoned != nil && js.facts[f.Run][f.Key] == nil })
			return len(next.Facts) < was
		}), Prepare: ledgerPlan(ledger.Retry, Full)},
		{Name: "a compaction drops a run", Found: []string{"R37"}, twist: dropsRun},
		{Name: "commits are shown as failures", Found: []string{"R37", "R38"}, mirage: neverCommitted, Prepare: ledgerPlan(ledger.Retry, Full)},
	}
}

func brokenRuns() []Mutation {
	return []Mutation{
		{Name: "no last look before the effect", Found: []string{"R38"}, mirage: noLastLook, meddles: true, Prepare: func(p *Plan) {
			slow(p)
			p.Merges, p.Latency = true, p.TTL/200
		}},
		{Name: "a run's id is made of local time", Found: []string{"R40"}, instant: func(p *Proc, at time.Time) time.Time {
			return at.Add(time.Duration(hash(p.Slot())%2) * time.Hour)
		}, Prepare: ledgerPlan(ledger.Retry, Full)},
		{Name: "the guard of the jobs takes everything", Found: []string{"R40"}, openGuard: true, Prepare: ledgerPlan(ledger.Retry, Full)},
		{Name: "a probe says what it does not know", Found: []string{"R41", "R37"}, liar: true, Prepare: ledgerPlan(ledger.Probe, Unguarded)},
	}
}

// ledgerIn is the job of a head that is written over another, and that head; nil if e is
// something else.
func ledgerIn(e effect) (*jobState, *core.Head) {
	if !ofLedger(e.key) || e.op != faultstore.OpReplace || e.from == nil {
		return nil, nil
	}
	js := e.from.w.oracle.jobOf(e.key) // nothing else is being applied
	next, err := core.DecodeHead(e.key, js.name, e.body)
	if err != nil || js.head == nil {
		return nil, nil
	}
	return js, next
}

// twistLedger is a twist that edits the heads that are written, where edit says that it
// did.
func twistLedger(edit func(js *jobState, prev, next *core.Head) bool) func(e effect) []byte {
	return func(e effect) []byte {
		js, next := ledgerIn(e)
		if js == nil || !edit(js, js.head, next) {
			return nil
		}
		body, err := next.Encode()
		if err != nil {
			return nil
		}
		return body
	}
}

// dropsRun leaves a committed run out of the first block that is written, and with it out
// of every later one that is made of it.
func dropsRun(e effect) []byte {
	if e.from == nil || e.op != faultstore.OpCreate {
		return nil
	}
	js := e.from.w.oracle.jobOf(e.key)
	if js == nil || js.head == nil || !strings.HasPrefix(e.key, js.logKey+"block/") {
		return nil
	}
	h := *js.head
	i := slices.IndexFunc(h.Facts, func(f core.Fact) bool { return f.Committed })
	if i < 0 || len(h.Facts) < 2 {
		return nil
	}
	h.Facts = slices.Delete(slices.Clone(h.Facts), i, i+1)
	c := core.Compact(&h)
	leaf, ok := c.Next()
	if !ok {
		return nil
	}
	body, err := c.Take(leaf, nil)
	if err != nil {
		return nil
	}
	return body
}

// neverCommitted shows a head in which the newest commits are failures.
func neverCommitted(p *Proc, key string, body []byte) []byte {
	js, h := readLedger(p, key, body)
	if js == nil || mix(h.Sequence, p.seed)%4 != 0 {
		return nil
	}
	for i := range h.Facts {
		if f := &h.Facts[i]; f.Committed {
			f.Committed, f.Failed = false, true
		}
	}
	return encoded(h)
}

// noLastLook shows a process that was admitted the head as its admission left it.
func noLastLook(p *Proc, key string, body []byte) []byte {
	js, h := readLedger(p, key, body)
	if js == nil {
		return nil
	}
	o := p.w.oracle
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, a := range js.attempts {
		if a.p == p && !a.began && a.Epoch == h.Epoch && a.head != nil && slices.Contains(h.Open, a.Open) {
			return encoded(a.head)
		}
	}
	return nil
}

// readLedger is the job and the head of a body that a process is about to be shown.
func readLedger(p *Proc, key string, body []byte) (*jobState, *core.Head) {
	if !ofLedger(key) || p.w.calmed.Load() {
		return nil, nil
	}
	js := p.w.oracle.jobOf(key)
	h, err := core.DecodeHead(key, js.name, body)
	if err != nil {
		return nil, nil
	}
	return js, h
}

func encoded(h *core.Head) []byte {
	body, err := h.Encode()
	if err != nil {
		return nil
	}
	return body
}
