package storetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenure-project/tenure/store"
)

// SPEC ST14
func watchClauses() []Clause {
	const says = "Watch returns nil once the key may be at another version, at the latest a short while after the change."
	clauses := []Clause{{
		Rule: "ST14", Name: "watch-misses-nothing", Needs: store.CanWatch,
		Says: "The watch is in place before the driver compares the version: no change after the version was read is missed.",
		run: func(c *check) {
			k := key("k")
			old := c.create(c.s, k, "0")
			v := c.replace(c.s, k, "1", old)
			c.wakes(c.watching(c.s, k, old), "a Watch from a version that was replaced before")
			c.wakes(c.watching(c.s, key("absent"), v), "a Watch from a version of an absent key")
			c.wakes(c.watching(c.s, k, ""), "a Watch for the creation of a present key")
			// Changes at all kinds of instants of the call.
			for i := range c.rounds(100) {
				w := c.watching(c.s, k, v)
				pause(c.ctx(), time.Duration(i%10)*50*time.Microsecond)
				v = c.replace(c.s, k, fmt.Sprint(i), v)
				c.wakes(w, "a Watch with a Replace right after its start")
			}
		},
	}, {
		Rule: "ST14", Name: "watch-is-no-spinning", Needs: store.CanWatch,
		Says: "Watch waits without polling: it may return early for no reason, but not all the time.",
		run: func(c *check) {
			k := key("k")
			v := c.create(c.s, k, "0")
			w, _ := store.AsWatcher(c.s)
			ctx, cancel := context.WithTimeout(c.ctx(), 4*c.quiet())
			defer cancel()
			early := 0
			for ; ctx.Err() == nil; early++ {
				if err := w.Watch(ctx, k, v); err != nil && ctx.Err() == nil {
					c.Fatalf("Watch failed: %v", err)
				}
			}
			if early > 50 {
				c.Errorf("Watch returned %d times within %v although nothing changed", early, 4*c.quiet())
			}
		},
	}, {
		Rule: "ST14", Name: "watch-by-many", Needs: store.CanWatch, Says: says,
		run: func(c *check) {
			k := key("k")
			v := c.create(c.s, k, "0")
			var all []<-chan error
			for range c.rounds(200) {
				all = append(all, c.watching(c.s, k, v))
			}
			pause(c.ctx(), c.quiet())
			c.replace(c.s, k, "1", v)
			for _, w := range all {
				c.wakes(w, "one of many watches of a key that was replaced")
			}
		},
	}, {
		Rule: "ST13", Name: "watch-ends-with-its-context", Needs: store.CanWatch,
		Says: "Every call returns soon after its context ends.",
		run: func(c *check) {
			k := key("k")
			v := c.create(c.s, k, "0")
			ctx, cancel := context.WithCancel(c.ctx())
			ended := make(chan error, 1)
			go func() {
				w, _ := store.AsWatcher(c.s)
				for ctx.Err() == nil {
					_ = w.Watch(ctx, k, v)
				}
				ended <- w.Watch(ctx, k, v)
			}()
			pause(c.ctx(), c.quiet())
			cancel()
			err := c.arrives(ended, "the end of a Watch whose context ended")
			c.kind(err, store.ErrUnavailable, c.s, k, "Watch whose context ended")
		},
	}}
	for _, peers := range []bool{false, true} {
		name := "watch-wakes"
		if peers {
			name = "watch-wakes-for-others"
		}
		clauses = append(clauses, Clause{
			Rule: "ST14", Name: name, Needs: store.CanWatch, Peers: peers, Says: says,
			run: func(c *check) {
				writer := c.s
				if peers {
					writer = c.peer()
				}
				c.watchWakes(writer)
			},
		})
	}
	return clauses
}

// watchWakes watches through the store of the clause what writer does.
func (c *check) watchWakes(writer store.Store) {
	k := key("k")
	var v store.Version
	steps := []struct {
		what   string
		change func()
	}{
		{"Create", func() { v = c.create(writer, k, "0") }},
		{"Replace", func() { v = c.replace(writer, k, "1", v) }},
		{"Replace by the same bytes", func() { v = c.replace(writer, k, c.same("1"), v) }},
		{"Delete", func() { c.delete(writer, k); v = "" }},
		{"Create after a Delete", func() { v = c.create(writer, k, "2") }},
	}
	for _, step := range steps {
		w := c.watching(c.s, k, v)
		pause(c.ctx(), c.quiet())
		step.change()
		c.wakes(w, "a Watch of a key after "+step.what)
	}
}

// same is body, or something fresh if the driver cannot tell equal bytes apart.
func (c *check) same(body string) string {
	if c.s.Info().ContentVersions {
		return body + " again"
	}
	return body
}

// watching watches k from version v on until it is at another one, as callers
// do: after each return it reads and decides.
func (c *check) watching(s store.Store, k string, v store.Version) <-chan error {
	w, _ := store.AsWatcher(s)
	done := make(chan error, 1)
	go func() {
		for {
			if err := w.Watch(c.ctx(), k, v); err != nil {
				done <- err
				return
			}
			o, err := s.Get(c.ctx(), k, readLimit)
			if err != nil && !errors.Is(err, store.ErrNotFound) {
				done <- err
				return
			}
			if o.Version != v {
				done <- nil
				return
			}
		}
	}()
	return done
}

// wakes reports a breach unless the watch ends soon and without an error.
func (c *check) wakes(w <-chan error, what string) {
	c.Helper()
	if err := c.arrives(w, what); err != nil {
		c.Fatalf("%s failed: %v", what, err)
	}
}

// arrives waits for a result for as long as the suite allows.
func (c *check) arrives(result <-chan error, what string) error {
	c.Helper()
	t := time.NewTimer(c.h.Limit)
	defer t.Stop()
	select {
	case err := <-result:
		return err
	case <-t.C:
		c.Fatalf("%s did not come within %v", what, c.h.Limit)
		return nil
	}
}
