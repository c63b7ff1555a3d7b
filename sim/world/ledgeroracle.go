package world

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	core "github.com/tenure-project/tenure/internal/core/ledger"
	"github.com/tenure-project/tenure/ledger"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

// jobState is what the oracle knows of one job and its ledger. What became of an attempt
// it keeps in sets of its own, and never asks the fold.
type jobState struct {
	name    string
	headKey string
	logKey  string // what the keys of all its other objects begin with
	lease   *leaseState
	head    *core.Head
	blocks  map[string]*core.Block // as they stand, by leaf

	facts    map[core.RunID]map[core.Key]*core.Fact // everything that the ledger ever said
	attempts map[core.Key]*attempt
	merges   map[*Proc][]core.Key              // commits of another site that a process imports
	merged   map[core.Key]bool                 // those that were on their way
	verdicts map[core.Key]map[core.Status]bool // what a probe or a person is about to say
	asked    []time.Time                       // occurrences, in the order of the first asking
	effects  map[int64][]core.Key              // what happened, by occurrence
	high     uint64                            // of the guard
	done     map[core.RunID]bool               // of the guard that keeps run ids
}

// attempt is one that the head admitted.
type attempt struct {
	core.Open
	p       *Proc
	head    *core.Head // that admitted it
	headOK  bool       // its process was shown a head that lets it go on
	checked bool       // and after that a lease
	began   bool       // its function did
	at      time.Time
	ended   core.Status // what its function said; empty until then, pending if it does not know
	refused bool        // by the guard
	landed  bool        // its effect arrived, or was refused
	sent    bool
}

func newJobState(o *oracle, name string) *jobState {
	return &jobState{
		name: name, headKey: store.Key(Namespace, "ledger", name), logKey: store.Key(Namespace, "ledger-log", name) + "/",
		lease: o.byName[ledger.LeaseName(name)], blocks: map[string]*core.Block{}, facts: map[core.RunID]map[core.Key]*core.Fact{},
		attempts: map[core.Key]*attempt{}, merges: map[*Proc][]core.Key{}, merged: map[core.Key]bool{}, verdicts: map[core.Key]map[core.Status]bool{},
		effects: map[int64][]core.Key{}, done: map[core.RunID]bool{},
	}
}

// jobOf is the job whose ledger a key belongs to, nil if it is none's.
func (o *oracle) jobOf(key string) *jobState {
	for _, js := range o.jobs {
		if key == js.headKey || strings.HasPrefix(key, js.logKey) {
			return js
		}
	}
	return nil
}

// committed reports whether the ledger ever said that the run happened.
func (js *jobState) committed(run core.RunID) bool {
	for _, f := range js.facts[run] {
		if f.Committed {
			return true
		}
	}
	return false
}

// note joins what the ledger says of one attempt, and returns what it did not know.
func (js *jobState) note(f core.Fact) (news core.Fact) {
	of := js.facts[f.Run]
	if of == nil {
		of = map[core.Key]*core.Fact{}
		js.facts[f.Run] = of
	}
	was := of[f.Key]
	if was == nil {
		was = &core.Fact{Key: f.Key}
		of[f.Key] = was
	}
	news = core.Fact{Key: f.Key, Committed: f.Committed && !was.Committed, Failed: f.Failed && !was.Failed, NotBegun: f.NotBegun && !was.NotBegun}
	if was.Abandoned == nil {
		news.Abandoned, was.Abandoned = f.Abandoned, f.Abandoned
	}
	was.Committed, was.Failed, was.NotBegun = was.Committed || f.Committed, was.Failed || f.Failed, was.NotBegun || f.NotBegun
	return news
}

// ledgerEffect judges one effect on a ledger (R37).
func (o *oracle) ledgerEffect(js *jobState, e effect) {
	element, isBlock := strings.CutPrefix(e.key, js.logKey+"block/"+core.BlockName(""))
	removed := e.op == faultstore.OpDelete || e.op == faultstore.OpDeleteIf
	switch {
	case e.key == js.headKey && removed:
		o.fail("R37", "%s: the head was removed", js.name)
	case e.key == js.headKey:
		o.ledgerHead(js, e)
	case isBlock && removed:
		delete(js.blocks, element)
		o.stats["blocks removed"]++
		o.kept(js, "a block was removed")
	case isBlock:
		o.block(js, element, e)
	default:
		o.stats["results"]++
	}
}

// block judges a block that is written: it says nothing that the head or another site did
// not say before.
func (o *oracle) block(js *jobState, leaf string, e effect) {
	b, err := core.DecodeBlock(e.key, js.name, leaf, e.body)
	if err != nil {
		o.fail("R37", "%s: an unreadable block was written: %v", js.name, err)
		return
	}
	a := core.NewAgent(js.name, 0)
	b.Load(a)
	for _, f := range a.Facts() {
		if js.merged[f.Key] && f.Committed {
			continue
		}
		was := js.facts[f.Run][f.Key]
		if was == nil || f.Committed && !was.Committed || f.Failed && !was.Failed || f.NotBegun && !was.NotBegun || f.Abandoned != nil && was.Abandoned == nil {
			o.fail("R37", "%s: a block says of attempt %d at %s what nobody said: %+v", js.name, f.Attempt, f.Site, f)
		}
	}
	js.blocks[leaf] = b
	o.stats["blocks written"]++
	o.w.trace.add(who(e.from), "%s: block %q of %s, %d attempts", e.op, leaf, js.name, b.Len())
	o.kept(js, "a block was written")
}

// ledgerHead judges a head that is written over the one before.
func (o *oracle) ledgerHead(js *jobState, e effect) {
	prev := js.head
	next, err := core.DecodeHead(e.key, js.name, e.body)
	if err != nil {
		o.fail("R37", "%s: an unreadable head was written: %v", js.name, err)
		return
	}
	if prev == nil {
		prev = &core.Head{Site: next.Site, Birth: next.Birth, Sequence: next.Sequence - 1}
	}
	o.w.trace.add(who(e.from), "%s: head of %s: sequence %d, epoch %d, %d open, %d facts", e.op, js.name, next.Sequence, next.Epoch, len(next.Open), len(next.Facts))
	if next.Sequence != prev.Sequence+1 || next.Site != prev.Site || next.Birth != prev.Birth || next.Epoch < prev.Epoch || next.Imports < prev.Imports || next.Imports > prev.Imports+1 {
		o.fail("R37", "%s (by %s): sequence %d, epoch %d, merges %d after sequence %d, epoch %d, merges %d", js.name, who(e.from),
			next.Sequence, next.Epoch, next.Imports, prev.Sequence, prev.Epoch, prev.Imports)
	}
	if next.Epoch != prev.Epoch || next.Holder != prev.Holder {
		o.raisedBy(js, next, e.from)
	}
	if next.Imports != prev.Imports {
		for _, k := range js.merges[e.from] {
			if js.inBlock(next, k) {
				js.note(core.Fact{Key: k, Committed: true})
			}
		}
		o.stats["merged"]++
	}
	js.head = next
	o.saidNow(js, next, e.from)
	o.opened(js, prev, next, e.from)
	if len(prev.Facts) > len(next.Facts) || prev.Leaves != next.Leaves {
		o.stats["compacted"]++
	}
	o.kept(js, "the head was written")
}

// inBlock reports whether the block that a head names for a run knows that an attempt is
// committed: whoever reads the head reads that afterwards.
func (js *jobState) inBlock(h *core.Head, k core.Key) bool {
	leaf, ok := h.BlockOf(k.Run)
	return ok && js.blocks[leaf] != nil && slices.ContainsFunc(js.blocks[leaf].Find(k.Run), func(f core.Fact) bool { return f.Key == k && f.Committed })
}

// raisedBy judges who may put an epoch into the head: the process that was granted that
// very token.
func (o *oracle) raisedBy(js *jobState, next *core.Head, by *Proc) {
	t := js.lease.tenancy(tenureID{next.Holder, next.Epoch})
	if t == nil {
		o.fail("R37", "%s: %s raised epoch %d, which the lease never gave out", js.name, who(by), next.Epoch)
	}
	o.stats["epochs raised"]++
}

// saidNow judges the facts that are new in a head: only who was at an attempt, and who
// settles it, says what became of it, and says what is true.
func (o *oracle) saidNow(js *jobState, next *core.Head, by *Proc) {
	for _, f := range next.Facts {
		news := js.note(f)
		a, verdict := js.attempts[f.Key], js.verdicts[f.Key]
		if a == nil && js.merged[f.Key] {
			continue
		}
		if a == nil {
			o.fail("R37", "%s: attempt %d of %v was settled and never admitted", js.name, f.Attempt, f.Run)
			continue
		}
		own := a.p == by
		switch {
		case news.Committed && !(own && a.ended == core.Committed) && !verdict[core.Committed]:
			o.fail("R37", "%s: %s committed attempt %d of %s, whose function ended as %q", js.name, who(by), f.Attempt, who(a.p), a.ended)
		case news.Failed && !(own && a.ended == core.Failed):
			o.fail("R37", "%s: %s says that attempt %d of %s failed, whose function ended as %q", js.name, who(by), f.Attempt, who(a.p), a.ended)
		case news.NotBegun && !(own && !a.began) && !verdict[core.Failed]:
			o.fail("R37", "%s: %s says that attempt %d of %s did not begin, and it did", js.name, who(by), f.Attempt, who(a.p))
		case news.Abandoned != nil && o.w.Plan.Unknown != ledger.Retry && !verdict[core.Abandoned]:
			o.fail("R37", "%s: %s gave attempt %d up, and the policy is %s", js.name, who(by), f.Attempt, o.w.Plan.Unknown)
		case news.Abandoned != nil && a.Epoch >= next.Epoch && !verdict[core.Abandoned]:
			o.fail("R37", "%s: %s gave attempt %d of epoch %d up at epoch %d", js.name, who(by), f.Attempt, a.Epoch, next.Epoch)
		}
		o.toldOf("said", news)
	}
}

// toldOf counts what a fact tells.
func (o *oracle) toldOf(what string, f core.Fact) {
	for kind, on := range map[string]bool{"committed": f.Committed, "failed": f.Failed, "not begun": f.NotBegun, "abandoned": f.Abandoned != nil} {
		if on {
			o.stats[what+" "+kind]++
		}
	}
}

// opened judges the open attempts of a head: at most one was admitted, over a run that is
// not committed and has no other, and none vanished without a word.
func (o *oracle) opened(js *jobState, prev, next *core.Head, by *Proc) {
	for _, p := range prev.Open {
		if !slices.ContainsFunc(next.Open, func(n core.Open) bool { return n.Key == p.Key }) && js.facts[p.Run][p.Key] == nil {
			o.fail("R37", "%s: attempt %d of %s vanished, and nobody says what became of it", js.name, p.Attempt, who(by))
		}
	}
	fresh := 0
	for _, n := range next.Open {
		if n.Site != next.Site {
			o.fail("R37", "%s: an attempt of site %q is open", js.name, n.Site)
		}
		if slices.ContainsFunc(next.Open, func(m core.Open) bool { return m.Run == n.Run && m.Key != n.Key }) {
			o.fail("R37", "%s: two attempts of one run are open", js.name)
		}
		if js.attempts[n.Key] == nil {
			fresh++
			o.admits(js, n, next, by)
		}
	}
	if fresh > 1 {
		o.fail("R37", "%s: one write admitted %d attempts", js.name, fresh)
	}
}

// admits judges one attempt that is admitted.
func (o *oracle) admits(js *jobState, n core.Open, next *core.Head, by *Proc) {
	t := js.lease.tenancy(tenureID{n.Holder, n.Epoch})
	switch {
	case js.committed(n.Run):
		o.fail("R37", "%s: %s was admitted to a run that is committed", js.name, who(by))
	case n.Epoch != next.Epoch || n.Holder != next.Holder || t == nil:
		o.fail("R37", "%s: %s was admitted with epoch %d at epoch %d", js.name, who(by), n.Epoch, next.Epoch)
	}
	again := ""
	for k, a := range js.attempts {
		if k.Run != n.Run {
			continue
		}
		f := js.facts[k.Run][k]
		switch {
		case k.Attempt >= n.Attempt:
			o.fail("R37", "%s: attempt %d was admitted after attempt %d", js.name, n.Attempt, k.Attempt)
		case f == nil:
			o.fail("R37", "%s: attempt %d was admitted while attempt %d is open", js.name, n.Attempt, k.Attempt)
		case a.began && f.Abandoned != nil:
			again = "tried again after one was given up"
		case a.began && f.Failed:
			again = cmp.Or(again, "tried again after a failure")
		}
	}
	if again != "" {
		o.stats[again]++
	}
	o.stats["attempts admitted"]++
	js.attempts[n.Key] = &attempt{Open: n, p: by, head: next}
}

// kept judges that everything that the ledger ever said can be found: in the head, or in
// the one block that the head names for the run. Of an attempt that failed below a newer
// one nothing is kept.
func (o *oracle) kept(js *jobState, when string) {
	if js.head == nil {
		return
	}
	in := map[core.Key]core.Fact{}
	for _, f := range js.head.Facts {
		in[f.Key] = f
	}
	for run, all := range js.facts {
		var stored []core.Fact
		if leaf, ok := js.head.BlockOf(run); ok {
			b := js.blocks[leaf]
			if b == nil {
				o.fail("R37", "%s: %s, and block %q is missing", js.name, when, leaf)
				return
			}
			stored = b.Find(run)
		}
		for k, f := range all {
			got := in[k]
			for _, s := range stored {
				if s.Key == k {
					got.Committed, got.Failed, got.NotBegun = got.Committed || s.Committed, got.Failed || s.Failed, got.NotBegun || s.NotBegun
					got.Abandoned = cmp.Or(got.Abandoned, s.Abandoned)
				}
			}
			lost := f.Committed && !got.Committed || f.Abandoned != nil && got.Abandoned == nil
			if js.newest(k) {
				lost = lost || !f.Committed && (f.Failed && !got.Failed || f.NotBegun && !got.NotBegun)
			}
			if lost {
				o.fail("R37", "%s: %s, and what was known of attempt %d of a run is lost: %+v of %+v", js.name, when, k.Attempt, got, *f)
				return
			}
		}
	}
}

// newest reports whether k is the newest attempt of its site and run.
func (js *jobState) newest(k core.Key) bool {
	for other := range js.attempts {
		if other.Run == k.Run && other.Site == k.Site && other.Attempt > k.Attempt {
			return false
		}
	}
	return true
}

// served notes what a process was shown of a ledger's head or of its lease, as far as an
// attempt of its own rests on it (R38).
func (o *oracle) served(p *Proc, key string) {
	if len(o.jobs) == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, js := range o.jobs {
		if key != js.headKey && key != store.Key(Namespace, "lease", js.lease.name) {
			continue
		}
		for _, a := range js.attempts {
			if a.p == p && !a.began {
				js.shown(a, key == js.headKey)
			}
		}
	}
}

// shown notes one answer for one attempt: a head that lets it go on, and after that a
// lease that does.
func (js *jobState) shown(a *attempt, head bool) {
	switch {
	case head:
		a.headOK = a.headOK || js.head.Epoch == a.Epoch && js.head.Holder == a.Holder && slices.Contains(js.head.Open, a.Open) && !js.committed(a.Run)
	case a.headOK:
		r := js.lease.rec
		a.checked = a.checked || r != nil && r.Held() && r.Token == a.Epoch && r.Owner.Incarnation == a.Holder
	}
}

// sortedRuns are the runs that the ledger ever spoke of.
func (js *jobState) sortedRuns() []core.RunID {
	return slices.SortedFunc(maps.Keys(js.facts), func(a, b core.RunID) int { return strings.Compare(string(a[:]), string(b[:])) })
}
