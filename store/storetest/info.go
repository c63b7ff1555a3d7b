package storetest

import (
	"math"

	"github.com/tenure-project/tenure/store"
)

// SPEC ST14
func infoClauses() []Clause {
	return []Clause{{
		Rule: "ST14", Name: "powers-are-what-is-declared",
		Says: "A driver declares what it can do: each declared power is there, and no other is reachable.",
		run: func(c *check) {
			can := c.s.Info().Can
			reach := map[store.Power]bool{}
			_, reach[store.CanDeleteIf] = store.AsConditionalDeleter(c.s)
			_, reach[store.CanWatch] = store.AsWatcher(c.s)
			_, reach[store.CanClock] = store.AsClocker(c.s)
			_, reach[store.CanQueue] = store.AsQueuer(c.s)
			_, reach[store.CanProve] = store.AsProver(c.s)
			_, reach[store.CanCommit] = store.AsCommitter(c.s)
			all := store.CanModTime
			for p, ok := range reach {
				all |= p
				if ok != can.Has(p) {
					c.Errorf("the power with bit %b: declared %v, reachable through its As function %v", p, can.Has(p), ok)
				}
			}
			if can&^all != 0 {
				c.Errorf("Info.Can declares the unknown powers %b", can&^all)
			}
		},
	}, {
		Rule: "ST14", Name: "info-is-complete",
		Says: "Info names scheme, identity and driver, and gives bounds that make sense.",
		run: func(c *check) {
			i := c.s.Info()
			if i.Scheme == "" || i.Identity == "" || i.Driver == "" {
				c.Errorf("Info has an empty field: %+v", i)
			}
			if i.WritesPerSecond < 0 || math.IsNaN(i.WritesPerSecond) || math.IsInf(i.WritesPerSecond, 0) {
				c.Errorf("Info.WritesPerSecond is %v", i.WritesPerSecond)
			}
			if j := c.s.Info(); i != j {
				c.Errorf("Info changed from %+v to %+v", i, j)
			}
		},
	}, {
		Rule: "ST14", Name: "identity-names-the-place", Peers: true,
		Says: "Info.Identity names the place: the same from every process that opens it, another for another place.",
		run: func(c *check) {
			here, there := c.s.Info(), c.peer().Info()
			here.Place, there.Place = "", "" // the ways may differ
			if here != there {
				c.Errorf("two handles to one place describe it differently: %+v and %+v", here, there)
			}
			if other := c.opened(c.h.Open(c.TB)).Info(); other.Identity == here.Identity {
				c.Errorf("two places have the identity %q", here.Identity)
			}
		},
	}}
}
