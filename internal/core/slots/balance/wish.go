package balance

import "slices"

// wish makes want: base with every move that the limits may hold back.
func (p *planner) wish() {
	p.places = slices.Clone(p.count)
	p.wishing = true
	for i := range p.shards {
		p.shards[i].want = p.shards[i].base
	}
	p.wishPins()
	p.wishOut()
	p.wishBalance()
}

func (p *planner) move(i, h int, why Reason) {
	p.put(i, h)
	p.shards[i].wish = why
	p.order = append(p.order, i)
}

// wishPins sends pinned shards to their hosts, as many as these may have. Others make
// room for them in wishOut.
func (p *planner) wishPins() {
	// Of each host's shards, those pinned to it, and those that cannot make room.
	pinned, stay := make([]int, len(p.hosts)), make([]int, len(p.hosts))
	var away []int
	for i := range p.shards {
		s := &p.shards[i]
		if s.want != none && s.want == s.pin {
			pinned[s.pin]++
			stay[s.pin]++
			continue
		}
		if s.want != none && p.stays(s) {
			stay[s.want]++
		}
		if s.pin != none {
			away = append(away, i)
		} else if s.Pin != "" {
			p.note(PinAbsent, s.Pin, i, p.meanwhile("the host is not there, leaves, or has weight 0"))
		}
	}
	// A shard that goes to its pin may leave room for another one's pin.
	for before := -1; before != len(away); {
		before = len(away)
		away = slices.DeleteFunc(away, func(i int) bool { return p.wishPin(i, pinned, stay) })
	}
	for _, i := range away {
		s := &p.shards[i]
		if pinned[s.pin] >= p.hosts[s.pin].room || (s.want == none && !p.hardPinned(s)) {
			p.note(PinBeyondCapacity, s.Pin, i, p.meanwhile("more shards are pinned to the host than it has room for"))
		}
	}
}

// stays: a shard that is not at its pin, and yet does not make room for those that are.
func (p *planner) stays(s *shard) bool { return s.moving || p.hardPinned(s) }

// wishPin sends a shard to its pin if there is a place for it, counted in stay.
func (p *planner) wishPin(i int, pinned, stay []int) bool {
	s := &p.shards[i]
	h := &p.hosts[s.pin]
	if stay[s.pin] >= h.room || (s.live != none && !h.settled) || (s.want == none && !p.hardPinned(s)) {
		return false
	}
	if s.want != none && p.stays(s) {
		stay[s.want]--
	}
	pinned[s.pin]++
	stay[s.pin]++
	why := Pin
	if s.base == none {
		why = Ownerless // only the moves that make room for it are limited
	}
	p.move(i, s.pin, why)
	return true
}

func (p *planner) meanwhile(what string) string {
	if p.cfg.HardPins {
		return what + "; pins are hard, so nobody else gets the shards"
	}
	return what + "; others serve the shards meanwhile"
}

// wishOut empties the hosts that leave, and takes from each host what is beyond its
// capacity.
func (p *planner) wishOut() {
	var out []int
	surplus := make([]int, len(p.hosts))
	for h := range p.hosts {
		if !p.hosts[h].Leaving {
			surplus[h] = max(p.count[h]-p.hosts[h].room, 0)
		}
	}
	for i := range p.shards {
		s := &p.shards[i]
		if s.want != none && s.want == s.base && p.hosts[s.want].Leaving && !p.hardPinned(s) {
			s.wish = Leaving
			out = append(out, i)
		}
	}
	// Shards that nobody holds yet go first, those pinned to the host last.
	for _, may := range []func(*shard) bool{
		func(s *shard) bool { return s.live == none && s.pin != s.want },
		func(s *shard) bool { return s.pin != s.want },
		func(s *shard) bool { return true },
	} {
		for i := len(p.shards) - 1; i >= 0; i-- {
			s := &p.shards[i]
			if s.want == none || s.want != s.base || s.wish != Keep || s.moving || surplus[s.want] == 0 || p.hardPinned(s) || !may(s) {
				continue
			}
			surplus[s.want]--
			s.wish = Capacity
			out = append(out, i)
		}
	}
	p.takeOut(out)
}

func (p *planner) takeOut(out []int) {
	for _, i := range out {
		p.put(i, none)
	}
	for _, i := range p.place(out, false) {
		s := &p.shards[i]
		s.wish = Keep
		p.put(i, s.base)
		p.note(NoRoom, "", i, "all hosts together have fewer places than there are shards: raise a capacity, or add a host")
	}
	for _, i := range out {
		if s := &p.shards[i]; s.want != s.base {
			p.order = append(p.order, i)
		} else {
			s.wish = Keep
		}
	}
}

// wishBalance moves shards from hosts above their share to hosts below it, once a host
// is outside the slack, and then until no move makes the differences smaller.
func (p *planner) wishBalance() {
	shares := p.shares(true, nil)
	above, below := make([]int64, len(p.hosts)), make([]int64, len(p.hosts))
	givers, takers := newQueue(above), newQueue(below)
	stock := p.stock()
	for h := range p.hosts {
		below[h] = shares.lacks(h, p.load[h])
		above[h] = -below[h]
		v := &p.hosts[h]
		gives, takes := len(stock[h]) > 0, v.settled && !p.full(h)
		if gives {
			givers.add(h)
		}
		if takes {
			takers.add(h)
		}
		p.balancing = p.balancing || (gives && p.exceeds(shares, h, above[h])) || (takes && p.exceeds(shares, h, below[h]))
	}
	p.balancing = p.balancing || p.state.Balancing
	if !p.balancing || p.cfg.Burst == 0 {
		p.balancing = false
		return
	}
	before := len(p.order)
	for givers.size() > 0 && takers.size() > 0 {
		g, t := givers.top(), takers.top()
		if above[g] <= 0 || below[t] <= 0 {
			break
		}
		i, ok := p.pick(&stock[g], above[g], below[t], shares.scale)
		if !ok {
			givers.remove(g)
			continue
		}
		p.move(i, t, Balance)
		for _, h := range [...]int{g, t} {
			below[h] = shares.lacks(h, p.load[h])
			above[h] = -below[h]
			givers.fix(h)
			takers.fix(h)
		}
		if p.full(t) {
			takers.remove(t)
		}
		if takers.pos[g] == none && p.hosts[g].settled && !p.full(g) {
			takers.add(g) // it was full, and gave a shard heavier than what it had too much
		}
	}
	p.balancing = len(p.order) > before
}

// stock is which shards each host may give away for balance, by load, and of equal ones
// those that nobody holds yet last. Shards on their way, at their pin or just given to
// the host stay; so does what a leaving host could not give away. (A host that has not
// settled has its share by definition, and gives nothing.)
func (p *planner) stock() [][]int {
	out := make([][]int, len(p.hosts))
	for i := range p.shards {
		s := &p.shards[i]
		if h := s.want; h != none && h == s.base && !s.moving && h != s.pin && !p.hardPinned(s) {
			if !p.hosts[h].Leaving {
				out[h] = append(out[h], i)
			}
		}
	}
	for _, list := range out {
		slices.SortStableFunc(list, func(a, b int) int {
			x, y := &p.shards[a], &p.shards[b]
			if x.Load != y.Load {
				return compareLoad(x.Load, y.Load)
			}
			return unheld(x) - unheld(y)
		})
	}
	return out
}

func unheld(s *shard) int {
	if s.live == none {
		return 1
	}
	return 0
}

// pick takes from a stock the shard whose move makes the two differences smallest: the
// lightest that evens out one of them, else the heaviest. A shard heavier than both
// would only turn the differences round. With shards of one load this is: move one when
// either host is a whole shard away from its share.
func (p *planner) pick(stock *[]int, above, below, scale int64) (int, bool) {
	list := *stock
	load := func(i int) int64 { return p.shards[i].Load }
	first := func(least int64) int { // the first of at least this load
		n, _ := slices.BinarySearchFunc(list, least, func(i int, l int64) int {
			if load(i) < l {
				return -1
			}
			return 1
		})
		return n
	}
	small, great := min(above, below), max(above, below)
	at := first((small + scale - 1) / scale)
	if at == len(list) || load(list[at]) > great/scale {
		at--
	}
	if at < 0 {
		return 0, false
	}
	at = first(load(list[at])+1) - 1 // the last of its load
	i := list[at]
	*stock = slices.Delete(list, at, at+1)
	return i, true
}
