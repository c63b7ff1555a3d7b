package ledger

import (
	"cmp"
	"slices"
)

// flags say what became of an attempt. They join by or; none means open.
type flags uint8

const (
	failed flags = 1 << iota
	committed
	abandoned
	notStarted
	allFlags = failed | committed | abandoned | notStarted
	// lasting flags stay for ever of an attempt that a newer one of its site and run
	// followed: the newer was admitted only because this one was settled. That it failed
	// stays while the run is not committed, of the last MaxFailures such attempts.
	lasting = committed | abandoned
)

// cell is one attempt, in twelve bytes.
type cell struct {
	attempt uint32
	site    uint32 // place in table.sites
	flags   flags
	// many marks a run whose cells are in table.more.
	many bool
}

// Abandonment says who gave an attempt up (EX3). It is kept for ever.
type Abandonment struct {
	By    string `json:"by"`
	Epoch uint64 `json:"epoch"`
}

func (a Abandonment) compare(b Abandonment) int {
	return cmp.Or(number3(a.Epoch, b.Epoch), string3(a.By, b.By))
}

// Open is an attempt whose outcome nobody recorded.
type Open struct {
	Key
	Holder string `json:"holder"`
	Epoch  uint64 `json:"epoch"`
	Detail
}

// compare orders the details of one attempt. Different ones come from malformed or
// set-back logs only; the order must only be total.
func (o Open) compare(p Open) int {
	return cmp.Or(number3(o.Epoch, p.Epoch), string3(o.Holder, p.Holder), string3(o.Write, p.Write), string3(o.Trigger, p.Trigger),
		number3(o.At, p.At), number3(o.Since, p.Since), number3(o.Until, p.Until))
}

// spot is a Key with the site's place in the table.
type spot struct {
	run     RunID
	attempt uint32
	site    uint32
}

// table is the join of any facts about the attempts of one agent. Most runs have
// one attempt and cost one map entry.
type table struct {
	one    map[RunID]cell
	more   map[RunID][]cell // of runs with several cells; sorted by site name and attempt
	gone   map[spot]Abandonment
	open   map[spot]*Open
	sites  []string
	places map[string]uint32
}

func newTable(size int) *table {
	return &table{one: make(map[RunID]cell, size), more: map[RunID][]cell{}, gone: map[spot]Abandonment{},
		open: map[spot]*Open{}, places: map[string]uint32{}}
}

func (t *table) place(site string) uint32 {
	if n := len(t.sites); n > 0 && t.sites[n-1] == site {
		return uint32(n - 1) // logs come site by site
	}
	p, ok := t.places[site]
	if !ok {
		p = uint32(len(t.sites))
		t.sites = append(t.sites, site)
		t.places[site] = p
	}
	return p
}

func (t *table) key(run RunID, c cell) Key {
	return Key{Run: run, Site: t.sites[c.site], Attempt: uint64(c.attempt)}
}

// add joins flags of one attempt and reports whether the attempt is open then.
func (t *table) add(run RunID, site uint32, attempt uint32, f flags) bool {
	c, ok := t.one[run]
	switch {
	case !ok:
		t.one[run] = cell{attempt: attempt, site: site, flags: f}
		return f == 0
	case !c.many && c.site == site && c.attempt == attempt:
		if c.flags|f == c.flags {
			return c.flags == 0
		}
		t.settled(run, c)
		c.flags |= f
		t.one[run] = c
		return false
	}
	return t.addMany(run, c, cell{attempt: attempt, site: site, flags: f})
}

// settled forgets the details of an attempt that is no longer open.
func (t *table) settled(run RunID, c cell) {
	if c.flags == 0 {
		delete(t.open, spot{run, c.attempt, c.site})
	}
}

// addMany is add for a run that has, or gets, several cells.
func (t *table) addMany(run RunID, first, c cell) bool {
	cells := t.more[run]
	if !first.many {
		cells = []cell{first}
	}
	i, found := slices.BinarySearchFunc(cells, c, t.order)
	if found {
		if c.flags&^cells[i].flags != 0 {
			t.settled(run, cells[i])
		}
		cells[i].flags |= c.flags
	} else {
		cells = slices.Insert(cells, i, c)
	}
	cells = t.reduce(run, cells)
	if len(cells) == 1 {
		delete(t.more, run)
		t.one[run] = cells[0]
	} else {
		t.more[run] = cells
		t.one[run] = cell{many: true}
	}
	i, found = slices.BinarySearchFunc(cells, c, t.order)
	return found && cells[i].flags == 0
}

func (t *table) order(a, b cell) int {
	return cmp.Or(string3(t.sites[a.site], t.sites[b.site]), cmp.Compare(a.attempt, b.attempt))
}

// reduce leaves of each site's attempts the newest one, and of the older ones what
// lasts, and which of them failed as long as that counts. What it leaves out has no part
// in any later join: an older attempt stays older, a committed run committed, and the
// failures above one stay above it.
func (t *table) reduce(run RunID, cells []cell) []cell {
	older := func(i int) bool { return i+1 < len(cells) && cells[i+1].site == cells[i].site }
	done := slices.ContainsFunc(cells, func(c cell) bool { return c.flags&committed != 0 })
	var failures []int
	for i, c := range cells {
		if !older(i) {
			continue
		}
		t.settled(run, c)
		cells[i].flags &= lasting
		if c.flags&failed != 0 && !done {
			failures = append(failures, i)
		}
	}
	for _, i := range t.newest(cells, failures) {
		cells[i].flags |= failed
	}
	kept := cells[:0]
	for i, c := range cells {
		if older(i) && c.flags == 0 {
			continue
		}
		kept = append(kept, c)
	}
	return kept
}

// newest are at most MaxFailures of the cells at the given places: those of the highest
// attempts.
func (t *table) newest(cells []cell, places []int) []int {
	if len(places) <= MaxFailures {
		return places
	}
	slices.SortFunc(places, func(a, b int) int {
		return cmp.Or(cmp.Compare(cells[b].attempt, cells[a].attempt), t.order(cells[b], cells[a]))
	})
	return places[:MaxFailures]
}

// cells are the attempts of a run, sorted; none if it was never seen.
func (t *table) cells(run RunID) []cell {
	c, ok := t.one[run]
	switch {
	case !ok:
		return nil
	case c.many:
		return t.more[run]
	}
	return []cell{c}
}

// fold joins one normalised intent, which speaks of an attempt.
func (t *table) fold(i *Intent) {
	site, attempt := t.place(i.Site), uint32(i.Attempt)
	var f flags
	switch i.Status {
	case Committed:
		f = committed
	case Abandoned:
		f = abandoned
		t.abandon(spot{i.Run, attempt, site}, Abandonment{By: i.Holder, Epoch: i.Epoch})
	case Failed:
		f = failed
		if i.NotStarted {
			f = notStarted
		}
	}
	if t.add(i.Run, site, attempt, f) && f == 0 {
		t.detail(spot{i.Run, attempt, site}, Open{Key: i.Key, Holder: i.Holder, Epoch: i.Epoch, Detail: i.Detail})
	}
}

func (t *table) abandon(s spot, a Abandonment) {
	if old, ok := t.gone[s]; !ok || old.compare(a) < 0 {
		t.gone[s] = a
	}
}

func (t *table) detail(s spot, o Open) {
	if old := t.open[s]; old == nil || old.compare(o) < 0 {
		t.open[s] = &o
	}
}

// Fact is what is known of one settled attempt (EX3).
type Fact struct {
	Key
	Committed bool         `json:"committed,omitempty"`
	Failed    bool         `json:"failed,omitempty"`
	NotBegun  bool         `json:"not_started,omitempty"`
	Abandoned *Abandonment `json:"abandoned,omitempty"`
}

func (f Fact) flags() flags {
	var b flags
	for _, x := range []struct {
		on  bool
		bit flags
	}{{f.Committed, committed}, {f.Failed, failed}, {f.NotBegun, notStarted}, {f.Abandoned != nil, abandoned}} {
		if x.on {
			b |= x.bit
		}
	}
	return b
}

// put joins a fact.
func (t *table) put(f Fact) {
	site := t.place(f.Site)
	if f.Abandoned != nil {
		t.abandon(spot{f.Run, uint32(f.Attempt), site}, *f.Abandoned)
	}
	t.add(f.Run, site, uint32(f.Attempt), f.flags())
}

// putOpen joins an open attempt.
func (t *table) putOpen(o Open) {
	site := t.place(o.Site)
	if t.add(o.Run, site, uint32(o.Attempt), 0) {
		t.detail(spot{o.Run, uint32(o.Attempt), site}, o)
	}
}

// fact is cell c of run, which is settled.
func (t *table) fact(run RunID, c cell) Fact {
	f := Fact{Key: t.key(run, c), Committed: c.flags&committed != 0, Failed: c.flags&failed != 0, NotBegun: c.flags&notStarted != 0}
	if c.flags&abandoned != 0 {
		a := t.gone[spot{run, c.attempt, c.site}]
		f.Abandoned = &a
	}
	return f
}

// facts are all settled attempts, sorted.
func (t *table) facts() []Fact {
	var all []Fact
	for run := range t.one {
		for _, c := range t.cells(run) {
			if c.flags != 0 {
				all = append(all, t.fact(run, c))
			}
		}
	}
	slices.SortFunc(all, func(a, b Fact) int { return a.compare(b.Key) })
	return all
}

// opens are all open attempts, sorted.
func (t *table) opens() []Open {
	all := make([]Open, 0, len(t.open))
	for _, o := range t.open {
		all = append(all, *o)
	}
	slices.SortFunc(all, func(a, b Open) int { return a.compareKey(b) })
	return all
}

func (o Open) compareKey(p Open) int { return o.Key.compare(p.Key) }

// join adds everything of o.
func (t *table) join(o *table) {
	for s, a := range o.gone {
		t.abandon(spot{s.run, s.attempt, t.place(o.sites[s.site])}, a)
	}
	for run := range o.one {
		for _, c := range o.cells(run) {
			site := t.place(o.sites[c.site])
			if t.add(run, site, c.attempt, c.flags) && c.flags == 0 {
				t.detail(spot{run, c.attempt, site}, *o.open[spot{run, c.attempt, c.site}])
			}
		}
	}
}
