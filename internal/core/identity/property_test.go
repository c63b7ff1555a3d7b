package identity

import (
	"bytes"
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/tenure-project/tenure/internal/core/lease"
)

var seeds = flag.Uint64("seeds", 24, "how many random walks")

// anyone is a random incarnation, and its term if it had one: of the last owners,
// of all that ever tried, or of nobody.
func (w *world) anyone() Owner {
	k := w.rng.IntN(100)
	if k < 10 || len(w.tried) == 0 {
		return Owner{w.id(), 0}
	}
	id := w.tried[w.rng.IntN(len(w.tried))]
	if head, _ := w.read(); k < 60 && head != nil {
		if had, ok := w.owners[head.Term-min(head.Term, w.rng.Uint64N(8))]; ok {
			id = had
		}
	}
	return Owner{id, w.terms[id]}
}

// judge asks about somebody, with the head of now or of some time before, and
// makes a promise of the answer.
func (w *world) judge() {
	head, _ := w.read()
	if head == nil {
		return
	}
	fresh := true
	if w.chance(20) {
		head, fresh = w.heads[w.rng.IntN(len(w.heads))], false
	}
	o := w.anyone()
	had := o.Term
	if w.chance(30) {
		o.Term = 0
	}
	sealed := w.sealedUnder(PredecessorName(o.Incarnation))
	if w.chance(25) {
		sealed = nil // as if it were folded away
	}
	v, err := Judge(o, head, sealed)
	if err != nil {
		w.t.Fatalf("judge %v by %+v, %+v: %v", o, head, sealed, err)
	}
	if v.State == Over && had == 0 || v.State == Current && had == 0 {
		w.t.Fatalf("%v never owned the name, and is %+v", o, v)
	}
	if v.State == Behind && fresh {
		w.t.Fatalf("the newest head is behind: %+v", v)
	}
	w.count[[]string{"missing", "current", "over", "behind"}[v.State]]++
	if v.Folded {
		w.count["by a higher term"]++
	}
	if v.State != Over {
		return
	}
	w.promise(o.Incarnation, v.Wait, v.How)
	if c := v.Certificate; c != nil {
		w.verify(c, head, fresh)
	}
}

// verify cites c as another record would.
func (w *world) verify(c *Certificate, head *Record, fresh bool) {
	v, err := VerifyCertificate(c, w.sealedUnder(c.Names()[0]), head)
	if err != nil || fresh && v.State != Over {
		w.t.Fatalf("a citation of %+v: %+v, %v", c, v, err)
	}
}

// current asks whether somebody is the owner, with heads read at any two times.
func (w *world) current() {
	again, _ := w.read()
	if again == nil {
		return
	}
	head := w.heads[len(w.heads)-1-w.rng.IntN(min(3, len(w.heads)))]
	o := head.Last()
	got, err := VerifyCurrent(o, head, w.sealedUnder(SuccessorName(o)), again)
	if err != nil && again.OwnedBy(o) {
		w.t.Fatalf("%v is the owner: %v", o, err)
	}
	if got && !again.OwnedBy(o) {
		w.t.Fatalf("%v is not the owner", o)
	}
	if got {
		w.count["verified"]++
	}
}

// kept checks what was promised.
func (w *world) kept() {
	rest := w.due[:0]
	for _, d := range w.due {
		switch p := w.procs[d.id]; {
		case w.now < d.at:
			rest = append(rest, d)
		case p != nil && p.until > w.now:
			w.t.Fatalf("%s was over (%q) by %v, and may act until %v", d.id, d.what, d.at, p.until)
		}
	}
	w.due = rest
}

// plan chooses whom c fences and asks what to do about it. It reports whether the
// name is to be taken.
func (w *world) plan(c *candidate, r *Record) bool {
	if c.target == "" {
		c.target = r.Last().Incarnation
		if w.chance(30) {
			c.target = w.anyone().Incarnation
		}
		c.from = c.seen
	}
	p, err := PlanFence(c.target, r, w.sealedUnder(PredecessorName(c.target)), c.from)
	if err != nil {
		w.t.Fatal(err)
	}
	w.count["plan "+[]string{"missing", "over", "take", "observe", "changed", "again"}[p.Step]]++
	won, over := w.won[c.target]
	switch p.Step {
	case TakeReleased, ObserveThenTake:
		return true
	case AlreadyOver:
		if !over || !bytes.Equal(won, must(p.Certificate.Encode())) {
			w.t.Fatalf("%s is not over by %+v", c.target, p.Certificate)
		}
		w.promise(c.target, p.Wait, "fenced")
	case Changed:
		if q := w.procs[c.target]; q == nil || r.Incarnation != c.target || over {
			w.t.Fatalf("%s did not renew", c.target)
		}
	case ReadAgain:
		w.t.Fatal("the newest head is behind")
	case MissingEvidence:
		if over && (w.sealedUnder(PredecessorName(c.target)) != nil || r.Certificate != nil && r.Certificate.Predecessor.Incarnation == c.target) {
			w.t.Fatalf("the evidence of %s is there", c.target)
		}
	}
	c.target = ""
	return false
}

// promise notes that id must not act any more once wait has passed for a reader
// with the fastest clock.
func (w *world) promise(id string, wait time.Duration, what string) {
	if wait > 0 {
		wait = time.Duration(float64(lease.Stretch(wait, rho)) / (1 + rho/2))
		w.count["waits"]++
	}
	w.due = append(w.due, promise{id, w.now + wait, what})
}

// step does one thing of one actor, or lets time pass.
func (w *world) step(rivals []*candidate) {
	k := w.rng.IntN(100)
	if w.rough && k < 12 {
		w.operator()
	}
	switch {
	case k < 25:
		w.now += time.Duration(w.rng.Int64N(int64(700 * time.Millisecond)))
	case k < 28:
		w.now += time.Duration(w.rng.Int64N(int64(8 * time.Second)))
	case k < 45:
		w.try(rivals[w.rng.IntN(len(rivals))])
	case k < 75:
		if r, _ := w.read(); r != nil && w.procs[r.Incarnation] != nil {
			w.live(w.procs[r.Incarnation])
		} else if p := w.procs[w.anyone().Incarnation]; p != nil {
			w.live(p)
		}
	case k < 80:
		w.land()
	case k < 83:
		w.operator()
	case k < 86:
		w.fold()
	case k < 95:
		w.judge()
	default:
		w.current()
	}
	w.kept()
}

// Several processes, fencers, an operator, sealers, a pruner and judges walk at
// random over one name, with lost answers, late landings, crashes between any two
// steps and clocks that differ by rho. Each applied write and each judgement is
// checked by an oracle that knows what really happened: terms rise strictly and
// have one owner each, sequences rise by one, counters and force are never
// forgotten, certificates never differ, are sealed before the next takeover and
// say how it was, nobody acts beside a new owner unless an operator vouched, and
// who is judged over does not act any more.
//
// SPEC PL1 PL2 PL3 PL4 PL5 PL6 PL7 PL9 LS8 LS11 ST9
func TestRandomWalk(t *testing.T) {
	t.Parallel()
	count := map[string]int{}
	for seed := range *seeds {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			w := newWorld(t, seed, count)
			rivals := []*candidate{{rate: w.rate()}, {rate: w.rate()}, {rate: w.rate()}, {rate: w.rate(), fence: true}}
			for range 1500 {
				w.step(rivals)
			}
		})
	}
	t.Log(count)
	for _, what := range []string{"first", "takeover", "renew", "release", "force", "jump", "revoke", "fence", "seal", "folded", "raised",
		"acknowledged", "refused unsealed", "how released", "how observed", "how proven", "how forced", "how vouched",
		"missing", "current", "over", "behind", "by a higher term", "waits", "verified",
		"plan missing", "plan over", "plan take", "plan observe", "plan changed"} {
		if count[what] < int(*seeds)*5/6 {
			t.Errorf("only %d times %q: the walk does not reach it", count[what], what)
		}
	}
}
