package authority

import (
	"slices"

	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

// Step is one entry of a chain with the link that leads to it.
type Step struct {
	Link  Link
	Entry *Entry
}

// Trail is one walk of a chain, from the head of the register down to its bounds:
// the live entries, the anchor, then the marked entries that stay below the floor,
// and their anchor. Each entry is checked against its link before the next one is
// asked for. It is bound to what one head says of the chain. Not safe for
// concurrent use.
type Trail struct {
	authority string
	name      string
	chain     *Chain // what the head says; nil for an empty chain
	known     map[string]*Entry
	steps     []Step // newest first
	upper     int    // how many steps are live entries, or their anchor
	live      uint64
	marks     uint64
	mark      *Link // the newest marked entry that was not passed yet
	want      *Link
	stage     stage
	broken    *Break
}

type stage int

const (
	atLive stage = iota
	atAnchor
	atMarks
	atMarkAnchor
	atEnd
)

// Follow begins a walk of the named chain as h has it. before may be an earlier
// walk of the same chain, or nil: entries that it verified are not asked for again.
func Follow(h *Head, name string, before *Trail) *Trail {
	t := &Trail{authority: h.Authority, name: name, chain: h.Chain(name), known: map[string]*Entry{}, stage: atEnd}
	if before != nil && before.authority == t.authority && before.name == name {
		for _, s := range before.steps {
			t.known[s.Link.Digest] = s.Entry
		}
	}
	if t.chain != nil {
		t.mark, t.stage = t.chain.Mark, atLive
		t.ask(&t.chain.Head)
	}
	return t
}

// Of reports whether t walks the chain exactly as h has it.
func (t *Trail) Of(h *Head) bool {
	return t != nil && t.authority == h.Authority && t.chain.same(h.Chain(t.name))
}

// Chain is the name of the chain.
func (t *Trail) Chain() string { return t.name }

// Next is the entry to be read next; false at the end of the walk, or where it
// broke.
func (t *Trail) Next() (Link, bool) {
	if t.want == nil || t.broken != nil {
		return Link{}, false
	}
	return *t.want, true
}

// Left is about how many entries are to be read yet, and not more than that: those
// that are marked and stay below the floor may be missing.
func (t *Trail) Left() uint64 {
	if t.want == nil || t.broken != nil {
		return 0
	}
	all, known := max(t.chain.Live, t.chain.Marks), uint64(len(t.known))
	return all - min(known, all)
}

// Done reports whether the whole chain was walked and found sound.
func (t *Trail) Done() bool { return t.stage == atEnd && t.broken == nil }

// Steps are the entries walked so far, newest first. The caller does not change
// them.
func (t *Trail) Steps() []Step { return t.steps }

// Take gives the walk the bytes of the entry that Next named; nil if no object has
// that name. The error is a *Break, and the walk is over with it: the chain is
// corrupt, unless a newer head says something else of the chain (a compaction may
// have removed what this walk was to read).
func (t *Trail) Take(body []byte) error {
	l, ok := t.Next()
	if !ok {
		return store.Errorf(store.ErrInvalid, "", "walk", t.name, "the walk asked for nothing")
	}
	e, err := t.read(l, body)
	if err == nil {
		t.known[l.Digest] = e
		err = t.pass(l, e)
	}
	if err == nil {
		err = t.skip()
	}
	return err
}

// ask wants l, and passes what is known of it and of those behind it.
func (t *Trail) ask(l *Link) {
	t.want = l
	_ = t.skip() // a break is kept
}

// skip passes entries that an earlier walk verified.
func (t *Trail) skip() error {
	for t.want != nil {
		l := *t.want
		e := t.known[l.Digest]
		if e == nil {
			return nil
		}
		if err := t.pass(l, e); err != nil {
			return err
		}
	}
	return nil
}

func (t *Trail) fail(l Link, flaw Flaw, detail string) error {
	t.broken = &Break{Chain: t.name, Link: l, Flaw: flaw, Detail: detail}
	return t.broken
}

// Broken is the break that ended the walk; nil if none did.
func (t *Trail) Broken() *Break { return t.broken }

func (t *Trail) read(l Link, body []byte) (*Entry, error) {
	if body == nil {
		return nil, t.fail(l, Missing, "no object has this name")
	}
	if why, bad := spoilt(body); bad {
		return nil, t.fail(l, Altered, "the store cannot read it: "+why)
	}
	if DigestOf(EntryDomain, body) != l.Digest {
		return nil, t.fail(l, Altered, "its bytes have another digest than the link")
	}
	var e Entry
	if err := record.Decode(l.Name().Element(), body, &e); err != nil {
		return nil, t.fail(l, NotCanonical, err.Error())
	}
	return &e, nil
}

// pass checks e, which l links, at the place where the walk stands, and turns to
// the next one.
func (t *Trail) pass(l Link, e *Entry) error {
	switch {
	case e.Authority != t.authority || e.Chain != t.name:
		return t.fail(l, ForeignChain, "it belongs to chain "+e.Chain+" of authority "+e.Authority)
	case e.Sequence != l.Sequence || e.Key != l.Key || e.ID != l.ID || e.Proof.Token != l.Token || e.Attempt != l.Attempt:
		return t.fail(l, Reordered, "it is another entry than its link says")
	}
	if n := len(t.steps); n > 0 && !l.before(t.steps[n-1].Link) {
		return t.fail(l, Reordered, "it does not stand before the entry that links it")
	}
	t.steps = append(t.steps, Step{Link: l, Entry: e})
	switch t.stage {
	case atLive:
		return t.passLive(l, e)
	case atAnchor:
		return t.passAnchor(l, e)
	case atMarks:
		if !e.Marked {
			return t.fail(l, Reordered, "it is linked as a marked entry and is none")
		}
		t.marks++
		t.mark = e.Mark
		if t.marks > t.chain.Marks {
			return t.fail(l, Gap, "the head counts fewer marked entries than there are")
		}
		return t.turnToMarks(l)
	}
	return t.finish(l)
}

// passMark checks that e links the newest marked entry before it, as the entry
// after it said.
func (t *Trail) passMark(l Link, e *Entry) error {
	if !e.Marked {
		if !sameLink(e.Mark, t.mark) {
			return t.fail(l, Reordered, "it names another newest marked entry than the one after it")
		}
		return nil
	}
	if t.mark == nil || *t.mark != l {
		return t.fail(l, Reordered, "it is marked, and the entry after it does not know")
	}
	if l.Key >= t.chain.Horizon {
		t.marks++
	}
	t.mark = e.Mark
	return nil
}

func (t *Trail) passLive(l Link, e *Entry) error {
	t.upper++
	t.live++
	if err := t.passMark(l, e); err != nil {
		return err
	}
	c, prev := t.chain, e.Previous
	switch {
	case t.live > c.Live:
		return t.fail(l, Gap, "the head counts fewer live entries than there are")
	case prev == nil && c.Anchor != nil:
		return t.fail(l, Gap, "the chain begins here, above its anchor")
	case prev == nil:
		return t.turnToMarks(l)
	case prev.Key >= c.Floor:
		t.want = prev
		return nil
	case c.Anchor == nil || *prev != *c.Anchor:
		return t.fail(*prev, UnderFloor, "it is below the floor and not the anchor")
	}
	t.stage, t.want = atAnchor, prev
	return nil
}

func (t *Trail) passAnchor(l Link, e *Entry) error {
	t.upper++
	if err := t.passMark(l, e); err != nil {
		return err
	}
	if a := t.chain.MarkAnchor; a != nil && *a == l {
		return t.finish(l)
	}
	return t.turnToMarks(l)
}

// turnToMarks goes on with the marked entries below l.
func (t *Trail) turnToMarks(l Link) error {
	m, a := t.mark, t.chain.MarkAnchor
	t.want = nil
	switch {
	case m == nil && a == nil:
		return t.finish(l)
	case m == nil:
		return t.fail(l, Gap, "the marked entries end above their anchor")
	case m.Key >= t.chain.Horizon:
		if t.stage == atLive { // no entry stands before the oldest live one
			return t.fail(*m, Gap, "it is linked as a marked entry only")
		}
		t.stage, t.want = atMarks, m
		return nil
	case a == nil || *m != *a:
		return t.fail(*m, UnderFloor, "it is below the horizon and not the anchor")
	}
	t.stage, t.want = atMarkAnchor, m
	return nil
}

func (t *Trail) finish(l Link) error {
	t.stage, t.want = atEnd, nil
	if t.live != t.chain.Live || t.marks != t.chain.Marks {
		return t.fail(l, Gap, "the head counts other entries than there are")
	}
	return nil
}

// Presence says what a walk knows of a key.
type Presence int

// The answers of Find.
const (
	// Absent: no entry of this key was ever admitted.
	Absent Presence = iota
	// Present: it is there.
	Present
	// Unknown: it is below the floor, where entries were given up.
	Unknown
	// Further: the walk has not come so far.
	Further
)

// Find looks for the entry of key, as far as the walk has come.
func (t *Trail) Find(key uint64) (Step, Presence) {
	c := t.chain
	if c == nil || key > c.Head.Key {
		return Step{}, Absent
	}
	i, found := slices.BinarySearchFunc(t.steps, key, func(s Step, key uint64) int {
		switch {
		case s.Link.Key > key:
			return -1
		case s.Link.Key < key:
			return 1
		}
		return 0
	})
	switch {
	case found:
		return t.steps[i], Present
	case key >= c.Floor && (i < len(t.steps) || t.stage == atEnd):
		return Step{}, Absent
	case key >= c.Floor:
		return Step{}, Further
	case t.stage == atEnd || !t.mayHold(key):
		return Step{}, Unknown
	}
	return Step{}, Further
}

// mayHold reports whether anything below the floor that stayed can have key.
func (t *Trail) mayHold(key uint64) bool {
	c := t.chain
	for _, a := range []*Link{c.Anchor, c.MarkAnchor} {
		if a != nil && a.Key == key {
			return true
		}
	}
	return c.Mark != nil && key >= c.Horizon
}

// after is the oldest entry walked with a key above key.
func (t *Trail) after(key uint64) Link {
	for _, s := range slices.Backward(t.steps) {
		if s.Link.Key > key {
			return s.Link
		}
	}
	return t.chain.Head
}

// bounds returns the chain with its floor and horizon raised, or nil if both are
// where they are. The walk is done.
func (t *Trail) bounds(floor, horizon uint64) *Chain {
	next := *t.chain
	next.Floor, next.Horizon = max(next.Floor, floor), max(next.Horizon, horizon)
	next.Live, next.Marks, next.Anchor, next.MarkAnchor = 0, 0, nil, nil
	for i, s := range t.steps {
		l := s.Link
		if i < t.upper && l.Key >= next.Floor {
			next.Live++
		}
		if i < t.upper && l.Key < next.Floor && next.Anchor == nil {
			next.Anchor = &l
		}
		if s.Entry.Marked && l.Key >= next.Horizon {
			next.Marks++
		}
		if s.Entry.Marked && l.Key < next.Horizon && next.MarkAnchor == nil {
			next.MarkAnchor = &l
		}
	}
	if next.same(t.chain) {
		return nil
	}
	return &next
}
