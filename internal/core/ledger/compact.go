package ledger

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

// Compaction moves facts from a head into blocks (EX7). The shell reads and writes
// what it names:
//
//	for leaf, ok := c.Next(); ok; leaf, ok = c.Next() {
//		body := read(BlockName(leaf))        // nil if absent
//		write, err := c.Take(leaf, body)
//		if write != nil {
//			create or replace over what was read; then c.Wrote(leaf) if it was
//			certainly applied, else read and take again
//		}
//	}
//	head, err := c.Head(attempt)             // replace the head that c began with
//	delete c.Split()                         // once that was applied
//
// It may stop, be repeated or run twice at the same time: blocks only grow, by what
// is true anyway. If the head cannot be replaced, begin again with the new one.
type Compaction struct {
	head  *Head
	tree  leaves
	queue []string
	facts map[string][]Fact // what each queued leaf must have
	opens map[string][]Open // the open attempts that each queued leaf is asked for
	stays []Fact
	found map[string][]Open // those that are open still, by leaf
	fresh map[string]bool   // leaves that this compaction makes
	split []string
	from  *Agent
}

// Compact plans to move every fact of h, but the commits of runs with an open
// attempt: Check must find those in the head.
func Compact(h *Head) *Compaction { return plan(h, nil) }

// Import plans a merge: everything that from knows comes into h's blocks and head
// (EX7). Epochs of other sites are kept apart; those of h's own site, from a log
// that outlived its store, raise h's. It is done when the head is written. An open
// attempt of another site makes its run unknown here until it is settled.
func Import(h *Head, from *Agent) (*Compaction, error) {
	if from.name != h.Agent {
		return nil, store.Errorf(store.ErrInvalid, "", "import", "", "the log is of %q, the ledger of %q", from.name, h.Agent)
	}
	if err := h.sameLedgers(from); err != nil {
		return nil, err
	}
	sites := map[string]bool{}
	for _, e := range h.Epochs {
		sites[e.Site] = true
	}
	for site := range from.epochs {
		sites[site] = true
	}
	for _, site := range from.t.sites {
		sites[site] = true
	}
	if delete(sites, h.Site); len(sites) > MaxSites {
		return nil, store.Errorf(store.ErrInvalid, "", "import", "", "the ledger would know %d other sites, at most %d are allowed", len(sites), MaxSites)
	}
	return plan(h, from), nil
}

// sameLedgers returns an error if from and h mean different ledgers by one site name.
func (h *Head) sameLedgers(from *Agent) error {
	if b := from.Birth(h.Site); b != "" && (b != h.Birth || len(from.births[h.Site]) > 1) {
		return store.Errorf(store.ErrInvalid, "", "import", "",
			"the log is of another ledger of job %q that is also called %q (born as %s, this one as %s): their attempts cannot be told apart; give each ledger a site name of its own from its first run on",
			h.Agent, h.Site, b, h.Birth)
	}
	both := NewAgent(h.Agent, 0)
	h.Load(both)
	return both.CanJoin(from)
}

func plan(h *Head, from *Agent) *Compaction {
	c := &Compaction{head: h, tree: h.tree(), facts: map[string][]Fact{}, opens: map[string][]Open{},
		found: map[string][]Open{}, fresh: map[string]bool{}, from: from}
	running := map[RunID]bool{}
	for _, o := range h.Open {
		running[o.Run] = true
	}
	var all []Fact
	for _, f := range h.Facts {
		if f.Committed && running[f.Run] {
			c.stays = append(c.stays, f)
		} else {
			all = append(all, f)
		}
	}
	if from == nil && len(all) == 0 {
		return c
	}
	// The head's own open attempts are asked for too: a merge may have brought that
	// one of them was settled, or followed by another.
	opens := slices.Clone(h.Open)
	if from != nil {
		all, opens = append(all, from.Facts()...), append(opens, from.Opens()...)
	}
	if c.tree == "" && len(all)+len(opens) > 0 {
		c.tree, c.fresh[""] = "0", true
	}
	for _, f := range all {
		leaf, _ := c.tree.of(f.Run)
		c.facts[leaf] = append(c.facts[leaf], f)
	}
	for _, o := range opens {
		leaf, _ := c.tree.of(o.Run)
		c.opens[leaf] = append(c.opens[leaf], o)
	}
	touched := maps.Clone(c.facts)
	for leaf := range c.opens {
		touched[leaf] = nil
	}
	c.queue = slices.Sorted(maps.Keys(touched))
	return c
}

// Next is the leaf whose block is to be read; ok is false when all are done.
func (c *Compaction) Next() (leaf string, ok bool) {
	if len(c.queue) == 0 {
		return "", false
	}
	return c.queue[0], true
}

// Take joins the block that was read (nil if it is absent) with what is to be in it,
// and returns what to write; nil if there is nothing to write, because it is there
// already or because the block is to be two: then Next names them. ErrConflict: the
// head is out of date, begin again with a new one.
func (c *Compaction) Take(leaf string, body []byte) ([]byte, error) {
	if next, ok := c.Next(); !ok || next != leaf {
		return nil, store.Errorf(store.ErrInvalid, "", "compact", "", "leaf %q is not the next", leaf)
	}
	t, had, err := c.read(leaf, body)
	if err != nil {
		return nil, err
	}
	for _, f := range c.facts[leaf] {
		t.put(f)
	}
	// The facts are taken before the open attempts come in: one that a merge brings
	// would push an older attempt out of the block, and stand in no head if the merge
	// stops here.
	facts := t.facts()
	for _, o := range c.opens[leaf] {
		t.putOpen(o)
	}
	c.found[leaf] = t.opens()
	if body != nil && slices.EqualFunc(facts, had, equalFact) {
		c.Wrote(leaf)
		return nil, nil
	}
	if c.from != nil {
		if err := checkKept(t); err != nil {
			return nil, err
		}
	}
	out, err := encodePack(packLine{Agent: c.head.Agent, Leaf: leaf}, facts, MaxBlock)
	if err == nil {
		return out, nil
	}
	if big := (*sizeError)(nil); !errors.As(err, &big) {
		return nil, err
	}
	return nil, c.divide(leaf, facts, body != nil)
}

// read is the block as a table, and its facts.
func (c *Compaction) read(leaf string, body []byte) (*table, []Fact, error) {
	t := newTable(0)
	if body == nil {
		if !c.fresh[leaf] {
			return nil, nil, store.Errorf(store.ErrConflict, "", "compact", "",
				"block %q is gone: it was split, read the head again; if the head did not change, the store lost it", BlockName(leaf))
		}
		return t, nil, nil
	}
	b, err := DecodeBlock(BlockName(leaf), c.head.Agent, leaf, body)
	if err != nil {
		return nil, nil, err
	}
	b.p.load(t)
	return t, t.facts(), nil
}

// checkKept bounds what cannot be split, the attempts of one run, where a merge brings
// them. What an own attempt adds later has room above it, and so have those that merely
// failed, which are few and small.
func checkKept(t *table) error {
	for run, cells := range t.more {
		n := 0
		for _, c := range cells {
			if c.flags != failed {
				n++
			}
		}
		if n > MaxKept {
			return store.Errorf(store.ErrInvalid, "", "compact", "", "run %v has %d attempts that are kept for ever, at most %d can be", run, n, MaxKept)
		}
	}
	return nil
}

// divide replaces leaf by its two children, which get all of its facts.
func (c *Compaction) divide(leaf string, facts []Fact, existed bool) error {
	if len(leaf) >= MaxDepth || c.tree.count() >= MaxLeaves {
		return store.Errorf(store.ErrInvalid, "", "compact", "", "the ledger of %q has %d blocks, which is all that it can have: go on under another job name",
			c.head.Agent, c.tree.count())
	}
	c.tree = c.tree.split(leaf)
	if existed {
		c.split = append(c.split, leaf)
	}
	opens := c.opens[leaf]
	delete(c.facts, leaf)
	delete(c.opens, leaf)
	delete(c.found, leaf)
	for _, child := range []string{leaf + "0", leaf + "1"} {
		c.fresh[child] = true
		for _, f := range facts {
			if f.Run.under(child) {
				c.facts[child] = append(c.facts[child], f)
			}
		}
		for _, o := range opens {
			if o.Run.under(child) {
				c.opens[child] = append(c.opens[child], o)
			}
		}
	}
	c.queue = append([]string{leaf + "0", leaf + "1"}, c.queue[1:]...)
	return nil
}

// Wrote says that what Take returned for leaf was certainly written.
func (c *Compaction) Wrote(leaf string) {
	if next, ok := c.Next(); ok && next == leaf {
		c.queue = c.queue[1:]
	}
}

// Head is the head without what was moved, as the write attempt. It must replace the
// head that the compaction began with, and is an error before all blocks are
// written. nil: there is nothing to change.
func (c *Compaction) Head(attempt string) (*Head, error) {
	if len(c.queue) > 0 {
		return nil, store.Errorf(store.ErrInvalid, "", "compact", "", "%d blocks are not written yet", len(c.queue))
	}
	if c.from == nil && len(c.stays) == len(c.head.Facts) {
		return nil, nil
	}
	n := c.head.next(attempt)
	n.Facts, n.Open, n.Leaves = nil, nil, c.tree.pack()
	a := n.agent()
	for _, f := range c.stays {
		a.t.put(f)
	}
	for _, opens := range c.found {
		for _, o := range opens {
			a.t.putOpen(o)
		}
	}
	n.set(a)
	if c.from == nil {
		return n.checked("compact", 0)
	}
	n.Imports++
	n.raise(c.from.sites())
	return n.checked("import", Headroom)
}

// raise joins what a merge knows of sites as a whole.
func (h *Head) raise(sites []SiteEpoch) {
	others := NewAgent(h.Agent, 0)
	for _, e := range h.Epochs {
		others.know(e)
	}
	for _, e := range sites {
		if e.Site != h.Site {
			others.know(e)
		} else if e.Epoch > h.Epoch {
			h.Epoch, h.Holder = e.Epoch, "import"
		}
	}
	h.Epochs = others.sites()
}

// Split are the leaves whose blocks became two. They may be deleted once the head
// is written; a reader of an older head then finds one missing and reads the head
// again.
func (c *Compaction) Split() []string { return c.split }

// Garbage are those of the listed block names (BlockName) that a compaction split
// and did not delete. A name below a leaf is no garbage: somebody may be about to
// make it one.
func (h *Head) Garbage(names []string) []string {
	all := h.Blocks()
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		bits, ok := strings.CutPrefix(name, BlockName(""))
		if !ok || !isLeaf(bits) {
			return true
		}
		i, leaf := slices.BinarySearch(all, bits)
		return leaf || i >= len(all) || !strings.HasPrefix(all[i], bits)
	})
}

// Full reports whether it is time to compact: the next admission could lack room.
func (h *Head) Full() bool {
	return len(h.Facts) > 0 && record.Size(h) > (MaxHead-Headroom)*3/4
}
