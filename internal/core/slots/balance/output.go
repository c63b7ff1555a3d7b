package balance

import "slices"

// plan writes down what was decided.
func (p *planner) plan() *Plan {
	out := &Plan{
		Rows: make([]Row, len(p.shards)), InFlight: 0, Voluntary: p.started, Recent: p.recent, Balancing: p.balancing,
	}
	for i := range p.shards {
		out.Rows[i] = p.row(&p.shards[i])
		if out.Rows[i].Moving() {
			out.InFlight++
		}
	}
	out.Hosts = p.hostRows()
	for h := range p.hosts {
		if v := &p.hosts[h]; p.places[h] > v.room {
			i := slices.IndexFunc(p.shards, func(s shard) bool { return s.final == h })
			p.problems = append(p.problems, Problem{Kind: OverCapacity, Host: v.ID, Shards: p.places[h] - v.room,
				First: p.shards[i].Range, Detail: "the host holds more shards than its capacity; they leave as the limits and the room elsewhere allow"})
		}
	}
	out.Problems = p.problems
	out.State = p.next()
	return out
}

func (p *planner) name(h int) string {
	if h == none {
		return ""
	}
	return p.hosts[h].ID
}

func (p *planner) row(s *shard) Row {
	r := Row{
		Range: s.Range, Load: s.Load, Owner: p.name(s.live), Was: s.Target,
		Target: p.name(s.final), Wanted: p.name(s.want), Wait: s.wait,
	}
	switch {
	case s.final == none:
		r.Reason = Unplaced
	case r.Target == r.Was:
	case s.final == s.base:
		r.Reason = s.reason
	default:
		r.Reason = s.wish
	}
	if r.Waiting() {
		r.WantedReason = s.wish
	}
	return r
}

func (p *planner) hostRows() []HostRow {
	shares := p.shares(false, nil)
	out := make([]HostRow, len(p.hosts))
	for h := range p.hosts {
		v := &p.hosts[h]
		out[h] = HostRow{
			ID: v.ID, Weight: v.Weight, Capacity: v.Capacity, Takes: v.takes, Settled: v.settled, Share: shares.value(h),
			Wanted: p.count[h], WantedLoad: p.load[h],
		}
		if v.takes && !v.settled {
			out[h].SettlesIn = p.cfg.Settle - (p.now - v.since)
		}
	}
	for i := range p.shards {
		s := &p.shards[i]
		if s.live != none {
			out[s.live].Holds++
			out[s.live].HoldsLoad += s.Load
		}
		if s.final != none {
			out[s.final].Targets++
			out[s.final].TargetLoad += s.Load
		}
	}
	return out
}

// next is the state for the plan after this one.
func (p *planner) next() State {
	out := State{Planned: true, Balancing: p.balancing, Recent: slices.Clone(p.state.Recent)}
	for range p.started {
		out.Recent = append(out.Recent, p.now)
	}
	for h := range p.hosts {
		if v := &p.hosts[h]; v.takes {
			out.Hosts = append(out.Hosts, Seen{ID: v.ID, Incarnation: v.Incarnation, Since: v.since})
		}
	}
	for i := range p.shards {
		if s := &p.shards[i]; s.final != none && s.final != s.live {
			out.Moves = append(out.Moves, Move{Range: s.Range, To: p.name(s.final), Reason: p.moveReason(s)})
		}
	}
	return out
}

func (p *planner) moveReason(s *shard) Reason {
	switch {
	case s.final != s.base:
		return s.wish
	case s.reason == Ownerless:
		return Ownerless
	}
	return s.move
}
