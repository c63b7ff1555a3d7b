package sim

import (
	"testing"

	"github.com/tenure-project/tenure/sim/world"
)

// Processes with one schedule, on wall clocks that jump, run every occurrence through a
// ledger, under the same faults as in TestSeeds, beside an operator who takes their
// leases away, a person who settles what is unknown, compactions, and merges of what
// another site did. Nothing that the ledger ever said is lost; a function begins only
// after a last look that lets it; answers are true. With a guard that keeps run ids there
// is one effect for each occurrence that is committed, and never two; with any other each
// effect is accounted for by its own attempt, which is committed, given up, or unknown.
// In the end every occurrence is done, or held for a person where the policy says so.
//
// SPEC EX1 EX2 EX3 EX4 EX5 EX6 EX7 ST9
// CASE B13 B34
func TestSeedsOfLedgers(t *testing.T) {
	n := max(*seeds*3/10, min(*seeds, 40))
	worlds(t, world.NewLedgerPlan, n).want(t, n,
		"occurrences", "attempts admitted", "functions begun", "job effects", "effects refused", "effects that were there",
		"once ran", "once done", "once failed", "once held", "once busy", "once not run", "once unsettled",
		"said committed", "said failed", "said not begun", "said abandoned", "tried again after a failure", "tried again after one was given up",
		"compacted", "blocks written", "merged", "epochs raised", "results", "asked whether it happened", "settled by a person",
		"probed happened", "probed did not happen", "probed cannot say", "held at the end",
		"occurrences with two effects or more", "of these committed", "of these given up", "of these unknown",
	)
}
