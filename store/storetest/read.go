package storetest

import (
	"bytes"
	"strings"

	"github.com/tenure-project/tenure/store"
)

// SPEC ST3 ST7
func readClauses() []Clause {
	return []Clause{{
		Rule: "ST3", Name: "absent-is-not-found",
		Says: "Get of an absent key is ErrNotFound, and nothing else is.",
		run: func(c *check) {
			c.absent(c.s, key("never"))
			c.create(c.s, key("k"), "body")
			c.delete(c.s, key("k"))
			c.absent(c.s, key("k"))
			// What only looks like the key is not the key.
			c.create(c.s, "n/k/abc", "body")
			for _, k := range []string{"n", "n/k", "n/k/ab", "n/k/abcd", "n/k/abc/d"} {
				c.absent(c.s, k)
			}
		},
	}, {
		Rule: "ST3", Name: "keys-are-flat",
		Says: "A store is a flat map: a key that is the beginning of another is a key of its own.",
		run: func(c *check) {
			keys := []string{"n/k", "n/k/a", "n/k/a/b", "n"}
			versions := map[string]store.Version{}
			for _, k := range keys {
				versions[k] = c.create(c.s, k, "body of "+k)
			}
			for _, k := range keys {
				c.state(c.s, k, "body of "+k, versions[k])
			}
			c.delete(c.s, "n/k")
			c.absent(c.s, "n/k")
			c.state(c.s, "n/k/a", "body of n/k/a", versions["n/k/a"])
		},
	}, {
		Rule: "ST3", Name: "get-sees-acknowledged-writes-of-others", Peers: true,
		Says: "Get sees every write that was acknowledged before it began, whichever process wrote.",
		run: func(c *check) {
			p, k := c.peer(), key("k")
			v := c.create(c.s, k, "0")
			for range c.rounds(20) {
				c.state(p, k, "0", v)
				v = c.replace(p, k, "1", v)
				c.state(c.s, k, "1", v)
				c.delete(c.s, k)
				c.absent(p, k)
				v = c.create(p, k, "0")
				c.state(c.s, k, "0", v)
			}
		},
	}, {
		Rule: "ST3", Name: "body-is-kept-exactly",
		Says: "Get returns the body that was written, byte for byte.",
		run: func(c *check) {
			every := make([]byte, 256)
			for i := range every {
				every[i] = byte(i)
			}
			for i, body := range []string{"", "\x00", "\n", " x ", string(every), "\xff\xfe", "{\"a\":1}\r\n", strings.Repeat("0", 32<<10)} {
				k := key(strings.Repeat("k", i+1))
				v := c.create(c.s, k, body)
				c.state(c.s, k, body, v)
				c.state(c.s, k, body+"!", c.replace(c.s, k, body+"!", v))
			}
		},
	}, {
		Rule: "ST3", Name: "bodies-are-not-shared",
		Says: "A body belongs to its caller: what the caller does with it before or after a call changes no record.",
		run: func(c *check) {
			body := []byte("first")
			v, err := c.s.Create(c.ctx(), key("k"), body)
			if err != nil {
				c.Fatalf("Create failed: %v", err)
			}
			copy(body, "XXXXX")
			c.state(c.s, key("k"), "first", v)
			body = []byte("second")
			if v, err = c.s.Replace(c.ctx(), key("k"), body, v); err != nil {
				c.Fatalf("Replace failed: %v", err)
			}
			copy(body, "XXXXXX")
			got := c.get(c.s, key("k")).Body
			copy(got, "YYYYYY")
			_ = append(got, "more"...)
			c.state(c.s, key("k"), "second", v)
		},
	}, {
		Rule: "ST7", Name: "reads-are-bounded",
		Says: "A body longer than the limit of the reader is ErrCorrupt; one of exactly that length is not.",
		run: func(c *check) {
			k, body := key("k"), strings.Repeat("x", 1000)
			c.create(c.s, k, body)
			c.create(c.s, key("empty"), "")
			for _, limit := range []int{1000, 1001, 1 << 30} {
				if o, err := c.s.Get(c.ctx(), k, limit); err != nil || string(o.Body) != body {
					c.Errorf("Get of a body of 1000 bytes with the limit %d: %v, %d bytes", limit, err, len(o.Body))
				}
			}
			for _, limit := range []int{999, 1, 0} {
				o, err := c.s.Get(c.ctx(), k, limit)
				c.kind(err, store.ErrCorrupt, c.s, k, "Get of a body of 1000 bytes with the limit %d", limit)
				if len(o.Body) > 0 {
					c.Errorf("Get of a body above the limit %d gave %d bytes of it", limit, len(o.Body))
				}
			}
			if o, err := c.s.Get(c.ctx(), key("empty"), 0); err != nil || len(o.Body) != 0 {
				c.Errorf("Get of an empty body with the limit 0: %v, %d bytes", err, len(o.Body))
			}
		},
	}, {
		Rule: "ST7", Name: "largest-body",
		Says: "A store accepts bodies up to Info.MaxBody, which is at least 64 KiB; a larger one is ErrInvalid and nothing happened.",
		run:  largestBody,
	}}
}

func largestBody(c *check) {
	most := c.s.Info().MaxBody
	if most < 64<<10 {
		c.Fatalf("Info.MaxBody is %d", most)
	}
	if most > 64<<20 {
		c.Fatalf("Info.MaxBody is %d; a bound above 64 MiB cannot be checked, and no record needs it", most)
	}
	k, large := key("k"), bytes.Repeat([]byte("large!"), most/6+1)
	v, err := c.s.Create(c.ctx(), k, large[:most])
	if err != nil {
		c.Fatalf("Create of a body of Info.MaxBody (%d) bytes failed: %v", most, err)
	}
	_, err = c.s.Replace(c.ctx(), k, large[:most+1], v)
	c.kind(err, store.ErrInvalid, c.s, k, "Replace with a body of Info.MaxBody + 1 bytes")
	_, err = c.s.Create(c.ctx(), key("other"), large[:most+1])
	c.kind(err, store.ErrInvalid, c.s, key("other"), "Create with a body of Info.MaxBody + 1 bytes")
	c.absent(c.s, key("other"))
	o, err := c.s.Get(c.ctx(), k, most)
	if err != nil || !bytes.Equal(o.Body, large[:most]) || o.Version != v {
		c.Errorf("Get of a body of Info.MaxBody bytes: %v, %d bytes, version %q, want %d bytes, version %q", err, len(o.Body), o.Version, most, v)
	}
	_, err = c.s.Get(c.ctx(), k, most-1)
	c.kind(err, store.ErrCorrupt, c.s, k, "Get of the largest body with a limit one byte below it")
}
