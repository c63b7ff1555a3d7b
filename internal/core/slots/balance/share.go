package balance

import "math"

// share is what each host should have: part[h] in units of one scale-th of a load, so
// that shares by weight are whole numbers and comparisons exact.
type share struct {
	part  []int64
	scale int64
}

// lacks is how much less than its share a host with this load has, scaled.
func (s share) lacks(h int, load int64) int64 { return s.part[h] - load*s.scale }

// value is a host's share in loads.
func (s share) value(h int) float64 { return float64(s.part[h]) / float64(s.scale) }

// bounds are the least and the most that a host's share may be.
type bounds struct{ least, most int64 }

// shares divides the load of the layer at work, and of the shards in extra, by weight.
// What is pinned to a host and there is the least it gets, what fits in its capacity the
// most; the others divide the rest (water-filling). With frozen, a host that has not
// settled keeps what it has. A host that takes nothing has no share.
func (p *planner) shares(frozen bool, extra []int) share {
	rest := p.dividend(extra)
	limits := p.limits(rest)
	fixed := make([]int64, len(p.hosts))
	var free []int
	var weight int64
	for h := range p.hosts {
		switch v := &p.hosts[h]; {
		case !v.takes:
		case frozen && !v.settled:
			fixed[h] = p.load[h]
			rest -= p.load[h]
		default:
			free = append(free, h)
			weight += int64(v.Weight)
		}
	}
	for len(free) > 0 {
		clamped := p.clamp(free, limits, weight, rest, fixed)
		if clamped == 0 {
			break
		}
		for _, h := range free[:clamped] {
			rest -= fixed[h]
			weight -= int64(p.hosts[h].Weight)
		}
		free = free[clamped:]
	}
	out := share{part: fixed, scale: max(weight, 1)}
	for h := range fixed {
		fixed[h] *= out.scale
	}
	for _, h := range free {
		out.part[h] = int64(p.hosts[h].Weight) * rest
	}
	return out
}

// dividend is the load to divide. A wish has emptied the leaving hosts as far as it can.
func (p *planner) dividend(extra []int) (sum int64) {
	for h, load := range p.load {
		if !p.wishing || !p.hosts[h].Leaving {
			sum += load
		}
	}
	for _, i := range extra {
		sum += p.shards[i].Load
	}
	return sum
}

func (p *planner) limits(all int64) []bounds {
	out := make([]bounds, len(p.hosts))
	for i := range p.shards {
		s := &p.shards[i]
		if h := *p.at(s); h != none && h == s.pin {
			out[h].least += s.Load
		}
	}
	n := int64(max(len(p.shards), 1))
	for h := range out {
		out[h].most = all
		if room := p.hosts[h].room; room < len(p.shards) {
			// Loads differ, capacity counts: a full host is taken to have average shards.
			out[h].most = min(all, (int64(room)*p.total+n-1)/n)
		}
		out[h].most = max(out[h].most, out[h].least)
	}
	return out
}

// clamp fixes the hosts whose part by weight is outside their bounds, on the side where
// more is outside, moves them to the front of free, and returns how many they are. To
// fix one side changes the parts of the others, so the other side must wait.
func (p *planner) clamp(free []int, limits []bounds, weight, rest int64, fixed []int64) (n int) {
	var below, above int64
	for _, h := range free {
		part := int64(p.hosts[h].Weight) * rest
		below += max(limits[h].least*weight-part, 0)
		above += max(part-limits[h].most*weight, 0)
	}
	if below == 0 && above == 0 {
		return 0
	}
	for i, h := range free {
		part := int64(p.hosts[h].Weight) * rest
		switch {
		case above >= below && part > limits[h].most*weight:
			fixed[h] = limits[h].most
		case above < below && part < limits[h].least*weight:
			fixed[h] = limits[h].least
		default:
			continue
		}
		free[i], free[n] = free[n], free[i]
		n++
	}
	return n
}

// exceeds: a difference from a share is more than the slack allows, and at least one
// shard of average load.
func (p *planner) exceeds(shares share, h int, diff int64) bool {
	mean := p.total / int64(max(len(p.shards), 1))
	return diff >= mean*shares.scale && math.Abs(float64(diff)) > p.cfg.Slack*float64(shares.part[h])
}
