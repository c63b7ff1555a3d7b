package slots

import (
	"context"
	"slices"
)

// HeldRange is a range that a host owns as far as it knows.
type HeldRange struct {
	Range Range  `json:"range"`
	Epoch uint64 `json:"epoch"`
	// Serving: its grant lives. One that lapsed is not served until a renewal confirms
	// that nobody took the range.
	Serving bool `json:"serving"`
}

// Health says how a host fares, at the instant it is read (SL7).
type Health struct {
	// Up: the last refresh had no failure, and no held range has lapsed. A range that
	// somebody else owns is no error. It is down before the first refresh, and once the
	// host is over.
	Up bool `json:"up"`
	// Owner is the host's name.
	Owner string `json:"owner"`
	// Held, Waiting, Lost and Failed are in configured order; the last three as the last
	// call of each range left them.
	Held    []HeldRange `json:"held"`
	Waiting []Waiting   `json:"-"`
	Lost    []Range     `json:"lost"`
	Failed  []Failure   `json:"-"`
	// Busy counts calls to the store that run.
	Busy int `json:"busy"`
	// Over says why the host is over, nil before that.
	Over error `json:"-"`
}

// Health reports how the host fares.
func (h *Host) Health() Health {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := Health{Up: h.begun > 0 && !h.done, Owner: h.me.Owner}
	for _, p := range h.parts {
		if g := p.grant; g != nil {
			held := HeldRange{Range: p.rng, Epoch: g.epoch, Serving: g.d.Live()}
			s.Held = append(s.Held, held)
			s.Up = s.Up && held.Serving
		}
		switch p.last.did {
		case waiting:
			s.Waiting = append(s.Waiting, Waiting{p.rng, p.last.err})
		case lost:
			s.Lost = append(s.Lost, p.rng)
		case failed:
			if p.last.err != nil {
				s.Failed = append(s.Failed, Failure{p.rng, p.last.err})
				s.Up = false
			}
		}
	}
	for _, u := range h.units {
		if len(u.turn) > 0 {
			s.Busy++
		}
	}
	if h.over.Err() != nil {
		s.Over = context.Cause(h.over)
	}
	return s
}

// Held are the ranges that the host owns as far as it knows, sorted.
func (h *Host) Held() []HeldRange {
	all := h.Health().Held
	slices.SortFunc(all, func(a, b HeldRange) int { return int(a.Range.A) - int(b.Range.A) })
	return all
}
