package tenure

import "time"

// EventKind is a kind of [Event].
type EventKind string

// What happens to a lease or a session that this process holds. A session's leases
// have no renewals of their own.
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
)

// Event is one thing that happened to a lease or a session, for metrics.
type Event struct {
	// Lease and Token name the tenure; empty for a session.
	Lease string
	Token uint64
	// Node and Term name the session; empty for a lease.
	Node string
	Term uint64
	// Kind says what happened.
	Kind EventKind
	// Took is how long the store needed.
	Took time.Duration
	// Margin is how much time was left on the lease when a renewal came back.
	Margin time.Duration
	// Err is why, where something failed.
	Err error
}

// Observer receives events. Observe is called from the goroutine that renews: it
// must not block.
type Observer interface {
	Observe(Event)
}

func (c *Client) observe(e Event) {
	if c.observer != nil {
		c.observer.Observe(e)
	}
}
