package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/tenure-project/tenure/store"
)

// SPEC SL2 SL4
func commitRaceClauses() []Clause {
	var clauses []Clause
	for _, peers := range []bool{false, true} {
		name := func(s string) string {
			if peers {
				return s + "-among-handles"
			}
			return s
		}
		clauses = append(clauses, Clause{
			Name: name("commit-has-one-winner"), Peers: peers,
			Says: "Of any number of commits over one version of one key, one wins, whatever other keys they name, and the others change nothing.",
			run:  func(c *check) { c.overlappingCommits(c.handles(peers)) },
		}, Clause{
			Name: name("commit-on-what-it-only-read"), Peers: peers,
			Says: "No other commit comes between a commit and the keys that it names with Keep: of two that each change what the other one keeps, one wins.",
			run:  func(c *check) { c.crossedCommits(c.handles(peers)) },
		}, Clause{
			Name: name("commit-is-atomic-against-single-writes"), Peers: peers,
			Says: "A Commit is linearizable with Create, Replace and DeleteIf: of them on one version one wins.",
			run:  func(c *check) { c.commitsAgainstWrites(c.handles(peers)) },
		}, Clause{
			Name: name("scan-sees-all-or-nothing"), Peers: peers,
			Says: "No reader, by Get or by Scan, sees a part of a commit.",
			run:  func(c *check) { c.readersOfCommits(c.handles(peers)) },
		})
	}
	for i := range clauses {
		clauses[i].Rule, clauses[i].Needs = "SL4", store.CanCommit
	}
	return clauses
}

// handles are the store and, if wanted, a second handle.
func (c *check) handles(peers bool) []store.Store {
	c.Helper()
	if peers {
		return []store.Store{c.s, c.peer()}
	}
	return []store.Store{c.s}
}

// tryCommit is a racer's commit.
func tryCommit(ctx context.Context, s store.Store, changes ...store.Change) error {
	t, _ := store.AsCommitter(s)
	_, err := again(ctx, func() (store.Version, error) {
		_, err := t.Commit(ctx, changes)
		return "", err
	})
	return err
}

// oneOf is the racer that won; it reports a breach unless there is exactly one,
// and the others lost by ErrConflict.
func (c *check) oneOf(what string, out []outcome) int {
	c.Helper()
	winner, n := -1, 0
	for i, o := range out {
		if o.err == nil {
			winner = i
			n++
		} else if !errors.Is(o.err, store.ErrConflict) {
			c.Errorf("a loser of the race for %s got %q of kind %q, want ErrConflict", what, o.err, store.KindOf(o.err))
		}
	}
	if n != 1 {
		c.Errorf("%d of %d racers for %s were told that they won", n, len(out), what)
	}
	return winner
}

// overlappingCommits races commits that share one key, here and there among
// others, which each pair of them shares too, in other orders.
func (c *check) overlappingCommits(handles []store.Store) {
	ctx := c.ctx()
	for round := range c.rounds(25) {
		name := func(i int) string { return key(fmt.Sprintf("race-%d-%d", round, i%racers)) }
		hot := key(fmt.Sprintf("race-%d-%d-hot", round, racers/2))
		v := c.create(c.s, hot, "start")
		present := map[string]store.Version{}
		for i := 0; i < racers; i += 2 {
			present[name(i)] = c.create(c.s, name(i), "start")
		}
		out := race(handles, func(s store.Store, i int) outcome {
			body := fmt.Sprintf("round %d racer %d", round, i)
			changes := []store.Change{}
			for j := range 3 {
				changes = append(changes, store.Change{Key: name(i + j), Over: present[name(i+j)], Body: []byte(body)})
			}
			own := store.Change{Key: hot, Over: v, Body: []byte(body)}
			if i%3 == 0 {
				own = store.Change{Key: hot, Over: v, Do: store.Remove}
			}
			changes = append(changes[:i%4], append([]store.Change{own}, changes[i%4:]...)...)
			return outcome{err: tryCommit(ctx, s, changes...)}
		})
		w := c.oneOf(hot, out)
		if c.Failed() {
			return
		}
		body := fmt.Sprintf("round %d racer %d", round, w)
		for i := range racers {
			mine := i == w || i == (w+1)%racers || i == (w+2)%racers
			c.holds(name(i), present[name(i)], mine, body)
		}
		if w%3 == 0 {
			c.absent(c.s, hot)
		} else {
			c.holds(hot, v, true, body)
		}
		if c.Failed() {
			return
		}
	}
}

// holds reports a breach unless k holds body, if changed, or is as it was.
func (c *check) holds(k string, before store.Version, changed bool, body string) {
	c.Helper()
	o, err := c.s.Get(c.ctx(), k, readLimit)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		c.Fatalf("Get(%s) failed: %v", k, err)
	}
	switch {
	case changed && (err != nil || string(o.Body) != body):
		c.Errorf("%s is one of the keys of the winner %q and holds %q: %v", k, body, o.Body, err)
	case !changed && o.Version != before:
		c.Errorf("%s is none of the keys of the winner %q, and went from version %q to %q, with the body %q", k, body, before, o.Version, o.Body)
	}
}

// crossedCommits races commits of which each changes what others only read: once
// with keys that are there, once with keys that are not.
func (c *check) crossedCommits(handles []store.Store) {
	ctx := c.ctx()
	for round := range c.rounds(25) {
		name := func(i int) string { return key(fmt.Sprintf("cross-%d-%d", round, i%2)) }
		versions := map[string]store.Version{}
		if round%2 == 0 {
			versions[name(0)], versions[name(1)] = c.create(c.s, name(0), "start"), c.create(c.s, name(1), "start")
		}
		out := race(handles, func(s store.Store, i int) outcome {
			// Two of a kind share a handle, if there are two handles.
			read, write := name(i/2), name(i/2+1)
			changes := []store.Change{
				{Key: read, Over: versions[read], Do: store.Keep},
				{Key: write, Over: versions[write], Body: fmt.Appendf(nil, "racer %d", i)},
			}
			if i%4 > 1 {
				changes[0], changes[1] = changes[1], changes[0]
			}
			return outcome{err: tryCommit(ctx, s, changes...)}
		})
		w := c.oneOf("keys that others only read", out)
		if c.Failed() {
			return
		}
		c.holds(name(w/2), versions[name(w/2)], false, "")
		c.holds(name(w/2+1), versions[name(w/2+1)], true, fmt.Sprintf("racer %d", w))
		if c.Failed() {
			return
		}
	}
}

// commitsAgainstWrites races one commit over three keys against single writes of
// each of them.
func (c *check) commitsAgainstWrites(handles []store.Store) {
	ctx := c.ctx()
	for round := range c.rounds(25) {
		name := func(what string) string { return key(fmt.Sprintf("single-%d-%s", round, what)) }
		made, replaced, removed := name("made"), name("replaced"), name("removed")
		vr, vd := c.create(c.s, replaced, "start"), c.create(c.s, removed, "start")
		turn := round % racers // the order of start matters to some
		out := race(handles, func(s store.Store, i int) outcome {
			body := fmt.Appendf(nil, "racer %d", i)
			_, err := again(ctx, func() (store.Version, error) {
				if i == turn {
					t, _ := store.AsCommitter(s)
					_, err := t.Commit(ctx, []store.Change{{Key: removed, Over: vd, Do: store.Remove}, {Key: replaced, Over: vr, Body: body}, {Key: made, Body: body}})
					return "", err
				}
				switch i % 3 {
				case 0:
					return s.Create(ctx, made, body)
				case 1:
					return s.Replace(ctx, replaced, body, vr)
				}
				return s.Replace(ctx, removed, body, vd)
			})
			return outcome{err: err}
		})
		wins := map[string]int{}
		for i, o := range out {
			switch what := []string{made, replaced, removed}[i%3]; {
			case o.err != nil && !isAny(o.err, []error{store.ErrConflict, store.ErrExists, store.ErrNotFound}):
				c.Errorf("a loser of the race for %s got %q of kind %q", what, o.err, store.KindOf(o.err))
			case o.err == nil && i == turn:
				wins[made]++
				wins[replaced]++
				wins[removed]++
			case o.err == nil:
				wins[what]++
			}
		}
		commit := out[turn].err == nil
		none := len(wins) == 0
		for what, n := range wins {
			if n > 1 {
				c.Errorf("%d racers for one state of %s were told that they won, the commit of three keys won: %v", n, what, commit)
			}
		}
		if none {
			c.Errorf("the commit of three keys was refused, and no write of any of them won")
		}
		if commit {
			c.absent(c.s, removed)
			c.holds(made, "", true, fmt.Sprintf("racer %d", turn))
			c.holds(replaced, vr, true, fmt.Sprintf("racer %d", turn))
		}
		if c.Failed() {
			return
		}
	}
}

// readersOfCommits lets writers set all keys to one number, each time a higher
// one, while readers look.
func (c *check) readersOfCommits(handles []store.Store) {
	const n, writers = 6, 3
	name := func(i int) string { return key(fmt.Sprintf("part-%d", i)) }
	changes := []store.Change{}
	for i := range n {
		changes = append(changes, store.Change{Key: name(i), Body: []byte("0000")})
	}
	c.commit(c.s, changes...)
	ctx, stop := context.WithCancel(c.ctx())
	defer stop()
	flaws := make(chan string, 2*writers+2)
	var wg, readers sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for range c.rounds(25) {
				if flaw := c.raiseAll(c.ctx(), handles[w%len(handles)]); flaw != "" {
					flaws <- flaw
					return
				}
			}
		})
	}
	for _, s := range handles {
		readers.Go(func() {
			last := ""
			for ctx.Err() == nil {
				got, flaw := c.oneNumber(c.ctx(), s)
				if flaw == "" && got < last {
					flaw = fmt.Sprintf("a Scan that began after one which saw %s saw %s", last, got)
				}
				last = got
				if flaw == "" {
					flaw = c.inOrder(c.ctx(), s, name(0), name(n-1))
				}
				if flaw != "" {
					flaws <- flaw
					return
				}
			}
		})
	}
	wg.Wait()
	stop()
	readers.Wait()
	select {
	case flaw := <-flaws:
		c.Errorf("%s", flaw)
	default:
	}
}

// lostCommits races commits that share one key, with settling callers: each
// reads that key alone, and the winner's other keys must agree with it.
func lostCommits(c *check) {
	ctx, handles := c.ctx(), []store.Store{c.s, c.peer()}
	for round := range c.rounds(30) {
		hot, own := key(fmt.Sprintf("race-%d", round)), func(i int) string { return key(fmt.Sprintf("race-%d-%d", round, i)) }
		v := c.prepare(hot, "start")
		w := c.prepare(own(racers), "start")
		out := race(handles, func(s store.Store, i int) outcome {
			body := fmt.Sprintf("round %d racer %d", round, i)
			t, _ := store.AsCommitter(s)
			won, err := settle(ctx, s, hot, func() error {
				_, err := t.Commit(ctx, []store.Change{
					{Key: own(i), Body: []byte(body)}, {Key: hot, Over: v, Body: []byte(body)}, {Key: own(racers), Over: w, Do: store.Remove},
				})
				return err
			}, lookFor(body, v))
			return lostOutcome(body, won, err)
		})
		if !c.oneLostWinner(hot, out, c.calmGet(hot)) {
			return
		}
		found := calm(c, func() ([]store.Keyed, error) {
			t, _ := store.AsCommitter(c.s)
			return t.Scan(ctx, store.ScanRange{From: hot + "-", To: hot + "0", Most: 2 * racers, Limit: readLimit})
		})
		for i, o := range out {
			there := slices.ContainsFunc(found, func(k store.Keyed) bool { return k.Key == own(i) && string(k.Body) == o.body })
			if there != (o.err == nil) {
				c.Errorf("racer %d found that it won: %v, but its other key was made: %v", i, o.err == nil, there)
			}
		}
		// The create that prepared it may land again once it is gone.
		if slices.ContainsFunc(found, func(k store.Keyed) bool { return k.Key == own(racers) && k.Version == w }) {
			c.Errorf("a racer found that it won, but the key that it removed is there")
		}
		if c.Failed() {
			return
		}
	}
}

// raiseAll adds 1 to the number that all keys hold.
func (c *check) raiseAll(ctx context.Context, s store.Store) string {
	t, _ := store.AsCommitter(s)
	for ctx.Err() == nil {
		found, err := t.Scan(ctx, c.all())
		if errors.Is(err, store.ErrUnavailable) {
			continue
		}
		if err != nil || len(found) == 0 {
			return fmt.Sprintf("Scan failed: %v", err)
		}
		number := 0
		_, _ = fmt.Sscanf(string(found[0].Body), "%d", &number)
		changes := []store.Change{}
		for _, k := range found {
			changes = append(changes, store.Change{Key: k.Key, Over: k.Version, Body: fmt.Appendf(nil, "%04d", number+1)})
		}
		switch err := tryCommit(ctx, s, changes...); {
		case err == nil:
			return ""
		case !errors.Is(err, store.ErrConflict):
			return fmt.Sprintf("Commit beside others failed: %v", err)
		}
	}
	return "the commits came to no end"
}

// oneNumber scans, in either direction, and says what is wrong if the keys do not
// agree.
func (c *check) oneNumber(ctx context.Context, s store.Store) (number, flaw string) {
	t, _ := store.AsCommitter(s)
	for _, backwards := range []bool{false, true} {
		r := c.all()
		r.Backwards = backwards
		found, err := t.Scan(ctx, r)
		if errors.Is(err, store.ErrUnavailable) {
			return number, ""
		}
		if err != nil || len(found) == 0 {
			return "", fmt.Sprintf("Scan beside commits gave %d objects: %v", len(found), err)
		}
		number = string(found[0].Body)
		for _, k := range found {
			if string(k.Body) != number {
				return "", fmt.Sprintf("one Scan shows %s at %s and %s at %s, which every commit sets to one number", found[0].Key, number, k.Key, k.Body)
			}
		}
	}
	return number, ""
}

// inOrder reads two keys one after the other: the second cannot be older.
func (c *check) inOrder(ctx context.Context, s store.Store, first, second string) string {
	a, err := s.Get(ctx, first, readLimit)
	if err != nil {
		return ""
	}
	b, err := s.Get(ctx, second, readLimit)
	if err == nil && string(b.Body) < string(a.Body) {
		return fmt.Sprintf("Get of %s gave %s after Get of %s gave %s, which every commit sets to one number", second, b.Body, first, a.Body)
	}
	return ""
}
