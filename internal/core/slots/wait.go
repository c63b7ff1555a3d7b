package slots

import (
	"time"

	"github.com/tenure-project/tenure/internal/core/lease"
)

// State names exactly one state of a row: an epoch is given once, and every write to a
// row under it changes the renewal, the host or the attempt. It is comparable.
type State struct {
	Range   Range
	Epoch   uint64
	Renewal uint64
	// Incarnation is the host's; empty in a free row.
	Incarnation string
	// Attempt is that of the last write by the row's holder.
	Attempt string
}

// State is the row's.
func (r *Row) State() State {
	s := State{Range: r.Range, Epoch: r.Epoch, Renewal: r.Renewal, Attempt: r.Attempt}
	if r.Host != nil {
		s.Incarnation = r.Host.Incarnation
	}
	return s
}

// Sight is a rival's proof about one exact state of a row: that its holder is over, or
// that a free row was watched as long as it asks for (SL3). The caller vouches for it;
// a row in another state is not touched by it.
type Sight struct {
	State State
	// How says on what evidence: lease.HowObserved for what was watched; for a held row also
	// lease.HowProven or lease.HowStoreClock; for one of a session how that session ended.
	How string
	// Evidence is what the end of a session was cited from (LS8); a session's row does not
	// fall without.
	Evidence string
	// Why and By are what whoever ended the session said.
	Why, By string
}

// proves reports whether s lets r fall: it is of that state, and of a kind that can end
// it.
func (s *Sight) proves(r *Row) bool {
	switch {
	case s.State != r.State():
		return false
	case !r.Held():
		return s.How == lease.HowObserved
	case r.Host.Kind == lease.Session:
		return s.Evidence != "" && knownHow(s.How) && s.How != HowRaised
	}
	return s.How == lease.HowObserved || s.How == lease.HowProven || s.How == lease.HowStoreClock
}

// Wait says how long the host called me must see this very row before it may claim its
// slots: the TTL of a held self row, the superseded TTL after a forced end (LS11), the
// hold of a hand-over to somebody else (LS10), 0 for a free one. possible is false
// where no observation helps: a session's row falls to evidence only (LS8).
func (r *Row) Wait(me string) (d time.Duration, possible bool) {
	switch {
	case r.Held():
		return r.Host.TTL(), r.Host.Kind == lease.Self
	case r.Freed.SupersededTTLMS > 0:
		return time.Duration(r.Freed.SupersededTTLMS) * time.Millisecond, true
	case r.Freed.Successor != "" && r.Freed.Successor != me:
		return time.Duration(r.Freed.HoldMS) * time.Millisecond, true
	}
	return 0, true
}

// Observation is a rival's own proof, on its own clock, that a row did not change. It is
// a value; a row in another state starts a new one, whatever else changed in the table
// does not.
type Observation struct {
	// Birth is the table's.
	Birth string
	State State
	// From is the boot clock after the response that first showed the state.
	From time.Duration
}

// Observe continues o if r, in the table born as birth, is in the state that o saw, and
// begins anew at now (the boot clock after the response) otherwise.
func (o Observation) Observe(birth string, r *Row, now time.Duration) Observation {
	seen := Observation{Birth: birth, State: r.State(), From: now}
	if o.Birth == seen.Birth && o.State == seen.State && o.From <= now {
		return o
	}
	return seen
}

// RipeAt is the boot-clock instant from which the observed row may fall: need,
// stretched by the rate bound rho, after the observation began (DL5).
func (o Observation) RipeAt(need time.Duration, rho float64) time.Duration {
	return o.From + lease.Stretch(need, rho)
}

// Sight is what the observation proves once it is ripe.
func (o Observation) Sight() Sight { return Sight{State: o.State, How: lease.HowObserved} }
