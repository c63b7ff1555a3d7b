package storetest

import (
	"strings"
	"testing"
)

// The check of histories accepts what one register could have done, and finds
// what it could not.
//
// SPEC ST1 ST2 ST3
func TestHistory(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name string
		says string // "" is a sound history
		run  func(h *history)
	}{
		{"one after the other", "", func(h *history) {
			h.begin().wrote("", "1")
			h.begin().read("1")
			h.begin().wrote("1", "2")
			h.begin().conflicted("1")
			h.begin().read("2")
		}},
		{"a read beside a write may see either state", "", func(h *history) {
			h.begin().wrote("", "1")
			w, r, r2 := h.begin(), h.begin(), h.begin()
			r.read("2")
			r2.read("1")
			w.wrote("1", "2")
		}},
		{"a refusal beside the write that causes it", "", func(h *history) {
			h.begin().wrote("", "1")
			w, refused := h.begin(), h.begin()
			refused.conflicted("1")
			w.wrote("1", "2")
		}},
		{"two winners", "replaced twice", func(h *history) {
			h.begin().wrote("", "1")
			h.begin().wrote("1", "2")
			h.begin().wrote("1", "3")
		}},
		{"two creators", "replaced twice", func(h *history) {
			h.begin().wrote("", "1")
			h.begin().wrote("", "2")
		}},
		{"a version that came back", "came back", func(h *history) {
			h.begin().wrote("", "1")
			h.begin().wrote("1", "2")
			h.begin().wrote("2", "1")
		}},
		{"a write from nowhere", "follow one another", func(h *history) {
			h.begin().wrote("", "1")
			h.begin().wrote("8", "9")
		}},
		{"a stale read", "began after state number 1", func(h *history) {
			h.begin().wrote("", "1")
			h.begin().wrote("1", "2")
			h.begin().read("1")
		}},
		{"a read that goes back behind another read", "began after state number 1", func(h *history) {
			h.begin().wrote("", "1")
			w := h.begin()
			h.begin().read("2")
			h.begin().read("1")
			w.wrote("1", "2")
		}},
		{"a read of what nobody wrote", "no acknowledged write made", func(h *history) {
			h.begin().wrote("", "1")
			h.begin().read("7")
		}},
		{"a refusal without a cause", "was refused while", func(h *history) {
			h.begin().wrote("", "1")
			h.begin().conflicted("1")
		}},
		{"a refusal before its cause", "was refused while", func(h *history) {
			h.begin().wrote("", "1")
			h.begin().conflicted("1")
			h.begin().wrote("1", "2")
		}},
	}
	for _, c := range cases {
		h := newHistory()
		c.run(h)
		if flaw := h.flaw(); (c.says == "") != (flaw == "") || !strings.Contains(flaw, c.says) {
			t.Errorf("%s: the flaw is %q, want %q", c.name, flaw, c.says)
		}
	}
}
