package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/tenure-project/tenure/store"
)

// SPEC ST1
func createClauses() []Clause {
	return []Clause{{
		Rule: "ST1", Name: "create-stores-an-absent-key",
		Says: "Create stores only if the key is absent; then Get gives that body and that version.",
		run: func(c *check) {
			v := c.create(c.s, key("new"), "body")
			c.state(c.s, key("new"), "body", v)
			c.absent(c.s, key("other"))
		},
	}, {
		Rule: "ST1", Name: "create-refuses-a-present-key",
		Says: "Create of a present key is ErrExists and changes nothing.",
		run: func(c *check) {
			v := c.create(c.s, key("k"), "first")
			for _, body := range []string{"second", "first", ""} {
				_, err := c.s.Create(c.ctx(), key("k"), []byte(body))
				c.kind(err, store.ErrExists, c.s, key("k"), "Create of a present key with the body %q", body)
				c.state(c.s, key("k"), "first", v)
			}
			w := c.replace(c.s, key("k"), "replaced", v)
			_, err := c.s.Create(c.ctx(), key("k"), []byte("third"))
			c.kind(err, store.ErrExists, c.s, key("k"), "Create of a replaced key")
			c.state(c.s, key("k"), "replaced", w)
		},
	}, {
		Rule: "ST1", Name: "create-works-after-delete",
		Says: "Create stores only if the key is absent; a deleted key is absent.",
		run: func(c *check) {
			c.create(c.s, key("k"), "first")
			c.delete(c.s, key("k"))
			c.state(c.s, key("k"), "second", c.create(c.s, key("k"), "second"))
		},
	}, {
		Rule: "ST1", Name: "create-has-one-winner",
		Says: "Create has one winner among any number of racers; each loser learns ErrExists, and the winner's body stays.",
		run:  func(c *check) { c.createRace([]store.Store{c.s}) },
	}, {
		Rule: "ST1", Name: "create-has-one-winner-among-handles", Peers: true,
		Says: "Create has one winner among any number of racers, whichever process they are in.",
		run:  func(c *check) { c.createRace([]store.Store{c.s, c.peer()}) },
	}}
}

// racers is how many callers race in each round.
const racers = 8

// outcome is what one racer saw.
type outcome struct {
	body    string
	version store.Version
	err     error
}

// race runs try in all racers at once, over the handles in turn.
func race(handles []store.Store, try func(s store.Store, racer int) outcome) []outcome {
	out := make([]outcome, racers)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range out {
		wg.Go(func() {
			<-start
			out[i] = try(handles[i%len(handles)], i)
		})
	}
	close(start)
	wg.Wait()
	return out
}

// again repeats a write that certainly did not happen (ErrUnavailable), as a
// store may answer under contention, a bounded number of times.
func again(ctx context.Context, write func() (store.Version, error)) (store.Version, error) {
	for i := 1; ; i++ {
		v, err := write()
		if !errors.Is(err, store.ErrUnavailable) || i == 20 || ctx.Err() != nil {
			return v, err
		}
		pause(ctx, time.Duration(i)*5*time.Millisecond)
	}
}

// pause waits for d or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

func (c *check) createRace(handles []store.Store) {
	ctx := c.ctx()
	for round := range c.rounds(60) {
		k := key(fmt.Sprintf("race-%d", round))
		out := race(handles, func(s store.Store, i int) outcome {
			body := fmt.Sprintf("round %d racer %d", round, i)
			v, err := again(ctx, func() (store.Version, error) { return s.Create(ctx, k, []byte(body)) })
			return outcome{body, v, err}
		})
		if !c.oneWinner(k, out, store.ErrExists) {
			return
		}
	}
}

// oneWinner reports a breach unless exactly one racer won, the others lost with
// one of the kinds given, and the key holds the winner's write.
func (c *check) oneWinner(k string, out []outcome, lost ...error) bool {
	c.Helper()
	var winners []outcome
	for _, o := range out {
		if o.err == nil {
			winners = append(winners, o)
			continue
		}
		if !isAny(o.err, lost) {
			c.Errorf("a loser of the race for %s got %q of kind %q, want %q", k, o.err, store.KindOf(o.err), lost)
			return false
		}
	}
	if len(winners) != 1 {
		names := []string{}
		for _, w := range winners {
			names = append(names, fmt.Sprintf("%q at version %q", w.body, w.version))
		}
		c.Errorf("%d of %d racers for %s were told that they won: %s", len(winners), len(out), k, strings.Join(names, ", "))
		return false
	}
	c.state(c.s, k, winners[0].body, winners[0].version)
	return !c.Failed()
}

func isAny(err error, kinds []error) bool {
	for _, k := range kinds {
		if errors.Is(err, k) {
			return true
		}
	}
	return false
}
