package sim

import (
	"testing"

	"github.com/tenure-project/tenure/sim/world"
)

// Hosts that come back under their names serve ranges of slots, by themselves, under
// sessions, and as a plan says, under the same faults as in TestSeeds, beside an operator
// who takes ranges away and raises counters. No two hosts answer for a slot at one instant;
// an epoch is given once, and those of a slot only rise, whatever the bounds of the ranges
// were; a row falls only after it stood for its TTL, or on the evidence that its session is
// over; only who holds the lock of the row's volume goes on with its epoch; a resource
// that checks epochs takes none after a newer one; where nothing goes wrong nobody loses a
// range; who is refused has written nothing; and when the faults end all slots can be served
// within a bound.
//
// SPEC SL2 SL3 SL4 SL5 SL6 SL7 SL8 LS8 LS10 LS11 LS12 ST9
func TestSeedsOfSlots(t *testing.T) {
	n := max(*seeds/5, min(*seeds, 40))
	worlds(t, world.NewSlotPlan, n).want(t, n,
		"hosts", "epochs given", "grants", "grants given up", "grants lapsed", "grants lost", "grants fenced",
		"ranges renewed", "ranges released", "ranges forced", "ranges vouched", "ranges of another shape", "ranges waiting",
		"taken when it was free", "taken after it lapsed", "taken after force", "taken from a session", "taken anew by its own host", "taken by a successor",
		"kept by a restart", "handed over to a successor", "plans", "writes taken", "writes refused", "refused in calm", "tables inherited",
	)
}
