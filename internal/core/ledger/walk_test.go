package ledger_test

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/tenure-project/tenure/internal/core/ledger"
)

var seeds = flag.Uint64("seeds", 8, "how many random walks")

// object is one key of the store of a walk.
type object struct {
	body    []byte
	version int
}

// flight is a write whose reply was lost before it took effect: it may land yet.
type flight struct {
	key     string
	version int
	body    []byte
	landed  func()
}

// world is one ledger with several hosts on it, some of which are long dead without
// knowing it, a compactor, and merges from another site. Each step is one request. Its
// oracle is a plain list of what was written to the head, and three sets.
type world struct {
	t       *testing.T
	r       *rand.Rand
	policy  ledger.Policy
	objects map[string]object
	flights []flight
	version int
	ids     int
	reg     *ledger.Register
	now     int64

	log     *ledger.State         // every intent that was applied to the head
	began   *ledger.State         // every merge that was begun
	done    map[ledger.RunID]int  // step at which a run's first commit was applied
	late    map[ledger.RunID]bool // runs of merges that were begun
	open    map[ledger.Key]bool   // attempts of this site without an outcome
	effects map[ledger.RunID]int
	count   map[string]int
	step    int
	tasks   []func() bool // each does one request; false: over
}

const head = "head"

func (w *world) id() string { w.ids++; return uuid(w.ids) }

func (w *world) chance(percent int) bool { return w.r.IntN(100) < percent }

func (w *world) read(key string) object { return w.objects[key] }

func (w *world) apply(f flight) bool {
	if w.objects[f.key].version != f.version {
		return false
	}
	w.version++
	w.objects[f.key] = object{f.body, w.version}
	if f.landed != nil {
		f.landed()
	}
	if w.chance(12) {
		w.whole()
	}
	return true
}

// send is a conditional write: applied is what happened, known whether the writer is
// told.
func (w *world) send(f flight) (applied, known bool) {
	switch k := w.r.IntN(100); {
	case k < 84:
		return w.apply(f), true
	case k < 90:
		w.count["lost reply"]++
		return w.apply(f), false
	case k < 96:
		w.flights = append(w.flights, f)
		return false, false
	}
	return false, false
}

func (w *world) head() *ledger.Head {
	return must(ledger.DecodeHead(head, job, w.objects[head].body))
}

// whole: head and blocks together know exactly what was ever written, but for merges
// that were begun, of which they may know a part.
func (w *world) whole() {
	if w.objects[head].body == nil {
		return
	}
	got := ledger.NewAgent(job, 0)
	h := w.head()
	h.Load(got)
	for _, leaf := range h.Blocks() {
		o, ok := w.objects[ledger.BlockName(leaf)]
		if !ok {
			w.t.Fatalf("step %d: block %q is missing", w.step, leaf)
		}
		must(ledger.DecodeBlock("k", job, leaf, o.body)).Load(got)
	}
	lost := ledger.NewAgent(job, 0)
	lost.Join(got)
	lost.Join(w.log.Agent(job))
	if !lost.Equal(got) {
		w.t.Fatalf("step %d: something was lost: %+v", w.step, differ(lost, got))
	}
	bounds, more := w.bounds(), w.bounds()
	if more.Join(got); !more.Equal(bounds) {
		w.t.Fatalf("step %d: something was invented: %+v", w.step, differ(more, bounds))
	}
}

// differ is what only one of the two knows.
func differ(a, b *ledger.Agent) []ledger.Intent {
	var out []ledger.Intent
	x, y := a.Intents(), b.Intents()
	for _, i := range x {
		if !slices.Contains(y, i) {
			out = append(out, i)
		}
	}
	for _, i := range y {
		if !slices.Contains(x, i) {
			out = append(out, i)
		}
	}
	return out
}

func (w *world) bounds() *ledger.Agent {
	a := ledger.NewAgent(job, 0)
	a.Join(w.log.Agent(job))
	a.Join(w.began.Agent(job))
	return a
}

func (w *world) write(i ledger.Intent) {
	i.V, i.Agent = 1, job
	w.log.Fold(i)
	if i.Status == ledger.Committed {
		w.commit(i.Run)
	}
	if i.Status == ledger.Pending {
		w.open[i.Key] = true
	} else {
		delete(w.open, i.Key)
	}
}

func (w *world) commit(run ledger.RunID) {
	if _, ok := w.done[run]; !ok {
		w.done[run] = w.step
	}
}

// replace carries one change of the head to its end: it repeats the same write while
// it may still land, and reports whether it was applied.
func (w *world) replace(ver int, h *ledger.Head, landed func(), then func(applied bool)) func() bool {
	body, once := must(h.Encode()), false
	f := flight{head, ver, body, func() { once = true; landed() }}
	return func() bool {
		if w.objects[head].version == ver {
			if applied, known := w.send(f); !known {
				w.count["unknown write"]++
				return true // settle it: look again
			} else if applied {
				then(true)
				return false
			}
		}
		then(once)
		return false
	}
}

func (w *world) spawn(task func() bool) { w.tasks = append(w.tasks, task) }

// find reads the head and then, as another request, the block of run.
func (w *world) find(run ledger.RunID, then func(ver int, f *ledger.Found)) func() bool {
	var h *ledger.Head
	var ver, since, again int
	return func() bool {
		if h == nil {
			o := w.read(head)
			ver, since = o.version, w.step
			h = must(ledger.DecodeHead(head, job, o.body))
			if _, ok := h.BlockOf(run); ok {
				return true
			}
		}
		var b *ledger.Block
		if leaf, ok := h.BlockOf(run); ok {
			o, ok := w.objects[ledger.BlockName(leaf)]
			if !ok { // it was split meanwhile
				if w.objects[head].version == ver || again > 20 {
					w.t.Fatalf("step %d: block %q is missing", w.step, leaf)
				}
				w.count["split meanwhile"]++
				h, again = nil, again+1
				return true
			}
			b = must(ledger.DecodeBlock("k", job, leaf, o.body))
		}
		f := must(ledger.Look(h, b, run))
		yes, _ := f.Committed()
		if at, ok := w.done[run]; ok && at <= since && !yes {
			w.t.Fatalf("step %d: a run that was committed at step %d is not found by a look of step %d", w.step, at, since)
		} else if !ok && yes && !w.late[run] {
			w.t.Fatalf("step %d: a run is found that was never committed", w.step)
		}
		then(ver, f)
		return false
	}
}

// compact may stop after any request.
func (w *world) compact(from *ledger.State) {
	var c *ledger.Compaction
	var ver int
	w.spawn(func() bool {
		if w.chance(2) && from == nil {
			w.count["compaction stopped"]++
			return false
		}
		if c == nil {
			o := w.read(head)
			ver = o.version
			h := must(ledger.DecodeHead(head, job, o.body))
			if c = ledger.Compact(h); from != nil {
				c = must(ledger.Import(h, from.Agent(job)))
			}
			return true
		}
		if leaf, ok := c.Next(); ok {
			key := ledger.BlockName(leaf)
			o := w.objects[key]
			write, err := c.Take(leaf, o.body)
			if err != nil {
				c = nil // it was split meanwhile
				w.count["compaction again"]++
			} else if write != nil && w.objects[head].version == ver || write != nil && w.chance(50) {
				if applied, known := w.send(flight{key, o.version, write, nil}); applied && known {
					c.Wrote(leaf)
				}
			} else if write != nil {
				c = nil
			}
			return true
		}
		w.finish(c, ver, from)
		return false
	})
}

func (w *world) finish(c *ledger.Compaction, ver int, from *ledger.State) {
	n, err := c.Head(w.id())
	if err != nil {
		w.t.Fatal(err)
	}
	if n == nil {
		return
	}
	w.spawn(w.replace(ver, n, func() {
		if from == nil {
			return
		}
		w.log.Join(from)
		for _, f := range from.Agent(job).Facts() {
			if f.Committed {
				w.commit(f.Run)
			}
		}
		for _, o := range w.log.Agent(job).Opens() {
			w.open[o.Key] = w.open[o.Key] || o.Site == "lyon"
		}
	}, func(applied bool) {
		switch {
		case applied:
			w.count["compacted"]++
			for _, leaf := range c.Split() {
				w.count["split"]++
				w.spawn(func() bool { delete(w.objects, ledger.BlockName(leaf)); return false })
			}
		case from != nil:
			w.compact(from)
		}
	}))
}

// lyon is what another site did while it was cut off.
func (w *world) lyon(runs int) {
	s := ledger.NewState()
	for range 1 + w.r.IntN(30) {
		st := pick(w.r, ledger.Committed, ledger.Committed, ledger.Failed, ledger.Abandoned, ledger.Pending)
		run := runOf(runs + w.r.IntN(3*runs))
		if w.chance(10) {
			run = runOf(w.r.IntN(runs))
		}
		s.Fold(ledger.Intent{V: 1, Agent: job, Key: ledger.Key{Run: run, Site: "lyon", Attempt: uint64(1 + w.r.IntN(3))}, Status: st, Epoch: uint64(w.r.IntN(50)), Holder: "z"})
		w.late[run] = true
	}
	w.began.Join(s)
	w.compact(s)
	w.count["merge"]++
}

// bulk puts many old commits into the ledger, so that blocks split.
func (w *world) bulk(from, n int) {
	s := ledger.NewState()
	for i := range n {
		s.Fold(intent(10_000+from+i, "paris", 1, ledger.Committed, 0))
		w.late[runOf(10_000+from+i)] = true
	}
	w.began.Join(s)
	w.compact(s)
}

func (w *world) end(runs int) {
	w.whole()
	h := w.head()
	for n := range runs {
		run := runOf(n)
		a := w.log.Agent(job)
		_, twice := a.Committed(run)
		visible, gone := twice, 0
		for _, at := range a.Attempts(run) {
			visible = visible || at.Open != nil || at.Abandoned != nil
			if at.Abandoned != nil {
				gone++
			}
		}
		switch e := w.effects[run]; {
		case e > 1 && w.policy == ledger.Hold:
			w.t.Errorf("run %d: %d effects although nothing is ever retried", n, e)
		case e > 1 && !visible:
			w.t.Errorf("run %d: %d effects and nothing shows it", n, e)
		case e > 1+gone:
			w.t.Errorf("run %d: %d effects, %d attempts were abandoned", n, e, gone)
		case e > 1:
			w.count["residual"]++
		}
	}
	if bytes.Contains(w.objects[head].body, []byte("null")) || h.Seed() < w.log.Agent(job).Epoch("paris") {
		w.t.Errorf("the head at the end: %s", w.objects[head].body)
	}
}

// Hosts that die, stop and come back too late, replies that are lost, writes that land
// late, compactions that stop anywhere and merges from another site: a run that is
// committed is never admitted again, at most one attempt is open, nothing is ever lost
// or invented, and each residual is shown.
//
// SPEC EX2 EX3 EX4 EX7
// CASE B13
func TestRandomWalk(t *testing.T) {
	t.Parallel()
	total := map[string]int{}
	for seed := range *seeds {
		w := &world{t: t, r: rand.New(rand.NewPCG(seed, 7)), policy: pick(rand.New(rand.NewPCG(seed, 8)), ledger.Hold, ledger.Retry), objects: map[string]object{},
			reg: ledger.NewRegister(0), log: ledger.NewState(), began: ledger.NewState(), done: map[ledger.RunID]int{}, late: map[ledger.RunID]bool{},
			open: map[ledger.Key]bool{}, effects: map[ledger.RunID]int{}, count: total}
		first := must(ledger.NewHead(job, "paris", w.id()))
		w.log.Fold(ledger.Intent{V: 1, Agent: job, Key: ledger.Key{Site: "paris"}, Status: ledger.Raised, Birth: first.Birth})
		w.apply(flight{head, 0, must(first.Encode()), nil})
		const runs = 25
		w.walk(runs, 2000)
		w.end(runs)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Log(strings.ReplaceAll(fmt.Sprint(total), " ", "  "))
	for _, what := range []string{"effect", "retry", "held as unknown", "residual", "check: stale epoch", "check: withdrawn", "check: look again", "split", "split meanwhile",
		"compacted", "compaction again", "compaction stopped", "merge", "lost reply", "unknown write", "already done", "already committed", "stale at raise"} {
		if total[what] == 0 && *seeds >= 8 {
			t.Errorf("no walk came to %q", what)
		}
	}
}

func (w *world) walk(runs, steps int) {
	for w.step = 1; w.step < steps; w.step++ {
		switch k := w.r.IntN(1000); {
		case k < 90:
			w.host(runOf(w.r.IntN(runs)))
		case k < 110:
			w.compact(nil)
		case k < 113:
			w.lyon(runs)
		case k < 116:
			w.bulk(w.step*100, 500)
		case k < 150 && len(w.log.Agent(job).Opens()) > 0: // an operator, right or wrong
			o := pick(w.r, w.log.Agent(job).Opens()...)
			if w.policy == ledger.Retry {
				w.settle(ledger.Outcome{Key: o.Key, Status: ledger.Abandoned, By: "operator"})
			}
		case k < 180 && len(w.flights) > 0:
			i := w.r.IntN(len(w.flights))
			f := w.flights[i]
			w.flights = append(w.flights[:i], w.flights[i+1:]...)
			if w.apply(f) {
				w.count["landed late"]++
			}
		case len(w.tasks) > 0:
			i := w.r.IntN(len(w.tasks))
			if w.chance(45) {
				i = len(w.tasks) - 1 // most hosts are quick
			}
			task := w.tasks[i]
			w.tasks = append(w.tasks[:i], w.tasks[i+1:]...)
			if task() {
				w.spawn(task)
			}
		}
	}
}
