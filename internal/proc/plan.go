//go:build linux || darwin || windows

package proc

import "time"

// killBound is how long the end of a tree is pursued after KILL before what is
// left is reported. It bounds how long a run can hang on a process that no
// signal ends.
const killBound = 5 * time.Second

// timing says when a tree is ended so that it is gone by a deadline.
//
// Invariants: term(d) ≤ kill(d) < d; takeover(d) lies between term(d) and d.
type timing struct{ grace, reserve time.Duration }

// term is when TERM is sent at the latest.
func (t timing) term(deadline time.Duration) time.Duration { return deadline - t.grace - t.reserve }

// look is how long to wait before looking at a deadline again. A deadline moves
// long before it comes near, so the pauses shrink with the time that is left.
func (t timing) look(now, deadline time.Duration) time.Duration {
	return min(max((t.term(deadline)-now)/8, 5*time.Millisecond), 250*time.Millisecond)
}
