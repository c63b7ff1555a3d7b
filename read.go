package tenure

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/internal/settle"
	"github.com/tenure-project/tenure/store"
)

// found is what one look at the record showed.
type found struct {
	rec      *lease.Record // nil: never used, or removed by retention
	ver      store.Version
	at       time.Duration // boot clock after the response
	modified time.Time     // by the store's clock, zero where it has none
}

// read looks at the lease record of name once, linearizably. With an
// ErrRegressed it returns what it found as well.
func (c *Client) read(ctx context.Context, name string, limit time.Duration) (found, error) {
	key := c.leaseKey(name)
	// What is seen by others of this client while the read is under way says
	// nothing of it.
	seen := c.memory.highest(name)
	call, cancel := settle.Limit(ctx, c.clk, limit)
	defer cancel()
	o, err := c.st.Get(call, key, lease.MaxBody)
	f := found{ver: o.Version, at: c.clk.Boot(), modified: o.Modified}
	if errors.Is(err, store.ErrNotFound) {
		return f, c.checkAbsent(ctx, name, seen)
	}
	if err != nil {
		return f, err
	}
	if f.rec = c.decoded.get(name, o.Body); f.rec == nil {
		if f.rec, err = lease.Decode(key, name, o.Body); err != nil {
			return f, err
		}
		c.decoded.put(name, o.Body, f.rec)
	}
	return f, c.memory.check(name, seen, f.rec.Counter)
}

// list yields the keys under prefix. It ends with an error if the store does not
// come up with the next one within an attempt limit.
func (c *Client) list(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return settle.Keys(ctx, c.st, c.clk, c.timing.Defaults().Attempt, prefix, "")
}

// checkAbsent tells a name that was never used, or removed by retention (the
// floor is at or above its counter then), from one that a restored store lost.
func (c *Client) checkAbsent(ctx context.Context, name string, seen uint64) error {
	if seen == 0 {
		return nil
	}
	if c.lookOnly {
		if _, _, err := c.readSpace(ctx); errors.Is(err, store.ErrNotFound) {
			return c.memory.check(name, seen, 0) // the namespace is gone with the name
		}
	}
	floor, err := c.floor(ctx)
	if err != nil {
		return err
	}
	return c.memory.check(name, seen, floor)
}

// silentByStoreClock reports whether the record found is silent for longer than
// its TTL by the store's own clock, where an operator enabled that and the holder
// was granted by the same instance of the clock (LS3). Trouble means no.
func (c *Client) silentByStoreClock(ctx context.Context, f found, t lease.Timing) bool {
	clk, can := store.AsClocker(c.st)
	if !can || !c.usesStoreClock() || !f.rec.Held() || f.rec.Kind != lease.Self || f.rec.ClockInstance == "" || f.modified.IsZero() {
		return false
	}
	call, cancel := settle.Limit(ctx, c.clk, t.Attempt)
	defer cancel()
	now, err := clk.Now(call)
	if err != nil || now.Instance != f.rec.ClockInstance {
		return false
	}
	ttl := f.rec.TTL()
	margin := lease.Timing{TTL: ttl}.Defaults().Margin
	return now.Time.Sub(f.modified) > lease.Stretch(ttl, t.Rho)+margin
}

// clockInstance names the store's clock for a new record, empty where the
// namespace does not use it.
func (c *Client) clockInstance(ctx context.Context) (string, error) {
	clk, can := store.AsClocker(c.st)
	if !can || !c.usesStoreClock() {
		return "", nil
	}
	call, cancel := settle.Limit(ctx, c.clk, c.timing.Defaults().Attempt)
	defer cancel()
	now, err := clk.Now(call)
	return now.Instance, err
}

func (c *Client) usesStoreClock() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.space.StoreClock
}
