package slots

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"unicode/utf8"

	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

// Bounds of a plan.
const (
	MaxPlan      = 4 << 20
	MaxPlanState = 1 << 20
)

// Shard is a range of slots that is moved as one.
type Shard struct {
	Range Range
	// Load is what the shard counts for; 0 to 2^53-1.
	Load uint64
	// Target is the owner meant to serve it; empty: none is.
	Target string
	// Pin is the owner that an operator wants; empty: the balancer decides.
	Pin string
}

// Plan says which owner each shard is meant for (SL8). It misplaces shards at worst: who
// serves what is the table's to say. A plan is never changed; decisions return another.
// Invariants, checked by Valid:
//
//  1. v, table, birth and attempt are set and within bounds, the sequence is at least 1;
//  2. shards are sorted and never overlap; owners are names;
//  3. the state is UTF-8 of at most MaxPlanState bytes.
type Plan struct {
	V     int
	Table string
	// Birth is the table's.
	Birth string
	// Token is that of the balancer who published it last; 0 if none did.
	Token uint64
	// Seq rises by 1 with every write.
	Seq uint64
	// Shards are sorted.
	Shards []Shard
	// State is the balancer's own, which says what it needs to know of earlier plans.
	State string
	// Attempt is the id of the write that made this state (ST9).
	Attempt string
}

// Publication is a plan that a balancer wants to be written.
type Publication struct {
	// Token is the balancer's; Seq that of the plan that it rests on, 0 for none.
	Token, Seq uint64
	// Shards are the new ones; their pins are ignored.
	Shards  []Shard
	State   string
	Attempt string // fresh id of this write
}

// Publish returns the plan that follows p (nil: there is none yet) in the table t. It keeps
// every pin, so a pinned shard must be among the new ones with the same bounds. A token
// below the plan's is a *FencedError, a plan that was made from another than p ErrConflict,
// bad input ErrInvalid (SL8).
func (p *Plan) Publish(t *Table, n Publication) (*Plan, error) {
	next := &Plan{V: record.Level, Table: t.Name, Birth: t.Birth, Token: n.Token, Seq: 1, Shards: slices.Clone(n.Shards), State: n.State, Attempt: n.Attempt}
	for i := range next.Shards {
		next.Shards[i].Pin = ""
	}
	switch {
	case n.Token < 1:
		return nil, invalid("publish", "a plan is published under a token, which is at least 1")
	case p == nil && n.Seq != 0:
		return nil, store.Errorf(store.ErrConflict, "", "publish", "", "the plan %d that this one rests on is not there", n.Seq)
	case p == nil:
		return next.checked("publish")
	case n.Token < p.Token:
		return nil, &FencedError{Have: p.Token, Given: n.Token}
	case n.Seq != p.Seq:
		return nil, store.Errorf(store.ErrConflict, "", "publish", "", "the plan is at %d, this one rests on %d", p.Seq, n.Seq)
	}
	next.V, next.Seq = max(next.V, p.V), p.Seq+1
	for _, s := range p.Shards {
		if s.Pin == "" {
			continue
		}
		i := next.shard(s.Range)
		if i < 0 {
			return nil, invalid("publish", "the shard %v is pinned to %q and not among the new ones: keep its bounds, or take the pin away", s.Range, s.Pin)
		}
		next.Shards[i].Pin = s.Pin
	}
	return next.checked("publish")
}

// Pin returns the plan with the shard r pinned to owner, or with its pin gone if that is
// empty. The token stays: an operator needs none. A range that is no shard is ErrInvalid.
func (p *Plan) Pin(r Range, owner, attempt string) (*Plan, error) {
	i := p.shard(r)
	if i < 0 {
		return nil, invalid("pin", "%v is no shard of the plan", r)
	}
	next := *p
	next.Shards = slices.Clone(p.Shards)
	next.Shards[i].Pin = owner
	next.Seq, next.Attempt = p.Seq+1, attempt
	return next.checked("pin")
}

// shard is the place of the shard with exactly these bounds, -1 if there is none.
func (p *Plan) shard(r Range) int {
	i := sort.Search(len(p.Shards), func(k int) bool { return p.Shards[k].Range.A >= r.A })
	if i < len(p.Shards) && p.Shards[i].Range == r {
		return i
	}
	return -1
}

// ShardOf is the shard that has slot, nil if none has.
func (p *Plan) ShardOf(slot uint16) *Shard {
	i := sort.Search(len(p.Shards), func(k int) bool { return p.Shards[k].Range.B >= slot })
	if i < len(p.Shards) && p.Shards[i].Range.Contains(slot) {
		return &p.Shards[i]
	}
	return nil
}

func (p *Plan) checked(op string) (*Plan, error) {
	if err := p.Valid(); err != nil {
		return nil, store.Wrap(store.ErrInvalid, "", op, "", err)
	}
	return p, nil
}

// Valid checks the invariants.
func (p *Plan) Valid() error {
	switch {
	case p.V < 1 || p.V > record.Level:
		return fmt.Errorf("format level %d", p.V)
	case !record.IsID(p.Birth) || !record.IsID(p.Attempt):
		return fmt.Errorf("birth %q or attempt %q is not an id", p.Birth, p.Attempt)
	case p.Seq < 1 || p.Seq > record.MaxNumber || p.Token > record.MaxNumber:
		return fmt.Errorf("sequence %d or token %d is out of bounds", p.Seq, p.Token)
	case len(p.State) > MaxPlanState || !utf8.ValidString(p.State):
		return fmt.Errorf("the state has more than %d bytes or is not UTF-8", MaxPlanState)
	}
	known := map[string]bool{"": true}
	for i, s := range p.Shards {
		if err := s.Range.Valid(); err != nil {
			return err
		}
		switch {
		case i > 0 && p.Shards[i-1].Range.B >= s.Range.A:
			return fmt.Errorf("shards %v and %v overlap or are out of order", p.Shards[i-1].Range, s.Range)
		case s.Load > record.MaxNumber:
			return fmt.Errorf("the load %d of shard %v is out of bounds", s.Load, s.Range)
		}
		for _, owner := range []string{s.Target, s.Pin} {
			if known[owner] {
				continue
			}
			if err := store.CheckName("owner", owner); err != nil {
				return err
			}
			known[owner] = true
		}
	}
	return store.CheckName("table", p.Table)
}

// planRecord is the record of a plan: a shard is its first and last slot, its load, and
// the places of target and pin in Owners, -1 for none. Owners are told once, in the order
// of their first use.
type planRecord struct {
	V       int        `json:"v"`
	Table   string     `json:"table"`
	Birth   string     `json:"birth"`
	Token   uint64     `json:"token"`
	Seq     uint64     `json:"seq"`
	Owners  []string   `json:"owners,omitempty"`
	Shards  [][5]int64 `json:"shards,omitempty"`
	State   string     `json:"state,omitempty"`
	Attempt string     `json:"attempt"`

	plan *Plan // what Valid found
}

// Encode returns the plan's canonical bytes.
func (p *Plan) Encode() ([]byte, error) {
	r := &planRecord{V: p.V, Table: p.Table, Birth: p.Birth, Token: p.Token, Seq: p.Seq, State: p.State, Attempt: p.Attempt}
	places := map[string]int64{"": -1}
	place := func(owner string) int64 {
		at, ok := places[owner]
		if !ok {
			at = int64(len(r.Owners))
			places[owner] = at
			r.Owners = append(r.Owners, owner)
		}
		return at
	}
	for _, s := range p.Shards {
		r.Shards = append(r.Shards, [5]int64{int64(s.Range.A), int64(s.Range.B), int64(s.Load), place(s.Target), place(s.Pin)})
	}
	return record.Encode(r, MaxPlan)
}

// DecodePlan reads the plan of the table strictly (ST7).
func DecodePlan(key, table string, body []byte) (*Plan, error) {
	var r planRecord
	if err := record.Decode(key, body, &r); err != nil {
		return nil, err
	}
	if r.Table != table {
		return nil, store.Errorf(store.ErrCorrupt, "", "decode", key, "the plan is of table %q, not %q", r.Table, table)
	}
	return r.plan, nil
}

// Valid checks the plan's invariants, and that owners are told as Encode tells them.
func (r *planRecord) Valid() error {
	p := &Plan{V: r.V, Table: r.Table, Birth: r.Birth, Token: r.Token, Seq: r.Seq, State: r.State, Attempt: r.Attempt}
	used, seen := 0, map[string]bool{"": true}
	for _, o := range r.Owners {
		if seen[o] {
			return errors.New("an owner is empty or told twice")
		}
		seen[o] = true
	}
	owner := func(at int64) (string, bool) {
		switch {
		case at == -1:
			return "", true
		case at < 0 || at > int64(used) || at >= int64(len(r.Owners)):
			return "", false
		case at == int64(used):
			used++
		}
		return r.Owners[at], true
	}
	for _, n := range r.Shards {
		target, ok := owner(n[3])
		pin, also := owner(n[4])
		if !ok || !also || n[0] < 0 || n[0] > Last || n[1] < 0 || n[1] > Last || n[2] < 0 {
			return errors.New("a number of a shard is out of bounds or out of order")
		}
		p.Shards = append(p.Shards, Shard{Range{uint16(n[0]), uint16(n[1])}, uint64(n[2]), target, pin})
	}
	if used != len(r.Owners) {
		return errors.New("an owner is told that no shard has")
	}
	r.plan = p
	return p.Valid()
}
