package storetest

import (
	"fmt"

	"github.com/tenure-project/tenure/store"
)

// SPEC ST13 ST16
func closeClauses() []Clause {
	return []Clause{{
		Rule: "ST16", Name: "acknowledged-writes-outlive-the-handle", Peers: true,
		Says: "Acknowledged means durable: a write that returned is there when the place is opened again.",
		run: func(c *check) {
			a := c.create(c.s, key("created"), "first")
			b := c.replace(c.s, key("replaced"), "second", c.create(c.s, key("replaced"), "first"))
			c.create(c.s, key("deleted"), "first")
			c.delete(c.s, key("deleted"))
			if err := c.s.Close(); err != nil {
				c.Errorf("Close: %v", err)
			}
			p := c.peer()
			c.state(p, key("created"), "first", a)
			c.state(p, key("replaced"), "second", b)
			c.absent(p, key("deleted"))
			c.replace(p, key("created"), "third", a)
		},
	}, {
		Rule: "ST13", Name: "close-ends-calls-in-flight",
		Says: "Close frees what the driver holds; calls in flight end, and one that comes too late does not hang.",
		run: func(c *check) {
			k := key("k")
			v := c.create(c.s, k, "0")
			pending := []<-chan error{}
			if _, ok := store.AsWatcher(c.s); ok {
				pending = append(pending, c.watching(c.s, k, v), c.watching(c.s, key("absent"), ""))
			}
			if _, ok := store.AsQueuer(c.s); ok {
				c.enqueue(c.s, k)
				pending = append(pending, c.waiting(c.enqueue(c.s, k), 0))
			}
			pause(c.ctx(), c.quiet())
			c.promptly("Close", func() {
				if err := c.s.Close(); err != nil {
					c.Errorf("Close: %v", err)
				}
			})
			for i, p := range pending {
				if err := c.arrives(p, fmt.Sprintf("the end of waiting call number %d after Close", i)); err == nil {
					c.Errorf("waiting call number %d ended without an error when its store was closed", i)
				}
			}
			for _, op := range c.keyOps(c.s) {
				c.promptly(op.name+" after Close", func() { _ = op.call(c.ctx(), k) })
			}
			if t, ok := store.AsCommitter(c.s); ok {
				c.promptly("Scan after Close", func() { _, _ = t.Scan(c.ctx(), c.all()) })
			}
			c.promptly("a second Close", func() { _ = c.s.Close() })
		},
	}}
}
