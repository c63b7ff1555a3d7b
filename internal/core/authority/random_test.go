package authority_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tenure-project/tenure/internal/core/authority"
)

// reports are some pending fault reports: new ones, and repeats.
func (w *world) reports() []authority.Report {
	var all []authority.Report
	for w.chance(20) && (!w.calm || w.chance(30)) {
		node := fmt.Sprint("r", w.rng.IntN(6))
		r := w.reporter[node]
		switch {
		case r[0] == 0 || w.chance(10):
			r = [2]uint64{r[0] + 1, 1}
		case w.chance(60):
			r[1]++
		}
		w.reporter[node] = r
		all = append(all, authority.Report{Node: node, Incarnation: fmt.Sprintf("%08d-0000-4000-8000-00000000000%s", r[0], node[1:]), Term: r[0], Request: r[1]})
	}
	return all
}

// outsider is somebody who does not lead: a reporter or an operator.
func (w *world) outsider() {
	h := w.read()
	if h == nil {
		return
	}
	switch k := w.rng.IntN(100); {
	case k < 70:
		if next, _, err := h.Fold(w.id(), w.reports()...); must(next, err) != nil {
			w.send(sent{what: "report", over: w.ver, head: next})
		}
	case k < 80:
		a := authority.Above{Token: h.Counter + w.rng.Uint64N(3), Sequence: h.Sequence + w.rng.Uint64N(5) - 1}
		if next := must(h.Jump(w.id(), a)); next != nil {
			w.send(sent{what: "jump", over: w.ver, head: next})
		}
	case h.Led():
		vouch := w.chance(30)
		next := must(h.Steal(w.id(), authority.Theft{Token: h.Token, Why: "test", NowMS: w.wall(), Vouch: vouch}))
		w.send(sent{what: "steal", over: w.ver, head: next, vouched: vouch})
	}
}

func keys[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// Several processes walk at random over one authority: they begin, renew, decide,
// move floors, sweep, lapse, are killed or forced out and go on with what they had
// planned; reporters and an operator write beside them; replies are lost, writes
// land late, and every process may stop between any two steps. Each applied write,
// each answer and each delete is checked by an oracle that knows what really
// happened.
//
// SPEC LA1 LA2 LA3 LA4 LA5 LA7 LA8 CK AS RF CT ST9 LS11 LS12 DL6
func TestRandomWalk(t *testing.T) {
	t.Parallel()
	count := map[string]int{}
	for seed := range *seeds {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			w := newWorld(t, seed, count)
			for i := range 1800 {
				switch k := w.rng.IntN(100); {
				case k < 14:
					w.now += time.Duration(w.rng.Int64N(int64(500 * time.Millisecond)))
				case k < 15:
					w.now += time.Duration(w.rng.Int64N(int64(6 * time.Second)))
				case k < 19:
					w.land()
				case k < 23 && (!w.calm || w.chance(15)):
					w.outsider()
				case k < 24 && w.chance(40) && (!w.calm || w.chance(15)):
					w.kill(w.rng.IntN(3))
				case k < 60 && w.body != nil && w.read().Led():
					leader := *w.read().Leader
					for _, p := range w.procs {
						if p.me == leader {
							w.step(p)
							break
						}
					}
				default:
					w.step(w.procs[w.rng.IntN(len(w.procs))])
				}
				if i%40 == 0 {
					w.audit()
				}
			}
			w.audit()
		})
	}
	t.Log(count)
	for _, what := range []string{"first", "takeover", "renew", "step down", "round", "append", "report", "jump", "steal", "floor", "horizon",
		"granted", "again", "lost 0", "lost 1", "lost 2", "killed", "how observed", "how released", "how forced", "how vouched", "by evidence",
		"admitted checkpoint", "admitted assignment", "admitted recovery", "admitted catalog", "blob", "cleared", "compacted",
		"answer look", "answer admit", "answer created", "answer unchanged", "answer conflict", "answer below floor", "answer fenced",
		"inventory changed", "settled 1", "settled 2", "deleted", "removed within a token", "capsule swept", "audit"} {
		if count[what] < int(*seeds)/2 {
			t.Errorf("only %d times %q: the walk does not reach it", count[what], what)
		}
	}
}
