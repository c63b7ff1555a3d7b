//go:build linux || darwin

package filestore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tenure-project/tenure/store"
)

// moments are the logical instants between which something happened.
type moments struct{ from, to int64 }

// reign is what is known of one version of one key: when the write that made it
// ran, and the one that ended it.
type reign struct {
	made  moments
	ended moments // zero: not yet
}

// win is one acknowledged write: the version it superseded and the one it made.
// "" is absence.
type win struct {
	key      string
	from, to store.Version
	m        moments
}

// ledger records what callers learnt.
type ledger struct {
	t     *testing.T
	clock atomic.Int64

	mu     sync.Mutex
	wins   []win
	absent map[string][]moments // reads that found nothing
	reads  map[string]map[store.Version][]moments
	doubts int // writes that could not know how they ended
}

// reigns pairs the writes, and objects when two superseded the same version or
// made the same one.
func (l *ledger) reigns() map[string]map[store.Version]*reign {
	all := map[string]map[store.Version]*reign{}
	for key := range l.reads {
		all[key] = map[store.Version]*reign{}
	}
	for _, w := range l.wins {
		if w.to == "" {
			continue
		}
		if all[w.key][w.to] != nil {
			l.t.Errorf("%s: the version %q came back", w.key, w.to)
		}
		all[w.key][w.to] = &reign{made: w.m}
	}
	for _, w := range l.wins {
		if w.from == "" {
			continue
		}
		switch r := all[w.key][w.from]; {
		case r == nil && l.doubts > 0: // perhaps by a writer that could not know
		case r == nil:
			l.t.Errorf("%s: the version %q was superseded, but nobody made it", w.key, w.from)
		case r.ended != moments{}:
			l.t.Errorf("%s: two writers were told that they superseded the version %q", w.key, w.from)
		default:
			r.ended = w.m
		}
	}
	return all
}

// check holds the reads against the writes: none is of a version after it
// certainly ended, and none finds nothing while something was there.
func (l *ledger) check() {
	for key, reigns := range l.reigns() {
		current := 0
		for v, r := range reigns {
			if r.ended == (moments{}) {
				current++
				continue
			}
			for _, m := range l.reads[key][v] {
				if m.from > r.ended.to {
					l.t.Errorf("%s: a read that began after %q had been superseded still found it", key, v)
				}
			}
			for _, m := range l.absent[key] {
				if m.from > r.made.to && m.to < r.ended.from {
					l.t.Errorf("%s: a read found nothing while %q was there", key, v)
				}
			}
		}
		if current > 1+l.doubts {
			l.t.Errorf("%s: %d versions were never superseded", key, current)
		}
		for v := range l.reads[key] {
			if reigns[v] == nil && l.doubts == 0 {
				l.t.Errorf("%s: a read gave the version %q, which no acknowledged write made", key, v)
			}
		}
	}
}

// actor does random operations on a few keys.
type actor struct {
	l    *ledger
	s    *Store
	rng  *rand.Rand
	keys []string
}

func (a *actor) run(ctx context.Context, n int) {
	for i := range n {
		key := a.keys[a.rng.IntN(len(a.keys))]
		m := moments{from: a.l.clock.Add(1)}
		o, err := a.s.Get(ctx, key, MaxBody)
		m.to = a.l.clock.Add(1)
		a.l.mu.Lock()
		if err == nil {
			a.l.reads[key][o.Version] = append(a.l.reads[key][o.Version], m)
		} else {
			a.l.absent[key] = append(a.l.absent[key], m)
		}
		a.l.mu.Unlock()
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			a.l.t.Errorf("get: %v", err)
			return
		}
		a.change(ctx, key, o.Version, fmt.Sprint(i))
	}
}

// change tries to write over version v of key, which may be absent.
func (a *actor) change(ctx context.Context, key string, v store.Version, text string) {
	var next store.Version
	var err error
	m := moments{from: a.l.clock.Add(1)}
	switch {
	case v == "":
		next, err = a.s.Create(ctx, key, []byte(text))
	case a.rng.IntN(3) == 0:
		err = a.s.DeleteIf(ctx, key, v)
	default:
		next, err = a.s.Replace(ctx, key, []byte(text), v)
	}
	m.to = a.l.clock.Add(1)
	switch {
	case err == nil:
		a.l.mu.Lock()
		a.l.wins = append(a.l.wins, win{key, v, next, m})
		a.l.mu.Unlock()
	case errors.Is(err, store.ErrUnknown):
		a.l.mu.Lock()
		a.l.doubts++
		a.l.mu.Unlock()
	case !errors.Is(err, store.ErrExists) && !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrNotFound):
		a.l.t.Errorf("a write: %v", err)
	}
}

// Several stores on one directory, as several processes have them, write to a
// few keys at once: each version has one successor, no version comes back, and
// no read is older than what was acknowledged before it began.
//
// SPEC ST1 ST2 ST3 ST4 ST5
func TestManyWritersOfFewKeys(t *testing.T) {
	t.Parallel()
	const stores, each, rounds = 4, 4, 120
	path := quick(t)
	l := &ledger{t: t, absent: map[string][]moments{}, reads: map[string]map[store.Version][]moments{}}
	keys := []string{"ns/lease/a", "ns/lease/history/b/1"}
	for _, k := range keys {
		l.reads[k] = map[store.Version][]moments{}
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	ctx := within(t)
	var wg sync.WaitGroup
	for i := range stores {
		s := opened(t, path)
		for j := range each {
			a := &actor{l: l, s: s, keys: keys, rng: rand.New(rand.NewPCG(seed, uint64(i*each+j)))}
			wg.Go(func() { a.run(ctx, rounds) })
		}
	}
	wg.Wait()
	if l.doubts > 0 { // legal, where a writer is held up for long
		t.Logf("%d writes could not know how they ended", l.doubts)
	}
	l.check()
}
