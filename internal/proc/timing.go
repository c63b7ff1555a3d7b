package proc

import "time"

// killBound is how long the end of a tree is pursued after KILL before what is
// left is reported. It bounds how long a run can hang on a process that no
// signal ends.
const killBound = 5 * time.Second

// DefaultReserve is the time kept for a tree to be gone after KILL: a fifteenth
// of the TTL, at most 500 ms (DL5). With the default grace it still fits beside
// the renewals of a TTL.
func DefaultReserve(ttl time.Duration) time.Duration { return min(ttl/15, 500*time.Millisecond) }

// StopTime is the time that a tree needs to end: grace and reserve. It is what
// to take off the hold (DL5).
func StopTime(grace, reserve time.Duration) time.Duration { return grace + reserve }

// timing says when a tree is ended so that it is gone by a deadline.
//
// Invariants: term(d) ≤ kill(d) < d; takeover(d) lies between term(d) and d.
type timing struct{ grace, reserve time.Duration }

// term is when TERM is sent at the latest.
func (t timing) term(deadline time.Duration) time.Duration { return deadline - t.grace - t.reserve }

// kill is when KILL is sent at the latest.
func (t timing) kill(deadline time.Duration) time.Duration { return deadline - t.reserve }

// ask is when the wrapper asks the supervisor whether it is awake: a little
// after the supervisor should have acted by itself.
func (t timing) ask(deadline time.Duration) time.Duration { return t.term(deadline) + t.reserve/4 }

// takeover is when the wrapper acts in the place of a supervisor that did not
// answer.
func (t timing) takeover(deadline time.Duration) time.Duration {
	return t.term(deadline) + t.reserve/2
}

// look is how long to wait before looking at a deadline again. A deadline moves
// long before it comes near, so the pauses shrink with the time that is left.
func (t timing) look(now, deadline time.Duration) time.Duration {
	return min(max((t.term(deadline)-now)/8, 5*time.Millisecond), 250*time.Millisecond)
}

// Two signals of one kind that come closer than tooClose are one request: some
// senders signal a process and its group. Farther apart than tooFar they are
// two independent ones, as an interactive program gets them.
const (
	tooClose = 200 * time.Millisecond
	tooFar   = 5 * time.Second
)

// hurriedGrace is the most that a tree gets from TERM to KILL when its end was
// asked for twice.
const hurriedGrace = 2 * time.Second

// impatience counts how often somebody asked in a row (case B72).
type impatience struct {
	last  map[int]time.Duration
	count map[int]int
}

// ask notes a signal that came at now and returns how many of its kind came in
// a row, 1 for the first; 0 if it is an echo of the one before.
func (i *impatience) ask(sig int, now time.Duration) int {
	if i.last == nil {
		i.last, i.count = map[int]time.Duration{}, map[int]int{}
	}
	before, seen := i.last[sig]
	if seen && now-before < tooClose {
		return 0
	}
	if !seen || now-before > tooFar {
		i.count[sig] = 0
	}
	i.last[sig] = now
	i.count[sig]++
	return i.count[sig]
}
