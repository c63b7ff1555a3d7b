package authority

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

// Only the exact leader writes as the leader: node, incarnation, term and token.
//
// SPEC LA3 LA4 LA7
func TestOnlyTheExactLeader(t *testing.T) {
	t.Parallel()
	h := full(shelf{})
	p := h.Last()
	if next := renew(h, try(90)); next.Sequence != h.Sequence+1 || next.Renewal != h.Renewal+1 || next.HolderAttempt != try(90) || next.Token != h.Token {
		t.Errorf("renewed: %+v", next)
	}
	for what, change := range map[string]func(p *Proof){
		"node":        func(p *Proof) { p.Node = "db-1" },
		"incarnation": func(p *Proof) { p.Incarnation = idA },
		"term":        func(p *Proof) { p.Term++ },
		"token":       func(p *Proof) { p.Token-- },
	} {
		bad := p
		change(&bad)
		_, _, renewed := h.Renew(bad, try(90))
		_, ended := h.StepDown(bad, try(90), now0)
		_, began := h.BeginRound(bad, try(90), DigestOf("plan", nil))
		_, moved := Follow(h, Checkpoint, nil).Advance(h, bad, try(90), 11, 0)
		for _, err := range []error{renewed, ended, began, moved} {
			if !errors.Is(err, store.ErrConflict) {
				t.Errorf("another %s: %v", what, err)
			}
		}
		if h.Leads(bad) {
			t.Errorf("another %s leads", what)
		}
	}
	for what, attempt := range map[string]string{"a used attempt": h.HolderAttempt, "no attempt": ""} {
		if _, _, err := h.Renew(p, attempt); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	free := must(h.StepDown(p, try(90), now0))
	if _, _, err := free.Renew(p, try(91)); !errors.Is(err, store.ErrConflict) || free.Leads(p) || free.Valid() != nil {
		t.Errorf("after the end: %v, %v", err, free.Valid())
	}
	h.Sequence = record.MaxNumber
	if _, _, err := h.Renew(p, try(90)); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("at the end of the sequence: %v", err)
	}
}

// An operator ends exactly the leadership that is meant; the counter rises and the
// history keeps the reason.
//
// SPEC LS11
func TestSteal(t *testing.T) {
	t.Parallel()
	h := first()
	f := forms()["forced"]
	if e := f.Ended(); f.Led() || f.Counter != 3 || f.Token != 2 || e.Why != "host <on> fire" || e.By != "anna" || e.SupersededTTLMS != 15000 || f.HolderAttempt != "" {
		t.Errorf("forced: %+v", f)
	}
	if n := forms()["after-force"]; n.Token != 4 || n.Recent[1].How != lease.HowForced {
		t.Errorf("after it: %+v", n)
	}
	for what, x := range map[string]struct {
		h    *Head
		th   Theft
		want error
	}{
		"another token": {h, Theft{Token: 2, Why: "x"}, store.ErrConflict},
		"nobody":        {f, Theft{Token: 2, Why: "x"}, store.ErrConflict},
		"no reason":     {h, Theft{Token: 1}, store.ErrInvalid},
		"a bad reason":  {h, Theft{Token: 1, Why: "\xff"}, store.ErrInvalid},
		"a long name":   {h, Theft{Token: 1, Why: "x", By: strings.Repeat("x", 257)}, store.ErrInvalid},
		"no token left": {atTheEnd(h), Theft{Token: 1, Why: "x"}, store.ErrInvalid},
	} {
		if _, err := x.h.Steal(try(9), x.th); !errors.Is(err, x.want) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// atTheEnd is h without a token left to give.
func atTheEnd(h *Head) *Head {
	next := h.copy()
	next.Counter = record.MaxNumber - 1
	return next
}

// A jump raises counter and sequence, gives nothing to anybody, and ends the
// leadership at its next write.
//
// SPEC LS12
func TestJump(t *testing.T) {
	t.Parallel()
	h := first()
	j := must(h.Jump(try(2), Above{Token: 50, Sequence: 900}))
	if j.Counter != 50 || j.Token != 1 || j.Sequence != 901 || !j.Raised() || j.HolderAttempt != h.HolderAttempt || j.Renewal != h.Renewal {
		t.Errorf("jumped: %+v", j)
	}
	if next, err := j.Jump(try(3), Above{Token: 50, Sequence: 900}); next != nil || err != nil {
		t.Errorf("the same jump twice: %+v, %v", next, err)
	}
	if _, err := j.Jump(try(3), Above{Token: record.MaxNumber}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("to the end: %v", err)
	}
	if _, _, err := j.Renew(j.Last(), try(3)); !errors.Is(err, store.ErrConflict) {
		t.Errorf("a raised leadership renewed: %v", err)
	}
	p := must(Append(j, toys{chain: Checkpoint}, nil, Decision{Proof: j.Last(), Body: toy{Key: 1}.bytes(), Attempt: try(3)}))
	if p.Answer != Fenced {
		t.Errorf("a raised leadership decided: %v", p.Answer)
	}
	c := NewCandidacy(ownA)
	if err := c.Granted(h); err != nil {
		t.Fatal(err)
	}
	c.Ended()
	again := must(Takeover(j, claim(ownA, try(4)), must(must(c.Quiet()).Ground(j, "v"))))
	if again.Token != 51 || again.Sequence != 902 || again.Valid() != nil {
		t.Errorf("again: %+v, %v", again, again.Valid())
	}
	if free := must(j.StepDown(j.Last(), try(5), now0)); free.Counter != 50 || free.Valid() != nil {
		t.Errorf("a raised leadership cannot be given up: %v", free.Valid())
	}
}

// A leader adopts a head that it did not expect only if it is of its own leadership,
// by its own last attempt, and nothing was taken back.
//
// SPEC ST9
// CASE B02
func TestAdoptable(t *testing.T) {
	t.Parallel()
	s := shelf{}
	held := full(s)
	mine := func(id string) bool { return id == held.HolderAttempt || id == try(90) }
	folded, _, err := held.Fold(try(91), Report{Node: "db-7", Incarnation: idC, Term: 1, Request: 1})
	for what, now := range map[string]*Head{
		"itself":           held,
		"its lost renewal": renew(held, try(90)),
		"its lost entry":   s.append(held, toys{chain: Assignment}, toy{Key: 2, Base: held.Assignment.State, State: idA}, 90),
		"a fault report":   must(folded, err),
	} {
		if Adoptable(held, now, mine) != Adopted {
			t.Errorf("%s is not adopted", what)
		}
	}
	jumped := must(held.Jump(try(91), Above{Token: 9}))
	if Adoptable(held, jumped, mine) != Raised {
		t.Error("a jump is not seen")
	}
	for what, now := range map[string]*Head{
		"a foreign attempt": renew(held, try(92)),
		"a takeover":        taken(held, ownA, try(90)),
		"an end":            must(held.StepDown(held.Last(), try(90), now0)),
	} {
		if Adoptable(held, now, mine) != Lost {
			t.Errorf("%s is adopted", what)
		}
	}
	for what, change := range map[string]func(h *Head){
		"sequence":     func(h *Head) { h.Sequence-- },
		"counter":      func(h *Head) { h.Counter-- },
		"renewal":      func(h *Head) { h.Renewal-- },
		"writer":       func(h *Head) { h.WriterAttempt = try(99) },
		"TTL":          func(h *Head) { h.TTLMS++ },
		"began":        func(h *Head) { h.Began-- },
		"revision":     func(h *Head) { h.Revision-- },
		"floor":        func(h *Head) { c := *h.Checkpoint; c.Floor--; h.Checkpoint = &c },
		"horizon":      func(h *Head) { c := *h.Checkpoint; c.Horizon--; h.Checkpoint = &c },
		"a chain":      func(h *Head) { h.Recovery = nil },
		"the catalog":  func(h *Head) { c := *h.Catalog; c.Head.Digest = DigestOf("x", nil); h.Catalog = &c },
		"a chain back": func(h *Head) { c := *h.Recovery; c.Head.Key, c.Head.Sequence = 1, 1; h.Recovery = &c },
		"authority":    func(h *Head) { h.Authority = "x" },
	} {
		now := held.copy()
		now.MAC = held.MAC
		change(now)
		if Adoptable(held, now, mine) != Lost {
			t.Errorf("another %s is adopted", what)
		}
	}
}

// The head shows an attempt while it is the last writer's, the leader's, or an
// entry's that a chain holds.
//
// SPEC ST9
func TestCarries(t *testing.T) {
	t.Parallel()
	s := shelf{}
	h := s.append(first(), toys{chain: Checkpoint}, toy{Key: 1, Marked: true}, 5)
	for range 3 {
		h = s.append(h, toys{chain: Checkpoint}, toy{Key: h.Checkpoint.Head.Key + 1}, 10+int(h.Sequence)*2)
	}
	h = taken(h, ownB, try(90))
	if !h.Carries(try(5)) || !h.Carries(try(90)) || h.Carries(try(14)) || h.Carries("") {
		t.Errorf("%+v", h)
	}
}

// Past leaderships are few; older ones are counted.
//
// SPEC LS11 LS13
func TestHistory(t *testing.T) {
	t.Parallel()
	h := first()
	for i := range 12 {
		h = taken(h, []Owner{ownB, ownA}[i%2], try(100+i))
		if err := h.Valid(); err != nil {
			t.Fatal(err)
		}
	}
	if len(h.Recent) != RecentKept || h.Dropped != 4 || h.Recent[0].Token != 5 || h.Recent[7].Token != 12 {
		t.Errorf("%d kept, %d dropped, %s", len(h.Recent), h.Dropped, fmt.Sprint(h.Recent))
	}
}

// What a later head says of a write whose answer was lost.
//
// SPEC ST9
// CASE B02
func TestSettle(t *testing.T) {
	t.Parallel()
	h := first()
	sent := renew(h, try(2))
	other := renew(h, try(3))
	folded, _, err := sent.Fold(try(4), report("a", idC, 1, 1))
	for what, x := range map[string]struct {
		found *Head
		want  Outcome
	}{
		"itself":               {sent, Applied},
		"a report came after":  {must(folded, err), Applied},
		"nothing":              {h, Pending},
		"another in its place": {other, Rejected},
		"two others":           {renew(other, try(4)), Overtaken},
		"its leader went on":   {renew(sent, try(4)), Overtaken},
	} {
		if got := Settle(sent, x.found); got != x.want {
			t.Errorf("%s: %v, want %v", what, got, x.want)
		}
	}
}
