package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
	"github.com/tenure-project/tenure/store/filestore"
	"github.com/tenure-project/tenure/store/memstore"
	"github.com/tenure-project/tenure/store/sqlstore"
)

// linearPlace opens a fresh place and returns what opens handles to it.
type linearPlace struct {
	name  string
	fresh func(t *testing.T) (open func() store.Store)
}

func linearPlaces() []linearPlace {
	return []linearPlace{
		{"mem", func(*testing.T) func() store.Store {
			m := memstore.New()
			return func() store.Store { return m.Peer() }
		}},
		{"file", func(t *testing.T) func() store.Store {
			path := filepath.Join(t.TempDir(), "store")
			return func() store.Store { return opened(filestore.Open(path))(t) }
		}},
		{"sqlite", func(t *testing.T) func() store.Store {
			path := filepath.Join(t.TempDir(), "store.db")
			return func() store.Store { return opened(sqlstore.OpenSQLite(context.Background(), path))(t) }
		}},
	}
}

func opened[S store.Store](s S, err error) func(t *testing.T) store.Store {
	return func(t *testing.T) store.Store {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
}

// lossyRules is a network on which replies and requests get lost, writes land
// late, and calls fail or dawdle.
func lossyRules() []faultstore.Rule {
	return []faultstore.Rule{
		{Odds: 0.08, Fault: faultstore.LoseReply()},
		{Odds: 0.04, Fault: faultstore.LoseRequest()},
		{Odds: 0.06, Fault: faultstore.LandLate(0, 10*time.Millisecond)},
		{Odds: 0.05, Fault: faultstore.Fail(store.ErrUnavailable)},
		{Odds: 0.10, Fault: faultstore.Delay(0, 2*time.Millisecond)},
		{Odds: 0.10, Fault: faultstore.DelayReply(0, 2*time.Millisecond)},
		{Odds: 0.10, Ops: []faultstore.Op{faultstore.OpReplace, faultstore.OpDeleteIf}, Fault: faultstore.Duplicate(0, 10*time.Millisecond)},
	}
}

// linearRun is one run of clients against one place.
type linearRun struct {
	open    func() store.Store
	rules   []faultstore.Rule
	seed    uint64
	deletes bool // also unconditional ones
}

// run lets four clients over two handles call three keys, then reads each key
// once more over a sound handle, and returns the history.
func (l linearRun) run(t *testing.T) *linearHistory {
	const clients, calls, keys = 4, 40, 3
	h := &linearHistory{keys: map[string]bool{}}
	shared := faultstore.NewHistory()
	handles := []*faultstore.Store{}
	for i := range 2 {
		handles = append(handles, faultstore.New(l.open(), faultstore.Options{Seed: l.seed*2 + uint64(i), Rules: l.rules, History: shared}))
	}
	var wg sync.WaitGroup
	for i := range clients {
		c := &linearClient{
			id: i, s: handles[i%len(handles)], h: h, random: rand.New(rand.NewPCG(l.seed, uint64(i))),
			seen: map[string]store.Version{}, deletes: l.deletes, keys: keys,
		}
		wg.Go(func() {
			for range calls {
				c.step(t.Context())
			}
		})
	}
	wg.Wait()
	for _, s := range handles {
		s.Land()
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	sound := l.open()
	defer sound.Close()
	last := &linearClient{id: clients, s: sound, h: h, seen: map[string]store.Version{}}
	for i := range keys {
		last.get(t.Context(), linearKey(i))
	}
	return h
}

func linearKey(i int) string { return store.Key("sim", "lease", fmt.Sprint(i)) }

// linearClient makes one call after the other. It remembers the last version of
// each key that it saw, and acts on it also when it is old.
type linearClient struct {
	id      int
	s       store.Store
	h       *linearHistory
	random  *rand.Rand
	seen    map[string]store.Version
	made    int
	deletes bool
	keys    int
}

func (c *linearClient) step(ctx context.Context) {
	if c.random.IntN(8) == 0 { // somebody who does not wait long
		limited, cancel := context.WithTimeout(ctx, time.Duration(c.random.IntN(3000))*time.Microsecond)
		defer cancel()
		ctx = limited
	}
	k := linearKey(c.random.IntN(c.keys))
	switch n := c.random.IntN(20); {
	case n < 6 || c.seen[k] == "" && n < 10:
		c.get(ctx, k)
	case n < 9 || c.seen[k] == "":
		c.write(ctx, linearOp{kind: "create", key: k, body: c.body()})
	case n < 17:
		c.write(ctx, linearOp{kind: "replace", key: k, body: c.body(), from: c.seen[k]})
	case n < 19 || !c.deletes:
		c.write(ctx, linearOp{kind: "delete-if", key: k, from: c.seen[k]})
	default:
		c.write(ctx, linearOp{kind: "delete", key: k})
	}
}

func (c *linearClient) body() string {
	c.made++
	return fmt.Sprintf("client %d write %d", c.id, c.made)
}

func (c *linearClient) get(ctx context.Context, k string) {
	_ = c.h.call(c.id, linearOp{kind: "get", key: k}, func() (string, store.Version, error) {
		o, err := c.s.Get(ctx, k, 1<<20)
		if err == nil {
			c.seen[k] = o.Version
		}
		return string(o.Body), o.Version, err
	})
}

func (c *linearClient) write(ctx context.Context, op linearOp) {
	_ = c.h.call(c.id, op, func() (string, store.Version, error) {
		var v store.Version
		var err error
		switch op.kind {
		case "create":
			v, err = c.s.Create(ctx, op.key, []byte(op.body))
		case "replace":
			v, err = c.s.Replace(ctx, op.key, []byte(op.body), op.from)
		case "delete":
			err = c.s.Delete(ctx, op.key)
		case "delete-if":
			d, _ := store.AsConditionalDeleter(c.s)
			err = d.DeleteIf(ctx, op.key, op.from)
		}
		if err == nil && v != "" {
			c.seen[op.key] = v
		}
		return "", v, err
	})
}

// Every driver is one linearizable register per key, for callers over several
// handles, on a good network and on a bad one.
//
// SPEC ST1 ST2 ST3 ST5 ST9
// CASE B02 B24
func TestDriversAreLinearizable(t *testing.T) {
	t.Parallel()
	for _, p := range linearPlaces() {
		for name, rules := range map[string][]faultstore.Rule{"sound": nil, "lossy": lossyRules()} {
			t.Run(p.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				for seed := range uint64(6) {
					h := linearRun{open: p.fresh(t), rules: rules, seed: seed, deletes: true}.run(t)
					if got := h.check(20 * time.Second); got != porcupine.Ok {
						t.Errorf("seed %d: the history of %d calls is %s, want linearizable", seed, len(h.ops), got)
					}
				}
			})
		}
	}
}

// The checker finds every kind of breach that faultstore can make: a store that
// passes it has shown something.
//
// CASE B21 B82
func TestCheckerFindsBreaches(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		rule faultstore.Rule
	}{
		{"conditions ignored now and then", faultstore.Rule{Odds: 0.1, Fault: faultstore.IgnoreCondition()}},
		{"conditions torn", faultstore.Rule{Odds: 0.5, Fault: faultstore.TearCondition(time.Millisecond)}},
		{"reads stale now and then", faultstore.Rule{Odds: 0.1, Fault: faultstore.StaleRead(1)}},
		{"the driver repeats its own writes", faultstore.Rule{Odds: 0.1, Fault: faultstore.RetrySelf()}},
		{"bodies swapped", faultstore.Rule{Odds: 0.1, Fault: faultstore.SwapBody(linearKey(0))}},
		{"refusals invented", faultstore.Rule{Odds: 0.1, Ops: []faultstore.Op{faultstore.OpReplace}, Fault: faultstore.Fail(store.ErrConflict)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(5) {
				m := memstore.New()
				h := linearRun{open: func() store.Store { return m.Peer() }, rules: []faultstore.Rule{c.rule}, seed: seed}.run(t)
				if h.check(20*time.Second) == porcupine.Illegal {
					return
				}
			}
			t.Error("five histories of a broken store were found linearizable")
		})
	}
}
