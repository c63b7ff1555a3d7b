package authority

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/tenure-project/tenure/internal/record"
)

const (
	idA  = "aaaaaaaa-1111-4111-8111-111111111111"
	idB  = "bbbbbbbb-2222-4222-8222-222222222222"
	idC  = "cccccccc-3333-4333-8333-333333333333"
	now0 = 1_767_225_600_000
	rho  = 0.01
)

var (
	ownA = Owner{Node: "db-1", Incarnation: idA, Term: 3}
	ownB = Owner{Node: "db-2", Incarnation: idB, Term: 1}
)

// try is the n-th attempt id.
func try(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func claim(o Owner, attempt string) Claim {
	return Claim{Authority: "jobs", Owner: o, TTL: 15 * time.Second, Note: `rack <4> & "b"`, Attempt: attempt, NowMS: now0}
}

// above is c where the floor was raised.
func above(c Claim, floor uint64) Claim {
	c.Floor = floor
	return c
}

// first is A's head, sequence 1, token 1.
func first() *Head { return must(First(claim(ownA, try(1)))) }

// ripe is the ground on which h falls after it was observed for long enough.
func ripe(h *Head, me Owner) Ground {
	g, left, err := Observation{}.Observe(h, 0).Ground(h, "v", me, 100*time.Hour, rho)
	if err != nil || left != 0 {
		panic(fmt.Sprint("not ripe: ", left, err))
	}
	return g
}

// taken is h taken over by o.
func taken(h *Head, o Owner, attempt string) *Head {
	return must(Takeover(h, claim(o, attempt), ripe(h, o)))
}

func renew(h *Head, attempt string, reports ...Report) *Head {
	next, _, err := h.Renew(h.Last(), attempt, reports...)
	return must(next, err)
}

// toy is the body of the toy chain's decisions.
type toy struct {
	V       int    `json:"v"`
	Key     uint64 `json:"key"`
	ID      uint64 `json:"id,omitempty"`
	Marked  bool   `json:"marked,omitempty"`
	Binding string `json:"binding,omitempty"`
	Base    string `json:"base,omitempty"`
	State   string `json:"state,omitempty"`
	Text    string `json:"text,omitempty"`
}

func (b *toy) Valid() error {
	if b.V != 1 {
		return fmt.Errorf("level %d", b.V)
	}
	return nil
}

func (b toy) bytes() []byte {
	b.V = 1
	return must(record.Encode(&b, MaxBlob))
}

// toys are rules that take from the body what they are told.
type toys struct {
	chain  string
	policy Policy
}

func (r toys) Chain() string { return r.chain }

func (r toys) Policy() Policy { return r.policy }

func (r toys) Item(key string, _ Proof, body []byte) (Item, error) {
	var b toy
	if err := record.Decode(key, body, &b); err != nil {
		return Item{}, err
	}
	return Item{Key: b.Key, ID: b.ID, Marked: b.Marked, Binding: b.Binding, Base: b.Base, State: b.State, Value: b.Text}, nil
}

func (r toys) Admit(*Head, Proof, Item) error { return nil }

func (r toys) Apply(*Head, Item) {}

// shelf is where objects are kept.
type shelf map[Name][]byte

func (s shelf) put(p Plan, body []byte) {
	s[p.Entry.Name()] = p.Body
	if n, ok := p.Entry.BlobName(); ok {
		s[n] = body
	}
}

// walk is a whole walk of the named chain.
func (s shelf) walk(h *Head, name string) (*Trail, error) {
	t := Follow(h, name, nil)
	for l, ok := t.Next(); ok; l, ok = t.Next() {
		if err := t.Take(s[l.Name()]); err != nil {
			return t, err
		}
	}
	return t, nil
}

// append admits b to a chain of h, after whatever walk it takes.
func (s shelf) append(h *Head, r Rules, b toy, n int) *Head {
	t := must(s.walk(h, r.Chain()))
	p := must(Append(h, r, t, Decision{Proof: h.Last(), Body: b.bytes(), Attempt: try(n), Blob: try(n + 1), NowMS: now0}))
	if p.Answer != Admit {
		panic(p.Answer)
	}
	s.put(p, b.bytes())
	return p.Head
}

// audit walks everything of h.
func (s shelf) audit(h *Head) *Audit {
	a := must(NewAudit(h, toys{chain: Checkpoint}, toys{chain: Assignment}, toys{chain: Recovery}, toys{chain: Catalog}))
	for w, ok := a.Next(); ok; w, ok = a.Next() {
		a.Take(s[w.Name])
	}
	return a
}

// forms is one head of each kind.
func forms() map[string]*Head {
	a := first()
	forced := must(taken(a, ownB, try(2)).Steal(try(3), Theft{Token: 2, Why: "host <on> fire", By: "anna", NowMS: now0 + 9}))
	return map[string]*Head{
		"first":           a,
		"renewed":         renew(a, try(2)),
		"taken-over":      taken(a, ownB, try(2)),
		"released":        must(a.StepDown(a.Last(), try(2), now0+9)),
		"after-release":   taken(must(a.StepDown(a.Last(), try(2), now0+9)), ownB, try(3)),
		"forced":          forced,
		"after-force":     taken(forced, ownA, try(4)),
		"vouched":         must(a.Steal(try(2), Theft{Token: 1, Why: "gone", NowMS: now0 + 9, Vouch: true})),
		"raised":          must(a.Jump(try(2), Above{Token: 1000, Sequence: 5000})),
		"above-the-floor": must(First(above(claim(ownA, try(1)), 500))),
		"full":            full(shelf{}),
	}
}

// full is a head with every field that a led one can have.
func full(s shelf) *Head {
	h := first()
	r := toys{chain: Checkpoint}
	for i := range 6 {
		k := uint64(i + 1)
		h = s.append(h, r, toy{Key: 2 * k, ID: 3 * k, Marked: i%2 == 1, Binding: idC, Text: "<x>"}, 10+2*i)
	}
	t := must(s.walk(h, Checkpoint))
	h = must(t.Advance(h, h.Last(), try(30), 10, 6))
	h = taken(h, ownB, try(31))
	h = s.append(h, toys{chain: Assignment}, toy{Key: 1, State: DigestOf("x", nil)}, 32)
	h = s.append(h, toys{chain: Recovery}, toy{Key: 1}, 34)
	h = s.append(h, toys{chain: Catalog}, toy{Key: 1, Text: strings.Repeat("x", MaxInline)}, 36)
	h = renew(h, try(38), Report{Node: "db-9", Incarnation: idC, Term: 1, Request: 1}, Report{Node: "db-2", Incarnation: idB, Term: 1, Request: 7})
	h.Slots[1].Active = false
	h = must(h.BeginRound(h.Last(), try(39), DigestOf("plan", nil)))
	h.SecretHash, h.MAC = "sha256:00", "hmac:00"
	return h
}

func raw(b toy) json.RawMessage { return b.bytes() }
