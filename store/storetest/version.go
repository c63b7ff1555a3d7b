package storetest

import (
	"fmt"

	"github.com/tenure-project/tenure/store"
)

// SPEC ST4
// CASE B42
func versionClauses() []Clause {
	const says = "A version never comes back for a key, not even for equal bytes, not even after the key was deleted and made again."
	return []Clause{{
		Rule: "ST4", Name: "same-bytes-are-a-new-version", Says: says,
		run: func(c *check) {
			c.unique(func(k string, put func(body string), _ func()) {
				for range c.rounds(20) {
					put("same")
				}
			})
		},
	}, {
		Rule: "ST4", Name: "back-to-old-bytes-is-a-new-version", Says: says,
		run: func(c *check) {
			c.unique(func(k string, put func(body string), _ func()) {
				for range c.rounds(10) {
					put("A")
					put("B")
				}
			})
		},
	}, {
		Rule: "ST4", Name: "delete-and-create-is-a-new-version", Says: says,
		run: func(c *check) {
			c.unique(func(k string, put func(body string), remove func()) {
				for range c.rounds(20) {
					put("same")
					remove()
				}
				put("same")
				put("other")
				remove()
				put("same")
			})
		},
	}, {
		Rule: "ST4", Name: "an-old-version-is-worth-nothing-after-a-new-create",
		Says: "A version from before a key was deleted and made again neither replaces nor deletes the new record.",
		run: func(c *check) {
			k := key("k")
			old := c.create(c.s, k, "old")
			c.delete(c.s, k)
			v := c.create(c.s, k, "new")
			_, err := c.s.Replace(c.ctx(), k, []byte("stale"), old)
			c.kind(err, store.ErrConflict, c.s, k, "Replace from a version of an earlier life of the key")
			if d, ok := store.AsConditionalDeleter(c.s); ok {
				err := d.DeleteIf(c.ctx(), k, old)
				c.kind(err, store.ErrConflict, c.s, k, "DeleteIf at a version of an earlier life of the key")
			}
			c.state(c.s, k, "new", v)
		},
	}, {
		Rule: "ST4", Name: "versions-are-the-same-for-every-reader", Peers: true,
		Says: "A version marks one exact state: every process reads the version that the writer got, and can replace from it.",
		run: func(c *check) {
			p, k := c.peer(), key("k")
			v := c.create(c.s, k, "0")
			for i := range 5 {
				body := fmt.Sprint(i + 1)
				c.state(p, k, fmt.Sprint(i), v)
				v = c.replace(p, k, body, v)
				c.state(c.s, k, body, v)
				c.state(c.s, k, body, c.get(c.s, k).Version)
			}
		},
	}}
}

// unique runs a script of writes to one key and reports a breach if any of
// them, or any read in between, gives a version that an earlier state had. If
// the driver declares ContentVersions, every body gets something fresh, as
// callers of such a driver do.
func (c *check) unique(script func(k string, put func(body string), remove func())) {
	c.Helper()
	k := key("k")
	seen := map[store.Version]int{}
	var present store.Version
	writes := 0
	script(k, func(body string) {
		writes++
		if c.s.Info().ContentVersions {
			body = fmt.Sprintf("%s %d", body, writes)
		}
		if present == "" {
			present = c.create(c.s, k, body)
		} else {
			present = c.replace(c.s, k, body, present)
		}
		if first, twice := seen[present]; twice {
			c.Fatalf("write number %d to %s got version %q, as write number %d had", writes, k, present, first)
		}
		seen[present] = writes
		c.state(c.s, k, body, present)
	}, func() {
		c.delete(c.s, k)
		present = ""
	})
}
