package balance

import (
	"slices"
	"strings"
	"time"
)

// State is what one plan hands to the next. It may be stored as JSON, but its times are
// of one leader's clock: a new leader begins with the zero State. That is safe: with it
// nobody has settled, so no shard moves for balance until the hosts have been watched
// for Config.Settle.
type State struct {
	// Planned: there was a plan before.
	Planned bool `json:"planned"`
	// Hosts are those that took shards, by name.
	Hosts []Seen `json:"hosts,omitempty"`
	// Moves are the targets that have not got their shards yet, by range.
	Moves []Move `json:"moves,omitempty"`
	// Recent is when the moves for balance of the last window began.
	Recent []time.Duration `json:"recent,omitempty"`
	// Balancing: once the slack is exceeded, moves go on until balance is reached.
	Balancing bool `json:"balancing"`
}

// Seen is since when a host has been taking shards without a break.
type Seen struct {
	ID          string        `json:"id"`
	Incarnation string        `json:"incarnation,omitempty"`
	Since       time.Duration `json:"since"`
}

// Move is a target that has not got its shard yet, and why it should.
type Move struct {
	Range  Range  `json:"range"`
	To     string `json:"to"`
	Reason Reason `json:"reason"`
}

// since is when the host began to take shards. A host that the last plan did not see
// taking any came back only now, whatever its presence says: it may have drained, or
// restarted between two plans.
func (s *State) since(h Host, now time.Duration) time.Duration {
	if !s.Planned {
		return min(h.Since, now)
	}
	i, found := slices.BinarySearchFunc(s.Hosts, h.ID, func(m Seen, id string) int { return strings.Compare(m.ID, id) })
	if !found || s.Hosts[i].Incarnation != h.Incarnation {
		return now
	}
	return min(max(s.Hosts[i].Since, h.Since), now)
}

// normal is a copy in canonical order, without what is over.
func (s State) normal(now, window time.Duration) State {
	s.Hosts = slices.Clone(s.Hosts)
	slices.SortFunc(s.Hosts, func(a, b Seen) int { return strings.Compare(a.ID, b.ID) })
	s.Moves = slices.Clone(s.Moves)
	if !slices.IsSortedFunc(s.Moves, byMove) {
		slices.SortFunc(s.Moves, byMove)
	}
	var recent []time.Duration
	for _, at := range s.Recent {
		if at > now-window && at <= now {
			recent = append(recent, at)
		}
	}
	slices.Sort(recent)
	s.Recent = recent
	return s
}

func byMove(a, b Move) int { return int(a.Range.A) - int(b.Range.A) }
