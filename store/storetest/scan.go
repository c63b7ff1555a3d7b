package storetest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-project/tenure/store"
)

// SPEC SL4 ST3 ST6 ST7
func scanClauses() []Clause {
	clauses := []Clause{{
		Name: "scan-is-in-byte-order",
		Says: "Scan returns the objects whose keys are in the range, from the least upwards or from the greatest downwards, in byte order, at most as many as wanted.",
		run:  scanOrder,
	}, {
		Name: "scan-of-nothing",
		Says: "No key in the range is an empty answer and no error.",
		run: func(c *check) {
			r := c.all()
			c.found(c.scan(c.s, r))
			c.create(c.s, key("k"), "body")
			for _, bounds := range [][2]string{{key("k"), key("k")}, {key("a"), key("k")}, {key("k-"), key("z")}, {"", ""[:0] + "s"}, {"z", "z0"}} {
				r.From, r.To = bounds[0], bounds[1]
				for _, r.Backwards = range []bool{false, true} {
					c.found(c.scan(c.s, r))
				}
			}
		},
	}, {
		Name: "scan-is-bounded",
		Says: "A body longer than the limit of the reader is ErrCorrupt; one of exactly that length is not, nor one that is not returned.",
		run:  scanLimits,
	}, {
		Name: "scan-of-a-bad-range",
		Says: "A range that makes no sense is ErrInvalid.",
		run: func(c *check) {
			t, _ := store.AsCommitter(c.s)
			good := c.all()
			for what, edit := range map[string]func(r *store.ScanRange){
				"no objects wanted":        func(r *store.ScanRange) { r.Most = 0 },
				"fewer than none wanted":   func(r *store.ScanRange) { r.Most = -1 },
				"too many objects wanted":  func(r *store.ScanRange) { r.Most = store.MaxScan + 1 },
				"a negative limit":         func(r *store.ScanRange) { r.Limit = -1 },
				"no upper bound":           func(r *store.ScanRange) { r.To = "" },
				"bounds upside down":       func(r *store.ScanRange) { r.From, r.To = r.To, r.From },
				"a bound with a NUL":       func(r *store.ScanRange) { r.From = "a\x00" },
				"a bound above all keys":   func(r *store.ScanRange) { r.To = "~" },
				"a bound that is too long": func(r *store.ScanRange) { r.To = strings.Repeat("z", 801) },
			} {
				r := good
				edit(&r)
				_, err := t.Scan(c.ctx(), r)
				c.kind(err, store.ErrInvalid, c.s, "", "Scan with %s", what)
			}
		},
	}, {
		Name: "scan-sees-acknowledged-writes-of-others", Peers: true,
		Says: "Scan shows every write that was acknowledged before it began, whichever process wrote.",
		run: func(c *check) {
			p, k := c.peer(), key("k")
			want := func(s store.Store, body string, v store.Version) {
				c.found(c.scan(s, c.all()), store.Keyed{Key: k, Object: store.Object{Body: []byte(body), Version: v}})
			}
			v := c.create(c.s, k, "0")
			for range c.rounds(20) {
				want(p, "0", v)
				v = c.replace(p, k, "1", v)
				want(c.s, "1", v)
				v = c.commit(c.s, store.Change{Key: k, Over: v, Body: []byte("2")})[0]
				want(p, "2", v)
				c.commit(p, store.Change{Key: k, Over: v, Do: store.Remove})
				c.found(c.scan(c.s, c.all()))
				v = c.commit(c.s, store.Change{Key: k, Body: []byte("0")})[0]
			}
		},
	}}
	for i := range clauses {
		clauses[i].Rule, clauses[i].Needs = "SL4", store.CanCommit
	}
	return clauses
}

// all is the range of the suite's keys.
func (c *check) all() store.ScanRange {
	prefix := store.Prefix("suite", "lease")
	return store.ScanRange{From: prefix, To: store.PrefixEnd(prefix), Most: store.MaxScan, Limit: readLimit}
}

func (c *check) scan(s store.Store, r store.ScanRange) []store.Keyed {
	c.Helper()
	t, _ := store.AsCommitter(s)
	found, err := t.Scan(c.ctx(), r)
	if err != nil {
		c.Fatalf("Scan(%q, %q) failed: %v", r.From, r.To, err)
	}
	return found
}

// found reports a breach unless a scan gave exactly these objects.
func (c *check) found(got []store.Keyed, want ...store.Keyed) {
	c.Helper()
	if len(got) != len(want) {
		c.Fatalf("Scan gave %d objects, want %d: %v, want %v", len(got), len(want), keysOf(got), keysOf(want))
	}
	for i, w := range want {
		switch g := got[i]; {
		case g.Key != w.Key:
			c.Fatalf("Scan gave %q as number %d, want %q: %v, want %v", g.Key, i, w.Key, keysOf(got), keysOf(want))
		case g.Version != w.Version || !bytes.Equal(g.Body, w.Body):
			c.Fatalf("Scan gave %s at version %q with the body %s, want version %q with %s", g.Key, g.Version, brief(string(g.Body)), w.Version, brief(string(w.Body)))
		}
	}
}

func keysOf(found []store.Keyed) []string {
	keys := []string{}
	for _, k := range found {
		keys = append(keys, k.Key)
	}
	return keys
}

// scanOrder scans from and to everything that is a key, or between keys.
func scanOrder(c *check) {
	keys := []string{"n", "n/k", "n/k/-", "n/k/0", "n/k/00", "n/k/1", "n/k/10", "n/k/2", "n/k/=", "n/k/_", "n/k/a", "n/k/a-", "n/k/a/b", "n/k/a0", "n/k/aa", "n/k/z", "n/k0", "n/ka", "n0", "o"}
	whole := []store.Keyed{}
	for i, k := range keys {
		c.create(c.s, keys[(i*7)%len(keys)], "of "+keys[(i*7)%len(keys)]) // 7 has no part in 20
		whole = append(whole, store.Keyed{Key: k})
	}
	for i := range whole {
		whole[i].Object = c.get(c.s, whole[i].Key)
	}
	if !slices.IsSorted(keys) {
		c.TB.Fatal("storetest: the keys are not in byte order")
	}
	bounds := append([]string{"", "m", "n/", "n/k/", "n/k/b", "n/k/zz", "n1", "zzz"}, keys...)
	slices.Sort(bounds)
	for i, from := range bounds {
		for _, to := range bounds[i:] {
			if to == "" {
				continue
			}
			want := slices.DeleteFunc(slices.Clone(whole), func(k store.Keyed) bool { return k.Key < from || k.Key >= to })
			back := slices.Clone(want)
			slices.Reverse(back)
			for _, most := range []int{1, len(keys)} {
				c.found(c.scan(c.s, store.ScanRange{From: from, To: to, Most: most, Limit: 100}), want[:min(most, len(want))]...)
				c.found(c.scan(c.s, store.ScanRange{From: from, To: to, Most: most, Limit: 100, Backwards: true}), back[:min(most, len(back))]...)
			}
		}
	}
	c.found(c.scan(c.s, store.ScanRange{To: "z", Most: store.MaxScan, Limit: 100}), whole...)
	if c.s.Info().Can.Has(store.CanModTime) {
		for i, k := range c.scan(c.s, store.ScanRange{To: "z", Most: len(keys), Limit: 100}) {
			if !k.Modified.Equal(whole[i].Modified) {
				c.Errorf("Scan says that %s was modified at %v, Get says %v", k.Key, k.Modified, whole[i].Modified)
			}
		}
	}
}

func scanLimits(c *check) {
	t, _ := store.AsCommitter(c.s)
	size := map[string]int{key("a"): 10, key("b"): 1000, key("c"): 0, key("d"): 999}
	for k, n := range size {
		c.create(c.s, k, strings.Repeat("x", n))
	}
	r := c.all()
	for _, r.Limit = range []int{1000, 1001, 1 << 30} {
		if got := c.scan(c.s, r); len(got) != len(size) || len(got[1].Body) != 1000 {
			c.Errorf("Scan with the limit %d gave %v", r.Limit, keysOf(got))
		}
	}
	for _, r.Limit = range []int{999, 10, 0} {
		_, err := t.Scan(c.ctx(), r)
		named := key("b")
		if r.Limit == 0 {
			named = "" // the first one found, or another
		}
		c.kind(err, store.ErrCorrupt, c.s, named, "Scan of a body of 1000 bytes with the limit %d", r.Limit)
	}
	// What is not returned is not too long.
	r.Limit, r.Most = 10, 1
	if got := c.scan(c.s, r); len(got) != 1 || got[0].Key != key("a") {
		c.Errorf("Scan of the first object gave %v", keysOf(got))
	}
	r.From, r.To, r.Most, r.Limit = key("c"), key("d"), 10, 0
	if got := c.scan(c.s, r); len(got) != 1 || len(got[0].Body) != 0 {
		c.Errorf("Scan of an empty body with the limit 0 gave %v", keysOf(got))
	}
}

// fillRange creates n keys of the suite with bodies of size bytes, some at a time.
func fillRange(commit func(changes []store.Change) error, n, size int) error {
	body := bytes.Repeat([]byte("x"), size)
	for i := 0; i < n; {
		changes := []store.Change{}
		for ; i < n && len(changes) < store.MaxChanges; i++ {
			changes = append(changes, store.Change{Key: key(fmt.Sprintf("row-%05d", i)), Body: body})
		}
		if err := commit(changes); err != nil {
			return err
		}
	}
	return nil
}
