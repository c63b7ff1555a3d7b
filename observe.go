package tenure

import "time"

// EventKind is a kind of [Event].
type EventKind string

// What happens to a lease, a session or a leadership that this process holds. A
// session's leases have no renewals of their own.
const (
	// EventAcquired: the lease was handed out.
	EventAcquired EventKind = "acquired"
	// EventRenewed: a renewal was confirmed; Took and Margin are set.
	EventRenewed EventKind = "renewed"
	// EventRenewFailed: a renewal failed and will be tried again; Err is set.
	EventRenewFailed EventKind = "renew_failed"
	// EventLost: the lease was lost or not renewed in time; Err is set.
	EventLost EventKind = "lost"
	// EventReleased: the store confirmed the release.
	EventReleased EventKind = "released"
	// EventDecided: a decision of an authority has its final answer, or failed; Chain
	// and Took are set, and Answer or Err (package authority).
	EventDecided EventKind = "decided"
)

// Event is one thing that happened to a lease, a session or a leadership, for
// metrics. Lease, Authority and Node are names that the program chose: label what
// it has few of.
type Event struct {
	// Lease and Token name the tenure; empty for others.
	Lease string
	Token uint64
	// Node and Term name the session; empty for others.
	Node string
	Term uint64
	// Authority and Token name the leadership; empty for others.
	Authority string
	// Chain is the decision's, Answer what became of it, as its text.
	Chain, Answer string
	// Kind says what happened.
	Kind EventKind
	// Took is how long the store needed.
	Took time.Duration
	// Margin is how much time was left when a renewal came back.
	Margin time.Duration
	// Err is why, where something failed.
	Err error
}

// Observer receives events. Observe is called from the goroutine that renews or
// decides, in the middle of it: nothing is renewed, and no decision of an authority
// goes on, until it returns. So it must not block. It may ask what is answered from
// memory (Live, Remaining, Err, Leads, Health). It must not call what waits for the
// store or for an end (Acquire, Release, Leave, Close, Lead, StepDown, Append, Report
// and the like): such a call may wait for the very goroutine that it is made in, for
// ever. Hand the event over to a goroutine of your own for that, and do not wait for
// it. Whether something is held at an instant is not to be counted from events: ask
// Live when the metrics are read.
type Observer interface {
	Observe(Event)
}

func (c *Client) observe(e Event) {
	if c.observer != nil {
		c.observer.Observe(e)
	}
}
