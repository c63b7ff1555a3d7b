package authority

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

func report(node, incarnation string, term, request uint64) Report {
	return Report{Node: node, Incarnation: incarnation, Term: term, Request: request}
}

// Every report has a fate by its process term and its request, and only a fault that
// is new to the head changes it.
//
// SPEC RF
func TestFates(t *testing.T) {
	t.Parallel()
	h := first()
	next, fates, err := h.Fold(try(2), report("b", idB, 2, 5), report("a", idA, 1, 1), report("b", idB, 2, 6))
	if err != nil || !slices.Equal(fates, []Fate{Made, Made, Made}) || next.Revision != 2 || len(next.Slots) != 2 || next.Slots[0].Node != "a" || next.Slots[1].Request != 6 {
		t.Fatalf("%+v, %v, %v", next, fates, err)
	}
	if next.Renewal != h.Renewal || next.HolderAttempt != h.HolderAttempt || next.Sequence != 2 || h.Slots != nil {
		t.Errorf("a reporter's write: %+v", next)
	}
	next.Slots[0].Active = false
	for what, x := range map[string]struct {
		r    Report
		want Fate
	}{
		"the same":           {report("b", idB, 2, 6), Active},
		"the same, cleared":  {report("a", idA, 1, 1), Cleared},
		"an older request":   {report("b", idB, 2, 5), Covered},
		"a newer request":    {report("b", idB, 2, 7), Made},
		"anew after a clear": {report("a", idA, 1, 2), Made},
		"an older start":     {report("b", idC, 1, 9), Superseded},
		"a newer start":      {report("b", idC, 3, 1), Made},
		"two of one term":    {report("b", idC, 2, 9), Clash},
		"no request":         {report("c", idC, 2, 0), Refused},
		"no node":            {report("", idC, 2, 1), Refused},
		"no incarnation":     {report("c", "x", 2, 1), Refused},
		"a node that is new": {report("c", idC, 1, 1), Made},
		"beyond what can be": {report("c", idC, record.MaxNumber+1, 1), Refused},
		"a node before all":  {report("A", idC, 1, 1), Made},
	} {
		if fate, known := next.FateOf(x.r); known != (x.want != Made && x.want != Refused) || known && fate != x.want {
			t.Errorf("%s: the head says %v, %v", what, fate, known)
		}
		after, fates, err := next.Fold(try(3), x.r)
		if err != nil || fates[0] != x.want || (after != nil) != (x.want == Made) {
			t.Errorf("%s: %v, %+v, %v", what, fates, after, err)
		}
		renewed, again, err := next.Renew(next.Last(), try(3), x.r)
		if err != nil || again[0] != x.want || renewed.Valid() != nil || (renewed.Revision != next.Revision) != (x.want == Made) {
			t.Errorf("%s stood in the way of a renewal: %v, %v", what, again, err)
		}
	}
}

// With all slots in use the oldest cleared one makes room; if all are active the
// report is refused and nothing else is.
//
// SPEC RF LA9
func TestFullSlots(t *testing.T) {
	t.Parallel()
	h := first()
	for i := range MaxSlots {
		h.Slots = append(h.Slots, Slot{Report: report(fmt.Sprintf("n%04d", i), idC, 1, 1), Sequence: 1, Active: true})
	}
	h.Revision = 1
	if next, fates, err := h.Fold(try(2), report("new", idC, 1, 1)); next != nil || fates[0] != Full || err != nil {
		t.Errorf("%v, %v", fates, err)
	}
	if next := renew(h, try(2), report("new", idC, 1, 1)); next.Valid() != nil || next.Revision != 1 {
		t.Error("a full table stood in the way of a renewal")
	}
	if next := renew(h, try(2), report("n0007", idC, 1, 2)); len(next.Faults()) != MaxSlots || next.Slots[7].Request != 2 {
		t.Error("a known node needs no room")
	}
	h.Slots[9].Active, h.Slots[9].Sequence = false, 1
	h.Slots[3].Active = false
	h.Slots[3].Sequence, h.Sequence, h.Revision = 5, 5, 5
	next := renew(h, try(2), report("new", idC, 1, 1))
	if len(next.Slots) != MaxSlots || next.Valid() != nil || slices.ContainsFunc(next.Slots, func(s Slot) bool { return s.Node == "n0009" }) {
		t.Errorf("the oldest cleared one stayed: %v", next.Valid())
	}
}

// largest is a head that is as large as it can become, but for its slots.
func largest() *Head {
	name := func(i int) string { return fmt.Sprintf("%c", 'a'+i) + strings.Repeat(`"`, store.MaxName-1) }
	text := strings.Repeat("\u2028", lease.MaxWhy/6) + strings.Repeat("x", lease.MaxWhy%6)
	top := uint64(record.MaxNumber)
	me := Owner{Node: name(0), Incarnation: idA, Term: top}
	h := &Head{V: record.Level, Authority: name(1), Sequence: top, Leader: &me, Token: top - 1, Counter: top, Renewal: top, Began: top,
		TTLMS: lease.MaxTTL.Milliseconds(), WriterAttempt: try(1), HolderAttempt: try(2), Note: strings.Repeat("\n", lease.MaxNote/2),
		Since: record.MaxNumber, SecretHash: text, MAC: text, Dropped: top, Revision: top - 1}
	for i := range uint64(RecentKept) {
		h.Recent = append(h.Recent, Leadership{Token: top - 20 + i, Owner: me, First: top - 20 + i, Last: top - 20 + i, Since: record.MaxNumber,
			Until: record.MaxNumber, How: lease.HowStoreClock, Why: text, By: text})
	}
	for i := range h.Recent {
		h.Recent[i].How, h.Recent[i].SupersededTTLMS = lease.HowVouched, h.TTLMS
	}
	link := func(n uint64) *Link {
		return &Link{Sequence: top - n, Token: top - 1, Attempt: try(3), Key: top - n, ID: top - n, Digest: DigestOf("x", nil)}
	}
	for _, name := range ChainNames() {
		*h.chain(name) = &Chain{Head: *link(1), Live: MaxLive, Floor: top - 2, Anchor: link(4), Mark: link(3), Marks: MaxLive,
			Horizon: top - 4, MarkAnchor: link(5), Binding: DigestOf("x", nil), State: DigestOf("x", nil)}
	}
	for _, c := range []*Chain{h.Assignment, h.Recovery} {
		c.Mark, c.Marks, c.Horizon, c.MarkAnchor = nil, 0, 0, nil
	}
	h.Catalog = &Chain{Head: *link(1), Live: 1, Binding: h.Recovery.Binding, State: h.Recovery.State}
	h.Catalog.Head.Key = 1
	h.Round = &Round{Generation: top, ID: try(4), Proof: me.Proof(top - 1), Revision: top - 1, Began: top, Plan: DigestOf("x", nil)}
	return h
}

// The largest head that users can cause fits: with faults of 129 participants, and
// with 516 slots of the longest names, 32 KiB stay free, and no change of anything
// else can use them up.
//
// SPEC LA9 ST11
func TestHeadIsBounded(t *testing.T) {
	t.Parallel()
	h := largest()
	body, err := h.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if len(body) > maxRest || len(body) < maxRest*8/10 {
		t.Errorf("all but the slots takes %d bytes, %d are set aside", len(body), maxRest)
	}
	h.Revision, h.Recovery, h.Round = 0, nil, nil
	h.Sequence, h.Renewal = record.MaxNumber-9, record.MaxNumber-9
	for i := range MaxSlots {
		r := report(fmt.Sprintf("%04d", i)+strings.Repeat(`"`, store.MaxName-4), idC, record.MaxNumber, record.MaxNumber)
		if changed, fates := h.fold([]Report{r}); !changed {
			t.Fatalf("slot %d: %v", i, fates)
		}
	}
	if n := slotBytes(h.Slots); len(h.Faults()) != MaxSlots || n > maxSlotBytes || n < maxSlotBytes*8/10 {
		t.Errorf("%d slots take %d bytes, %d are set aside", len(h.Slots), n, maxSlotBytes)
	}
	if n := slotBytes(h.Slots[:1]); n > longestSlot {
		t.Errorf("a slot of %d bytes", n)
	}
	if total := maxRest + maxSlotBytes; total+Headroom > MaxHead {
		t.Errorf("%d bytes, and %d free, are above %d", total, Headroom, MaxHead)
	}
	long := first()
	long.Revision = 1
	for i := range MaxSlots + 40 {
		long.Slots = append(long.Slots, Slot{Report: report(fmt.Sprintf("%04d", i)+strings.Repeat(`"`, store.MaxName-4), idC, record.MaxNumber, record.MaxNumber),
			Sequence: 1, Active: true})
	}
	if long.Valid() == nil {
		t.Error("a head without headroom is valid")
	}
}

// A round freezes the inventory of its moment under the next generation, and a later
// one replaces it.
//
// SPEC RF
func TestRound(t *testing.T) {
	t.Parallel()
	h := renew(first(), try(2), report("a", idC, 1, 1))
	plan := DigestOf("plan", nil)
	one := must(h.BeginRound(h.Last(), try(3), plan))
	if r := one.Round; r.Generation != 1 || r.Revision != 2 || r.Began != 3 || r.ID != try(3) || r.Proof != h.Last() || one.Valid() != nil || one.Renewal != 3 {
		t.Errorf("%+v, %v", r, one.Valid())
	}
	other := taken(one, ownB, try(4))
	if two := must(other.BeginRound(other.Last(), try(5), plan)); two.Round.Generation != 2 || two.Round.Proof != ownB.Proof(2) {
		t.Errorf("%+v", two.Round)
	}
	if _, err := h.BeginRound(h.Last(), try(3), "x"); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("no plan: %v", err)
	}
	one.Round.Generation = record.MaxNumber
	if _, err := one.BeginRound(one.Last(), try(5), plan); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("no generation left: %v", err)
	}
}
