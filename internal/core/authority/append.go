package authority

import (
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

// Answer is what became of a decision (LA4).
type Answer int

// The answers of Append.
const (
	// Look: the answer needs the chain walked down to the decision's key. Feed a
	// trail of this head, and ask again.
	Look Answer = iota + 1 // no answer at all is none of these
	// Admit: nothing stands in the way at this head. Write the blob, the entry and
	// the head, in this order.
	Admit
	// Created: an attempt of the caller's own stands.
	Created
	// Unchanged: an identical decision stands.
	Unchanged
	// Conflict: certainly not admitted: the winner stands in its place, or is newer in
	// a chain that only rises, or is not what it builds on.
	Conflict
	// BelowFloor: the decision is older than what the chain keeps: not known.
	BelowFloor
	// Fenced: certainly not admitted: its proof leads no more.
	Fenced
)

// String names the answer.
func (a Answer) String() string {
	return []string{"none", "look", "admit", "created", "unchanged", "conflict", "below floor", "fenced"}[a]
}

// Decision is what somebody wants to stand in a chain.
type Decision struct {
	Proof Proof
	// Body are the decision's canonical bytes.
	Body []byte
	// Attempt is a fresh id of this attempt: it names the entry, and is the head
	// write's attempt id too. Every attempt over another head needs another one.
	Attempt string
	// Blob is the attempt id under which a body of more than 64 KiB is written as a
	// blob: fresh, or the one of an earlier attempt under the same token, whose name
	// was never deleted (LA8). It is not looked at for a smaller body.
	Blob  string
	NowMS int64 // wall clock, for people
	// Mine reports whether an attempt was one of this decision's own; nil for none.
	Mine func(attempt string) bool
}

// Plan is an answer, and for Admit what is to be written.
type Plan struct {
	Answer Answer
	// Winner is the entry that stands: of Created, Unchanged and Conflict.
	Winner Link
	// Entry, its canonical Body and Link, and the Head that admits it.
	Entry *Entry
	Body  []byte
	Link  Link
	Head  *Head
	// Compacted says that Head also gives up the oldest entries of the chain.
	Compacted bool
}

// Append judges d at h (LA4). t is a trail of h and the chain, walked as far as the
// caller likes; nil will do where d's key is above all that stands. The answers
// Created, Unchanged, Conflict, BelowFloor and Fenced are final for the decision:
// also for attempts whose outcome was unknown, since a head that they could have
// replaced is not there any more. An error admits nothing: ErrInvalid for what may
// not be written, ErrUnavailable where the chain is full, ErrCorrupt for a head
// older than the proof.
func Append(h *Head, r Rules, t *Trail, d Decision) (Plan, error) {
	if err := d.Proof.Valid(); err != nil {
		return Plan{}, store.Wrap(store.ErrInvalid, "", "append", r.Chain(), err)
	}
	it, err := r.Item(r.Chain(), d.Proof, d.Body)
	if err != nil {
		return Plan{}, store.Wrap(store.ErrInvalid, "", "append", r.Chain(), err)
	}
	if h == nil {
		return Plan{}, store.Errorf(store.ErrCorrupt, "", "append", r.Chain(), "the authority has no head, and token %d was given", d.Proof.Token)
	}
	if d.Proof.Token > h.Counter {
		return Plan{}, store.Errorf(store.ErrCorrupt, "", "append", h.Authority,
			"the head's counter %d is below token %d, which was given: the store went back, or the read was stale", h.Counter, d.Proof.Token)
	}
	if p, settled := d.stands(h, r, t, it); settled {
		return p, nil
	}
	if !h.Leads(d.Proof) || h.Raised() {
		return Plan{Answer: Fenced}, nil
	}
	c, compacted := h.Chain(r.Chain()), false
	if due := compaction(h, r, t); due != nil {
		c, compacted = due, true
	}
	if c != nil && (c.Live >= MaxLive || it.Marked && c.Marks >= MaxLive) {
		return Plan{}, store.Errorf(store.ErrUnavailable, "", "append", r.Chain(),
			"%d entries, %d of them marked, are live and %d is the most: advance the floor or the horizon first", c.Live, c.Marks, MaxLive)
	}
	if err := r.Admit(h, d.Proof, it); err != nil {
		return Plan{}, err
	}
	p, err := d.admit(h, r, c, it)
	p.Compacted = compacted && err == nil
	return p, err
}

// stands answers from what stands already. A decision below the floor, a standing
// identical one and a winner are told to a stale proof too.
func (d Decision) stands(h *Head, r Rules, t *Trail, it Item) (Plan, bool) {
	c := h.Chain(r.Chain())
	if c == nil {
		return Plan{}, false
	}
	if it.Key > c.Head.Key {
		if it.Binding != c.Binding || c.Head.ID != 0 && it.ID <= c.Head.ID || it.Base != c.State {
			// What stands is of another deployment, settles this ID too, or left another
			// state than this one builds on.
			return Plan{Answer: Conflict, Winner: c.Head}, true
		}
		return Plan{}, false
	}
	if !t.Of(h) {
		return d.look(c, it), true
	}
	s, presence := t.Find(it.Key)
	switch presence {
	case Further:
		return d.look(c, it), true
	case Unknown:
		return Plan{Answer: BelowFloor}, true
	case Absent:
		return Plan{Answer: Conflict, Winner: t.after(it.Key)}, true
	}
	p := Plan{Answer: Conflict, Winner: s.Link}
	if identical(r, s.Entry, d.Proof, DigestOf(BodyDomain, d.Body)) {
		p.Answer = Unchanged
		if d.Mine != nil && d.Mine(s.Link.Attempt) {
			p.Answer = Created
		}
	}
	return p, true
}

// look asks for a walk, but for an attempt of the decision's own that the head links:
// that needs none.
func (d Decision) look(c *Chain, it Item) Plan {
	for _, l := range c.links() {
		if l.Key == it.Key && d.Mine != nil && d.Mine(l.Attempt) {
			return Plan{Answer: Created, Winner: l}
		}
	}
	return Plan{Answer: Look}
}

// admit makes the entry and the head that admits it. c is the chain that it is
// added to.
func (d Decision) admit(h *Head, r Rules, c *Chain, it Item) (Plan, error) {
	next, err := h.lead("append", d.Attempt, d.Proof)
	if err != nil {
		return Plan{}, err
	}
	e := &Entry{V: record.Level, Authority: h.Authority, Chain: r.Chain(), Sequence: next.Sequence, Proof: d.Proof, Attempt: d.Attempt,
		Key: it.Key, ID: it.ID, Marked: it.Marked, At: d.NowMS}
	if len(d.Body) > MaxInline {
		b := NewBlob(d.Blob, d.Body)
		e.Blob = &b
	} else {
		e.Body = d.Body
	}
	if c != nil {
		e.Previous, e.Mark = &c.Head, c.Mark
	}
	body, err := e.Encode()
	if err != nil {
		return Plan{}, err
	}
	p := Plan{Answer: Admit, Entry: e, Body: body, Link: e.link(body), Head: next}
	*next.chain(r.Chain()) = c.with(p.Link, it)
	r.Apply(next, it)
	if err := next.Valid(); err != nil { // the shell learns it before it writes the entry
		return Plan{}, store.Wrap(store.ErrInvalid, "", "append", r.Chain(), err)
	}
	return p, nil
}

// with is c after l was admitted.
func (c *Chain) with(l Link, it Item) *Chain {
	next := Chain{Binding: it.Binding}
	if c != nil {
		next = *c
	}
	next.Head, next.State = l, it.State
	next.Live++
	if it.Marked {
		next.Mark = &l
		next.Marks++
	}
	return &next
}

// Due reports whether the next append compacts the chain if it is given a trail
// that is done (CK). Without one the append goes on until the chain is full.
func Due(h *Head, r Rules) bool {
	p, c := r.Policy(), h.Chain(r.Chain())
	return c != nil && p.CompactAt > 0 && c.Live >= p.CompactAt
}

// compaction is the chain with its floor raised so that Keep entries stay, nil if
// it is not due or t has not seen them all. Marked entries stay.
func compaction(h *Head, r Rules, t *Trail) *Chain {
	if !Due(h, r) || !t.Of(h) || !t.Done() {
		return nil
	}
	return t.bounds(t.steps[r.Policy().Keep-1].Link.Key, 0)
}
