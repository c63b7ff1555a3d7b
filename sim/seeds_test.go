package sim

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/tenure-project/tenure/sim/world"
)

var (
	seeds = flag.Int("seeds", 100, "how many worlds to run")
	first = flag.Uint64("first", 1, "the seed of the first world")
	seed  = flag.Uint64("seed", 0, "run the one world of this seed and tell its whole trace")
	steps = flag.Int("steps", 300, "how many steps of a failed world to tell")
)

// play runs the world of a plan in a bubble of its own.
func play(t *testing.T, p world.Plan) (v world.Verdict) {
	t.Helper()
	synctest.Test(t, func(*testing.T) { v = world.Run(p) })
	return v
}

// Many contenders under delays, lost replies, late landings, hangs, pauses,
// suspends, clocks that differ, partitions and crashes: nothing that package
// world asserts is ever broken, and when the faults end nothing is stuck.
//
// SPEC ST9 DL1 DL3 DL4 DL5 LS1 LS2 LS3 LS4 LS5 LS6 LS7 LS9 LS10 LS11 LS12 LS13 LS14 LS15
// CASE B04 B05 B12 B18 B24 B40 B42 B61 B75 B80
func TestSeeds(t *testing.T) {
	worlds(t, world.NewPlan, *seeds).want(t, *seeds,
		"ended released", "ended observed", "ended proven", "ended store-clock", "ended forced", "ended vouched",
		"renewed", "jumped", "pruned", "archives", "archives pruned", "dropped", "floor raised", "raised",
		"guard refused", "guarded writes", "overruns", "unconfirmed", "expired", "lost", "runs", "inherited",
	)
}

// worlds plays n worlds, or the one that -seed names, and counts what happened.
func worlds(t *testing.T, plan func(seed uint64) world.Plan, n int) *tally {
	sum := &tally{n: map[string]int{}}
	if *seed != 0 {
		v := play(t, plan(*seed))
		t.Logf("%v\n%s", v.Plan, strings.Join(v.Trace, "\n"))
		judge(t, v)
		return sum
	}
	t.Run("worlds", func(t *testing.T) {
		for s := *first; s < *first+uint64(n); s++ {
			t.Run(fmt.Sprint(s), func(t *testing.T) {
				t.Parallel()
				v := play(t, plan(s))
				judge(t, v)
				sum.add(v.Stats)
			})
		}
	})
	return sum
}

func judge(t *testing.T, v world.Verdict) {
	t.Helper()
	if len(v.Broken) > 0 {
		of := "TestSeeds"
		if v.Plan.Nodes > 0 {
			of = "TestSeedsOfSessions"
		}
		if v.Plan.Authorities > 0 {
			of = "TestSeedsOfAuthorities"
		}
		if v.Plan.Jobs > 0 {
			of = "TestSeedsOfLedgers"
		}
		if v.Plan.Tables > 0 {
			of = "TestSeedsOfSlots"
		}
		t.Errorf("a world broke; replay it with: go test ./sim -run '%s$' -seed %d -v\n%s", of, v.Plan.Seed, v.Report(*steps))
	}
}

// tally is what happened in all worlds together.
type tally struct {
	mu sync.Mutex
	n  map[string]int
}

func (y *tally) add(stats map[string]int) {
	y.mu.Lock()
	defer y.mu.Unlock()
	for k, n := range stats {
		y.n[k] += n
	}
}

// want fails unless everything that the worlds are there to try has happened:
// an oracle that never saw a takeover has proven nothing about takeovers.
func (y *tally) want(t *testing.T, worlds int, kinds ...string) {
	t.Helper()
	for _, k := range slices.Sorted(maps.Keys(y.n)) {
		t.Logf("%7d %s", y.n[k], k)
	}
	if worlds < 100 || *seed != 0 {
		return
	}
	for _, k := range kinds {
		if y.n[k] == 0 {
			t.Errorf("in %d worlds never happened: %s", worlds, k)
		}
	}
}
