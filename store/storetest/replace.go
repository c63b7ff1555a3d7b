package storetest

import (
	"fmt"
	"strconv"
	"sync"

	"github.com/tenure-project/tenure/store"
)

// SPEC ST2
func replaceClauses() []Clause {
	return []Clause{{
		Rule: "ST2", Name: "replace-changes-the-exact-version",
		Says: "Replace stores if the key is at exactly the version named, and returns the new version.",
		run: func(c *check) {
			v := c.create(c.s, key("k"), "0")
			for i := range 10 {
				body := strconv.Itoa(i + 1)
				w := c.replace(c.s, key("k"), body, v)
				if w == v {
					c.Errorf("Replace returned the version %q that it replaced", v)
				}
				c.state(c.s, key("k"), body, w)
				v = w
			}
		},
	}, {
		Rule: "ST2", Name: "replace-refuses-another-version",
		Says: "Replace at another version is ErrConflict and changes nothing.",
		run: func(c *check) {
			old := c.create(c.s, key("k"), "first")
			v := c.replace(c.s, key("k"), "second", old)
			// The zero version must not become "no condition" on its way.
			for _, stale := range []store.Version{old, "", "no-such-version"} {
				_, err := c.s.Replace(c.ctx(), key("k"), []byte("stale"), stale)
				c.kind(err, store.ErrConflict, c.s, key("k"), "Replace of a key at version %q from the version %q", v, stale)
				c.state(c.s, key("k"), "second", v)
			}
		},
	}, {
		Rule: "ST2", Name: "replace-never-creates",
		Says: "Replace of an absent key is ErrNotFound, never a create.",
		run: func(c *check) {
			v := c.create(c.s, key("gone"), "body")
			c.delete(c.s, key("gone"))
			for _, k := range []string{key("gone"), key("never")} {
				for _, from := range []store.Version{v, "", "no-such-version"} {
					_, err := c.s.Replace(c.ctx(), k, []byte("body"), from)
					c.kind(err, store.ErrNotFound, c.s, k, "Replace of an absent key from the version %q", from)
					c.absent(c.s, k)
				}
			}
		},
	}, {
		Rule: "ST2", Name: "replace-has-one-winner",
		Says: "Of any number of racers that replace one version, one wins; each loser learns ErrConflict, and the winner's body stays.",
		run:  func(c *check) { c.replaceRace([]store.Store{c.s}) },
	}, {
		Rule: "ST2", Name: "replace-has-one-winner-among-handles", Peers: true,
		Says: "Of any number of racers that replace one version, one wins, whichever process they are in.",
		run:  func(c *check) { c.replaceRace([]store.Store{c.s, c.peer()}) },
	}, {
		Rule: "ST2", Name: "no-update-is-lost",
		Says: "Create and Replace are linearizable, and Get sees every write that was acknowledged before it began.",
		run:  func(c *check) { c.increments([]store.Store{c.s}) },
	}, {
		Rule: "ST2", Name: "no-update-is-lost-among-handles", Peers: true,
		Says: "Create and Replace are linearizable among all processes, and Get sees every write that was acknowledged before it began.",
		run:  func(c *check) { c.increments([]store.Store{c.s, c.peer()}) },
	}}
}

func (c *check) replaceRace(handles []store.Store) {
	ctx, k := c.ctx(), key("race")
	v := c.create(c.s, k, "start")
	for round := range c.rounds(60) {
		out := race(handles, func(s store.Store, i int) outcome {
			body := fmt.Sprintf("round %d racer %d", round, i)
			w, err := again(ctx, func() (store.Version, error) { return s.Replace(ctx, k, []byte(body), v) })
			return outcome{body, w, err}
		})
		if !c.oneWinner(k, out, store.ErrConflict) {
			return
		}
		v = c.get(c.s, k).Version
	}
}

// increments lets workers count one key up and checks the history: no count is
// lost, and no read goes back behind what was acknowledged before it began.
func (c *check) increments(handles []store.Store) {
	const workers = 4
	ctx, k, each := c.ctx(), key("counter"), c.rounds(40)
	h := newHistory()
	h.begin().wrote("", c.create(c.s, k, "0"))
	errs := make([]error, workers)
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() { errs[i] = increment(ctx, handles[i%len(handles)], k, each, h) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			c.Fatalf("a worker that counts %s up failed: %v", k, err)
		}
	}
	if got, want := string(c.get(c.s, k).Body), strconv.Itoa(workers*each); got != want {
		c.Errorf("%d workers added 1 to a counter %d times each; it is %s, want %s", workers, each, got, want)
	}
	if flaw := h.flaw(); flaw != "" {
		c.Errorf("%s", flaw)
	}
}
