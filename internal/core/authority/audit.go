package authority

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-project/tenure/store"
)

// Want is an object that an audit is to be given.
type Want struct {
	Chain string
	Name  Name
	// Limit is the largest body that is accepted.
	Limit int
}

// Audit is a fold over everything that one head reaches: every entry and blob of
// every chain, down to the floors (LA5). The caller reads what Next names and gives
// it to Take, until there is nothing more. A chain that breaks is left there, and
// the others are walked to their ends. Not safe for concurrent use.
type Audit struct {
	head   *Head
	rules  map[string]Rules
	left   []*Trail
	blob   *Step // whose blob is wanted
	seen   []Step
	sound  map[string][]Decided // of chains whose decisions name objects
	breaks []*Break
	ended  bool
}

// NewAudit begins an audit of h, with the rules of each of its chains that is not
// empty; one without is ErrInvalid.
func NewAudit(h *Head, rules ...Rules) (*Audit, error) {
	a := &Audit{head: h, rules: map[string]Rules{}, sound: map[string][]Decided{}}
	for _, r := range rules {
		a.rules[r.Chain()] = r
	}
	for _, name := range ChainNames() {
		if h.Chain(name) == nil {
			continue
		}
		if a.rules[name] == nil {
			return nil, store.Errorf(store.ErrInvalid, "", "audit", h.Authority, "the rules of chain %s are not given", name)
		}
		a.left = append(a.left, Follow(h, name, nil))
	}
	return a, nil
}

// Next is the object to be read next; false at the end.
func (a *Audit) Next() (Want, bool) {
	if a.blob != nil {
		n, _ := a.blob.Entry.BlobName()
		return Want{Chain: a.blob.Entry.Chain, Name: n, Limit: MaxBlob}, true
	}
	for len(a.left) > 0 {
		if l, ok := a.left[0].Next(); ok {
			return Want{Chain: a.left[0].name, Name: l.Name(), Limit: MaxEntry}, true
		}
		a.left = a.left[1:]
	}
	if !a.ended {
		a.ended = true
		a.judgeProofs()
	}
	return Want{}, false
}

// Left is about how many entries are to be read yet: see Trail.Left.
func (a *Audit) Left() (n uint64) {
	for _, t := range a.left {
		n += t.Left()
	}
	return n
}

// Take gives the audit the object that Next named; nil if there is none.
func (a *Audit) Take(body []byte) {
	if _, ok := a.Next(); !ok {
		return
	}
	if s := a.blob; s != nil {
		a.blob = nil
		if body == nil {
			a.fail(s.Link, s.Entry.Chain, Missing, "its blob is not there").ofBlob(s.Entry)
			return
		}
		a.judge(*s, body)
		return
	}
	t := a.left[0]
	before := len(t.steps)
	if t.Take(body) != nil {
		a.breaks = append(a.breaks, t.broken)
	}
	if len(t.steps) == before {
		return
	}
	s := t.steps[len(t.steps)-1]
	a.seen = append(a.seen, s)
	if t.broken != nil {
		return
	}
	if s.Entry.Blob != nil {
		a.blob = &s
		return
	}
	a.judge(s, nil)
}

// judge reads one decision by the rules of its chain.
func (a *Audit) judge(s Step, blob []byte) {
	e := s.Entry
	if e.Blob != nil && e.Blob.Verify("", blob) != nil {
		detail := "its blob has other bytes"
		if why, bad := spoilt(blob); bad {
			detail = "the store cannot read its blob: " + why
		}
		a.fail(s.Link, e.Chain, Altered, detail).ofBlob(e)
		return
	}
	it, err := Verify(a.rules[e.Chain], s.Link.Name().Element(), e, blob)
	switch c := a.head.Chain(e.Chain); {
	case err != nil:
		a.fail(s.Link, e.Chain, NotCanonical, err.Error())
	case it.Binding != c.Binding:
		a.fail(s.Link, e.Chain, ForeignChain, fmt.Sprintf("it is bound to %q, the chain to %q", it.Binding, c.Binding))
	case s.Link == c.Head && it.State != c.State:
		a.fail(s.Link, e.Chain, Altered, "the head says that it left another state")
	default:
		if _, refers := a.rules[e.Chain].(Refers); refers {
			a.sound[e.Chain] = append(a.sound[e.Chain], Decided{Step: s, Item: it})
		}
	}
}

// Needs lists, once Next has nothing left, the objects beside entries and blobs that
// the decisions need, of chains that did not break.
func (a *Audit) Needs() (all []Need) {
	broken := map[string]bool{}
	for _, b := range a.breaks {
		broken[b.Chain] = true
	}
	for _, name := range ChainNames() {
		if r, refers := a.rules[name].(Refers); refers && !broken[name] && len(a.sound[name]) > 0 {
			all = append(all, r.Needs(a.head.Chain(name), a.sound[name])...)
		}
	}
	return all
}

// Judge takes what was read for a need: the objects of Any, in their order, up to the
// first that is there; nil stands for one that is not. keys are theirs.
func (a *Audit) Judge(n Need, keys []string, bodies [][]byte) {
	for i, body := range bodies {
		if body == nil {
			continue
		}
		if err := n.Any[i].Verify(keys[i], body); err != nil {
			b := a.fail(n.Link, n.Chain, Altered, fmt.Sprintf("what it names at %s: %v", keys[i], err))
			b.Object = where(n.Any[i].Kind, n.Any[i].Element)
		}
		return
	}
	b := a.fail(n.Link, n.Chain, Missing, "what it names is not there: "+strings.Join(keys, ", "))
	b.Object = where(n.Any[0].Kind, n.Any[0].Element)
}

func (a *Audit) fail(l Link, chain string, flaw Flaw, detail string) *Break {
	b := &Break{Chain: chain, Link: l, Flaw: flaw, Detail: detail}
	a.breaks = append(a.breaks, b)
	if len(a.left) > 0 && a.left[0].name == chain {
		a.left = a.left[1:] // what is behind a break proves nothing
	}
	return b
}

// ofBlob says that the blob of e is what is broken.
func (b *Break) ofBlob(e *Entry) {
	n, _ := e.BlobName()
	b.Object = where(n.Kind, n.Element())
}

// judgeProofs checks, over all chains in the order of their sequences, that one
// sequence admitted one entry, that tokens do not fall and are one leader's each,
// and that they fit the leaderships that the head remembers.
func (a *Audit) judgeProofs() {
	slices.SortStableFunc(a.seen, func(x, y Step) int { return cmp.Compare(x.Link.Sequence, y.Link.Sequence) })
	leaders := map[uint64]Leadership{}
	last := a.head.Last()
	leaders[last.Token] = Leadership{Owner: last.Owner(), First: a.head.Began, Last: a.head.Sequence}
	for _, l := range a.head.Recent {
		leaders[l.Token] = l
	}
	var prev Link
	for _, s := range a.seen {
		p, seq := s.Entry.Proof, s.Link.Sequence
		l, known := leaders[p.Token]
		switch {
		case seq == prev.Sequence:
			a.fail(s.Link, s.Entry.Chain, Reordered, "another entry was admitted at the same sequence")
		case p.Token < prev.Token:
			a.fail(s.Link, s.Entry.Chain, ForeignProof, fmt.Sprintf("token %d decided after token %d did", p.Token, prev.Token))
		case known && l.Owner != p.Owner():
			a.fail(s.Link, s.Entry.Chain, ForeignProof, fmt.Sprintf("token %d was incarnation %s's, not %s's", p.Token, l.Owner.Incarnation, p.Incarnation))
		case known && (seq <= l.First || seq > l.Last):
			a.fail(s.Link, s.Entry.Chain, ForeignProof, fmt.Sprintf("token %d led from sequence %d to %d", p.Token, l.First, l.Last))
		case !known && a.between(p.Token, seq):
			a.fail(s.Link, s.Entry.Chain, ForeignProof, fmt.Sprintf("token %d led nobody then", p.Token))
		}
		if !known {
			leaders[p.Token] = Leadership{Owner: p.Owner(), First: 0, Last: a.head.Sequence}
		}
		prev = s.Link
	}
}

// between reports whether a token that the head does not remember, or its
// sequence, falls into the time that the head does remember.
func (a *Audit) between(token, sequence uint64) bool {
	oldest, began := a.head.Token, a.head.Began
	if len(a.head.Recent) > 0 {
		oldest, began = a.head.Recent[0].Token, a.head.Recent[0].First
	}
	return token >= oldest || sequence >= began
}

// Entries is how many entries were found sound by themselves.
func (a *Audit) Entries() int { return len(a.seen) }

// Breaks are all breaks that were found: at most one of each chain's links, then
// those that show only across chains.
func (a *Audit) Breaks() []*Break { return a.breaks }

// First is the first break; nil if Next has nothing left and everything is sound.
// It is of the head that the audit began with: after a break that is Missing read
// the head again, and begin anew if it moved (a compaction may have removed what
// was to be read).
func (a *Audit) First() error {
	if len(a.breaks) == 0 {
		return nil
	}
	return a.breaks[0]
}
