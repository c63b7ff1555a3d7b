// Package kit is what the packages on top of the root package (authority, slots,
// ledger) need of a client and of a session, and no program needs: the store with
// everything that belongs to it, and the ways to live and end by a session.
package kit

import (
	"context"
	"log/slog"
	"time"

	"github.com/tenure-project/tenure/internal/clock"
	"github.com/tenure-project/tenure/internal/core/identity"
	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/internal/deadline"
	"github.com/tenure-project/tenure/internal/membership"
	"github.com/tenure-project/tenure/internal/settle"
	"github.com/tenure-project/tenure/store"
)

// Client is a client's part. It is not changed once made.
type Client struct {
	// Store and Namespace are where the records live.
	Store     store.Store
	Namespace string
	// Clock is all that is known of time, Rand and NewID make what is random.
	Clock clock.Clock
	Rand  func() float64
	NewID func() string
	// Log receives what a person should know later.
	Log *slog.Logger
	// Timing is the client's, complete; Poll is how often a waiter looks where the
	// store cannot watch.
	Timing lease.Timing
	Poll   time.Duration
	// Label describes this process to people.
	Label string
	// Floor reads the namespace's floor now.
	Floor func(ctx context.Context) (uint64, error)
	// Seen begins a read of a counter of a kind of record; the func that it returns
	// is told the counter found (0: absent) and fails if it fell (LS12).
	Seen func(kind, name string) func(counter uint64) error
	// Recall is the boot-clock instant from which exactly body was seen under name, if it
	// was in this boot, also by an earlier process; Remember keeps it (LS2).
	Recall   func(name string, body []byte) (from time.Duration, ok bool)
	Remember func(name string, body []byte, from time.Duration)
	// Identities are the process identities of the namespace.
	Identities *membership.Identities
	// Observe tells the client's observer of an event; it must not be held up.
	Observe func(Event)
	// Background runs f in a goroutine that the client's Close waits for; f's context
	// ends then. Once the client is closed it does nothing.
	Background func(f func(ctx context.Context))
}

// Event is what the root package's Event has for what lives by a session.
type Event struct {
	// Authority and Token name the leadership.
	Authority string
	Token     uint64
	// Chain and Answer are a decision's.
	Chain, Answer string
	// Kind is one of the root package's.
	Kind string
	// Took, Margin and Err are as there.
	Took, Margin time.Duration
	Err          error
}

// NowMS is the wall clock in unix milliseconds, for people.
func (c *Client) NowMS() int64 { return c.Clock.Read().Wall.Milliseconds() }

// Pace is how calls and pauses are paced under t.
func (c *Client) Pace(t lease.Timing) settle.Pace {
	return settle.Pace{Clock: c.Clock, Attempt: t.Attempt, Backoff: max(t.Attempt/16, time.Millisecond), Rand: c.Rand}
}

// Session is a session's part.
type Session struct {
	*Client
	// Node and Owner name the process start.
	Node  string
	Owner identity.Owner
	// Timing is the session's, complete.
	Timing lease.Timing
	// Deadline is the session's. What lives by it has a deadline under it (DL6).
	Deadline *deadline.Deadline
	// Accept ends when the session begins nothing more.
	Accept context.Context
	// Attach makes end part of the session's own end: Leave calls it, with all others
	// at the same time, and waits; the name is given up only if it returns nil. An
	// error of Attach says that nothing more may begin. detach may be called more than
	// once.
	Attach func(end func(ctx context.Context) error) (detach func(), err error)
	// Settle goes on with f until it returns nil or the session is over; Leave waits
	// for it within its limit (LS8). what names it in logs.
	Settle func(what string, f func(ctx context.Context) error)
}
