package sim

import (
	"flag"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/tenure-project/tenure/sim/world"
)

var (
	seeds = flag.Int("seeds", 100, "how many worlds to run")
	first = flag.Uint64("first", 1, "the seed of the first world")
	seed  = flag.Uint64("seed", 0, "run the one world of this seed, and tell its trace with -v")
	steps = flag.Int("steps", 400, "how many steps of a failed world to tell")
)

// play runs the world of a plan in a bubble of its own.
func play(t *testing.T, p world.Plan) (v world.Verdict) {
	synctest.Test(t, func(*testing.T) { v = world.Run(p) })
	return v
}

func TestSeeds(t *testing.T) {
	from, n := *first, *seeds
	if *seed != 0 {
		from, n = *seed, 1
	}
	total := map[string]int{}
	t.Run("worlds", func(t *testing.T) {
		for s := from; s < from+uint64(n); s++ {
			t.Run(fmt.Sprint(s), func(t *testing.T) {
				v := play(t, world.NewPlan(s))
				for k, c := range v.Stats {
					total[k] += c
				}
				if len(v.Broken) > 0 {
					t.Errorf("replay with: go test ./sim -run TestSeeds -seed %d -v\n%s", s, v.Report(*steps))
				} else if *seed != 0 {
					t.Log(v.Plan)
					for _, l := range v.Trace {
						fmt.Println(l)
					}
				}
			})
		}
	})
	t.Log(total)
}
