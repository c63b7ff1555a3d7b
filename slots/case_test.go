package slots

import (
	"errors"
	"maps"
	"testing"
	"time"

	tenure "github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/store/faultstore"
)

// workers are hosts that checkpoint what they do about each of 20 shards at a resource that
// checks epochs.
type workers struct {
	w       *tableWorld
	taken   map[Range]uint64        // epoch of the last checkpoint
	since   map[Range]time.Time     // when a shard was last served
	longest time.Duration           // that one was not
	stops   map[string]func() error // of hosts that run
}

const workShards = 20

func (k *workers) start(name string) {
	p := k.w.balanced(name)
	run := p.run()
	k.stops[name] = func() error { return errors.Join(run(), p.cfg.Session.Leave(k.w.t.Context())) }
}

func (k *workers) stop(name string) {
	k.w.t.Helper()
	if err := k.stops[name](); err != nil {
		k.w.t.Fatal(err)
	}
	delete(k.stops, name)
}

// pass lets time pass, while every host checkpoints all its shards ten times a second.
func (k *workers) pass(d time.Duration) {
	k.w.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); bubbleSleep(100 * time.Millisecond) {
		k.w.serving(workShards)
		for _, p := range k.w.hosts {
			p.mu.Lock()
			for _, g := range p.begun {
				if g.Live() {
					k.checkpoint(p.Owner(), g)
				}
			}
			p.mu.Unlock()
		}
		for _, since := range k.since {
			k.longest = max(k.longest, time.Since(since))
		}
	}
}

func (k *workers) checkpoint(owner string, g *Grant) {
	if last := k.taken[g.Range()]; g.Epoch() < last {
		k.w.t.Fatalf("the checkpoint of %s on %v was refused: epoch %d came before", owner, g, last)
	}
	k.taken[g.Range()], k.since[g.Range()] = g.Epoch(), time.Now()
}

// balanced waits until these alone share all shards.
func (k *workers) balanced(owners ...string) {
	k.w.t.Helper()
	for began := time.Now(); ; k.pass(time.Second) {
		n, all, most, least := k.w.serving(workShards), 0, 0, workShards
		for _, o := range owners {
			all, most, least = all+n[o], max(most, n[o]), min(least, n[o])
		}
		if all == workShards && len(n) == len(owners) && most-least <= 2 {
			return
		}
		if time.Since(began) > 5*time.Minute {
			k.w.t.Fatalf("they serve %v", n)
		}
	}
}

// moves is how often a shard changed hands so far.
func (k *workers) moves() int { return int(k.w.view().Counter) - workShards }

// One worker, two, five share 20 shards; then one more comes or goes every 10 s, and for 5 s
// nobody reaches the store. A shard that moves ends its own work and no other; what moves
// is bounded by each worker's part; the outage moves nothing; and no shard is without an
// owner for longer than the TTL and a renew interval.
//
// SPEC SL8 SL5
// CASE B58
func TestWorkersThatComeAndGo(t *testing.T) {
	inTables(t, func(t *testing.T, w *tableWorld) {
		w.shardsOf(workShards)
		k := &workers{w: w, taken: map[Range]uint64{}, since: map[Range]time.Time{}, stops: map[string]func() error{}}
		k.start("a")
		k.balanced("a")
		k.start("b")
		k.balanced("a", "b")
		two := k.moves()
		for _, name := range []string{"c", "d", "e"} {
			k.start(name)
		}
		k.balanced("a", "b", "c", "d", "e")
		five := k.moves()
		if two > workShards/2+2 || five-two > 3*workShards/5+3 {
			t.Errorf("%d shards moved for the second worker, and %d for the next three", two, five-two)
		}
		for i, name := range []string{"x", "x", "e", "e", "d", "d", "y", "y"} { // it comes if it is not there
			if k.stops[name] == nil {
				k.start(name)
			} else {
				k.stop(name)
			}
			if i == 5 {
				before := k.moves()
				w.network(faultstore.Cut)
				k.pass(5 * time.Second)
				if n := k.moves() - before; n > 0 {
					t.Errorf("an outage of 5 s moved %d shards", n)
				}
				w.network(faultstore.Up)
			}
			k.pass(10 * time.Second)
		}
		k.balanced("a", "b", "c", "d", "e")
		if n := k.moves() - five; n < workShards/5 || n > 4*2*(workShards/5+1) {
			t.Errorf("%d shards moved for four workers that came and went", n)
		}
		if k.longest > hostTTL+hostTTL/4 {
			t.Errorf("a shard had no owner for %v", k.longest)
		}
		k.everyEnd()
		t.Logf("%s: %d moves for the second worker, %d for the next three, %d for four that came and went; a shard had no owner for at most %v", w.form, two, five-two, k.moves()-five, k.longest)
	})
}

// everyEnd judges how grants ended: one for each move, handed over, and none for another's
// sake.
func (k *workers) everyEnd() {
	ended, epochs := 0, map[uint64]bool{}
	for _, p := range k.w.hosts {
		p.mu.Lock()
		ended += len(p.ended)
		for g, cause := range p.ended {
			if !errors.Is(cause, tenure.ErrReleased) {
				k.w.t.Errorf("%s lost %v: %v", p.Owner(), g, cause)
			}
		}
		for _, g := range p.begun {
			if epochs[g.Epoch()] {
				k.w.t.Errorf("%s worked twice under epoch %d", p.Owner(), g.Epoch())
			}
			epochs[g.Epoch()] = true
		}
		p.mu.Unlock()
	}
	if ended != k.moves() || len(epochs) != ended+workShards {
		k.w.t.Errorf("%d grants ended and %d began in %d moves of %v", ended, len(epochs), k.moves(), maps.Clone(k.taken))
	}
}

// network sets the state of every link.
func (w *tableWorld) network(l faultstore.Link) {
	for _, p := range w.hosts {
		p.link.SetLink(l)
	}
}
