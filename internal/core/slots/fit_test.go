package slots

import (
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/store"
)

// What a row is observed for counts while that very row stays as it is, whatever else
// changes in the table; a write to it, another table of that name, or a clock that went
// back begins anew.
//
// SPEC SL3 LS2 DL5
func TestObservation(t *testing.T) {
	t.Parallel()
	d := newDesk(t, RegisterForm)
	a := self("a", 1)
	row := d.got(a, r(0, 99), 0)
	o := Observation{}.Observe(d.at.Birth, d.at.RowOf(0), 10*time.Second)
	d.got(self("b", 2), r(100, 199), 0)
	d.set(must(d.at.Jump(id(5), 99)))
	o = o.Observe(d.at.Birth, d.at.RowOf(0), 20*time.Second)
	if o.From != 10*time.Second || o.RipeAt(30*time.Second, 0.01) < 40*time.Second+300*time.Millisecond {
		t.Errorf("%+v, %v", o, o.RipeAt(30*time.Second, 0.01))
	}
	if back := o.Observe(d.at.Birth, d.at.RowOf(0), 5*time.Second); back.From != 5*time.Second {
		t.Error("a clock that went back")
	}
	if other := o.Observe(id(99), d.at.RowOf(0), 25*time.Second); other.From != 25*time.Second {
		t.Error("another table of that name")
	}
	if _, err := d.claim(self("b", 2), r(0, 99), 0, o.Sight()); err != nil {
		t.Error("a ripe observation proves nothing:", err)
	}
	d.at.Rows[0] = row
	if err := d.renew(a, r(0, 99), row.Epoch); err != nil {
		t.Fatal(err)
	}
	if o = o.Observe(d.at.Birth, d.at.RowOf(0), 30*time.Second); o.From != 30*time.Second {
		t.Error("a renewal was not seen")
	}
	if err := d.release(a, r(0, 99), row.Epoch, "b", 100); err != nil {
		t.Fatal(err)
	}
	if o = o.Observe(d.at.Birth, d.at.RowOf(0), 31*time.Second); o.From != 31*time.Second || o.State.Incarnation != "" {
		t.Error("a release was not seen")
	}
}

// A holder goes on from a changed record only if its own write made it, and nothing fell.
//
// SPEC LS4
// CASE B42
func TestAdoptable(t *testing.T) {
	t.Parallel()
	mine := func(a string) bool { return a == id(5) }
	held := Row{Range: r(0, 9), Epoch: 3, Renewal: 7, Attempt: id(5), Host: self("a", 1)}
	for what, x := range map[string]struct {
		change func(*Row)
		want   bool
	}{
		"the same":               {func(*Row) {}, true},
		"its next renewal":       {func(r *Row) { r.Renewal = 8 }, true},
		"its last was not there": {func(r *Row) { r.Renewal = 6 }, true},
		"it went back":           {func(r *Row) { r.Renewal = 5 }, false},
		"another's attempt":      {func(r *Row) { r.Attempt = id(6) }, false},
		"another epoch":          {func(r *Row) { r.Epoch = 4 }, false},
		"other bounds":           {func(r *Row) { r.Range.B = 8 }, false},
		"another start":          {func(r *Row) { r.Host = self("a", 2) }, false},
		"free":                   {func(r *Row) { r.Host, r.Freed = nil, &Freed{} }, false},
	} {
		now := held
		x.change(&now)
		if got := Adoptable(&held, &now, mine); got != x.want {
			t.Errorf("%s: %v", what, got)
		}
	}
}

// One row is renewed and released by itself as in its table.
//
// SPEC SL4
func TestARowByItself(t *testing.T) {
	t.Parallel()
	a := self("a", 1)
	row := Row{Range: r(0, 9), Epoch: 3, Attempt: id(5), Host: a}
	hold := Hold{Range: r(0, 9), Epoch: 3}
	next, err := row.Renew(a, hold, id(6))
	if err != nil || next.Renewal != 1 || row.Renewal != 0 {
		t.Fatal(next, err)
	}
	if _, err := row.Renew(a, hold, "x"); !errors.Is(err, store.ErrInvalid) {
		t.Error(err)
	}
	l := Release{Host: a, Holds: []Hold{hold}, Attempt: id(7), NowMS: 5}
	free, err := next.Release(l)
	if err != nil || free.Held() || free.Renewal != 1 || free.Attempt != id(7) {
		t.Fatal(free, err)
	}
	if again, err := free.Release(l); err != nil || !again.same(&free) {
		t.Error(again, err)
	}
	_, err = (*Row)(nil).Release(l)
	isLost(t, err, r(0, 9))
	_, err = (*Row)(nil).Renew(a, hold, id(6))
	isLost(t, err, r(0, 9))
	l.Holds = append(l.Holds, hold)
	if _, err := next.Release(l); !errors.Is(err, store.ErrInvalid) {
		t.Error(err)
	}
	end := Row{Range: r(0, 9), Epoch: 3, Renewal: 1<<53 - 1, Attempt: id(5), Host: a}
	if _, err := end.Renew(a, hold, id(6)); !errors.Is(err, store.ErrInvalid) {
		t.Error("a renewal above 2^53-1:", err)
	}
}

// However a claim filled the register, what is owned is renewed, released and stolen, and
// history makes room.
//
// SPEC ST11 SL4
func TestHistoryMakesRoom(t *testing.T) {
	t.Parallel()
	tab := crowded(t)
	for i := range tab.Rows { // every row was taken on evidence of its own
		tab.Rows[i].From = []Past{{Owner: "x", Epoch: uint64(1 + i), Rows: 1, How: lease.HowForced, Why: "why " + id(i), Evidence: strings.Repeat(id(i), 8)}}
	}
	if tab.size() <= MaxTable {
		t.Fatal("the table is not too large")
	}
	mover := tab.Rows[99].Host
	next, answers, err := tab.Claim(Claim{Ranges: []Range{r(99, 99)}, Host: mover, Floor: tab.Counter, Attempt: id(5)})
	if err != nil || !answers[0].Fresh || next.size() > MaxTable-claimRoom {
		t.Fatal(answers, err)
	}
	if next.Rows[0].From != nil || next.Rows[99].From == nil || next.Rows[Count-1].Epoch == 0 {
		t.Error("not the oldest forgot, or the newest did")
	}
	if err := next.Valid(); err != nil {
		t.Error(err)
	}
	var holds []Hold
	for i := range next.Rows {
		if next.Rows[i].Host.Is(mover) {
			holds = append(holds, Hold{Range: next.Rows[i].Range, Epoch: next.Rows[i].Epoch})
		}
	}
	freed, _, err := next.Release(Release{Host: mover, Holds: holds, Successor: strings.Repeat("ü", 64), HoldMS: ttlMS, Attempt: id(6)})
	if err != nil || len(must(freed.Encode())) > MaxTable {
		t.Fatal(err)
	}
}

// A claim that would take the room which others need is refused.
//
// SPEC ST11
func TestAClaimLeavesRoom(t *testing.T) {
	t.Parallel()
	tab := must(New("orders", RegisterForm, 0, id(1), 1))
	var err error
	tab.Rows = make([]Row, 6000)
	for i := range tab.Rows { // every row is another host's
		h := edit(sessionHost(strings.Repeat("ö", 58)+id(i)[:8], i+1), func(h *Host) { h.Addr = strings.Repeat("x", 120) })
		tab.Rows[i] = Row{Range: r(uint16(i), uint16(i)), Epoch: uint64(i + 1), Attempt: id(i), Host: h}
	}
	tab.Counter = 6000
	if _, _, err = tab.Claim(Claim{Ranges: []Range{r(9000, 9000)}, Host: self("a", 1), Attempt: id(5)}); !errors.Is(err, store.ErrInvalid) {
		t.Fatal(err)
	}
	h := tab.Rows[5].Host
	if _, _, err = tab.Release(Release{Host: h, Holds: []Hold{{Range: r(5, 5), Epoch: 6}}, Successor: "b", HoldMS: 5, Attempt: id(5)}); err != nil {
		t.Error(err)
	}
	if _, _, err = tab.Claim(Claim{Ranges: []Range{r(9000, 9000)}, Host: self("a", 1), Attempt: id(5)}); err == nil {
		t.Error("it is not refused")
	}
	tab.Form = RowsForm // where each row has its own record nothing is too large
	if _, _, err = tab.Claim(Claim{Ranges: []Range{r(9000, 9000)}, Host: self("a", 1), Attempt: id(5)}); err != nil {
		t.Error(err)
	}
}

// The cheap bound of a table's size is one.
//
// SPEC ST11
func TestAtMost(t *testing.T) {
	t.Parallel()
	text := rapid.StringMatching(`[a-z"\\<é]{1,12}`)
	number := rapid.OneOf(rapid.Uint64Range(0, 9), rapid.Uint64Range(0, 1<<53-1))
	rapid.Check(t, func(t *rapid.T) {
		tab := must(New(text.Draw(t, "name"), RegisterForm, number.Draw(t, "counter"), id(1), 1<<53-1))
		for i := range rapid.IntRange(0, 40).Draw(t, "rows") {
			row := Row{Range: r(uint16(16*i), uint16(16*i+15)), Epoch: number.Draw(t, "epoch"), Renewal: number.Draw(t, "renewal"), Since: int64(number.Draw(t, "since")), Attempt: id(rapid.IntRange(0, 300).Draw(t, "attempt"))}
			if h := self(text.Draw(t, "owner"), i); rapid.Bool().Draw(t, "held") {
				row.Host = rapid.SampledFrom([]*Host{h, h.on(i), sessionHost(text.Draw(t, "owner"), i)}).Draw(t, "host")
			} else {
				row.Freed = &Freed{Owner: h.Owner, How: text.Draw(t, "how"), At: int64(number.Draw(t, "at")), Successor: h.Owner, HoldMS: int64(number.Draw(t, "hold")), SupersededTTLMS: 1, Why: text.Draw(t, "why")}
			}
			for range rapid.IntRange(0, 3).Draw(t, "former") {
				row.From = append(row.From, Past{Owner: text.Draw(t, "former"), Epoch: number.Draw(t, "epoch"), Rows: Count, How: "x", By: text.Draw(t, "by"), Evidence: text.Draw(t, "evidence")})
			}
			tab.Rows = append(tab.Rows, row)
		}
		if most, size := tab.atMost(), tab.size(); most < size {
			t.Fatalf("at most %d, it has %d", most, size)
		}
	})
	if most, size := crowded(t).atMost(), crowded(t).size(); most > size*5/4 {
		t.Errorf("a bound of %d for %d bytes", most, size)
	}
}

// A row tells whom it was taken from: those that fell in the same way once, and if there
// are too many those whom something was taken from, the latest first.
//
// SPEC SL3 LS8
func TestFormerOwners(t *testing.T) {
	t.Parallel()
	d := newDesk(t, RegisterForm)
	var sights []Sight
	for i := range uint16(40) {
		h := sessionHost(string(rune('a'+i%20)), int(i%20)+1)
		row := d.got(h, r(i, i), 0)
		if i%20 < 11 {
			sights = append(sights, Sight{State: row.State(), How: lease.HowProven, Evidence: "certificate of " + h.Owner})
		} else if err := d.release(h, r(i, i), row.Epoch, "", 0); err != nil {
			t.Fatal(err)
		}
	}
	before := d.at
	all := d.got(self("z", 99), r(0, 39), 0, sights...)
	if all.Epoch != 41 || len(all.From) != MaxPast {
		t.Fatalf("%+v", all)
	}
	for i, p := range all.From {
		if p.Rows != 2 || p.Epoch != uint64(31-i) || p.How != lease.HowProven || !strings.HasSuffix(p.Evidence, p.Owner) {
			t.Errorf("%d: %+v", i, p)
		}
	}
	// What is free may be cleared first, a few at a time: all else stays.
	next, n, err := before.Clear(r(0, 39), "z", 5, id(5))
	if err != nil || n != 5 || len(next.Rows) != 35 || next.Counter != 40 || next.RowOf(11) != nil || next.RowOf(31) == nil {
		t.Fatal(n, err)
	}
	if c := Diff(before, next); c.Counter || len(c.Put) != 0 || len(c.Remove) != 5 {
		t.Errorf("%+v", c)
	}
	if next, n, err = next.Clear(All, "z", 1000, id(5)); err != nil || n != 13 || next.Valid() != nil {
		t.Error(n, err)
	}
}

// A session's rows are renewed by nobody: a renewal is a look, and writes nothing.
//
// SPEC SL3 LS8
func TestASessionsRowsNeedNoRenewal(t *testing.T) {
	t.Parallel()
	d := newDesk(t, RegisterForm)
	b := sessionHost("b", 2)
	row := d.got(b, r(0, 99), 0)
	at := d.at
	if err := d.renew(b, r(0, 99), row.Epoch); err != nil || d.at != at {
		t.Error(err)
	}
	if a, err := d.claim(b, r(0, 99), 0); err != nil || a.Fresh || d.at != at {
		t.Error(a, err)
	}
	_, err := d.claim(sessionHost("b", 3), r(0, 99), 0) // the next session of that name
	isHeld(t, err, "b", 1)
	isLost(t, d.renew(sessionHost("b", 3), r(0, 99), row.Epoch), r(0, 99))
	later := edit(sessionHost("b", 2), func(h *Host) { h.Term = 9 })
	isLost(t, d.renew(later, r(0, 99), row.Epoch), r(0, 99))
}
