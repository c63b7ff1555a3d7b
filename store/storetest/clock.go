package storetest

import (
	"fmt"
	"time"

	"github.com/tenure-project/tenure/store"
)

// slack is how far two readings of one clock may disagree: some stores stamp
// writes in whole seconds. It still catches a time zone or another machine.
const slack = 2 * time.Second

// SPEC ST12
func clockClauses() []Clause {
	return []Clause{{
		Rule: "ST12", Name: "clock-runs-forward", Needs: store.CanClock,
		Says: "Now reads the store's own clock at some instant between call and return.",
		run: func(c *check) {
			before := c.now(c.s)
			for range c.rounds(50) {
				after := c.now(c.s)
				if after.Time.Before(before.Time) && after.Instance == before.Instance {
					c.Errorf("the clock %q went back from %v to %v", after.Instance, before.Time, after.Time)
				}
				before = after
			}
			start, local := c.now(c.s), time.Now()
			pause(c.ctx(), c.quiet())
			ran, limit := c.now(c.s).Time.Sub(start.Time), time.Since(local)
			if ran <= 0 || ran > limit+slack {
				c.Errorf("the clock moved by %v while %v passed", ran, limit)
			}
		},
	}, {
		Rule: "ST12", Name: "clock-has-an-instance", Needs: store.CanClock, Peers: true,
		Says: "A reading names its clock, and all processes that reach one place read that clock.",
		run: func(c *check) {
			here, there := c.now(c.s), c.now(c.peer())
			if here.Instance == "" || here.Instance != there.Instance {
				c.Errorf("two handles to one place name its clock %q and %q", here.Instance, there.Instance)
			}
			if d := there.Time.Sub(here.Time); d < -slack || d > slack {
				c.Errorf("two handles to one place read its clock %v apart", d)
			}
		},
	}, {
		Rule: "ST12", Name: "clock-stamps-writes", Needs: store.CanClock | store.CanModTime,
		Says: "The store's clock is the same that stamps Object.Modified.",
		run: func(c *check) {
			before := c.now(c.s).Time
			c.create(c.s, key("k"), "body")
			after := c.now(c.s).Time
			m := c.get(c.s, key("k")).Modified
			if m.Before(before.Add(-slack)) || m.After(after.Add(slack)) {
				c.Errorf("a write between %v and %v by the store's clock is stamped %v", before, after, m)
			}
		},
	}, {
		Rule: "ST3", Name: "modification-times", Needs: store.CanModTime,
		Says: "Get returns the store's modification time where it has one: it changes with each write and with nothing else.",
		run: func(c *check) {
			k := key("k")
			v := c.create(c.s, k, "0")
			last := c.get(c.s, k).Modified
			if last.IsZero() {
				c.Fatalf("Object.Modified is zero, but CanModTime is declared")
			}
			for i := range 5 {
				pause(c.ctx(), 5*time.Millisecond)
				if m := c.get(c.s, k).Modified; !m.Equal(last) {
					c.Errorf("Object.Modified went from %v to %v without a write", last, m)
				}
				v = c.replace(c.s, k, fmt.Sprint(i), v)
				m := c.get(c.s, k).Modified
				if m.Before(last) {
					c.Errorf("Object.Modified went back from %v to %v with a write", last, m)
				}
				last = m
			}
		},
	}}
}

func (c *check) now(s store.Store) store.Reading {
	c.Helper()
	clk, _ := store.AsClocker(s)
	r, err := clk.Now(c.ctx())
	if err != nil {
		c.Fatalf("Now failed: %v", err)
	}
	if r.Time.IsZero() {
		c.Fatalf("Now gave the zero time")
	}
	return r
}
