package tenure

import (
	"context"
	"sync"
	"time"

	"github.com/tenure-project/tenure/internal/clock"
	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/internal/settle"
	"github.com/tenure-project/tenure/store"
)

// myTurn reports whether this acquirer may try for a lease that is free. Where
// the store keeps a line, a newcomer goes to its end, and one that is not first
// gives those before it a chance, bounded by patience (LS9). false means that
// time has passed: look again.
func (a *acquirer) myTurn(ctx context.Context, f found) (bool, error) {
	q, can := store.AsQueuer(a.c.st)
	if !can || a.first {
		return true, nil
	}
	if a.ticket == nil {
		call, cancel := settle.Limit(ctx, a.c.clk, a.req.timing.Attempt)
		busy, err := q.Waiting(call, a.c.leaseKey(a.name))
		cancel()
		if err != nil || !busy {
			return true, nil // a line that cannot be read is no reason to wait
		}
		if !a.wait {
			return a.gaveWay(ctx, f), nil
		}
		if !a.join(ctx, q) {
			return true, nil
		}
	}
	err := a.ticket.Wait(ctx, a.patience())
	switch {
	case err == nil:
		a.first = true
	case ctx.Err() == nil:
		a.lineBroke(err)
		err = nil
	}
	return false, err
}

// gaveWay lets those in line go first, once and for as long as patience says: one
// who does not wait is not faster than they, but they may be stopped, and would keep
// it from a lease that nobody takes (LS9).
func (a *acquirer) gaveWay(ctx context.Context, f found) bool {
	if a.yielded {
		return true
	}
	a.yielded = true
	ctx, cancel := settle.Limit(ctx, a.c.clk, a.patience())
	defer cancel()
	a.c.awaitChange(ctx, a.c.leaseKey(a.name), f.ver, a.patience())
	return false
}

// queueUp puts one who lost a race into the store's line, if there is one and it
// is not in it: whoever paused instead would meet the winner's next round.
func (a *acquirer) queueUp(ctx context.Context) bool {
	q, can := store.AsQueuer(a.c.st)
	return can && a.wait && a.ticket == nil && !a.first && a.join(ctx, q)
}

// patience is how long those before us in line may leave a free lease unused
// before we try for it: they may be stopped.
func (a *acquirer) patience() time.Duration {
	return max(min(a.req.timing.TTL/4, 500*time.Millisecond), 20*time.Millisecond)
}

// join takes a place in the store's line. A line that does not work is logged
// and done without: the conditional write decides anyway.
func (a *acquirer) join(ctx context.Context, q store.Queuer) bool {
	call, cancel := settle.Limit(ctx, a.c.clk, a.req.timing.Attempt)
	defer cancel()
	t, err := q.Enqueue(call, a.c.leaseKey(a.name))
	if err != nil {
		a.lineBroke(err)
		return false
	}
	a.ticket = t
	return true
}

func (a *acquirer) leaveQueue() {
	if a.ticket != nil {
		a.ticket.Leave()
	}
}

// waitFor blocks until the record may have changed, its holder may be proven
// gone, or the observation is ripe. The watch compares with the version found,
// so nothing that happens while this waiter takes its place in line is missed.
func (a *acquirer) waitFor(ctx context.Context, f found, ripeAt time.Duration) error {
	if q, can := store.AsQueuer(a.c.st); can && a.ticket == nil && !a.first {
		a.join(ctx, q)
	}
	if a.ticket != nil && !a.first {
		if err := a.waitInLine(ctx, ripeAt); err != nil || !a.first {
			return err
		}
		if _, can := store.AsWatcher(a.c.st); !can {
			return nil // look again rather than sleep first
		}
	}
	return a.watch(ctx, f, ripeAt)
}

// waitInLine waits for the front of the line, but returns after a TTL at the
// latest to look at the record itself: those in front may be stopped.
func (a *acquirer) waitInLine(ctx context.Context, ripeAt time.Duration) error {
	until := min(ripeAt, a.c.clk.Boot()+a.req.timing.TTL)
	wctx, cancel := a.c.bootLimit(ctx, until)
	defer cancel()
	err := a.ticket.Wait(wctx, 0)
	switch {
	case err == nil:
		a.first = true
		return nil
	case ctx.Err() != nil:
		return err
	case wctx.Err() == nil:
		a.lineBroke(err)
	}
	return nil
}

// lineBroke makes this acquirer poll as if there were no line.
func (a *acquirer) lineBroke(err error) {
	a.c.log.Warn("lease: the waiting line does not work, polling instead", "lease", a.name, "error", err)
	a.leaveQueue()
	a.ticket, a.first = nil, true
}

// bootLimit is a context that ends when the boot clock reaches until.
func (c *Client) bootLimit(ctx context.Context, until time.Duration) (context.Context, context.CancelFunc) {
	if until == never {
		return context.WithCancel(ctx)
	}
	return settle.Until(ctx, c.clk, until)
}

// watch waits for the record to change, by the store's watch or by polling, or
// for the holder's death where it can be proven, until ripeAt at the latest.
func (a *acquirer) watch(ctx context.Context, f found, ripeAt time.Duration) error {
	wctx, cancel := a.c.bootLimit(ctx, ripeAt)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	if p, can := store.AsProver(a.c.st); can && f.rec.Lock != nil && f.rec.Held() {
		wg.Go(func() {
			if p.WatchGone(wctx, f.rec.Lock.Mark) == nil {
				cancel()
			}
		})
	}
	if o := f.rec.Owner; o != nil && f.rec.Kind == lease.Session {
		over := a.vigilOver(ctx, *o)
		defer context.AfterFunc(over, cancel)()
	}
	a.c.awaitChange(wctx, a.c.leaseKey(a.name), f.ver, a.pollEvery())
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// awaitChange returns when key may be at another version than v, after a
// jittered poll interval where the store cannot watch, or when ctx ends.
func (c *Client) awaitChange(ctx context.Context, key string, v store.Version, poll time.Duration) {
	settle.Change(ctx, c.st, key, v, settle.Waiting{Clock: c.clk, Most: 2 * c.timing.Defaults().TTL, Poll: poll, Rand: c.rand, Log: c.log})
}

func (a *acquirer) pollEvery() time.Duration { return a.c.pollInterval(a.req.timing) }

func (c *Client) pollInterval(t lease.Timing) time.Duration {
	if c.poll > 0 {
		return c.poll
	}
	return min(max(t.TTL/15, 100*time.Millisecond), time.Second)
}

func (a *acquirer) pause(ctx context.Context, d time.Duration) bool {
	return clock.Sleep(a.c.clk, d/2+time.Duration(a.c.rand()*float64(d)), ctx.Done())
}
