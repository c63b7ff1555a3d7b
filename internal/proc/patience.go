//go:build linux || darwin

package proc

import "time"

// kill is when KILL is sent at the latest.
func (t timing) kill(deadline time.Duration) time.Duration { return deadline - t.reserve }

// ask is when the wrapper asks the supervisor whether it is awake: a little
// after the supervisor should have acted by itself.
func (t timing) ask(deadline time.Duration) time.Duration { return t.term(deadline) + t.reserve/4 }

// takeover is when the wrapper acts in the place of a supervisor that did not
// answer. On a busy machine an answer takes its time, so a part of the grace is
// given for it.
func (t timing) takeover(deadline time.Duration) time.Duration {
	return t.term(deadline) + t.grace/8 + t.reserve/2
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
