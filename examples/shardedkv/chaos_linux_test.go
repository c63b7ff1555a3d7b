package main

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-project/tenure/slots"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "of the troubles; 0 is another one each time")
	stormFlag = flag.Int("troubles", 7, "how many troubles each storm brings")
	kindFlag  = flag.String("kind", tested, "what the processes of a storm are: tested, or with mistakes, clockless or careless: the storm must fail then")
)

var seed = sync.OnceValue(func() uint64 {
	if *seedFlag != 0 {
		return *seedFlag
	}
	return uint64(time.Now().UnixNano())
})

// storm brings troubles over a cluster while clients load it.
type storm struct {
	*cluster
	r    *rand.Rand
	ttl  time.Duration
	undo map[string]ending // by the process's name: it is in trouble
	say  []string
}

type ending struct {
	due time.Time
	do  func()
}

// deck has n troubles of all kinds in any order.
func deck(r *rand.Rand, n int) []string {
	kinds := []string{"kill", "pause", "move", "cut", "term", "pause", "move"}
	var all []string
	for i := range n {
		all = append(all, kinds[i%len(kinds)])
	}
	r.Shuffle(n, func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// run plays the deck; one process at least is left in peace.
func (s *storm) run(troubles []string, shards []slots.Range) {
	for _, kind := range troubles {
		s.poll("two processes are well", func() bool {
			s.endTroubles()
			return len(s.procs)-len(s.undo) >= 2
		})
		names := slices.DeleteFunc(slices.Sorted(maps.Keys(s.procs)), func(name string) bool { return s.undo[name].do != nil })
		name := names[s.r.IntN(len(names))]
		if kind == "move" {
			r := shards[s.r.IntN(len(shards))]
			s.say = append(s.say, fmt.Sprintf("move of %v to %s", r, name))
			s.poll("the pin is written", func() bool { // a database waits for who was paused with its lock
				s.endTroubles()
				_, err := s.table.Pin(s.Context(), r, name)
				return err == nil
			})
		} else {
			s.bring(kind, s.procs[name])
		}
		next := time.Now().Add(time.Duration(s.r.Int64N(int64(s.ttl))))
		s.poll("the next trouble is due", func() bool {
			s.endTroubles()
			return time.Now().After(next)
		})
	}
	s.poll("all troubles are over", func() bool {
		s.endTroubles()
		return len(s.undo) == 0
	})
}

// bring brings trouble over p, and notes how it ends. Two of three last longer than the TTL.
func (s *storm) bring(kind string, p *proc) {
	lasts := s.ttl*5/4 + time.Duration(s.r.Int64N(int64(s.ttl)))
	if s.r.IntN(3) == 0 {
		lasts = s.ttl / 4
	}
	e := ending{do: func() { s.start(p.name, *kindFlag) }}
	switch kind {
	case "kill":
		p.ended = true
		p.signal(syscall.SIGKILL)
	case "term":
		p.ended = true
		p.signal(syscall.SIGTERM)
	case "pause":
		p.signal(syscall.SIGSTOP)
		e.do = func() { p.signal(syscall.SIGCONT) }
	case "cut":
		s.cut(p.name, true)
		e.do = func() { s.cut(p.name, false) }
	}
	e.due = time.Now().Add(lasts)
	s.undo[p.name] = e
	s.say = append(s.say, fmt.Sprintf("%s of %s, for %v", kind, p.name, lasts.Round(time.Millisecond)))
}

// endTroubles ends those that lasted long enough.
func (s *storm) endTroubles() {
	for name, e := range s.undo {
		p := s.procs[name]
		if p.ended {
			select {
			case <-p.done:
			default: // it leaves in its own time
				continue
			}
		}
		if time.Now().After(e.due) {
			e.do()
			delete(s.undo, name)
		}
	}
}

// Hosts are killed, paused, cut off from the store and told to leave, shards are pinned to
// others, and one more host comes, all while clients read and write. What they saw is a
// history of one register per key: no write that was confirmed is lost, and no two hosts
// served one shard.
//
// SPEC SL5 SL6 SL7 SL8 SL9 GD1
// CASE B01
func TestStorm(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]struct {
		url string
		ttl time.Duration
	}{
		"register": {"", time.Second},
		"rows":     {"sqlite://" + filepath.Join(t.TempDir(), "kv.db"), 1200 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, at.url, "--shards", fmt.Sprint(stormShards), "--ttl", at.ttl.String())
			t.Logf("the same troubles again: go test -run %s . -args -seed %d", t.Name(), seed())
			r := rand.New(rand.NewPCG(seed(), uint64(len(name))))
			s := &storm{cluster: c, r: r, ttl: at.ttl, undo: map[string]ending{}}
			s.whole(deck(r, *stormFlag))
		})
	}
}

const stormShards = 8

// whole is a storm from the first process to the last.
func (s *storm) whole(troubles []string) {
	for _, name := range []string{"a", "b", "c"} {
		s.start(name, *kindFlag)
	}
	s.open()
	s.balanced(stormShards, "a", "b", "c")
	plan, err := s.table.Plan(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	var ranges []slots.Range
	for _, shard := range plan.Shards {
		ranges = append(ranges, shard.Range)
	}
	l := s.load(6, 32, 10*time.Millisecond, seed())
	s.run(troubles[:len(troubles)/2], ranges)
	s.start("d", *kindFlag)
	s.run(troubles[len(troubles)/2:], ranges)
	l.end()
	s.history.check(s.T)
	s.report(len(troubles))
	s.poll("every process is there to be told to leave", func() bool {
		for _, p := range s.procs {
			if !strings.Contains(p.log.String()[p.before:], "msg=serving") {
				return false
			}
		}
		return true
	})
	for _, p := range s.procs {
		p.ended = true
		p.signal(syscall.SIGTERM)
	}
	for _, p := range s.procs {
		p.want(0)
	}
}

// report says what happened, and fails the test if that was too little to tell anything.
func (s *storm) report(troubles int) {
	h := s.history
	epochs := map[uint64]bool{}
	for _, a := range h.served {
		epochs[a.epoch] = true
	}
	s.Logf("%d requests served under %d epochs, %d refused, %d of unknown outcome; shards at the end: %v", len(h.served), len(epochs), h.refused, h.unknown, s.shares())
	for _, line := range s.say {
		s.Log(line)
	}
	if len(h.served) < 50*troubles || len(epochs) <= stormShards {
		s.Error("too little happened")
	}
}
