package storetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenure-project/tenure/store"
)

// SPEC LS9 ST14
func queueClauses() []Clause {
	const order = "A line is fair: first come, first served."
	clauses := []Clause{{
		Rule: "ST14", Name: "queue-leave",
		Says: "Leave gives the place up, wherever it is in line, and may be called more than once.",
		run: func(c *check) {
			k := key("k")
			a, b, d := c.enqueue(c.s, k), c.enqueue(c.s, k), c.enqueue(c.s, k)
			b.Leave()
			b.Leave()
			w := c.waiting(d, 0)
			c.blocked(w, "the ticket behind one that left and one that did not")
			a.Leave()
			c.turn(w, "the last ticket, once all before it had left")
			d.Leave()
			a.Leave()
			e := c.enqueue(c.s, k)
			c.turn(c.waiting(e, 0), "the first ticket of a line that had emptied")
			e.Leave()
		},
	}, {
		Rule: "ST14", Name: "queue-patience",
		Says: "Wait returns nil when those before the ticket had their chance for at least patience and did not use it.",
		run: func(c *check) {
			k, patience := key("k"), 4*c.quiet()
			a, b := c.enqueue(c.s, k), c.enqueue(c.s, k)
			start := time.Now()
			c.turn(c.waiting(b, patience), "a ticket with patience behind one that does nothing")
			if d := time.Since(start); d < patience*9/10 {
				c.Errorf("Wait with a patience of %v passed the ticket before it after %v", patience, d)
			}
			// The one that was passed over is still the first.
			c.turn(c.waiting(a, 0), "a ticket that was passed over")
			c.blocked(c.waiting(b, 0), "a ticket without patience that had passed another")
		},
	}, {
		Rule: "ST14", Name: "queue-cancel",
		Says: "Wait returns the context's error, wrapped, when its context ends; the place in line is kept until Leave.",
		run:  queueCancel,
	}, {
		Rule: "ST14", Name: "queue-of-many", Says: order,
		run: func(c *check) { c.queueOrder([]store.Store{c.s}, c.rounds(100)) },
	}, {
		Rule: "ST14", Name: "queue-leaves-nothing",
		Says: "A waiter that goes away leaves nothing behind, and Waiting tells a newcomer whether anybody stands in line.",
		run:  queueLeavesNothing,
	}, {
		Rule: "ST14", Name: "queue-per-key",
		Says: "A line is for one key: other keys have lines of their own.",
		run: func(c *check) {
			a, b := c.enqueue(c.s, key("k1")), c.enqueue(c.s, key("k2"))
			c.turn(c.waiting(a, 0), "the first ticket for one key")
			c.turn(c.waiting(b, 0), "the first ticket for another key")
			a.Leave()
			b.Leave()
		},
	}, {
		Rule: "ST14", Name: "queue-among-handles", Peers: true,
		Says: "Waiters stand in line across processes: first come, first served.",
		run:  func(c *check) { c.queueOrder([]store.Store{c.s, c.peer(), c.s, c.peer()}, 8) },
	}, {
		Rule: "ST14", Name: "queue-member-gone", Peers: true,
		Says: "A member of a line that is gone delays the others for a bounded time.",
		run: func(c *check) {
			p, k := c.peer(), key("k")
			c.enqueue(p, k)
			b := c.enqueue(c.s, k)
			w := c.waiting(b, 0)
			c.blocked(w, "the second ticket")
			if err := p.Close(); err != nil {
				c.Errorf("Close of a store with a ticket in line: %v", err)
			}
			c.turn(w, "a ticket whose predecessor's store was closed")
			b.Leave()
		},
	}}
	for i := range clauses {
		clauses[i].Needs = store.CanQueue
	}
	return clauses
}

func (c *check) enqueue(s store.Store, k string) store.Ticket {
	c.Helper()
	q, _ := store.AsQueuer(s)
	t, err := q.Enqueue(c.ctx(), k)
	if err != nil {
		c.Fatalf("Enqueue(%s) failed: %v", k, err)
	}
	c.Cleanup(t.Leave)
	return t
}

// waiting waits in the background; nothing else may use t until it is done.
// The wait ends with the clause.
func (c *check) waiting(t store.Ticket, patience time.Duration) <-chan error {
	done := make(chan error, 1)
	ended := make(chan struct{})
	ctx, cancel := context.WithCancel(c.ctx())
	go func() {
		defer close(ended)
		done <- t.Wait(ctx, patience)
	}()
	c.Cleanup(func() { // runs before the ticket's Leave
		cancel()
		<-ended
	})
	return done
}

// turn reports a breach unless the wait soon ends well.
func (c *check) turn(w <-chan error, what string) {
	c.Helper()
	if err := c.arrives(w, "the turn of "+what); err != nil {
		c.Fatalf("Wait of %s failed: %v", what, err)
	}
}

// blocked reports a breach if the wait ends within a short while.
func (c *check) blocked(w <-chan error, what string) {
	c.Helper()
	t := time.NewTimer(c.quiet())
	defer t.Stop()
	select {
	case err := <-w:
		c.Fatalf("Wait of %s returned (%v) while others stood before it", what, err)
	case <-t.C:
	}
}

func (c *check) queueOrder(handles []store.Store, n int) {
	k := key("k")
	tickets := make([]store.Ticket, n)
	for i := range tickets {
		tickets[i] = c.enqueue(handles[i%len(handles)], k)
	}
	waits := make([]<-chan error, n)
	for i := range waits { // the last first, so that arrival in Wait is not the order
		waits[n-1-i] = c.waiting(tickets[n-1-i], 0)
	}
	for i := range tickets {
		c.turn(waits[i], fmt.Sprintf("ticket number %d, once %d had left", i, i))
		for j := i + 1; j < n; j++ {
			select {
			case err := <-waits[j]:
				c.Fatalf("it was the turn of ticket number %d, but number %d was let through (%v)", i, j, err)
			default:
			}
		}
		tickets[i].Leave()
	}
}

func queueCancel(c *check) {
	k := key("k")
	a, b := c.enqueue(c.s, k), c.enqueue(c.s, k)
	ctx, cancel := context.WithCancel(c.ctx())
	ended := make(chan error, 1)
	go func() { ended <- b.Wait(ctx, 0) }()
	pause(c.ctx(), c.quiet())
	cancel()
	err := c.arrives(ended, "the end of a Wait whose context ended")
	if !errors.Is(err, context.Canceled) {
		c.Errorf("Wait whose context was cancelled gave %v, which does not wrap context.Canceled", err)
	}
	d := c.enqueue(c.s, k)
	w := c.waiting(d, 0)
	a.Leave()
	c.blocked(w, "a ticket behind one whose Wait was cancelled, but which did not leave")
	c.turn(c.waiting(b, 0), "a ticket that waits again after a cancelled Wait")
	b.Leave()
	c.turn(w, "the last ticket")
	d.Leave()
}

func queueLeavesNothing(c *check) {
	k := key("k")
	q, _ := store.AsQueuer(c.s)
	stands := func() bool {
		yes, err := q.Waiting(c.ctx(), k)
		if err != nil {
			c.Fatalf("Waiting failed: %v", err)
		}
		return yes
	}
	if stands() {
		c.Errorf("Waiting says that somebody stands in a line that nobody joined")
	}
	for range c.rounds(30) {
		t := c.enqueue(c.s, k)
		if !stands() {
			c.Errorf("Waiting says that nobody stands in line, but one does")
		}
		ended, cancel := context.WithCancel(c.ctx())
		cancel()
		_ = t.Wait(ended, 0)
		t.Leave()
	}
	if stands() {
		c.Errorf("Waiting says that somebody stands in line, but all have left")
	}
	c.absent(c.s, k)
	c.lists("", "")
}
