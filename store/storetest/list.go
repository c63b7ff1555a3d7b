package storetest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-project/tenure/store"
)

// SPEC ST6
func listClauses() []Clause {
	const order = "List yields the keys that start with prefix and are greater than after, in byte order."
	const fresh = "List shows every write that finished before it began."
	return []Clause{{
		Rule: "ST6", Name: "list-of-nothing", Says: order,
		run: func(c *check) {
			c.lists("", "")
			c.lists("n/", "")
			c.create(c.s, "m/k/a", "")
			c.lists("n/", "")
			c.lists("", "m/k/a")
		},
	}, {
		Rule: "ST6", Name: "list-order-prefix-and-after", Says: order,
		run: listSemantics,
	}, {
		Rule: "ST6", Name: "list-of-many-pages",
		Says: "List is ordered by key and yields any number of keys, fetching pages as it goes.",
		run:  listPages,
	}, {
		Rule: "ST6", Name: "list-shows-finished-writes", Says: fresh,
		run: func(c *check) { c.listFresh(c.s, c.s) },
	}, {
		Rule: "ST6", Name: "list-shows-finished-writes-of-others", Peers: true, Says: fresh,
		run: func(c *check) { c.listFresh(c.s, c.peer()) },
	}, {
		Rule: "ST6", Name: "list-stopped-early",
		Says: "A listing whose caller stops early frees what it holds: the store goes on working.",
		run: func(c *check) {
			c.fill(50)
			for i := range c.rounds(300) {
				n := 0
				for _, err := range c.s.List(c.ctx(), "", "") {
					if err != nil {
						c.Fatalf("listing number %d failed: %v", i, err)
					}
					if n++; n > i%3 {
						break
					}
				}
			}
			c.promptly("Create after 300 listings that were stopped early", func() { c.create(c.s, key("k"), "") })
			c.promptly("Close after listings that were stopped early", func() { _ = c.s.Close() })
		},
	}, {
		Rule: "ST6", Name: "list-while-its-caller-works",
		Says: "All methods may be used at the same time: the caller of a listing may read and write before it takes the next key.",
		run:  listAndWork,
	}, {
		Rule: "ST6", Name: "list-while-others-write",
		Says: "A key that is there for the whole listing is listed exactly once, whatever else is written meanwhile.",
		run:  listWhileWriting,
	}}
}

// lists reports a breach unless List(prefix, after) yields exactly want.
func (c *check) lists(prefix, after string, want ...string) {
	c.Helper()
	if got := c.list(c.s, prefix, after); !slices.Equal(got, want) {
		c.Errorf("List(%q, %q) gives %q, want %q", prefix, after, got, want)
	}
}

// listSemantics uses keys whose byte order differs from the order in which a
// file tree or a collation would show them: '-' < '/' < '0' < '=' < '_' < 'a'.
func listSemantics(c *check) {
	keys := []string{
		"n-x/k/a", "n/k-2/a", "n/k/a", "n/k/a-b", "n/k/a/b", "n/k/a0", "n/k/a=2e", "n/k/a_b", "n/k/aa", "n/k/ab/c", "n/k/b",
		"n/k0/a", "n/k=2f/a", "n0/k/a", "n=2f/k/a", "n_/k/a", "na/k/a",
	}
	if !slices.IsSorted(keys) {
		c.TB.Fatal("storetest: the keys of this clause are not in byte order")
	}
	for i := range keys { // in an order that is not theirs
		c.create(c.s, keys[i*7%len(keys)], "")
	}
	expect := func(prefix, after string) {
		want := []string{}
		for _, k := range keys {
			if strings.HasPrefix(k, prefix) && k > after {
				want = append(want, k)
			}
		}
		c.lists(prefix, after, want...)
	}
	prefixes := []string{"", "n", "n/", "n/k", "n/k/", "n/k/a", "n/k/a/", "n/k/aa", "n/k/zz", "m", "z", "n=", "n/k/a="}
	afters := []string{"", "a", "z", "n", "n/", "n/k", "n/k/", "n/k/a", "n/k/a-", "n/k/a/", "n/k/a/b", "n/k/a1", "n/k/aa", "n/k/b", "n=2f/k/a"}
	for _, prefix := range prefixes {
		for _, after := range afters {
			expect(prefix, after)
		}
	}
	for _, after := range keys {
		expect("", after)
		expect("n/k/", after)
	}
	// Whatever looks like a way out of the store leads nowhere.
	for _, prefix := range []string{"../", "/", "..", "n/../", "N/", "n/k/a%", "n/k/_", "*", "n/k/\\"} {
		for k, err := range c.s.List(c.ctx(), prefix, "") {
			if err == nil && !strings.HasPrefix(k, prefix) {
				c.Fatalf("List(%q, \"\") gives the key %q, which does not start so", prefix, k)
			}
		}
	}
}

// fill creates n keys and returns them in byte order.
func (c *check) fill(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = key(fmt.Sprintf("fill-%05d", i))
		c.create(c.s, keys[i], "")
	}
	return keys
}

func listPages(c *check) {
	n := 2500
	if c.h.Slow {
		n = 1200 // still more than one page of 1,000
	}
	keys := c.fill(n)
	c.create(c.s, "before/k/a", "")
	c.create(c.s, "z/k/a", "")
	prefix := store.Prefix("suite", "lease")
	compare := func(got, want []string, how string) {
		for i := range min(len(got), len(want)) {
			if got[i] != want[i] {
				c.Fatalf("%s: key number %d is %q, want %q", how, i, got[i], want[i])
			}
		}
		if len(got) != len(want) {
			c.Fatalf("%s: %d keys, want %d", how, len(got), len(want))
		}
	}
	compare(c.list(c.s, prefix, ""), keys, "List of all")
	compare(c.list(c.s, prefix, keys[999]), keys[1000:], "List after key number 999")
	compare(c.list(c.s, prefix, keys[n-2]), keys[n-1:], "List after the last but one")
	compare(c.list(c.s, prefix, keys[n-1]), nil, "List after the last")
	compare(c.list(c.s, "", ""), slices.Concat([]string{"before/k/a"}, keys, []string{"z/k/a"}), "List of everything")
}

// listFresh lists with reader what writer just wrote.
func (c *check) listFresh(writer, reader store.Store) {
	shown := func(k string) bool { return slices.Contains(c.list(reader, store.Prefix("suite", "lease"), ""), k) }
	for i := range c.rounds(30) {
		k := key(fmt.Sprintf("new-%d", i))
		v := c.create(writer, k, "")
		if !shown(k) {
			c.Fatalf("List does not show %s, whose Create had returned", k)
		}
		c.replace(writer, k, "x", v)
		if !shown(k) {
			c.Fatalf("List does not show %s, whose Replace had returned", k)
		}
		if i%2 == 0 {
			c.delete(writer, k)
			if shown(k) {
				c.Fatalf("List shows %s, whose Delete had returned", k)
			}
		}
	}
}

func listAndWork(c *check) {
	keys := c.fill(20)
	seen := 0
	for k, err := range c.s.List(c.ctx(), store.Prefix("suite", "lease"), "") {
		if err != nil {
			c.Fatalf("List failed after %d keys: %v", seen, err)
		}
		if seen++; k == keys[0] {
			c.promptly("Delete of a key beside a listing", func() { c.delete(c.s, k) })
			continue
		}
		c.promptly("Get, Replace and another listing beside a listing", func() {
			c.replace(c.s, k, "seen", c.get(c.s, k).Version)
			c.list(c.s, k, "")
		})
	}
	if seen != len(keys) {
		c.Errorf("a listing of %d keys gave %d while its caller replaced each and deleted the first", len(keys), seen)
	}
}

// listAndToggle lists, and when it is some way through creates or deletes a key
// that it has passed, so that pages which count keys slip.
func (c *check) listAndToggle(k string, create bool) (got []string) {
	c.Helper()
	for found, err := range c.s.List(c.ctx(), store.Prefix("suite", "lease"), "") {
		if err != nil {
			c.Fatalf("List failed after %d keys: %v", len(got), err)
		}
		if got = append(got, found); len(got) != 10 {
			continue
		}
		if create {
			c.create(c.s, k, "")
		} else {
			c.delete(c.s, k)
		}
	}
	return got
}

func listWhileWriting(c *check) {
	keys := c.fill(60)
	stop, done := make(chan struct{}), make(chan struct{})
	var failed error
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			k := keys[i%len(keys)] + "-extra"
			if _, err := c.s.Create(c.ctx(), k, nil); err != nil {
				failed = err
				return
			}
			if err := c.s.Delete(c.ctx(), k); err != nil {
				failed = err
				return
			}
		}
	}()
	for round := range c.rounds(30) {
		got := c.listAndToggle(keys[0]+"-toggled", round%2 == 0)
		if !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != len(got) {
			c.Errorf("a listing during writes is out of order or has a key twice: %q", got)
			break
		}
		for _, k := range keys {
			if _, found := slices.BinarySearch(got, k); !found {
				c.Errorf("a listing during writes lacks %s, which was there all the time", k)
			}
		}
		if c.Failed() {
			break
		}
	}
	close(stop)
	<-done
	if failed != nil {
		c.Errorf("a write beside a listing failed: %v", failed)
	}
}
