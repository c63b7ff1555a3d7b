package balance

import "slices"

// admit makes the plan: base, and of the moves in want, the most urgent first, as many
// as the limits allow.
func (p *planner) admit() {
	for i := range p.shards {
		p.shards[i].final = p.shards[i].base
	}
	p.leaving = make([][]int, len(p.hosts))
	for _, i := range p.order {
		if h := p.shards[i].final; h != none {
			p.leaving[h] = append(p.leaving[h], i)
		}
	}
	waits := p.order
	for again := true; again; {
		again = false
		var left []int
		for _, i := range waits {
			if p.shards[i].final == p.shards[i].want {
				continue
			}
			if w := p.tryMove(i); w == NoWait {
				again = true
			} else {
				p.shards[i].wait = w
				left = append(left, i)
			}
		}
		waits = left
	}
	p.fillPins()
}

// fillPins gives shards that nobody has the places at their hard pins that the moves
// have made free, before another pin that must still wait takes them.
func (p *planner) fillPins() {
	for i := range p.shards {
		if s := &p.shards[i]; s.final == none && s.pin != none && p.places[s.pin] < p.hosts[s.pin].room {
			p.put(i, s.pin)
			p.places[s.pin]++
			s.final, s.wish, s.wait = s.pin, Ownerless, NoWait
		}
	}
}

// tryMove admits a move, with those that must make room for it, or says what it waits
// for.
func (p *planner) tryMove(i int) Wait {
	if p.cost(i) > 0 && p.inFlight >= p.cfg.MaxMoves {
		return InFlight
	}
	group := p.group(i)
	cost, voluntary := 0, 0
	for _, j := range group {
		cost += p.cost(j)
		if p.shards[j].wish == Balance {
			voluntary++
		}
	}
	switch {
	case group == nil:
		return Room
	case cost > 0 && p.inFlight+cost > p.cfg.MaxMoves:
		return p.tooMany(cost)
	case p.recent+voluntary > p.cfg.Burst:
		return Window
	}
	p.inFlight += cost
	p.recent += voluntary
	p.started += voluntary
	for _, j := range group {
		s := &p.shards[j]
		if s.final != none {
			p.places[s.final]--
		}
		p.places[s.want]++
		s.final = s.want
		s.wait = NoWait
	}
	return NoWait
}

// tooMany: moves that make room for each other, and are more than may ever be under way
// together, wait for room and not for each other.
func (p *planner) tooMany(cost int) Wait {
	if cost > p.cfg.MaxMoves {
		return Room
	}
	return InFlight
}

// cost is how many hand-overs more are under way when a move begins: none when the
// shard is on its way already or nobody had it, one less when it goes back to its live
// owner.
func (p *planner) cost(i int) (n int) {
	s := &p.shards[i]
	if s.want != s.live && s.wish.limited() {
		n++
	}
	if s.moving {
		n--
	}
	return n
}

// group is a move, and one out of the host it goes to when that is full, and so on until
// a host has room, or the circle closes: then all of them begin together. It is nil when
// no such moves are wanted. A host with more than its room gives before it takes.
func (p *planner) group(i int) []int {
	group := []int{i}
	start := p.shards[i].final
	for {
		h := p.shards[group[len(group)-1]].want
		switch places, room := p.places[h], p.hosts[h].room; {
		case places < room, h == start && places == room:
			return group
		case places > room:
			return nil
		}
		out := p.leaving[h]
		for len(out) > 0 && p.shards[out[0]].final != h {
			out = out[1:] // begun already
		}
		p.leaving[h] = out
		if len(out) == 0 || slices.Contains(group, out[0]) {
			return nil
		}
		group = append(group, out[0])
	}
}
