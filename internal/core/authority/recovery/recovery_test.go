package recovery

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tenure-project/tenure/internal/core/authority"
	"github.com/tenure-project/tenure/internal/core/authority/assignment"
	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/internal/record/recordtest"
	"github.com/tenure-project/tenure/store"
)

func id(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

var plan = authority.DigestOf("plan", nil)

func report(node string, start int) authority.Report {
	return authority.Report{Node: node, Incarnation: id(start), Term: 1, Request: 1}
}

func part(node string, start int) assignment.Participant {
	return assignment.Participant{Node: node, Incarnation: id(start)}
}

func claim(node string, start, attempt int) authority.Claim {
	return authority.Claim{Authority: "x", Owner: authority.Owner{Node: node, Incarnation: id(start), Term: 1}, TTL: time.Second, Attempt: id(attempt)}
}

// faulty is a head with the faults of a, b and c.
func faulty() *authority.Head {
	h := must(authority.First(claim("a", 1, 100)))
	next, _, err := h.Renew(h.Last(), id(101), report("a", 1), report("b", 2), report("c", 3))
	return must(next, err)
}

func begin(h *authority.Head, attempt int) *authority.Head {
	return must(h.BeginRound(h.Last(), id(attempt), plan))
}

func ask(h *authority.Head, p authority.Proof, r *Release, attempt int) (authority.Plan, error) {
	return authority.Append(h, Rules{}, authority.Follow(h, authority.Recovery, nil), authority.Decision{Proof: p, Body: must(r.Encode()), Attempt: id(attempt)})
}

// SPEC ST15 ST7
func TestGolden(t *testing.T) {
	t.Parallel()
	recordtest.Golden(t, "release", must(NewRelease(begin(faulty(), 102).Round, []assignment.Participant{part("a", 1), part("b", 99)}).Encode()))
	p := &Pending{V: 1, Authority: "x", Report: report("a", 1), Attempt: id(7), Why: "disk <full>", At: 1_700_000_000_000}
	recordtest.Golden(t, "pending", must(p.Encode()))
}

// A release clears exactly the faults of those that stopped, ends the round, and
// stands for its generation.
//
// SPEC RF LA4
func TestRelease(t *testing.T) {
	t.Parallel()
	h := begin(faulty(), 102)
	r := NewRelease(h.Round, []assignment.Participant{part("a", 1), part("b", 99)})
	p := must(ask(h, h.Last(), r, 103))
	n := p.Head
	if p.Answer != authority.Admit || n.Round != nil || n.Revision != n.Sequence || n.Recovery.Head.Key != 1 || n.Valid() != nil {
		t.Fatalf("%v, %+v", p.Answer, n)
	}
	if f := n.Faults(); len(f) != 2 || f[0].Node != "b" || f[1].Node != "c" || len(n.Slots) != 3 || len(h.Faults()) != 3 {
		t.Errorf("another start's fault, or one that nobody stopped for, was cleared: %+v", f)
	}
	trail := authority.Follow(n, authority.Recovery, nil)
	if err := trail.Take(p.Body); err != nil {
		t.Fatal(err)
	}
	for what, x := range map[string]struct {
		r    *Release
		want authority.Answer
	}{"the same": {r, authority.Unchanged}, "another": {NewRelease(h.Round, nil), authority.Conflict}} {
		got := must(authority.Append(n, Rules{}, trail, authority.Decision{Proof: h.Last(), Body: must(x.r.Encode()), Attempt: id(104)}))
		if got.Answer != x.want {
			t.Errorf("%s: %v", what, got.Answer)
		}
	}
	if again := begin(n, 105); again.Round.Generation != 2 {
		t.Errorf("generation %d", again.Round.Generation)
	}
}

// A release is refused once a fault came, once another round was begun, and for
// whoever did not begin the round.
//
// SPEC RF
func TestInventoryChanged(t *testing.T) {
	t.Parallel()
	h := begin(faulty(), 102)
	r := NewRelease(h.Round, []assignment.Participant{part("a", 1)})
	late, _, err := h.Fold(id(110), report("d", 4))
	renewed, _, err2 := h.Renew(h.Last(), id(110), report("a", 1))
	for what, x := range map[string]struct {
		h      *authority.Head
		change func(r *Release)
		ok     bool
	}{
		"nothing":             {h, func(*Release) {}, true},
		"a repeated report":   {must(renewed, err2), func(*Release) {}, true},
		"a fault":             {must(late, err), func(*Release) {}, false},
		"another round":       {begin(h, 111), func(*Release) {}, false},
		"no round":            {faulty(), func(*Release) {}, false},
		"another generation":  {h, func(r *Release) { r.Generation++ }, false},
		"another id":          {h, func(r *Release) { r.Round = id(9) }, false},
		"another plan":        {h, func(r *Release) { r.Plan = authority.DigestOf("other", nil) }, false},
		"another revision":    {h, func(r *Release) { r.Revision-- }, false},
		"the next generation": {begin(h, 111), func(r *Release) { r.Generation = 2 }, false},
	} {
		c := *r
		x.change(&c)
		p, err := ask(x.h, x.h.Last(), &c, 112)
		if x.ok && (err != nil || p.Answer != authority.Admit) || !x.ok && (!errors.Is(err, ErrInventoryChanged) || !errors.Is(err, store.ErrConflict)) {
			t.Errorf("%s: %v, %v", what, p.Answer, err)
		}
	}
	me := claim("b", 2, 120)
	g, _, err := authority.Observation{}.Observe(h, 0).Ground(h, "v", me.Owner, time.Hour, 0.01)
	other := must(authority.Takeover(h, me, must(g, err)))
	if _, err := ask(other, other.Last(), r, 121); !errors.Is(err, ErrInventoryChanged) {
		t.Errorf("a later leader releases a round of the earlier one: %v", err)
	}
	if p, err := ask(other, h.Last(), r, 121); err != nil || p.Answer != authority.Fenced {
		t.Errorf("the earlier leader: %v, %v", p.Answer, err)
	}
}

// What a reader saw admits it only if nothing changed when it acts.
//
// SPEC RF
func TestSnapshot(t *testing.T) {
	t.Parallel()
	h := begin(faulty(), 102)
	p := must(ask(h, h.Last(), NewRelease(h.Round, []assignment.Participant{part("a", 1), part("b", 2), part("c", 3)}), 103))
	n := p.Head
	s := Look(n)
	renewed, _, err := n.Renew(n.Last(), id(104))
	if !s.Admits(n, n.Last()) || !s.Admits(must(renewed, err), n.Last()) {
		t.Error("nothing changed, and it is not admitted")
	}
	fault, _, err := n.Fold(id(104), report("a", 1), authority.Report{Node: "a", Incarnation: id(1), Term: 1, Request: 2})
	jumped := must(n.Jump(id(104), authority.Above{Token: 9}))
	for what, x := range map[string]struct {
		s Snapshot
		h *authority.Head
		p authority.Proof
	}{
		"a fault":                      {s, must(fault, err), n.Last()},
		"an older head":                {s, h, n.Last()},
		"another leader":               {s, n, authority.Proof{}},
		"faults all along":             {Look(h), h, h.Last()},
		"a release since":              {Look(h), n, n.Last()},
		"a leadership that was raised": {s, jumped, n.Last()},
	} {
		if x.s.Admits(x.h, x.p) {
			t.Errorf("%s, and it is admitted", what)
		}
	}
}

// A report waits at its reporter's own key, is read strictly, and leaves the leader a
// TTL.
//
// SPEC RF ST7
func TestPending(t *testing.T) {
	t.Parallel()
	p := &Pending{V: 1, Authority: "x", Report: report("a", 1), Attempt: id(7), Why: "disk <full>", At: 9}
	body := must(p.Encode())
	const want = `{"v":1,"authority":"x","node":"a","incarnation":"00000000-0000-4000-8000-000000000001","term":1,"request":1,` +
		`"attempt":"00000000-0000-4000-8000-000000000007","why":"disk <full>","at_ms":9}`
	if string(body) != want {
		t.Errorf("%s", body)
	}
	if back, err := DecodePending("k", "x", "a", body); err != nil || *back != *p {
		t.Errorf("%+v, %v", back, err)
	}
	for what, x := range map[string]struct{ name, node, body string }{
		"another node":      {"x", "b", want},
		"another authority": {"y", "a", want},
		"trailing bytes":    {"x", "a", want + " "},
		"no request":        {"x", "a", `{"v":1,"authority":"x","node":"a","incarnation":"` + id(1) + `","term":1,"request":0,"attempt":"` + id(7) + `","at_ms":9}`},
		"no attempt":        {"x", "a", `{"v":1,"authority":"x","node":"a","incarnation":"` + id(1) + `","term":1,"request":1,"attempt":"","at_ms":9}`},
		"a time before all": {"x", "a", `{"v":1,"authority":"x","node":"a","incarnation":"` + id(1) + `","term":1,"request":1,"attempt":"` + id(7) + `","at_ms":-9}`},
	} {
		if _, err := DecodePending("k", x.name, x.node, []byte(x.body)); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("%s: %v", what, err)
		}
	}
	need := lease.Stretch(time.Second, 0.01)
	if h := faulty(); Overdue(h, 5, 5, 0.01) != need || Overdue(h, 5, 5+need, 0.01) != 0 || Overdue(h, 5, time.Hour, 0.01) != 0 {
		t.Error("the leader is not left a TTL")
	}
}

// A release is read strictly.
//
// SPEC RF ST7
func TestReleaseIsExact(t *testing.T) {
	t.Parallel()
	h := begin(faulty(), 102)
	good := NewRelease(h.Round, []assignment.Participant{part("a", 1), part("b", 2)})
	const want = `{"v":1,"generation":1,"round":"00000000-0000-4000-8000-000000000102","revision":2,"plan":"`
	if body := string(must(good.Encode())); body[:len(want)] != want {
		t.Errorf("%s", body)
	}
	for what, change := range map[string]func(r *Release){
		"level":      func(r *Release) { r.V = 0 },
		"generation": func(r *Release) { r.Generation = 0 },
		"round":      func(r *Release) { r.Round = "" },
		"plan":       func(r *Release) { r.Plan = "" },
		"empty":      func(r *Release) { r.Stopped = []assignment.Participant{} },
		"order":      func(r *Release) { r.Stopped[0], r.Stopped[1] = r.Stopped[1], r.Stopped[0] },
		"too many":   func(r *Release) { r.Stopped = make([]assignment.Participant, authority.MaxSlots+1) },
	} {
		bad := NewRelease(h.Round, []assignment.Participant{part("a", 1), part("b", 2)})
		change(bad)
		if bad.Valid() == nil {
			t.Errorf("%s: accepted", what)
		}
	}
}
