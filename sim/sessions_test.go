package sim

import (
	"testing"

	"github.com/tenure-project/tenure/sim/world"
)

// Many processes under fewer node names, each with dozens of leases under its
// sessions and some without, under the same faults as in TestSeeds and an operator
// who forces, fences, retires, jumps and steals: nothing that package world asserts
// is ever broken, no term above the first acts without its certificate, no
// certificate contradicts another, and when the faults end nothing is stuck.
//
// SPEC PL1 PL2 PL3 PL4 PL5 PL6 PL7 PL8 PL9 LS8 LS10 LS11 LS12 DL4 DL5 DL6 ST9
func TestSeedsOfSessions(t *testing.T) {
	n := max(*seeds*2/5, min(*seeds, 40))
	worlds(t, world.NewSessionPlan, n).want(t, n,
		"name fell released", "name fell observed", "name fell proven", "name fell store-clock", "name fell forced", "name fell vouched",
		"inherited from a session released", "inherited from a session observed", "inherited from a session proven",
		"inherited from a session store-clock", "inherited from a session forced", "inherited from a session vouched",
		"ended revoked", "revocations met", "revokers", "folded", "folded evidence", "name jumped", "leaderships", "leaves", "leaves unconfirmed",
		"handed out under sessions", "session expired", "session lost", "names inherited", "fence: done", "retire: done", "overruns", "renewed",
	)
}
