package storetest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

// Lost holds the harness's driver to the racing clauses while replies and
// requests get lost, writes land late or twice, and the store is now and then
// unavailable. Every caller settles what it does not know, as SPEC ST9 says: it
// reads, takes its own attempt id for a success and another for a loss, and
// sends the same again if nothing changed.
func Lost(t *testing.T, h Harness) {
	t.Helper()
	for _, cl := range lostClauses() {
		t.Run(cl.Rule+"/"+cl.Name, func(t *testing.T) {
			t.Parallel()
			runLost(t, h, cl)
		})
	}
}

// runLost puts the faults between the driver and the clause.
func runLost(t testing.TB, h Harness, cl Clause) {
	if cl.Peers && h.Peer == nil {
		t.Logf("not checked, the harness has no Peer: %s %s", cl.Rule, cl.Name)
		return
	}
	w := &lossy{inner: h, handles: map[store.Store]store.Store{}}
	h.Open, h.Peer = w.open, w.peer
	c := newCheck(t, h, cl)
	if !c.s.Info().Can.Has(cl.Needs) {
		t.Logf("not checked, the store lacks the power: %s %s", cl.Rule, cl.Name)
		return
	}
	cl.run(c)
	if !c.Failed() && w.met() == 0 {
		t.Error("storetest: no reply was lost; the clause has shown nothing")
	}
}

// lossy wraps the handles of a harness.
type lossy struct {
	inner   Harness
	seed    atomic.Uint64
	mu      sync.Mutex
	handles map[store.Store]store.Store // by wrapper: what it wraps
}

func (w *lossy) open(t testing.TB) store.Store { return w.wrap(w.inner.Open(t)) }

func (w *lossy) peer(t testing.TB, s store.Store) store.Store {
	w.mu.Lock()
	inner := w.handles[s]
	w.mu.Unlock()
	return w.wrap(w.inner.Peer(t, inner))
}

func (w *lossy) wrap(inner store.Store) store.Store {
	late := 20 * time.Millisecond
	if w.inner.Slow {
		late = 200 * time.Millisecond
	}
	rule := func(odds float64, f faultstore.Fault) faultstore.Rule {
		return faultstore.Rule{Odds: odds, Fault: f, Ops: []faultstore.Op{faultstore.OpCreate, faultstore.OpReplace, faultstore.OpDeleteIf, faultstore.OpCommit}}
	}
	s := faultstore.New(inner, faultstore.Options{Seed: w.seed.Add(1), Rules: []faultstore.Rule{
		rule(0.25, faultstore.LoseReply()),
		rule(0.10, faultstore.LoseRequest()),
		rule(0.10, faultstore.LandLate(0, late)),
		rule(0.10, faultstore.Duplicate(0, late)),
		{Odds: 0.10, Fault: faultstore.Fail(store.ErrUnavailable)},
	}})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.handles[s] = inner
	return s
}

// met is how many writes met the fault that the clauses are about.
func (w *lossy) met() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for s := range w.handles {
		n += s.(*faultstore.Store).Fired()[faultstore.LoseReply().String()]
	}
	return n
}

// SPEC ST9
// CASE B02 B20
func lostClauses() []Clause {
	return []Clause{{
		Rule: "ST9", Name: "create-has-one-winner",
		Says: "A reply can be lost after its write took effect; reading back settles it, and there is still one winner.",
		run:  func(c *check) { c.lostRace([]store.Store{c.s}, false) },
	}, {
		Rule: "ST9", Name: "replace-has-one-winner",
		Says: "A reply can be lost after its write took effect; reading back settles it, and there is still one winner.",
		run:  func(c *check) { c.lostRace([]store.Store{c.s}, true) },
	}, {
		Rule: "ST9", Name: "replace-has-one-winner-among-handles", Peers: true,
		Says: "A reply can be lost after its write took effect; reading back settles it, and there is still one winner.",
		run:  func(c *check) { c.lostRace([]store.Store{c.s, c.peer()}, true) },
	}, {
		Rule: "ST9", Name: "no-update-is-lost-or-doubled", Peers: true,
		Says: "A write whose outcome was unknown took effect once or never, and reading back tells which.",
		run:  func(c *check) { c.lostUpdates([]store.Store{c.s, c.peer()}) },
	}, {
		Rule: "ST9", Name: "delete-if-against-replace", Needs: store.CanDeleteIf,
		Says: "A DeleteIf whose outcome was unknown took effect once or never, and of it and Replace on one version one wins.",
		run:  lostDeletes,
	}, {
		Rule: "ST9", Name: "commit-is-all-or-nothing", Needs: store.CanCommit, Peers: true,
		Says: "A Commit whose outcome was unknown took effect as a whole once or never; reading back one of its keys tells which.",
		run:  lostCommits,
	}}
}

// found is what a settling reader made of the present state.
type found int

const (
	unchanged found = iota // as before the write: send it again
	mine
	another
)

// settle sends a write until it is known whether it took effect. look judges
// the state; an absent key has the zero Object.
func settle(ctx context.Context, s store.Store, k string, write func() error, look func(o store.Object) found) (bool, error) {
	doubt := false
	for range 1000 {
		err := write()
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, store.ErrUnavailable) && ctx.Err() == nil:
			continue
		case errors.Is(err, store.ErrUnknown):
			doubt = true
		case !isAny(err, []error{store.ErrExists, store.ErrConflict, store.ErrNotFound}):
			return false, err
		case !doubt:
			return false, nil // a clean refusal
		}
		o, err := s.Get(ctx, k, readLimit)
		for errors.Is(err, store.ErrUnavailable) && ctx.Err() == nil {
			o, err = s.Get(ctx, k, readLimit)
		}
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return false, err
		}
		if f := look(o); f != unchanged {
			return f == mine, nil
		}
	}
	return false, errors.New("the outcome stayed unknown")
}

// calm runs call until it is not unavailable; for preparations and checks.
func calm[T any](c *check, call func() (T, error)) T {
	c.Helper()
	for {
		v, err := call()
		if err == nil {
			return v
		}
		if !errors.Is(err, store.ErrUnavailable) || c.ctx().Err() != nil {
			c.Fatalf("a call beside the race failed: %v", err)
		}
	}
}

func (c *check) calmGet(k string) store.Object {
	c.Helper()
	return calm(c, func() (store.Object, error) { return c.s.Get(c.ctx(), k, readLimit) })
}

// prepare makes k exist with body, whatever gets lost.
func (c *check) prepare(k, body string) store.Version {
	c.Helper()
	_, err := settle(c.ctx(), c.s, k, func() error {
		_, err := c.s.Create(c.ctx(), k, []byte(body))
		return err
	}, func(o store.Object) found {
		if o.Version == "" {
			return unchanged
		}
		return mine
	})
	if err != nil {
		c.Fatalf("Create of %s before the race failed: %v", k, err)
	}
	return c.calmGet(k).Version
}

// lostRace races Create, or Replace of one version, with settling callers.
func (c *check) lostRace(handles []store.Store, replace bool) {
	ctx := c.ctx()
	for round := range c.rounds(30) {
		k, v := key(fmt.Sprintf("race-%d", round)), store.Version("")
		if replace {
			v = c.prepare(k, "start")
		}
		out := race(handles, func(s store.Store, i int) outcome {
			body := fmt.Sprintf("round %d racer %d", round, i)
			won, err := settle(ctx, s, k, func() error {
				if replace {
					_, err := s.Replace(ctx, k, []byte(body), v)
					return err
				}
				_, err := s.Create(ctx, k, []byte(body))
				return err
			}, lookFor(body, v))
			return lostOutcome(body, won, err)
		})
		if !c.oneLostWinner(k, out, c.calmGet(k)) {
			return
		}
	}
}

// lookFor judges a state by the body that the caller wrote over version v.
func lookFor(body string, v store.Version) func(store.Object) found {
	return func(o store.Object) found {
		switch {
		case o.Version != "" && string(o.Body) == body:
			return mine
		case o.Version == v:
			return unchanged
		}
		return another
	}
}

var errLost = errors.New("lost the race")

func lostOutcome(body string, won bool, err error) outcome {
	if err == nil && !won {
		err = errLost
	}
	return outcome{body: body, err: err}
}

// oneLostWinner reports a breach unless one racer won and o is what it wrote.
func (c *check) oneLostWinner(k string, out []outcome, o store.Object) bool {
	c.Helper()
	winners := []string{}
	for _, r := range out {
		if r.err == nil {
			winners = append(winners, r.body)
		} else if !errors.Is(r.err, errLost) {
			c.Errorf("a racer for %s could not settle its write: %v", k, r.err)
			return false
		}
	}
	if len(winners) != 1 {
		c.Errorf("%d of %d racers for %s found that they won: %q", len(winners), len(out), k, winners)
		return false
	}
	if got := string(o.Body); got != winners[0] {
		c.Errorf("after the race %s holds %q, but %q found that it won", k, got, winners[0])
		return false
	}
	return true
}

// lostUpdates lets workers count in slots of their own in one record, so that
// each finds its own writes under those of the others.
func (c *check) lostUpdates(handles []store.Store) {
	const workers = 4
	ctx, k, each := c.ctx(), key("counters"), c.rounds(25)
	c.prepare(k, strings.TrimSpace(strings.Repeat("0 ", workers)))
	errs := make([]error, workers)
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() { errs[i] = countInSlot(ctx, handles[i%len(handles)], k, i, each) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			c.Fatalf("a worker failed: %v", err)
		}
	}
	for i, n := range strings.Fields(string(c.calmGet(k).Body)) {
		if n != strconv.Itoa(each) {
			c.Errorf("worker %d added 1 to its counter %d times; it is %s", i, each, n)
		}
	}
}

// countInSlot adds 1 to slot number i n times.
func countInSlot(ctx context.Context, s store.Store, k string, i, n int) error {
	for done := 0; done < n; {
		o, err := s.Get(ctx, k, readLimit)
		if errors.Is(err, store.ErrUnavailable) && ctx.Err() == nil {
			continue
		}
		if err != nil {
			return err
		}
		slots := strings.Fields(string(o.Body))
		want := strconv.Itoa(done + 1)
		slots[i] = want
		body := []byte(strings.Join(slots, " "))
		won, err := settle(ctx, s, k, func() error {
			_, err := s.Replace(ctx, k, body, o.Version)
			return err
		}, func(now store.Object) found {
			switch {
			case strings.Fields(string(now.Body))[i] == want:
				return mine
			case now.Version == o.Version:
				return unchanged
			}
			return another
		})
		if err != nil {
			return err
		}
		if won {
			done++
		}
	}
	return nil
}

// lostDeletes races one DeleteIf against several Replaces. The create that
// prepared the key may land again after the delete, if its reply was lost: that
// is a new record, and the delete won all the same.
func lostDeletes(c *check) {
	const first = "start"
	ctx := c.ctx()
	d, _ := store.AsConditionalDeleter(c.s)
	for round := range c.rounds(60) {
		k := key(fmt.Sprintf("race-%d", round))
		v := c.prepare(k, first)
		out := race([]store.Store{c.s}, func(s store.Store, i int) outcome {
			if i == round%racers { // the order of start matters to some
				won, err := settle(ctx, s, k, func() error { return d.DeleteIf(ctx, k, v) }, func(o store.Object) found {
					switch {
					case o.Version == v:
						return unchanged
					case o.Version == "" || string(o.Body) == first: // nobody else deletes
						return mine
					}
					return another
				})
				return lostOutcome("", won, err)
			}
			body := fmt.Sprintf("round %d racer %d", round, i)
			won, err := settle(ctx, s, k, func() error {
				_, err := s.Replace(ctx, k, []byte(body), v)
				return err
			}, lookFor(body, v))
			return lostOutcome(body, won, err)
		})
		o, err := c.s.Get(ctx, k, readLimit)
		for errors.Is(err, store.ErrUnavailable) && ctx.Err() == nil {
			o, err = c.s.Get(ctx, k, readLimit)
		}
		if string(o.Body) == first && o.Version != v {
			o = store.Object{}
		}
		if !c.oneLostWinner(k, out, o) {
			return
		}
	}
}
