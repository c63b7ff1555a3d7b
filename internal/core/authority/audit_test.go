package authority

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

// chained is a log to be broken: two leaders, two chains, a blob, a floor.
func chained(t *testing.T) (shelf, *Head) {
	t.Helper()
	s, h := log(t)
	r := toys{chain: Checkpoint}
	h = s.append(h, r, toy{Key: 10, ID: 100, Marked: true, Binding: idC}, 50)
	h = s.append(h, toys{chain: Assignment}, toy{Key: 1, State: idA, Text: strings.Repeat("x", MaxInline)}, 52)
	h = s.append(h, r, toy{Key: 12, ID: 120, Binding: idC}, 54)
	h = must(must(s.walk(h, Checkpoint)).Advance(h, h.Last(), try(56), 6, 0))
	if a := s.audit(h); a.First() != nil || a.Entries() != 6 {
		t.Fatalf("%d, %v", a.Entries(), a.First())
	}
	return s, h
}

// forge changes the entry at l, which is the head of its chain, as if it had been
// admitted so.
func (s shelf) forge(h *Head, chain string, change func(e *Entry)) *Head {
	c := *h.Chain(chain)
	var e Entry
	if err := record.Decode("k", s[c.Head.Name()], &e); err != nil {
		panic(err)
	}
	change(&e)
	body := must(e.Encode())
	next := h.copy()
	mark := c.Mark != nil && *c.Mark == c.Head
	c.Head = e.link(body)
	if mark {
		c.Mark = &c.Head
	}
	*next.chain(chain) = &c
	s[e.Name()] = body
	return next
}

// The audit names the first broken link of a chain, and how it is broken.
//
// SPEC LA5 LA4 LA8 ST7
func TestAuditNamesTheBreak(t *testing.T) {
	t.Parallel()
	find := func(s shelf, h *Head, key uint64) Link {
		for _, step := range must(s.walk(h, Checkpoint)).Steps() {
			if step.Link.Key == key {
				return step.Link
			}
		}
		panic("no such entry")
	}
	for what, x := range map[string]struct {
		change func(s shelf, h *Head) *Head
		flaw   Flaw
		key    uint64
	}{
		"an entry is gone": {func(s shelf, h *Head) *Head { delete(s, find(s, h, 8).Name()); return h }, Missing, 8},
		"the head's entry": {func(s shelf, h *Head) *Head { delete(s, h.Checkpoint.Head.Name()); return h }, Missing, 12},
		"the anchor":       {func(s shelf, h *Head) *Head { delete(s, h.Checkpoint.Anchor.Name()); return h }, Missing, 4},
		"a blob is gone":   {func(s shelf, h *Head) *Head { delete(s, Name{KindBlob, 2, try(53)}); return h }, Missing, 1},
		"a blob's bit": {func(s shelf, h *Head) *Head {
			n := Name{KindBlob, 2, try(53)}
			s[n] = bytes.Replace(s[n], []byte("xx"), []byte("xy"), 1)
			return h
		}, Altered, 1},
		"an entry's bit": {func(s shelf, h *Head) *Head {
			n := find(s, h, 8).Name()
			s[n] = bytes.Replace(s[n], []byte(`"at_ms":1`), []byte(`"at_ms":2`), 1)
			return h
		}, Altered, 8},
		"two are exchanged": {func(s shelf, h *Head) *Head {
			a, b := find(s, h, 6).Name(), find(s, h, 8).Name()
			s[a], s[b] = s[b], s[a]
			return h
		}, Altered, 8},
		"not canonical": {func(s shelf, h *Head) *Head {
			c := *h.Checkpoint
			body := append(bytes.Clone(s[c.Head.Name()]), '\n')
			s[c.Head.Name()] = body
			c.Head.Digest = DigestOf(EntryDomain, body)
			next := h.copy()
			next.Checkpoint = &c
			return next
		}, NotCanonical, 12},
		"a body that says another key": {func(s shelf, h *Head) *Head {
			return s.forge(h, Checkpoint, func(e *Entry) { e.Body = raw(toy{Key: 13, ID: 120, Binding: idC}) })
		}, NotCanonical, 12},
		"another binding": {func(s shelf, h *Head) *Head {
			return s.forge(h, Checkpoint, func(e *Entry) { e.Body = raw(toy{Key: 12, ID: 120, Binding: idA}) })
		}, ForeignChain, 12},
		"another state": {func(s shelf, h *Head) *Head {
			return s.forge(h, Assignment, func(e *Entry) { e.Blob, e.Body = nil, raw(toy{Key: 1, State: idB}) })
		}, Altered, 1},
		"another chain's":     {func(s shelf, h *Head) *Head { return s.forge(h, Checkpoint, func(e *Entry) { e.Chain = Recovery }) }, ForeignChain, 12},
		"another authority's": {func(s shelf, h *Head) *Head { return s.forge(h, Checkpoint, func(e *Entry) { e.Authority = "other" }) }, ForeignChain, 12},
		"one left out": {func(s shelf, h *Head) *Head {
			p, m := find(s, h, 8), find(s, h, 4)
			return s.forge(h, Checkpoint, func(e *Entry) { e.Previous, e.Mark = &p, &m })
		}, Reordered, 12},
		"the chain ends": {func(s shelf, h *Head) *Head {
			return s.forge(h, Checkpoint, func(e *Entry) { e.Previous, e.Mark = nil, nil })
		}, Reordered, 12},
		"a beginning above the anchor": {func(s shelf, h *Head) *Head {
			next := s.forge(h, Checkpoint, func(e *Entry) {
				e.Previous, e.Mark, e.Marked, e.Body = nil, nil, true, raw(toy{Key: 12, ID: 120, Marked: true, Binding: idC})
			})
			c := *next.Checkpoint
			c.Mark = &c.Head
			next.Checkpoint = &c
			return next
		}, Gap, 12},
		"a floor with another anchor": {func(s shelf, h *Head) *Head {
			c := *h.Checkpoint
			a := *c.Anchor
			a.Attempt = try(99)
			c.Anchor = &a
			next := h.copy()
			next.Checkpoint = &c
			return next
		}, UnderFloor, 4},
		"fewer than are counted": {func(s shelf, h *Head) *Head {
			c := *h.Checkpoint
			c.Live++
			next := h.copy()
			next.Checkpoint = &c
			return next
		}, Gap, 4},
		"more than are counted": {func(s shelf, h *Head) *Head {
			c := *h.Checkpoint
			c.Live--
			next := h.copy()
			next.Checkpoint = &c
			return next
		}, Gap, 6},
		"more marks": {func(s shelf, h *Head) *Head {
			c := *h.Checkpoint
			c.Marks--
			next := h.copy()
			next.Checkpoint = &c
			return next
		}, Gap, 4},
		"a mark is hidden": {func(s shelf, h *Head) *Head {
			m := find(s, h, 4)
			return s.forge(h, Checkpoint, func(e *Entry) { e.Mark = &m })
		}, Reordered, 12},
		"another's token": {func(s shelf, h *Head) *Head {
			return s.forge(h, Checkpoint, func(e *Entry) { e.Proof.Incarnation = idA })
		}, ForeignProof, 12},
		"before it led": {func(s shelf, h *Head) *Head {
			h.Began = h.Checkpoint.Head.Sequence
			return h
		}, ForeignProof, 10},
		"after it led": {func(s shelf, h *Head) *Head {
			h.Recent[0].Last = 3
			return h
		}, ForeignProof, 6},
		"an unknown leader": {func(s shelf, h *Head) *Head {
			h.Recent[0].Token, h.Token, h.Counter = 2, 5, 5
			return h
		}, ForeignProof, 4},
		"two at one sequence": {func(s shelf, h *Head) *Head {
			q := find(s, h, 10).Sequence
			return s.forge(h, Assignment, func(e *Entry) { e.Sequence = q })
		}, Reordered, 0},
	} {
		s, h := chained(t)
		a := s.audit(x.change(s, h))
		var b *Break
		if !errors.As(a.First(), &b) || b.Flaw != x.flaw || x.key != 0 && b.Link.Key != x.key || !errors.Is(b, store.ErrCorrupt) {
			t.Errorf("%s: %v; want %s at key %d", what, a.First(), x.flaw, x.key)
		}
	}
}

// One broken chain does not hide another, and a chain is not walked without its
// rules.
//
// SPEC LA5
func TestAuditGoesOn(t *testing.T) {
	t.Parallel()
	s, h := chained(t)
	delete(s, h.Checkpoint.Head.Name())
	delete(s, h.Assignment.Head.Name())
	if b := s.audit(h).Breaks(); len(b) != 2 || b[0].Chain != Checkpoint || b[1].Chain != Assignment || !strings.Contains(b[0].Error(), "missing") {
		t.Errorf("%v", b)
	}
	if _, err := NewAudit(h, toys{chain: Checkpoint}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("without rules: %v", err)
	}
	if a := s.audit(first()); a.First() != nil || a.Entries() != 0 {
		t.Errorf("nothing at all: %v", a.First())
	}
	a := s.audit(first())
	a.Take([]byte("x")) // nothing was asked for
	if a.First() != nil {
		t.Error(a.First())
	}
}
