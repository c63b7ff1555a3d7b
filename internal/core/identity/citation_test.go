package identity

import (
	"errors"
	"testing"

	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

const (
	citeA = "aaaaaaaa-0000-4000-8000-000000000001"
	citeB = "bbbbbbbb-0000-4000-8000-000000000002"
)

// A citation is what the judgement rests on, within a lease's bounds, and reads back
// strictly.
//
// SPEC PL5 LS8 ST7
func TestCite(t *testing.T) {
	t.Parallel()
	r, err := First(Claim{Node: "n", Incarnation: citeA, TTL: 15e9}, 0)
	if err != nil {
		t.Fatal(err)
	}
	o := r.Last()
	if _, err := Cite(o, r, Verdict{State: Current}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("of one that lives: %v", err)
	}
	released, err := r.Release(o, Renewal{Attempt: citeB})
	if err != nil {
		t.Fatal(err)
	}
	judged := func(o Owner, head *Record) string {
		t.Helper()
		v, err := Judge(o, head, nil)
		if err != nil {
			t.Fatal(err)
		}
		cite, err := Cite(o, head, v)
		if err != nil || len(cite) > lease.MaxEvidence {
			t.Fatalf("%d bytes, %v", len(cite), err)
		}
		return cite
	}
	for _, asked := range []Owner{o, {Incarnation: citeA}} {
		c, err := ParseCitation([]byte(judged(asked, released)))
		if err != nil || *c != (Citation{V: 1, Node: "n", Incarnation: citeA, Term: 1, How: lease.HowReleased, Head: HeadRef{Term: 1, Sequence: 1}}) {
			t.Errorf("released: %+v, %v", c, err)
		}
	}
	g, _, err := Observation{}.Ground(released, "v", 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	next, err := Takeover(released, Claim{Node: "n", Incarnation: citeB, TTL: 15e9}, g, Sealed{})
	if err != nil {
		t.Fatal(err)
	}
	cite := judged(o, next)
	if c, err := ParseCertificate([]byte(cite)); err != nil || !c.Equal(next.Certificate) {
		t.Errorf("a certificate: %+v, %v", c, err)
	}
	if _, err := ParseCitation([]byte(cite)); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("a certificate as a citation: %v", err)
	}
	body, err := next.Certificate.Encode()
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := Seal(next.Certificate, [2][]byte{body, body})
	if err != nil {
		t.Fatal(err)
	}
	c, err := ParseCitation([]byte(judged(o, next.DropCertificate(citeA, sealed))))
	if err != nil || c.How != "" || c.Head != (HeadRef{Incarnation: citeB, Term: 2, Sequence: 2}) {
		t.Errorf("folded: %+v, %v", c, err)
	}
}

// SPEC ST7 ST11
func TestCitationBounds(t *testing.T) {
	t.Parallel()
	good := Citation{V: 1, Node: "n", Incarnation: citeA, Term: 3, How: lease.HowForced, Head: HeadRef{Term: 3, Sequence: 9}}
	if _, err := record.Encode(&good, MaxCitation); err != nil {
		t.Fatal(err)
	}
	for what, edit := range map[string]func(*Citation){
		"level":              func(c *Citation) { c.V = 2 },
		"node":               func(c *Citation) { c.Node = "" },
		"incarnation":        func(c *Citation) { c.Incarnation = "A" },
		"head's incarnation": func(c *Citation) { c.Head.Incarnation = "A" },
		"no term":            func(c *Citation) { c.Term = 0 },
		"a lower head":       func(c *Citation) { c.Head.Term = 2 },
		"a term too high":    func(c *Citation) { c.Head.Term, c.How = record.MaxNumber+1, "" },
		"sequence":           func(c *Citation) { c.Head.Sequence = 0 },
		"another owner":      func(c *Citation) { c.Head.Incarnation = citeB },
		"how":                func(c *Citation) { c.How = lease.HowObserved },
		"how, folded":        func(c *Citation) { c.Head.Term = 4 },
		"itself, folded":     func(c *Citation) { c.Head = HeadRef{Incarnation: citeA, Term: 4, Sequence: 9}; c.How = "" },
	} {
		c := good
		edit(&c)
		if c.Valid() == nil {
			t.Errorf("%s: %+v is valid", what, c)
		}
	}
}
