package sim

import (
	"testing"

	"github.com/tenure-project/tenure/sim/world"
)

// Processes under nodes of their own fight for one or two authorities, decide in
// every chain with proofs that lead and proofs that do not, report faults, move
// bounds, clean up and read, under the same faults as in TestSeeds, where listings
// hang and deletes are denied, and beside an operator who deposes leaders, raises
// numbers and fences their nodes: the log is one line, no answer is wrong, nothing
// that anybody needs is removed, and when the faults end nothing is stuck.
//
// SPEC LA1 LA2 LA3 LA4 LA5 LA6 LA7 LA8 CK AS RF CT LS11 LS12 ST9
func TestSeedsOfAuthorities(t *testing.T) {
	n := max(*seeds/4, min(*seeds, 40))
	worlds(t, world.NewAuthorityPlan, n).want(t, n,
		"head renewed", "head took over", "head gave up", "head forced out", "head jumped", "head reported",
		"reign ended released", "reign ended observed", "reign ended proven", "reign ended store-clock", "reign ended forced", "reign ended vouched",
		"admitted checkpoint", "admitted assignment", "admitted recovery", "admitted catalog", "replaced", "drains found",
		"answer created", "answer unchanged", "answer conflict", "answer below floor", "answer fenced", "foreign proofs refused",
		"compacted checkpoint", "floor moved checkpoint", "floor moved assignment", "floor moved recovery", "horizon moved",
		"faults made", "faults cleared", "rounds", "inventory changed", "admission: done",
		"object blob", "removed entry", "removed capsule", "removed report", "removed assignment", "removed proposal", "removed drain",
		"leadership lost", "leadership expired", "step-downs unconfirmed", "led after a session proven", "audits", "sound at the end",
	)
}
