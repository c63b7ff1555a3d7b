package world

import (
	"fmt"
	"slices"

	"github.com/tenure-project/tenure/internal/core/authority"
	"github.com/tenure-project/tenure/internal/core/authority/assignment"
	"github.com/tenure-project/tenure/internal/core/authority/catalog"
	"github.com/tenure-project/tenure/internal/core/authority/checkpoint"
	"github.com/tenure-project/tenure/internal/core/authority/recovery"
	"github.com/tenure-project/tenure/internal/record"
)

// chainModel is everything that was ever admitted to one chain, oldest first, and the
// bounds that were set: what a head must say of the chain follows from it.
type chainModel struct {
	name           string
	all            []admitted
	floor, horizon uint64
}

// admitted is one decision that the head admitted.
type admitted struct {
	link   authority.Link
	entry  *authority.Entry
	what   string // the decision, as told by say
	by     *Proc
	value  any
	needed []string // the objects that it rests on, by kind and element
	artful string   // its capsule's, needed from the horizon on
}

// rulesFor are the rules by which a chain's bodies are read.
func rulesFor(chain string) authority.Rules {
	switch chain {
	case authority.Checkpoint:
		return checkpoint.Rules{}
	case authority.Assignment:
		return assignment.Rules{}
	case authority.Recovery:
		return recovery.Rules{}
	case authority.Catalog:
		return catalog.Rules{}
	}
	return nil
}

// say tells a decision by what it decides, without the attempts of its writing: two
// decisions that say the same by one leadership are one decision.
func say(value any) string {
	switch v := value.(type) {
	case *checkpoint.Outcome:
		digest := ""
		if v.Capsule != nil {
			digest = v.Capsule.Digest
		}
		return fmt.Sprintf("%s %d/%d %s %s %s", v.Verdict, v.Epoch, v.Checkpoint, v.Deployment, v.Fence.State(), digest)
	case *assignment.Decision:
		return fmt.Sprintf("%s %s %s %s", v.Kind, v.Verdict, v.Predecessor.State(), v.Target.State())
	case *recovery.Release:
		return fmt.Sprintf("release %d %s %d %v", v.Generation, v.Round, v.Revision, v.Stopped)
	case *catalog.Manifest:
		body, _ := v.Encode()
		return "seal " + authority.DigestOf("said", body)
	}
	return "unreadable"
}

// newAdmitted reads a decision from the bytes of its entry, found under the name that
// its link tells; object finds what else stands.
func newAdmitted(l authority.Link, body []byte, object func(kind authority.Kind, element string) []byte) (admitted, error) {
	a := admitted{link: l}
	if body == nil {
		return a, fmt.Errorf("no object has the linked name")
	}
	if authority.DigestOf(authority.EntryDomain, body) != l.Digest {
		return a, fmt.Errorf("the linked bytes are others")
	}
	var e authority.Entry
	if err := record.Decode("", body, &e); err != nil {
		return a, err
	}
	a.entry, a.needed = &e, []string{string(authority.KindEntry) + "/" + l.Name().Element()}
	var blob []byte
	if n, ok := e.BlobName(); ok {
		blob = object(n.Kind, n.Element())
		a.needed = append(a.needed, string(n.Kind)+"/"+n.Element())
	}
	it, err := authority.Verify(rulesFor(e.Chain), "", &e, blob)
	if err != nil {
		return a, err
	}
	a.value, a.what = it.Value, say(it.Value)
	if o, ok := it.Value.(*checkpoint.Outcome); ok && o.Capsule != nil {
		n := checkpoint.CapsuleName{Epoch: o.Epoch, Token: e.Proof.Token, Attempt: o.Capsule.Attempt}
		if err := o.Capsule.Verify("", object(checkpoint.KindCapsule, n.Element())); err != nil {
			return a, fmt.Errorf("its capsule does not stand: %w", err)
		}
		a.artful = string(checkpoint.KindCapsule) + "/" + n.Element()
	}
	return a, nil
}

// last is the newest decision, nil before the first.
func (m *chainModel) last() *admitted {
	if len(m.all) == 0 {
		return nil
	}
	return &m.all[len(m.all)-1]
}

// mark is the newest marked decision.
func (m *chainModel) mark() *authority.Link {
	for _, a := range slices.Backward(m.all) {
		if a.entry.Marked {
			return &a.link
		}
	}
	return nil
}

// stands are the decisions that readers may count on: the live ones, the marked ones
// from the horizon on, and the anchors of both.
func (m *chainModel) stands() (all []admitted) {
	anchor, markAnchor := false, false
	for _, a := range slices.Backward(m.all) {
		k := a.link.Key
		keep := k >= m.floor || a.entry.Marked && k >= m.horizon
		if k < m.floor && !anchor {
			anchor, keep = true, true
		}
		if a.entry.Marked && k < m.horizon && !markAnchor {
			markAnchor, keep = true, true
		}
		if keep {
			all = append(all, a)
		}
	}
	return all
}

// chain is what a head must say; nil before the first decision.
func (m *chainModel) chain() *authority.Chain {
	last := m.last()
	if last == nil {
		return nil
	}
	c := &authority.Chain{Head: last.link, Floor: m.floor, Horizon: m.horizon, Mark: m.mark()}
	if o, ok := last.value.(*checkpoint.Outcome); ok {
		c.Binding = o.Deployment
	}
	if d, ok := last.value.(*assignment.Decision); ok {
		c.State = d.Result().State()
	}
	for _, a := range slices.Backward(m.all) {
		k := a.link.Key
		if k >= m.floor {
			c.Live++
		} else if c.Anchor == nil {
			c.Anchor = &a.link
		}
		if a.entry.Marked && k >= m.horizon {
			c.Marks++
		} else if a.entry.Marked && c.MarkAnchor == nil {
			c.MarkAnchor = &a.link
		}
	}
	return c
}

// found is the decision that l links, nil if none was ever admitted so.
func (m *chainModel) found(l authority.Link) *admitted {
	for i := range m.all {
		if m.all[i].link == l {
			return &m.all[i]
		}
	}
	return nil
}

// said is the decision that says what, by a leadership where proof is not zero; nil
// if none was ever admitted.
func (m *chainModel) said(what string, proof authority.Proof) *admitted {
	for i := range m.all {
		if m.all[i].what == what && (proof.Token == 0 || m.all[i].entry.Proof == proof) {
			return &m.all[i]
		}
	}
	return nil
}
