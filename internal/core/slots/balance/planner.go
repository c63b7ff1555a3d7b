package balance

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/tenure-project/tenure/store"
)

// none is the host of a shard that has none.
const none = -1

func invalid(op, format string, args ...any) error {
	return store.Errorf(store.ErrInvalid, "", op, "", format, args...)
}

// host is a Host with what follows from it.
type host struct {
	Host
	room    int  // most shards
	takes   bool // may be a target
	settled bool // may be the target of a move
	since   time.Duration
}

// shard is a Shard with its names resolved to hosts.
type shard struct {
	Shard
	live   int    // the live owner
	target int    // the target before, if its host is known
	pin    int    // the host of its pin, if it takes shards
	moving bool   // its target is kept, and has not got it yet
	base   int    // its target without any limited move
	want   int    // its target without limits
	final  int    // its target
	reason Reason // why base is not the target before
	wish   Reason // why want is not base
	move   Reason // why it was moved, while it is moving
	wait   Wait   // what holds want back
}

// planner is one computation. Its hosts and shards are sorted; everything else refers
// to them by index.
type planner struct {
	now    time.Duration
	cfg    Config
	state  State
	hosts  []host
	shards []shard
	index  map[string]int

	// count and load are each host's shards in the layer at work: base, then want.
	count   []int
	load    []int64
	wishing bool
	// places is each host's count in base, and later in the final plan.
	places []int

	total     int64   // the load of all shards
	order     []int   // the limited moves of want, the most urgent first
	leaving   [][]int // of these, by host, those out of it
	recent    int
	started   int
	inFlight  int
	balancing bool
	problems  []Problem
}

func newPlanner(in Input) (*planner, error) {
	p := &planner{now: in.Now, cfg: in.Config.withDefaults()}
	if math.IsNaN(p.cfg.Slack) || math.IsInf(p.cfg.Slack, 0) {
		return nil, invalid("config", "the slack %v is not a number; 0.1 is ten per cent", p.cfg.Slack)
	}
	p.state = in.State.normal(in.Now, p.cfg.Window)
	p.recent = len(p.state.Recent)
	if err := p.addHosts(in.Hosts); err != nil {
		return nil, err
	}
	if err := p.addShards(in.Shards); err != nil {
		return nil, err
	}
	p.recall()
	return p, nil
}

func (p *planner) addHosts(hosts []Host) error {
	if len(hosts) > MaxHosts {
		return invalid("hosts", "%d hosts are too many; at most %d", len(hosts), MaxHosts)
	}
	p.hosts = make([]host, len(hosts))
	p.index = make(map[string]int, len(hosts))
	p.count, p.load = make([]int, len(hosts)), make([]int64, len(hosts))
	for i, h := range hosts {
		p.hosts[i].Host = h
	}
	slices.SortFunc(p.hosts, func(a, b host) int { return strings.Compare(a.ID, b.ID) })
	for i := range p.hosts {
		h := &p.hosts[i]
		switch {
		case h.ID == "":
			return invalid("hosts", "a host has no name")
		case i > 0 && p.hosts[i-1].ID == h.ID:
			return invalid("hosts", "host %q is there twice; give each its own name", h.ID)
		case h.Weight < 0 || h.Weight > MaxWeight:
			return invalid("hosts", "the weight %d of host %q is not within 0 and %d", h.Weight, h.ID, MaxWeight)
		case h.Capacity < 0:
			return invalid("hosts", "the capacity %d of host %q is below 0; 0 is no limit", h.Capacity, h.ID)
		}
		h.room = h.Capacity
		if h.room == 0 {
			h.room = math.MaxInt
		}
		h.takes = h.Alive && !h.Leaving && h.Weight > 0
		h.since = p.state.since(h.Host, p.now)
		h.settled = h.takes && p.now-h.since >= p.cfg.Settle
		p.index[h.ID] = i
	}
	return nil
}

func (p *planner) addShards(shards []Shard) error {
	p.shards = make([]shard, len(shards))
	for i, s := range shards {
		p.shards[i].Shard = s
	}
	slices.SortFunc(p.shards, func(a, b shard) int { return int(a.Range.A) - int(b.Range.A) })
	for i := range p.shards {
		s := &p.shards[i]
		switch {
		case s.Range.A > s.Range.B || s.Range.B >= Slots:
			return invalid("shards", "range %v is not within 0 and %d, or is inverted", s.Range, Slots-1)
		case i > 0 && p.shards[i-1].Range.B >= s.Range.A:
			return invalid("shards", "ranges %v and %v overlap", p.shards[i-1].Range, s.Range)
		case s.Load < 0 || s.Load > MaxLoad:
			return invalid("shards", "the load %d of range %v is not within 1 and %d; 0 stands for its slots", s.Load, s.Range, MaxLoad)
		case s.Held && s.Owner == "":
			return invalid("shards", "range %v is held by nobody; a held range has an owner", s.Range)
		}
		if s.Load == 0 {
			s.Load = int64(s.Range.Size())
		}
		p.total += s.Load
		p.resolve(s)
	}
	return nil
}

func (p *planner) resolve(s *shard) {
	s.live, s.pin = none, none
	if h := p.find(s.Owner); h != none && s.Held && p.hosts[h].Alive {
		s.live = h
	}
	s.target = p.find(s.Target)
	if h := p.find(s.Pin); h != none && p.hosts[h].takes {
		s.pin = h
	}
	s.base, s.want, s.final = none, none, none
}

func (p *planner) find(id string) int {
	if i, ok := p.index[id]; ok && id != "" {
		return i
	}
	return none
}

// recall finds why each target that has not got its shard was chosen. A move that
// nobody remembers is taken for one for balance, the first to be called off.
func (p *planner) recall() {
	moves := p.state.Moves
	for i := range p.shards {
		s := &p.shards[i]
		for len(moves) > 0 && moves[0].Range.A < s.Range.A {
			moves = moves[1:]
		}
		known := len(moves) > 0 && moves[0].Range == s.Range && moves[0].To == s.Target
		switch {
		case known:
			s.move = moves[0].Reason
		case s.live != none:
			s.move = Balance
		default:
			s.move = Ownerless
		}
	}
}

func (p *planner) hardPinned(s *shard) bool { return p.cfg.HardPins && s.Pin != "" }

// at is where a shard is in the layer at work.
func (p *planner) at(s *shard) *int {
	if p.wishing {
		return &s.want
	}
	return &s.base
}

// put gives a shard to a host in the layer at work, or to none.
func (p *planner) put(i, h int) {
	s := &p.shards[i]
	if old := *p.at(s); old != none {
		p.count[old]--
		p.load[old] -= s.Load
	}
	*p.at(s) = h
	if h != none {
		p.count[h]++
		p.load[h] += s.Load
	}
}

func (p *planner) full(h int) bool { return p.count[h] >= p.hosts[h].room }

func (p *planner) note(kind ProblemKind, host string, i int, detail string) {
	for j := range p.problems {
		if q := &p.problems[j]; q.Kind == kind && q.Host == host {
			q.Shards++
			return
		}
	}
	p.problems = append(p.problems, Problem{Kind: kind, Host: host, Shards: 1, First: p.shards[i].Range, Detail: detail})
}
