package sqlstore

import "time"

// eagerFirst is how soon somebody who heard of a write looks for its commit, for
// the first time; each further look comes after twice the time.
const eagerFirst = 150 * time.Microsecond

const (
	// alert is for how long after a bell looks come at the usual pace.
	alert = 200 * time.Millisecond
	// idleShare is how many times rarer they come at other times where there is a
	// bell: it may fail to ring, but seldom does.
	idleShare = 10
)

// pace is how often to look: each time after usual, and sooner after a bell.
type pace struct {
	usual time.Duration
	bell  bool // there is one
	eager time.Duration
	heard time.Time
}

// hurry makes the next looks come soon.
func (p *pace) hurry() { p.eager, p.heard = eagerFirst, time.Now() }

// next is the time until the next look.
func (p *pace) next() time.Duration {
	d := p.eager
	if d > 0 && d < p.usual {
		p.eager = 2 * d
		return d
	}
	p.eager = 0
	if p.bell && time.Since(p.heard) > alert {
		return idleShare * p.usual
	}
	return p.usual
}
