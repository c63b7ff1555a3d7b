package sim

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tenure-project/tenure/sim/world"
)

// One seed is one world: played again it takes the same steps at the same
// instants, to the nanosecond, whatever the scheduler does.
func TestReplay(t *testing.T) {
	for s := *first; s < *first+24; s++ {
		t.Run(fmt.Sprint(s), func(t *testing.T) {
			t.Parallel()
			a, b := play(t, world.NewPlan(s)), play(t, world.NewPlan(s))
			for i := range a.Trace {
				if i >= len(b.Trace) || a.Trace[i] != b.Trace[i] {
					t.Fatalf("step %d differs; the first time:\n%s\nthe second time:\n%s", i, around(a.Trace, i), around(b.Trace, i))
				}
			}
			if len(a.Trace) != len(b.Trace) {
				t.Fatalf("%d steps, then %d", len(a.Trace), len(b.Trace))
			}
		})
	}
}

// around are some steps of a trace.
func around(trace []string, i int) string {
	return strings.Join(trace[min(max(i-4, 0), len(trace)):min(i+4, len(trace))], "\n")
}
