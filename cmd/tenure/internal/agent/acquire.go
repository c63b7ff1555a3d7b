package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/tenure-project/tenure"
)

// Request is a wish for a lease.
type Request struct {
	// Lease is its name, Note what is shown to whoever finds it held.
	Lease, Note string
	// Wait is how long to wait for it: 0 tries once, -1 waits until ctx ends.
	Wait time.Duration
	// Stop is what the work needs to end.
	Stop time.Duration
	// Group refers to the control group that all work under the lease, and whoever
	// ends it beside this process, is in (proc.Supervisor.Contain); "" for none. If
	// this process dies and the group is empty, the lease is free at once (LS14).
	Group string
	// Silent is called when the agent has said nothing for its TTL, though it should
	// say that it waits three times as often. It reports whether to wait on; nil
	// does not. It is called again only after the agent was heard meanwhile.
	Silent func() bool
}

const (
	// waitingParts is how often in a TTL an agent says that it waits.
	waitingParts = 3
	// missedParts is how many parts of a TTL without a word are silence: at least
	// one TTL, however the two sides' parts lie. They are counted one by one, so
	// that a process that was stopped, or slept with its machine, hears first what
	// was said meanwhile.
	missedParts = waitingParts + 1
	// lastWord is how long an agent may take to say how the wait ended, after our own
	// limit for it has passed. It has the same limit.
	lastWord = time.Second
)

// Acquire waits for the lease. The connection is the lease's from then on; an error
// closes it. An agent that ends is an ErrEnding, one that dies or hangs up an
// ErrHungUp, one that says nothing any more an ErrSilent, and a grant that came
// while this process was stopped an ErrLate: then nothing is held, and another
// connection may ask again. The end of ctx is the error's cause.
func (c *Conn) Acquire(ctx context.Context, r Request) (*Hold, error) {
	if err := c.MayBorrow(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	h, err := c.acquire(ctx, r)
	if err != nil {
		_ = c.Close()
	}
	return h, err
}

func (c *Conn) acquire(ctx context.Context, r Request) (*Hold, error) {
	m, err := c.awaitGrant(ctx, r)
	switch {
	case err == nil && ctx.Err() != nil:
		c.giveUp()
		return nil, fmt.Errorf("lease %q: %w", r.Lease, context.Cause(ctx))
	case errors.Is(err, ErrSilent), ctx.Err() != nil:
		c.giveUp() // the grant may be on its way
		return nil, fmt.Errorf("lease %q: %w", r.Lease, err)
	case errors.Is(err, ErrProtocol), errors.Is(err, tenure.ErrInvalid):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("lease %q: %w: %w", r.Lease, ErrHungUp, err)
	case m.Op == opError:
		return nil, m.err()
	case m.Op != opGranted || m.Token == 0 || m.Incarnation != c.hello.Proof.Incarnation || m.Term != c.hello.Proof.Term:
		return nil, fmt.Errorf("%w: %q is no answer to acquire", ErrProtocol, m.Op)
	}
	h := newHold(c, r, m)
	if !h.extend(m.Deadline) {
		err := fmt.Errorf("lease %q (token %d): %w", r.Lease, m.Token, ErrLate)
		return nil, errors.Join(err, h.Release(ctx))
	}
	return h, nil
}

// awaitGrant asks for the lease and returns the answer. It returns with an error
// once ctx ends, even if the answer is there.
func (c *Conn) awaitGrant(ctx context.Context, r Request) (message, error) {
	if err := c.conn.SetDeadline(time.Time{}); err != nil {
		return message{}, err
	}
	_ = c.conn.SetWriteDeadline(time.Now().Add(writeLimit))
	ask := message{Op: opAcquire, Lease: r.Lease, Note: r.Note, Wait: r.Wait, Stop: r.Stop, Group: r.Group}
	if err := send(c.conn, ask); err != nil {
		return message{}, err
	}
	go c.listen()
	for missed := 0; ; {
		m, err := c.hearWithin(ctx, c.hello.TTL/waitingParts)
		switch {
		case ctx.Err() != nil:
			return message{}, c.ended(ctx, m, missed)
		case errors.Is(err, errNothing):
			if missed++; missed == missedParts && (r.Silent == nil || !r.Silent()) {
				return message{}, fmt.Errorf("%w: node %q has said nothing for its TTL of %v", ErrSilent, c.hello.Proof.Node, c.hello.TTL)
			}
		case err == nil && m.Op == opWaiting:
			missed = 0
		default:
			return m, err
		}
	}
}

// errNothing: nothing was heard in the time given.
var errNothing = errors.New("nothing was heard")

// hearWithin is hear for at most d of running time, and until ctx ends.
func (c *Conn) hearWithin(ctx context.Context, d time.Duration) (message, error) {
	over := make(chan struct{})
	t := c.clk.AfterFunc(d, func() { close(over) })
	defer t.Stop()
	select {
	case h, more := <-c.heard:
		return h.last(more)
	case <-over:
		return message{}, errNothing
	case <-ctx.Done():
		return message{}, context.Cause(ctx)
	}
}

// ended is why the wait ended, when ctx has. Where its time was over, the agent's
// was, too: one that does not say so does not answer. m is what came last, missed
// how many parts of the TTL it had been silent for.
func (c *Conn) ended(ctx context.Context, m message, missed int) error {
	cause := context.Cause(ctx)
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) || m.Op != "" && m.Op != opWaiting {
		return cause
	}
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWord)
	defer cancel()
	for missed < missedParts {
		m, err := c.hearWithin(limit, lastWord)
		if errors.Is(err, errNothing) || limit.Err() != nil {
			break
		}
		if err != nil || m.Op != opWaiting {
			return cause
		}
	}
	return fmt.Errorf("%w: %w (node %q)", cause, ErrSilent, c.hello.Proof.Node)
}

// listen reads what the agent says, until it says nothing more or c is closed.
func (c *Conn) listen() {
	defer close(c.heard)
	for {
		m, err := c.in.next()
		select {
		case c.heard <- heard{m, err}:
		case <-c.closed:
			return
		}
		if err != nil {
			return
		}
	}
}

// hear is the next message.
func (c *Conn) hear() (message, error) {
	h, more := <-c.heard
	return h.last(more)
}

// last is what was heard, if there is more.
func (h heard) last(more bool) (message, error) {
	switch {
	case !more:
		return message{}, net.ErrClosed
	case errors.Is(h.err, io.EOF):
		return message{}, errors.New("the connection was closed")
	}
	return h.m, h.err
}

// giveUp tells the agent that nothing works under the lease, whether or not it has
// granted it by now.
func (c *Conn) giveUp() {
	_ = c.conn.SetWriteDeadline(time.Now().Add(writeLimit))
	_ = send(c.conn, message{Op: opRelease})
}
