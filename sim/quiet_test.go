package sim

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/tenure-project/tenure/authority"
	"github.com/tenure-project/tenure/sim/world"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

// counted counts the calls of a process on the keys of authorities, from now on.
type counted struct{ gets, writes, others, lists atomic.Int64 }

func count(p *world.Proc) *counted {
	n := &counted{}
	p.Link.Add(faultstore.Rule{Fault: faultstore.Fail(store.ErrUnavailable), Match: func(c faultstore.Call) bool {
		switch log := strings.HasPrefix(c.Key, store.Prefix(world.Namespace, "authority-log")); {
		case !log && !strings.HasPrefix(c.Key, store.Prefix(world.Namespace, "authority")) || c.Op == faultstore.OpWatch:
		case c.Op == faultstore.OpList:
			n.lists.Add(1)
		case !log && c.Op == faultstore.OpReplace:
			n.writes.Add(1)
		case !log && c.Op == faultstore.OpGet:
			n.gets.Add(1)
		default:
			n.others.Add(1)
		}
		return false
	}})
	return n
}

// A leader that decides nothing costs one write of the head per interval and at most
// one list, and reads nothing; whoever waits for it reads the head once per change
// where the store watches, and once per poll where it does not.
//
// SPEC LA2 LA3 RF
func TestAQuietLeader(t *testing.T) {
	const intervals, poll = 40, stageTTL / 4
	for name, can := range map[string]store.Power{"watch": store.CanWatch, "poll": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				plan := world.Plan{Seed: 1, Slots: 4, Nodes: 4, Authorities: 1, TTL: stageTTL, Rho: 0.01, Latency: stageTTL / 400, Poll: poll, Powers: can | store.CanDeleteIf, Calm: true}
				w := world.New(plan)
				defer w.End()
				var all []*world.Authority
				var procs []*world.Proc
				for i := range plan.Slots {
					p := w.Spawn(fmt.Sprint("q", i+1, ".1"), 1)
					must(t, p.Open(p.Context()))
					s, err := p.Join(p.Context(), fmt.Sprint("n", i+1))
					must(t, err)
					x, err := s.Open(p.Context(), "first", authority.PruneEvery(-1))
					must(t, err)
					procs, all = append(procs, p), append(all, x)
				}
				l, err := all[0].Lead(procs[0].Context())
				must(t, err)
				all[0].Led(l)
				var waiting sync.WaitGroup
				ctx, stop := procs[1].Within(procs[1].Context(), (intervals+1)*stageTTL/5)
				defer stop()
				for _, x := range all[1:] {
					waiting.Go(func() {
						if _, err := x.Lead(ctx); err == nil {
							t.Error("a rival leads beside a leader that renews")
						}
					})
				}
				procs[0].Sleep(procs[0].Context(), stageTTL/5)
				leader, rival := count(procs[0]), count(procs[1])
				procs[0].Sleep(procs[0].Context(), intervals*stageTTL/5)
				if n := leader.writes.Load(); n < intervals-1 || n > intervals*8/7+1 {
					t.Errorf("%d writes of the head in %d intervals", n, intervals)
				}
				if n := leader.lists.Load(); n > intervals+1 || leader.gets.Load() > 0 || leader.others.Load() > 0 {
					t.Errorf("%d lists, %d reads and %d other calls of a leader that decides nothing", n, leader.gets.Load(), leader.others.Load())
				}
				most := leader.writes.Load() + 2
				if can == 0 {
					most = int64(intervals*stageTTL/5/(poll/2)) + 2 // half of it at least, by its jitter
				}
				if n := rival.gets.Load(); n > most || rival.writes.Load()+rival.lists.Load()+rival.others.Load() > 0 {
					t.Errorf("%d reads and %d other calls of a rival, want at most %d and none", n, rival.writes.Load()+rival.lists.Load()+rival.others.Load(), most)
				}
				waiting.Wait()
				for _, p := range procs {
					_ = p.Client.Close() // R14 judges whether anything stays behind
				}
				w.Recover(0)
				if v := w.Verdict(); len(v.Broken) > 0 {
					t.Error(v.Report(200))
				}
			})
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
