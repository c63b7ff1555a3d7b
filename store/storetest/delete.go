package storetest

import (
	"errors"
	"fmt"

	"github.com/tenure-project/tenure/store"
)

// SPEC ST5
// CASE B18 B60 B61
func deleteClauses() []Clause {
	return []Clause{{
		Rule: "ST5", Name: "delete",
		Says: "Delete removes a key; Delete of an absent key succeeds.",
		run: func(c *check) {
			k := key("k")
			c.delete(c.s, k)
			c.create(c.s, k, "body")
			other := c.create(c.s, key("k2"), "other")
			c.delete(c.s, k)
			c.absent(c.s, k)
			c.delete(c.s, k)
			c.state(c.s, key("k2"), "other", other)
		},
	}, {
		Rule: "ST5", Name: "delete-if", Needs: store.CanDeleteIf,
		Says: "DeleteIf removes a key at exactly the version named; another version is ErrConflict, an absent key ErrNotFound, and neither changes anything.",
		run:  deleteIf,
	}, {
		Rule: "ST5", Name: "delete-if-has-one-winner", Needs: store.CanDeleteIf,
		Says: "Of any number of racers that delete one version, one wins; the others learn ErrNotFound or ErrConflict.",
		run: func(c *check) {
			c.deleteRace([]store.Store{c.s}, func(int) bool { return true })
		},
	}, {
		Rule: "ST5", Name: "delete-if-is-atomic-against-replace", Needs: store.CanDeleteIf,
		Says: "DeleteIf is atomic against Replace: of the two on one version one wins, and no acknowledged write is deleted.",
		run: func(c *check) {
			c.deleteRace([]store.Store{c.s}, func(i int) bool { return i%2 == 0 })
		},
	}, {
		Rule: "ST5", Name: "delete-if-is-atomic-among-handles", Needs: store.CanDeleteIf, Peers: true,
		Says: "DeleteIf is atomic against Replace, whichever process they come from.",
		run: func(c *check) {
			c.deleteRace([]store.Store{c.s, c.peer()}, func(i int) bool { return i/2%2 == 0 })
		},
	}}
}

func deleteIf(c *check) {
	d, _ := store.AsConditionalDeleter(c.s)
	k := key("k")
	err := d.DeleteIf(c.ctx(), k, "no-such-version")
	c.kind(err, store.ErrNotFound, c.s, k, "DeleteIf of a key that never was")
	old := c.create(c.s, k, "first")
	v := c.replace(c.s, k, "second", old)
	for _, stale := range []store.Version{old, "", "no-such-version"} {
		err := d.DeleteIf(c.ctx(), k, stale)
		c.kind(err, store.ErrConflict, c.s, k, "DeleteIf of a key at version %q at the version %q", v, stale)
		c.state(c.s, k, "second", v)
	}
	if err := d.DeleteIf(c.ctx(), k, v); err != nil {
		c.Fatalf("DeleteIf at the present version failed: %v", err)
	}
	c.absent(c.s, k)
	err = d.DeleteIf(c.ctx(), k, v)
	c.kind(err, store.ErrNotFound, c.s, k, "a second DeleteIf at the same version")
	c.state(c.s, k, "third", c.create(c.s, k, "third"))
}

// deleteRace races DeleteIf against Replace; deletes picks who deletes, in turn.
func (c *check) deleteRace(handles []store.Store, deletes func(turn int) bool) {
	ctx := c.ctx()
	for round := range c.rounds(60) {
		k := key(fmt.Sprintf("race-%d", round))
		v := c.create(c.s, k, "start")
		out := race(handles, func(s store.Store, i int) outcome {
			if deletes(i + round) { // the order of start matters to some
				d, _ := store.AsConditionalDeleter(s)
				_, err := again(ctx, func() (store.Version, error) { return "", d.DeleteIf(ctx, k, v) })
				return outcome{err: err}
			}
			body := fmt.Sprintf("round %d racer %d", round, i)
			w, err := again(ctx, func() (store.Version, error) { return s.Replace(ctx, k, []byte(body), v) })
			return outcome{body, w, err}
		})
		if !c.deleteOutcome(k, out) {
			return
		}
	}
}

// deleteOutcome reports a breach unless one racer won and the key agrees.
func (c *check) deleteOutcome(k string, out []outcome) bool {
	for _, o := range out {
		if o.err != nil || o.version != "" {
			continue
		}
		// A delete won. Then nothing else did, and the key is gone.
		winners := 0
		for _, p := range out {
			if p.err == nil {
				winners++
			} else if !errors.Is(p.err, store.ErrNotFound) && !errors.Is(p.err, store.ErrConflict) {
				c.Errorf("a loser of the race for %s got %q of kind %q, want ErrNotFound or ErrConflict", k, p.err, store.KindOf(p.err))
			}
		}
		if winners != 1 {
			c.Errorf("%d of %d racers that deleted or replaced one version of %s were told that they won", winners, len(out), k)
		}
		c.absent(c.s, k)
		return !c.Failed()
	}
	return c.oneWinner(k, out, store.ErrConflict)
}
