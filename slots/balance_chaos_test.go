package slots

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tenure-project/tenure/store/faultstore"
)

// Balanced hosts that die, start again, leave, are cut off and lose replies: no shard is
// ever served by two, and when all is well again each is served by who is meant to.
//
// SPEC SL8 SL6 ST9
func TestBalancedWorlds(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		for _, form := range forms {
			t.Run(fmt.Sprintf("%s/%d", form, seed), func(t *testing.T) {
				t.Parallel()
				inTable(t, form, func(t *testing.T, w *tableWorld) { balancedMayhem(w, seed) })
			})
		}
	}
}

func balancedMayhem(w *tableWorld, seed uint64) {
	const shards = 12
	w.shardsOf(shards)
	r := rand.New(rand.NewPCG(seed, 5))
	starts := 0
	start := func(i int) (*hostProc, func() error) {
		starts++
		n := starts
		p := w.balanced(fmt.Sprintf("h%d", i), as(fmt.Sprintf("node-%d-%d", i, n)), func(s *hostSetup) { s.link.Seed = uint64(n) })
		return p, p.run()
	}
	alive, stops := make([]*hostProc, 4), make([]func() error, 4)
	for i := range alive {
		alive[i], stops[i] = start(i)
	}
	pass := func(d time.Duration) {
		for end := time.Now().Add(d); time.Now().Before(end); bubbleSleep(250 * time.Millisecond) {
			w.serving(shards)
		}
	}
	writes := []faultstore.Op{faultstore.OpReplace, faultstore.OpCommit}
	for range 30 {
		i := r.IntN(len(alive))
		p := alive[i]
		switch r.IntN(8) {
		case 0:
			p.die()
		case 1:
			_ = stops[i]()
			_ = p.cfg.Session.Leave(w.t.Context())
		case 2:
			p.link.SetLink(faultstore.Cut)
		case 3:
			p.link.Add(faultstore.Rule{Odds: 0.4, Fault: faultstore.LoseReply(), Ops: writes})
		case 4:
			p.link.Add(faultstore.Rule{Odds: 0.4, Fault: faultstore.LandLate(time.Second, 20*time.Second), Ops: writes})
		default:
			p.link.SetLink(faultstore.Up)
			p.link.Clear()
		}
		pass(time.Duration(r.IntN(12000)) * time.Millisecond)
		if p.Health().Over != nil {
			alive[i], stops[i] = start(i)
		}
	}
	for _, p := range alive {
		p.link.SetLink(faultstore.Up)
		p.link.Clear()
	}
	pass(2 * hostTTL)
	for i, p := range alive { // a session may have ended a while after its trouble
		if p.Health().Over != nil {
			alive[i], stops[i] = start(i)
		}
	}
	w.shared(shards, 15*time.Minute, "h0", "h1", "h2", "h3")
	w.becomes(shards, time.Minute, func(map[string]int) bool {
		for _, s := range w.view().Plan.Shards {
			for _, p := range alive {
				if _, ok := p.EpochFor(s.Range.A); ok != (p.Owner() == s.Target) {
					return false
				}
			}
		}
		return true
	})
}
