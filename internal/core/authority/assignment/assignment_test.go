package assignment

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tenure-project/tenure/internal/core/authority"
	"github.com/tenure-project/tenure/internal/core/identity"
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

var (
	a1 = Participant{Node: "a", Incarnation: id(1)}
	a2 = Participant{Node: "a", Incarnation: id(2)}
	b1 = Participant{Node: "b", Incarnation: id(3)}
	c1 = Participant{Node: "c", Incarnation: id(4)}

	leader = authority.Proof{Node: "a", Incarnation: id(1), Term: 1, Token: 5}
)

func plan(version uint64, owners ...Participant) *Map { return must(NewMap(version, owners)) }

// certificate is the evidence that p was superseded, by observation or by force.
func certificate(p Participant, how string) *identity.Certificate {
	side := func(incarnation string, term, counter, sequence uint64) identity.Side {
		return identity.Side{Incarnation: incarnation, Term: term, Counter: counter, Sequence: sequence, TTLMS: 15000}
	}
	c := &identity.Certificate{V: 1, Node: p.Node, How: how, Predecessor: side(p.Incarnation, 1, 1, 9), Successor: side(id(99), 2, 2, 10)}
	if how == lease.HowForced {
		c.Why, c.SupersededTTLMS, c.Predecessor.Counter, c.Successor.Term, c.Successor.Counter = "x", 15000, 2, 3, 3
	}
	return c
}

func proven(p Participant) Proven {
	c := certificate(p, lease.HowObserved)
	g, _, err := Prove(c, identity.Verdict{State: identity.Over, How: c.How, Certificate: c}, 0, 0, 0.01)
	return must(g, err)
}

func drain(verdict string) *Decision {
	return &Decision{V: 1, Kind: Drain, Verdict: verdict, Predecessor: plan(1, a1, b1).Fence(), Target: plan(2, b1, c1).Fence(), Begun: &leader}
}

func replace() *Decision {
	m := plan(2, c1, c1)
	return must(NewRecovery(plan(1, a1, b1).Fence(), m, must(m.Encode()), []Proven{proven(b1), proven(a1)}))
}

// The bytes of every form are pinned, and nothing else is read.
//
// SPEC AS ST7 ST15
func TestForms(t *testing.T) {
	t.Parallel()
	recordtest.Golden(t, "map", must(plan(7, b1, a1, b1).Encode()))
	recordtest.Golden(t, "drain", must(drain(Commit).Encode()))
	body := must(replace().Encode())
	recordtest.Golden(t, "recovery", body)
	if back, err := Decode("k", body); err != nil || len(back.Removed) != 2 || !bytes.Equal(must(back.Encode()), body) {
		t.Errorf("%+v, %v", back, err)
	}
	edit := func(old, new string) []byte {
		if !bytes.Contains(body, []byte(old)) {
			t.Fatalf("nothing to edit: %s", old)
		}
		return bytes.Replace(body, []byte(old), []byte(new), 1)
	}
	for what, x := range map[string]struct {
		body []byte
		want error
	}{
		"trailing bytes":        {append(bytes.Clone(body), ' '), store.ErrCorrupt},
		"unknown field":         {edit(`"v":1`, `"v":1,"x":1`), store.ErrCorrupt},
		"in a certificate":      {edit(`"how":"observed"`, `"how":"observed","x":1`), store.ErrCorrupt},
		"another's certificate": {edit(`"node":"a","how"`, `"node":"b","how"`), store.ErrCorrupt},
		"newer":                 {edit(`"v":1`, `"v":2`), store.ErrNewer},
		"not the next version":  {edit(`"version":2`, `"version":3`), store.ErrCorrupt},
	} {
		if _, err := Decode("k", x.body); !errors.Is(err, x.want) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A map's owners are exactly its participants, and its fence binds every slot.
//
// SPEC AS
func TestMap(t *testing.T) {
	t.Parallel()
	m := plan(7, b1, a1, b1)
	f := m.Fence()
	if fmt.Sprint(m.Owners) != "[1 0 1]" || f.Version != 7 || f.Slots != 3 || !f.Has(a1) || f.Has(a2) {
		t.Errorf("%+v, %+v", m, f)
	}
	if back := must(DecodeMap("k", must(m.Encode()))); back.Fence().State() != f.State() {
		t.Error("a map does not survive a round trip")
	}
	for what, other := range map[string]*Fence{
		"a slot":        plan(7, a1, b1, b1).Fence(),
		"a restart":     plan(7, b1, a2, b1).Fence(),
		"another count": plan(7, b1, a1).Fence(),
	} {
		if other.Digest == f.Digest || other.State() == f.State() {
			t.Errorf("%s makes no difference", what)
		}
	}
	if v := plan(8, b1, a1, b1).Fence(); v.Digest != f.Digest || v.State() == f.State() || v.State() != f.At(8).State() {
		t.Error("the version is not in the state, or it is in the digest")
	}
	for what, change := range map[string]func(m *Map){
		"level":          func(m *Map) { m.V = 0 },
		"version":        func(m *Map) { m.Version = 0 },
		"no such owner":  func(m *Map) { m.Owners[0] = 2 },
		"a negative one": func(m *Map) { m.Owners[0] = -1 },
		"no slots":       func(m *Map) { m.Owners = nil },
		"an idle one":    func(m *Map) { m.Owners = []int{1, 1, 1} },
		"out of order":   func(m *Map) { m.Participants[0], m.Participants[1] = m.Participants[1], m.Participants[0] },
		"no incarnation": func(m *Map) { m.Participants[0].Incarnation = "" },
	} {
		bad := plan(7, b1, a1, b1)
		change(bad)
		if bad.Valid() == nil {
			t.Errorf("%s: accepted", what)
		}
	}
	if _, err := NewMap(1, []Participant{a1, a2}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("two starts of one node: %v", err)
	}
	many := make([]Participant, MaxParticipants+1)
	for i := range many {
		many[i] = Participant{Node: fmt.Sprintf("n%03d", i), Incarnation: id(i)}
	}
	if _, err := NewMap(1, many); err == nil || must(NewMap(1, many[1:])) == nil {
		t.Error("the bound on participants")
	}
	f.Digest = strings.ToUpper(f.Digest)
	if f.Valid() == nil {
		t.Error("a digest in capitals")
	}
}

// Each numbered invariant of a decision is checked.
//
// SPEC AS
func TestDecisionIsExact(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(d *Decision){
		"1 level":     func(d *Decision) { d.V = 0 },
		"1 missing":   func(d *Decision) { d.Target = nil },
		"1 version":   func(d *Decision) { d.Target = plan(3, b1, c1).Fence() },
		"1 slots":     func(d *Decision) { d.Target = plan(2, b1, c1, c1).Fence() },
		"2 verdict":   func(d *Decision) { d.Verdict = "" },
		"2 begun":     func(d *Decision) { d.Begun = nil },
		"2 no leader": func(d *Decision) { d.Begun = &authority.Proof{} },
		"2 removed":   func(d *Decision) { d.Removed = []json.RawMessage{} },
		"2 proposal":  func(d *Decision) { d.Proposal = d.Target.Digest },
		"2 kind":      func(d *Decision) { d.Kind = "x" },
	} {
		d := drain(Commit)
		change(d)
		if d.Valid() == nil {
			t.Errorf("%s: accepted", what)
		}
	}
	for what, change := range map[string]func(d *Decision){
		"3 verdict":     func(d *Decision) { d.Verdict = Commit },
		"3 proposal":    func(d *Decision) { d.Proposal = "" },
		"3 one less":    func(d *Decision) { d.Removed = d.Removed[1:] },
		"3 one more":    func(d *Decision) { d.Removed = append(d.Removed, d.Removed[0]) },
		"3 wrong order": func(d *Decision) { d.Removed = []json.RawMessage{d.Removed[1], d.Removed[0]} },
		"3 nobody gone": func(d *Decision) { d.Target, d.Removed = d.Predecessor.At(2), nil },
		"3 a restart":   func(d *Decision) { d.Target = plan(2, a1, b1).Fence() },
	} {
		d := replace()
		change(d)
		if d.Valid() == nil {
			t.Errorf("%s: accepted", what)
		}
	}
}

// A recovery needs, for every process that it replaces, evidence of exactly that
// start's end, and a forced one only after its wait.
//
// SPEC AS LS11
func TestProofOfEveryEnd(t *testing.T) {
	t.Parallel()
	m := plan(2, a2, b1)
	staged := must(m.Encode())
	from := plan(1, a1, b1).Fence()
	for what, gone := range map[string][]Proven{"none": nil, "another start": {proven(a2)}, "another node": {proven(b1)}, "no proof": {{}}} {
		if _, err := NewRecovery(from, m, staged, gone); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	d := must(NewRecovery(from, m, staged, []Proven{proven(b1), proven(a1)}))
	if len(d.Removed) != 1 || d.Result().State() != m.Fence().State() {
		t.Errorf("%+v", d)
	}
	if got, err := d.Stage("k", staged); err != nil || got.Fence().State() != m.Fence().State() {
		t.Errorf("staged: %v", err)
	}
	if _, err := d.Stage("k", must(plan(2, b1, a2).Encode())); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("another proposal: %v", err)
	}
	other := must(plan(2, b1, a2).Encode())
	d.Proposal = authority.DigestOf(authority.BodyDomain, other)
	if _, err := d.Stage("k", other); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("a proposal that is not the target: %v", err)
	}
	c := certificate(a1, lease.HowForced)
	v := identity.Verdict{State: identity.Over, How: c.How, Wait: 15 * time.Second, Certificate: c}
	need := lease.Stretch(15*time.Second, 0.01)
	if p, left, err := Prove(c, v, time.Second, time.Second, 0.01); p.c != nil || left != need || err != nil {
		t.Errorf("at once: %v, %v", left, err)
	}
	if p, left, err := Prove(c, v, time.Second, time.Second+need, 0.01); p.c == nil || left != 0 || err != nil {
		t.Errorf("in time: %v, %v", left, err)
	}
	for what, bad := range map[string]identity.Verdict{
		"alive":   {State: identity.Current, Certificate: c},
		"behind":  {State: identity.Behind, Certificate: c},
		"nothing": {State: identity.Over},
		"another": {State: identity.Over, Certificate: certificate(b1, lease.HowForced)},
	} {
		if _, _, err := Prove(c, bad, 0, time.Hour, 0.01); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// log is an authority that decides assignments.
type log struct {
	head *authority.Head
	s    map[authority.Name][]byte
	n    int
}

func (l *log) ask(p authority.Proof, d *Decision) authority.Answer {
	l.n += 2
	t := authority.Follow(l.head, authority.Assignment, nil)
	for k, ok := t.Next(); ok; k, ok = t.Next() {
		if err := t.Take(l.s[k.Name()]); err != nil {
			panic(err)
		}
	}
	plan, err := authority.Append(l.head, Rules{}, t, authority.Decision{Proof: p, Body: must(d.Encode()), Attempt: id(1000 + l.n), Blob: id(1001 + l.n)})
	if err != nil {
		panic(err)
	}
	if plan.Answer == authority.Admit {
		l.s[plan.Entry.Name()] = plan.Body
		l.head = plan.Head
	}
	return plan.Answer
}

func lead(p authority.Proof) *log {
	c := authority.Claim{Authority: "x", Owner: p.Owner(), TTL: time.Second, Floor: p.Token - 1, Attempt: id(900)}
	return &log{head: must(authority.First(c)), s: map[authority.Name][]byte{}}
}

// A drain is committed by the leadership that began it and aborted by any later
// one; one decision settles a version, across both kinds; and a late one that
// builds on something else is refused.
//
// SPEC AS LA4
func TestDecisions(t *testing.T) {
	t.Parallel()
	l := lead(leader)
	began := leader
	late := drain(Commit)
	if got := l.ask(leader, drain(Commit)); got != authority.Admit {
		t.Fatal(got)
	}
	g, _, err := authority.Observation{}.Observe(l.head, 0).Ground(l.head, "v", authority.Owner{Node: "b", Incarnation: id(3), Term: 1}, time.Hour, 0.01)
	l.head = must(authority.Takeover(l.head, authority.Claim{Authority: "x", Owner: authority.Owner{Node: "b", Incarnation: id(3), Term: 1}, TTL: time.Second, Attempt: id(901)}, must(g, err)))
	now := l.head.Last()
	for what, x := range map[string]struct {
		p    authority.Proof
		d    *Decision
		want authority.Answer
	}{
		"the same, late":            {began, late, authority.Unchanged},
		"an abort after the commit": {now, drain(Abort), authority.Conflict},
		"a recovery of the version": {now, replace(), authority.Conflict},
		"from another predecessor": {now, &Decision{V: 1, Kind: Drain, Verdict: Abort, Predecessor: plan(2, a1, b1).Fence(), Target: plan(3, b1, c1).Fence(),
			Begun: &began}, authority.Conflict},
		"a version too far": {now, &Decision{V: 1, Kind: Drain, Verdict: Abort, Predecessor: plan(3, b1, c1).Fence(), Target: plan(4, b1, c1).Fence(),
			Begun: &began}, authority.Conflict},
		"of a leader that was": {began, &Decision{V: 1, Kind: Drain, Verdict: Commit, Predecessor: plan(2, b1, c1).Fence(), Target: plan(3, c1, b1).Fence(),
			Begun: &began}, authority.Fenced},
	} {
		if got := l.ask(x.p, x.d); got != x.want {
			t.Errorf("%s: %v, want %v", what, got, x.want)
		}
	}
	abort := &Decision{V: 1, Kind: Drain, Verdict: Abort, Predecessor: plan(2, b1, c1).Fence(), Target: plan(3, c1, b1).Fence(), Begun: &began}
	if got := l.ask(now, abort); got != authority.Admit || abort.Result().State() != plan(3, b1, c1).Fence().State() {
		t.Errorf("an abort by a later leader: %v", got)
	}
	next := &Decision{V: 1, Kind: Drain, Verdict: Abort, Predecessor: plan(3, b1, c1).Fence(), Target: plan(4, c1, b1).Fence(), Begun: &now}
	if got := l.ask(now, next); got != authority.Admit {
		t.Errorf("after the abort, from what it restored: %v", got)
	}
	if _, err := (Rules{}).Item("k", now, must(drain(Commit).Encode())); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("a commit by a leader that did not begin it: %v", err)
	}
}
