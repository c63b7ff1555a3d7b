package sim

import (
	"slices"
	"strings"
	"testing"

	"github.com/tenure-project/tenure/sim/world"
)

// mutationSeeds is how many worlds a mutation may survive.
const mutationSeeds = 60

// The simulation can fail. Each mutation breaks one promise on which Tenure
// rests (what a store, a clock or a person owes), and the oracle finds it within
// a few worlds, first by a rule that says what happened. The same world without
// the fault is clean.
//
// SPEC ST1 ST2 ST16 DL3 DL4 DL5 LS2 LS11 LS13 LS14 LS15 SL2 SL3 SL4 SL6
// CASE B12
func TestMutationsAreFound(t *testing.T) {
	for name, m := range world.Mutations() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for s := uint64(1); s <= mutationSeeds; s++ {
				p := m.Plan(s)
				if v := play(t, p); len(v.Broken) > 0 {
					_, what, _ := strings.Cut(v.Broken[0], " ")
					if rule, _, _ := strings.Cut(what, ":"); !slices.Contains(m.Found, rule) {
						t.Errorf("seed %d: found by %s, want one of %v\n%s", s, rule, m.Found, v.Report(30))
					}
					t.Logf("found by seed %d: %s", s, v.Broken[0])
					p.Mutation = m.Control()
					judge(t, play(t, p))
					return
				}
			}
			t.Fatalf("%d worlds did not find it", mutationSeeds)
		})
	}
}
