package sqlstore

import "time"

// eagerFirst is how soon somebody who heard of a write looks for its commit, for
// the first time; each further look comes after twice the time.
const eagerFirst = 150 * time.Microsecond

// pace is how often to look: each time after usual, and sooner after a bell.
type pace struct{ usual, eager time.Duration }

// hurry makes the next looks come soon.
func (p *pace) hurry() { p.eager = eagerFirst }

// next is the time until the next look.
func (p *pace) next() time.Duration {
	d := p.eager
	if d == 0 || d >= p.usual {
		p.eager = 0
		return p.usual
	}
	p.eager = 2 * d
	return d
}
