package balance

import "slices"

// keep makes the first part of base: what stays as it is. A target is kept while its
// host takes shards; a move that is no longer possible, or one too many, is called off,
// and its shard stays with the live owner that it has.
func (p *planner) keep() {
	var moving []int
	for i := range p.shards {
		s := &p.shards[i]
		if s.live == none {
			continue
		}
		if p.keepsMoving(s) {
			s.moving = true
			moving = append(moving, i)
			p.put(i, s.target)
		} else {
			p.giveBack(i)
		}
	}
	p.callOff(moving)
	for i := range p.shards {
		s := &p.shards[i]
		if s.live == none && p.keepsTarget(s) {
			s.moving = s.move.limited()
			p.put(i, s.target)
		}
		if s.moving {
			p.inFlight++
		}
	}
}

// keepsMoving: the shard is on its way from a live owner to another host, and goes on.
func (p *planner) keepsMoving(s *shard) bool {
	if s.target == none || s.target == s.live || !p.hosts[s.target].takes {
		return false
	}
	// It had no live owner when its target was chosen. Now it has one, so nothing needs
	// to move: the owner was away for a moment, or was quicker than the target.
	return s.move.limited() || !p.hosts[s.live].takes
}

func (p *planner) giveBack(i int) {
	s := &p.shards[i]
	s.moving = false
	p.put(i, s.live)
	if s.target != s.live {
		s.reason = Returned
	}
}

// callOff ends the moves beyond MaxMoves, the least urgent first, and those to hosts
// that have no room for them. What comes back may fill a host in its turn, so this goes
// on until nothing changes; each move is called off at most once.
func (p *planner) callOff(moving []int) {
	slices.SortStableFunc(moving, func(a, b int) int { return int(p.shards[a].move) - int(p.shards[b].move) })
	if surplus := len(moving) - p.cfg.MaxMoves; surplus > 0 {
		for _, i := range moving[len(moving)-surplus:] {
			p.giveBack(i)
		}
		moving = moving[:len(moving)-surplus]
	}
	for again := true; again; {
		again = false
		for _, i := range slices.Backward(moving) {
			s := &p.shards[i]
			if s.moving && p.count[s.base] > p.hosts[s.base].room {
				p.giveBack(i)
				again = true
			}
		}
	}
}

// keepsTarget: nobody holds the shard, and the host that should take it still may.
func (p *planner) keepsTarget(s *shard) bool {
	if s.target == none || !p.hosts[s.target].takes || p.full(s.target) {
		return false
	}
	return !p.hardPinned(s) || s.target == s.pin
}

// placeOwnerless makes the rest of base: every shard without a live owner and without a
// target gets one, at once and outside all limits.
func (p *planner) placeOwnerless() {
	var list []int
	for i := range p.shards {
		s := &p.shards[i]
		switch {
		case s.base != none:
		case s.pin != none && !p.full(s.pin):
			p.put(i, s.pin)
			s.reason = Ownerless
		case p.hardPinned(s):
			s.reason = Unplaced
		default:
			list = append(list, i)
		}
	}
	for _, i := range p.place(list, true) {
		p.shards[i].reason = Unplaced
		if slices.ContainsFunc(p.hosts, func(h host) bool { return h.takes }) {
			p.note(NoRoom, "", i, "all hosts together have fewer places than there are shards: raise a capacity, or add a host")
		} else {
			p.note(NoHost, "", i, "no host takes shards: none is alive with a weight above 0 and not leaving")
		}
	}
	for _, i := range list {
		if s := &p.shards[i]; s.base != none {
			s.reason = Ownerless
		}
	}
}

// place gives the listed shards to hosts with room, by what each lacks of its share, and
// returns those that found none. Settled hosts come first. With spread, the shards have
// just lost their owners: no host gets more than twice its part of them by weight while
// others have room, so that one host does not have to recover everything; and hosts that
// have not settled get their part at most, rounded down, so that one that comes and goes
// does not draw every shard to itself.
func (p *planner) place(list []int, spread bool) []int {
	if len(list) == 0 {
		return nil
	}
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b int) int { return compareLoad(p.shards[b].Load, p.shards[a].Load) })
	takes := func(h *host) bool { return h.takes }
	settled := func(h *host) bool { return h.settled }
	some := slices.ContainsFunc(p.hosts, func(h host) bool { return h.settled })
	if !some {
		settled = takes
	}
	if spread && some {
		slices.Reverse(list)
		list = p.deal(list, func(h *host) bool { return h.takes && !h.settled }, p.shares(false, list), p.partOf(list, takes, 1))
		slices.Reverse(list)
	}
	shares := p.shares(some, list)
	if spread {
		list = p.deal(list, settled, shares, p.partOf(list, settled, 2))
	}
	list = p.deal(list, settled, shares, nil)
	return p.deal(list, takes, p.shares(false, list), nil)
}

func compareLoad(a, b int64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// part is how much of some shards each host may get: times the host's part by weight.
type part struct {
	load   int64
	weight int64
	times  int64
	got    []int64
}

func (p *planner) partOf(list []int, class func(*host) bool, times int64) *part {
	a := &part{times: times, got: make([]int64, len(p.hosts))}
	for _, i := range list {
		a.load += p.shards[i].Load
	}
	for h := range p.hosts {
		if class(&p.hosts[h]) {
			a.weight += int64(p.hosts[h].Weight)
		}
	}
	return a
}

// allows: with a part of once the shard must fit in; above that the host may have one
// shard more than its part.
func (a *part) allows(h *host, i int, load int64) bool {
	if a == nil {
		return true
	}
	most := a.times * int64(h.Weight) * a.load
	if a.times == 1 {
		return (a.got[i]+load)*a.weight <= most
	}
	return a.got[i]*a.weight < most
}

// deal gives each shard to the host of a class that lacks most of its share. With a
// part of once, only hosts that lack something get any.
func (p *planner) deal(list []int, class func(*host) bool, shares share, most *part) (rest []int) {
	lacks := make([]int64, len(p.hosts))
	q := newQueue(lacks)
	for h := range p.hosts {
		lacks[h] = shares.lacks(h, p.load[h])
		if class(&p.hosts[h]) && !p.full(h) {
			q.add(h)
		}
	}
	for n, i := range list {
		load := p.shards[i].Load
		for q.size() > 0 && !most.allows(&p.hosts[q.top()], q.top(), load) {
			q.remove(q.top())
		}
		if q.size() == 0 || (most != nil && most.times == 1 && lacks[q.top()] <= 0) {
			return append(rest, list[n:]...)
		}
		h := q.top()
		p.put(i, h)
		if most != nil {
			most.got[h] += load
		}
		lacks[h] -= load * shares.scale
		q.fix(h)
		if p.full(h) {
			q.remove(h)
		}
	}
	return nil
}
