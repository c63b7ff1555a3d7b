package ledger

import (
	"cmp"
	"maps"
	"slices"

	"github.com/tenure-project/tenure/store"
)

// State is the fold of any intents, in any order, with any repeats (EX3). The zero
// value is not ready: use NewState. Not for concurrent use.
type State struct {
	agents map[string]*Agent
	known  known
	last   *Agent // of the last intent: logs come agent by agent
}

// NewState is the fold of nothing.
func NewState() *State { return &State{agents: map[string]*Agent{}} }

// Fold joins one intent. It is total: a malformed intent goes where it can fence
// and promote nothing (EX3).
func (s *State) Fold(i Intent) {
	i.normalise(&s.known)
	if s.last == nil || s.last.name != i.Agent {
		s.last = s.agent(i.Agent)
	}
	s.last.fold(&i)
}

// Join adds everything that o knows. Joins are commutative, associative and
// idempotent (EX3).
func (s *State) Join(o *State) {
	for name, a := range o.agents {
		s.agent(name).Join(a)
	}
}

func (s *State) agent(name string) *Agent {
	a := s.agents[name]
	if a == nil {
		a = NewAgent(name, 0)
		s.agents[name] = a
	}
	return a
}

// OneEach is Agent.OneEach of every agent.
func (s *State) OneEach() error {
	for _, name := range s.Agents() {
		if err := s.agents[name].OneEach(); err != nil {
			return err
		}
	}
	return nil
}

// Agents are the names that any intent spoke of, sorted. Malformed ones are "".
func (s *State) Agents() []string { return slices.Sorted(maps.Keys(s.agents)) }

// Agent is what is known of one agent; an empty one if nothing is. Do not use it
// while the state folds.
func (s *State) Agent(name string) *Agent {
	if a := s.agents[name]; a != nil {
		return a
	}
	return NewAgent(name, 0)
}

// Into is Agent to be changed: what is joined into it, the state knows.
func (s *State) Into(name string) *Agent { return s.agent(name) }

// Equal reports whether both know the same.
func (s *State) Equal(o *State) bool {
	for _, name := range slices.Concat(s.Agents(), o.Agents()) {
		if !s.Agent(name).Equal(o.Agent(name)) {
			return false
		}
	}
	return true
}

// Agent is the fold of one agent's intents. Not for concurrent use.
type Agent struct {
	name   string
	epochs map[string]uint64   // highest, by site
	births map[string][]string // of the ledgers that were called so, by site; sorted
	t      *table
}

// NewAgent is the fold of nothing, with room for size runs.
func NewAgent(name string, size int) *Agent {
	return &Agent{name: name, epochs: map[string]uint64{}, t: newTable(size)}
}

// Name is the agent's.
func (a *Agent) Name() string { return a.name }

func (a *Agent) fold(i *Intent) {
	// Whoever abandons may be of another site, with an epoch of its own kind.
	if i.Status != Abandoned && i.Epoch > a.epochs[i.Site] {
		a.epochs[i.Site] = i.Epoch
	}
	if i.Status != Raised {
		a.t.fold(i)
	} else if i.Birth != "" {
		a.born(i.Site, i.Birth)
	}
}

// know joins what is known of a site as a whole.
func (a *Agent) know(e SiteEpoch) {
	a.epochs[e.Site] = max(a.epochs[e.Site], e.Epoch)
	if e.Birth != "" {
		a.born(e.Site, e.Birth)
	}
}

func (a *Agent) born(site, birth string) {
	if a.births == nil { // an answer about one run needs none
		a.births = map[string][]string{}
	}
	all := a.births[site]
	if at, found := slices.BinarySearch(all, birth); !found {
		a.births[site] = slices.Insert(slices.Clone(all), at, birth)
	}
}

// sites is what is known of every site as a whole, sorted. A site of which two births
// are known is there twice.
func (a *Agent) sites() []SiteEpoch {
	var all []SiteEpoch
	for site, births := range a.births {
		for _, b := range births {
			all = append(all, SiteEpoch{site, a.epochs[site], b})
		}
	}
	for site, e := range raised(a.epochs) {
		if len(a.births[site]) == 0 {
			all = append(all, SiteEpoch{Site: site, Epoch: e})
		}
	}
	slices.SortFunc(all, SiteEpoch.compare)
	return all
}

// Birth is the birth of the ledger that is called site; "" if it is not known.
func (a *Agent) Birth(site string) string {
	if b := a.births[site]; len(b) > 0 {
		return b[0]
	}
	return ""
}

// OneEach returns ErrInvalid if two ledgers are called by one site name: the attempts of
// one would be taken for those of the other, so that nothing can be said of either (EX7).
func (a *Agent) OneEach() error {
	for _, site := range slices.Sorted(maps.Keys(a.births)) {
		if b := a.births[site]; len(b) > 1 {
			return store.Errorf(store.ErrInvalid, "", "merge", "",
				"two ledgers of job %q are called %q, one born as %s, the other as %s: they cannot be merged; each ledger needs a site name of its own from its first run on",
				a.name, site, b[0], b[1])
		}
	}
	return nil
}

// CanJoin is OneEach of both together.
func (a *Agent) CanJoin(o *Agent) error {
	both := NewAgent(a.name, 0)
	for _, x := range []*Agent{a, o} {
		for site, births := range x.births {
			for _, b := range births {
				both.born(site, b)
			}
		}
	}
	return both.OneEach()
}

// Join adds everything that o knows, whatever o's name is.
func (a *Agent) Join(o *Agent) {
	for site, e := range o.epochs {
		a.epochs[site] = max(a.epochs[site], e)
	}
	for site, births := range o.births {
		for _, b := range births {
			a.born(site, b)
		}
	}
	a.t.join(o.t)
}

// Len is how many runs were ever seen.
func (a *Agent) Len() int { return len(a.t.one) }

// Epoch is the highest epoch of a site (EX3). Epochs of different sites are not
// comparable (EX7).
func (a *Agent) Epoch(site string) uint64 { return a.epochs[site] }

// Epochs are the highest of every site.
func (a *Agent) Epochs() map[string]uint64 { return raised(a.epochs) }

// Seed is above what a coordinator that lost its counter must start (EX2): the
// highest epoch of any site, since one that is too high harms nobody.
func (a *Agent) Seed() uint64 {
	var top uint64
	for _, e := range a.epochs {
		top = max(top, e)
	}
	return top
}

// Committed reports whether the run happened: the answer of the committed view,
// which knows no epochs (EX3). repeated reports that it may have happened more
// than once: two attempts committed, or one that was abandoned did.
func (a *Agent) Committed(run RunID) (yes, repeated bool) {
	c := a.t.one[run]
	if !c.many {
		return c.flags&committed != 0, c.flags&(committed|abandoned) == committed|abandoned
	}
	return verdict(a.t.more[run])
}

func verdict(cells []cell) (yes, repeated bool) {
	n := 0
	for _, c := range cells {
		if c.flags&committed != 0 {
			n++
			repeated = repeated || c.flags&abandoned != 0
		}
	}
	return n > 0, repeated || n > 1
}

// Attempt is one attempt as a reader sees it.
type Attempt struct {
	Fact
	// Open is set while nobody recorded an outcome.
	Open *Open
	// Fenced: it is open, and its site gave out a higher epoch since. Its holder
	// lost the lease and may still be at it.
	Fenced bool
}

// rank orders what became of an attempt: committed beats failed, failed beats
// open.
func (t Attempt) rank() int {
	switch {
	case t.Committed:
		return 3
	case t.Failed || t.NotBegun:
		return 2
	case t.Abandoned != nil:
		return 1
	}
	return 0
}

// Attempts are what is known of a run's attempts, by site and number.
func (a *Agent) Attempts(run RunID) []Attempt {
	var all []Attempt
	for _, c := range a.t.cells(run) {
		at := Attempt{Fact: a.t.fact(run, c)}
		if c.flags == 0 {
			at.Open = a.t.open[spot{run, c.attempt, c.site}]
			at.Fenced = at.Open.Epoch < a.epochs[at.Site]
		}
		all = append(all, at)
	}
	return all
}

// Current is the current view of a run (EX3): a commit if there is one, else the
// newest attempt that is not fenced. ok is false if there is none: that does not
// say that the run never happened, which is what Committed is asked for.
func (a *Agent) Current(run RunID) (Attempt, bool) {
	var best Attempt
	found := false
	for _, at := range a.Attempts(run) {
		if at.Fenced {
			continue
		}
		if !found || cmp.Or(cmp.Compare(btoi(at.Committed), btoi(best.Committed)), number3(at.Attempt, best.Attempt),
			cmp.Compare(at.rank(), best.rank())) > 0 {
			best, found = at, true
		}
	}
	return best, found
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Opens are the attempts without an outcome, sorted by run, site and attempt: what
// is running, and what is unknown.
func (a *Agent) Opens() []Open { return a.t.opens() }

// Facts are all settled attempts, sorted by run, site and attempt.
func (a *Agent) Facts() []Fact { return a.t.facts() }

// Repeated are the runs that may have happened more than once, sorted.
func (a *Agent) Repeated() []RunID {
	var all []RunID
	for run := range a.t.one {
		if _, twice := a.Committed(run); twice {
			all = append(all, run)
		}
	}
	slices.SortFunc(all, func(x, y RunID) int { return string3(string(x[:]), string(y[:])) })
	return all
}

// Equal reports whether both know the same.
func (a *Agent) Equal(b *Agent) bool {
	if a.name != b.name || a.Len() != b.Len() || len(a.t.open) != len(b.t.open) {
		return false
	}
	return slices.Equal(a.sites(), b.sites()) && slices.EqualFunc(a.Facts(), b.Facts(), equalFact) &&
		slices.Equal(a.Opens(), b.Opens())
}

// raised leaves the epochs that say something.
func raised(epochs map[string]uint64) map[string]uint64 {
	m := maps.Clone(epochs)
	maps.DeleteFunc(m, func(_ string, e uint64) bool { return e == 0 })
	return m
}

func equalFact(a, b Fact) bool {
	if (a.Abandoned == nil) != (b.Abandoned == nil) || a.Abandoned != nil && *a.Abandoned != *b.Abandoned {
		return false
	}
	a.Abandoned, b.Abandoned = nil, nil
	return a == b
}

// Intents are the fewest intents that fold to this state: a log file compacted
// (EX7). Facts carry no holder and no epoch any more.
func (a *Agent) Intents() []Intent {
	var all []Intent
	add := func(k Key, status Status, holder string, epoch uint64) *Intent {
		all = append(all, Intent{V: 1, Agent: a.name, Key: k, Status: status, Holder: holder, Epoch: epoch})
		return &all[len(all)-1]
	}
	for _, e := range a.sites() {
		add(Key{Site: e.Site}, Raised, "", e.Epoch).Birth = e.Birth
	}
	for _, o := range a.Opens() {
		add(o.Key, Pending, o.Holder, o.Epoch).Detail = o.Detail
	}
	for _, f := range a.Facts() {
		if f.Committed {
			add(f.Key, Committed, "", 0)
		}
		if f.Failed {
			add(f.Key, Failed, "", 0)
		}
		if f.NotBegun {
			add(f.Key, Failed, "", 0).NotStarted = true
		}
		if f.Abandoned != nil {
			add(f.Key, Abandoned, f.Abandoned.By, f.Abandoned.Epoch)
		}
	}
	return all
}
