package sim

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tenure-project/tenure/sim/world"
)

// One seed is one world: played again it takes the same steps at the same
// instants, to the nanosecond. Where several goroutines of one process wake at
// one instant, which is rare but when it closes its client, their order is the
// scheduler's; a world in some hundreds then differs by microseconds.
func TestReplay(t *testing.T) {
	replay(t, world.NewPlan, uint64(*seeds)/4, 1)
}

// So it is with sessions.
func TestReplayOfSessions(t *testing.T) {
	replay(t, world.NewSessionPlan, uint64(*seeds)/10, 3) // more happens at one instant: all leases of a session end in it
}

// And so with authorities, but for one world in twelve: a leadership's end and what a
// caller does with it may meet at one instant, and the scheduler says which comes
// first.
func TestReplayOfAuthorities(t *testing.T) {
	worlds := uint64(*seeds) / 10
	replay(t, world.NewAuthorityPlan, worlds, 2+worlds/5)
}

// And so with ledgers.
func TestReplayOfLedgers(t *testing.T) {
	replay(t, world.NewLedgerPlan, uint64(*seeds)/10, 2)
}

// And so with slots, where no host claims several ranges at one instant, each by itself,
// but for a plan that moves two ranges of a host at one instant.
func TestReplayOfSlots(t *testing.T) {
	split := func(seed uint64) world.Plan {
		p := world.NewSlotPlan(seed)
		p.Split = true
		return p
	}
	worlds := uint64(*seeds) / 10
	replay(t, split, worlds, 2+worlds/10)
}

// again is how often a world may be played until it takes the same steps: on a busy
// machine the scheduler's choices differ more often.
const again = 4

func replay(t *testing.T, plan func(seed uint64) world.Plan, worlds, tolerated uint64) {
	var differ atomic.Uint64
	t.Run("worlds", func(t *testing.T) {
		for s := *first; s < *first+worlds; s++ {
			t.Run(fmt.Sprint(s), func(t *testing.T) {
				t.Parallel()
				a := play(t, plan(s)).Trace
				for range again {
					b := play(t, plan(s)).Trace
					i := parting(a, b)
					if i < 0 {
						return
					}
					t.Logf("step %d differs; the first time:\n%s\nthis time:\n%s", i, around(a, i), around(b, i))
				}
				differ.Add(1)
			})
		}
	})
	tolerated += worlds / 50
	if raceDetector { // it shuffles the scheduler, so only most worlds repeat
		tolerated = worlds / 2
	}
	if n := differ.Load(); n > tolerated {
		t.Errorf("%d of %d worlds were not the same when played again", n, worlds)
	}
}

// parting is where two traces part, -1 if they do not.
func parting(a, b []string) int {
	for i := range max(len(a), len(b)) {
		if i >= len(a) || i >= len(b) || a[i] != b[i] {
			return i
		}
	}
	return -1
}

// around are some steps of a trace.
func around(trace []string, i int) string {
	return strings.Join(trace[min(max(i-4, 0), len(trace)):min(i+4, len(trace))], "\n")
}
