package slots

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tenure-project/tenure/internal/core/lease"
)

// span is how many slots a world plays with: half of them the first, half the last.
const span = 24

// slotAt is the i-th slot of the world; the two halves meet in the middle, far apart.
func slotAt(i int) uint16 {
	if i < span/2 {
		return uint16(i)
	}
	return uint16(Count - span + i)
}

// reign is what the oracle knows of one row: it keeps one per slot, never ranges.
type reign struct {
	bounds   Range
	epoch    uint64
	host     Host   // the present or last holder
	volume   string // that it would have to hold to go on, "" for none
	held     bool
	ttl      int64
	writes   int    // a sight is of one state
	wait     int64  // in a free one, how long others watch it
	heir     string // who need not
	released bool
}

// seen is a sight with the state it is of, as the oracle knows it.
type seen struct {
	Sight
	of     *reign
	writes int
	held   bool
}

// world runs each decision on a register, and on rows of which it read only a part, and
// compares both with an oracle of its own.
type world struct {
	t       *rapid.T
	table   *Table            // the register, as it was read back
	counter []byte            // the rows form's records
	rows    map[uint16][]byte //

	slots   [Count]*reign
	top     [Count]uint64 // the highest epoch that the slot ever had
	highest uint64
	given   map[uint64]bool
	procs   []*Host // every process that ever was; those that are gone send late writes
	sights  []seen
	ids     int
}

func (w *world) id() string { w.ids++; return id(w.ids) }

func newWorld(t *rapid.T) *world {
	w := &world{t: t, rows: map[uint16][]byte{}, given: map[uint64]bool{}}
	floor := rapid.SampledFrom([]uint64{0, 0, 7}).Draw(t, "floor at birth")
	w.table = must(New("orders", RegisterForm, floor, w.id(), 1))
	twin := *w.table
	twin.Form = RowsForm
	w.counter = must(twin.Encode())
	w.highest = floor
	for i := range 4 {
		w.start(i)
	}
	return w
}

// start begins a process of the i-th owner: two renew their rows, two hang on sessions,
// and two of them have a volume whose lock they hold.
func (w *world) start(i int) {
	name := string(rune('a' + i))
	w.ids++
	h := self(name, w.ids)
	if i%2 == 1 {
		h = sessionHost(name, w.ids)
	}
	h.TTLMS = rapid.SampledFrom([]int64{5_000, 30_000}).Draw(w.t, "ttl")
	if i < 2 {
		h = h.on(100 + rapid.IntRange(0, i).Draw(w.t, "volume")) // b may get that of a
		for _, old := range w.procs {                            // the lock is free only when its holder is gone
			if old.Volume != nil && *old.Volume == *h.Volume {
				old.Volume = nil
			}
		}
	}
	w.procs = append(w.procs, h)
}

func (w *world) proc() *Host { return rapid.SampledFrom(w.procs).Draw(w.t, "process") }

func (w *world) span() Range {
	a := rapid.IntRange(0, span-1).Draw(w.t, "a")
	b := min(span-1, a+rapid.SampledFrom([]int{0, 0, 1, 2, 3, 7, span}).Draw(w.t, "length"))
	return Range{slotAt(a), slotAt(b)}
}

// reigns are those that have a slot of r, in order.
func (w *world) reigns(r Range) []*reign {
	var all []*reign
	for s := int(r.A); s <= int(r.B); s++ {
		if s > span && s < Count-span {
			s = Count - span // nothing begins or ends between
		}
		if k := w.slots[s]; k != nil && (len(all) == 0 || all[len(all)-1] != k) {
			all = append(all, k)
		}
	}
	return all
}

// some is a hold that may be anybody's, and the reign that it is of, nil if of none as it
// is: most are of a row there is.
func (w *world) some() (Hold, *reign) {
	h := Hold{Range: w.span(), Epoch: 1}
	if k := w.slots[slotAt(rapid.IntRange(0, span-1).Draw(w.t, "slot"))]; k != nil {
		h = Hold{Range: k.bounds, Epoch: k.epoch}
	}
	switch rapid.IntRange(0, 11).Draw(w.t, "hold") {
	case 0:
		h.Epoch = rapid.Uint64Range(1, w.highest+1).Draw(w.t, "epoch")
	case 1:
		h.Range = w.span()
	case 2:
		h.Renewal = 1_000_000 // it remembers more than is there
	}
	if k := w.slots[h.Range.A]; k != nil && h.Range == k.bounds && h.Epoch == k.epoch && h.Renewal == 0 {
		return h, k
	}
	return h, nil
}

// part is what a home of rows reads for r.
func (w *world) part(r Range) *Table {
	head := must(DecodeTable("k", "orders", w.counter))
	var rows []Row
	for first, body := range w.rows {
		row := must(head.DecodeRow("k", first, body))
		if row.Range.Overlaps(r) || rapid.Bool().Draw(w.t, "one too many") {
			rows = append(rows, row)
		}
	}
	return must(Assemble(head, r, rows))
}

// apply writes what a decision changed in both homes: it must be the same.
func (w *world) apply(next, before, after *Table) {
	if next.Counter < w.table.Counter {
		w.t.Fatalf("the counter fell from %d to %d", w.table.Counter, next.Counter)
	}
	if next != w.table && sameRows(next, w.table) && next.Counter == w.table.Counter {
		w.t.Fatal("a write that changes nothing")
	}
	w.monotone(next)
	w.table = must(DecodeTable("k", "orders", must(next.Encode())))
	if !sameTable(w.table, next) {
		w.t.Fatalf("read back as\n%+v\nwritten\n%+v", w.table, next)
	}
	c := Diff(before, after)
	if c.None() != (next == before || len(c.Put)+len(c.Remove) == 0 && before.Counter == after.Counter) {
		w.t.Fatalf("%+v", c)
	}
	for _, r := range c.Remove {
		if _, ok := w.rows[r.A]; !ok {
			w.t.Fatalf("row %v is removed that is not there", r)
		}
		delete(w.rows, r.A)
	}
	for i := range c.Put {
		w.rows[c.Put[i].Range.A] = must(after.EncodeRow(&c.Put[i]))
	}
	if c.Counter {
		w.counter = must(after.Encode())
	}
	whole := w.part(All)
	if !sameRows(whole, w.table) || whole.Counter != w.table.Counter {
		w.t.Fatalf("the rows form has\n%+v\nthe register\n%+v", whole.Rows, w.table.Rows)
	}
}

// monotone: while an epoch lasts, its renewals and the TTL that rivals watch never fall.
func (w *world) monotone(next *Table) {
	for i := range next.Rows {
		n := &next.Rows[i]
		if o := w.table.RowAt(n.Range); o != nil && o.Epoch == n.Epoch &&
			(n.Renewal < o.Renewal || n.Renewal == o.Renewal && n.Held() && n.Attempt != o.Attempt || o.Held() && n.Held() && n.Host.TTLMS < o.Host.TTLMS || !o.Held() && n.Held()) {
			w.t.Fatalf("life was taken away, or given back: %+v, then %+v", o, n)
		}
	}
}

func sameRows(a, b *Table) bool {
	return len(a.Rows) == len(b.Rows) && (len(a.Rows) == 0 || reflect.DeepEqual(a.Rows, b.Rows))
}

func sameTable(a, b *Table) bool {
	x, y := *a, *b
	x.Rows, y.Rows = nil, nil
	return sameRows(a, b) && reflect.DeepEqual(x, y)
}

// check compares what is there with the oracle.
func (w *world) check(*rapid.T) {
	if err := w.table.Valid(); err != nil {
		w.t.Fatal(err)
	}
	if w.table.Counter != w.highest {
		w.t.Fatalf("counter %d, not %d", w.table.Counter, w.highest)
	}
	for i := range span {
		s := slotAt(i)
		row, k := w.table.RowOf(s), w.slots[s]
		if (row == nil) != (k == nil) {
			w.t.Fatalf("slot %d: %+v, not %+v", s, row, k)
		}
		if k == nil {
			continue
		}
		if row.Range != k.bounds || row.Epoch != k.epoch || row.Held() != k.held || row.Owner() != k.host.Owner ||
			k.held && (row.Host.Incarnation != k.host.Incarnation || row.Host.TTLMS != k.ttl) {
			w.t.Fatalf("slot %d: %+v, not %+v", s, row, k)
		}
		if !w.table.Admits(s, k.host.Owner, k.epoch) == k.held || w.table.Admits(s, k.host.Owner, k.epoch-1) {
			w.t.Fatalf("slot %d does not admit its owner, or admits an older epoch", s)
		}
		wait, possible := row.Wait("b")
		want := k.wait
		if k.held {
			want = k.ttl
		} else if k.heir == "b" {
			want = 0
		}
		if wait.Milliseconds() != want || possible == (k.held && k.host.Kind == lease.Session) {
			w.t.Fatalf("slot %d: b waits %v (%v), not %d ms", s, wait, possible, want)
		}
	}
}

func volumeOf(h *Host) string {
	if h.Volume == nil {
		return ""
	}
	return fmt.Sprint(*h.Volume)
}

// Several hosts, restarted and stopped ones among them, claim, renew, release, steal, jump
// and clear ranges of any shape: rows never overlap; there is one counter, never falling;
// an epoch is given once, and each slot's rises with each change of owner, also after rows
// went; a live row of another is never taken without a sight of exactly its state, nor by
// a name without the lock of its volume; a refused decision writes nothing; a late call
// takes no life away; and a decision on a part of the rows is the one on all.
//
// SPEC SL2 SL3 SL4 LS8 LS10 LS11 LS12
// CASE B42
func TestTable(t *testing.T) {
	t.Parallel()
	for i := range 4 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				w := newWorld(t)
				t.Repeat(map[string]func(*rapid.T){
					"": w.check, "claim": w.claim, "claim again": w.claim, "renew": w.renew, "release": w.release, "steal": w.steal, "jump": w.jump,
					"clear": w.clear, "watch": w.watch, "watch again": w.watch, "restart": func(*rapid.T) { w.start(rapid.IntRange(0, 3).Draw(t, "owner")) },
				})
			})
		})
	}
}

// watch: a rival sees the row of a slot dead, on good grounds or bad ones.
func (w *world) watch(*rapid.T) {
	s := slotAt(rapid.IntRange(0, span-1).Draw(w.t, "slot"))
	row, k := w.table.RowOf(s), w.slots[s]
	if k == nil {
		return
	}
	sight := Sight{State: row.State(), How: rapid.SampledFrom([]string{"observed", "observed", "proven", "released", "raised", ""}).Draw(w.t, "how")}
	if rapid.Bool().Draw(w.t, "evidence") {
		sight.Evidence = "certificate " + row.Owner()
	}
	w.sights = append(w.sights, seen{sight, k, k.writes, k.held})
}

// dead reports whether the last sight of k as it is now ends it.
func (w *world) dead(k *reign, sights ...seen) bool {
	var last *seen
	for i := range sights {
		if s := &sights[i]; s.of == k && s.writes == k.writes && s.held == k.held {
			last = s
		}
	}
	switch {
	case last == nil:
		return false
	case !k.held:
		return last.How == "observed"
	case k.host.Kind == lease.Session:
		return last.Evidence != "" && last.How != "raised" && last.How != ""
	}
	return last.How == "observed" || last.How == "proven"
}

func (w *world) proofs() []Sight {
	var all []Sight
	for _, s := range w.sights {
		all = append(all, s.Sight)
	}
	return all
}

func (w *world) claim(*rapid.T) {
	h := w.proc()
	ranges := []Range{w.span()}
	for range rapid.IntRange(0, 2).Draw(w.t, "more") {
		r := w.span()
		if !slices.ContainsFunc(ranges, r.Overlaps) {
			ranges = append(ranges, r)
		}
	}
	if rapid.IntRange(0, 4).Draw(w.t, "own bounds") > 0 {
		any := rapid.Bool().Draw(w.t, "of anybody")
		for _, k := range w.reigns(All) {
			if k.host.Owner == h.Owner || any {
				ranges = []Range{k.bounds}
			}
		}
	}
	floor := uint64(0)
	if rapid.IntRange(0, 4).Draw(w.t, "floored") == 0 {
		floor = rapid.Uint64Range(0, w.highest+4).Draw(w.t, "floor")
	}
	c := Claim{Ranges: ranges, Host: h, Floor: floor, Sights: w.proofs(), Attempt: w.id(), NowMS: int64(w.ids)}
	before := w.table
	next, answers := w.decide(c)
	order := slices.Clone(ranges)
	slices.SortFunc(order, func(a, b Range) int { return int(a.A) - int(b.A) })
	changed := false
	for _, r := range order {
		changed = w.expect(c, r, answers[slices.Index(ranges, r)]) || changed
	}
	if changed != (next != before) {
		w.t.Fatalf("changed %v, written %v", changed, next != before)
	}
}

// decide runs a claim on the register at once and range by range, and on parts of the rows.
func (w *world) decide(c Claim) (*Table, []Answer) {
	next, answers, err := w.table.Claim(c)
	if err != nil {
		w.t.Fatal(err)
	}
	single := w.table
	for i := range c.Ranges {
		k := slices.IndexFunc(c.Ranges, func(r Range) bool { return r == slices.SortedFunc(slices.Values(c.Ranges), byRange)[i] })
		one := c
		one.Ranges = c.Ranges[k : k+1]
		var a []Answer
		if single, a, err = single.Claim(one); err != nil || !reflect.DeepEqual(a[0], answers[k]) {
			w.t.Fatalf("alone: %+v, %v; together: %+v", a[0], err, answers[k])
		}
	}
	if !sameTable(single, next) {
		w.t.Fatalf("one after the other\n%+v\ntogether\n%+v", single, next)
	}
	if len(c.Ranges) == 1 {
		part := w.part(c.Ranges[0])
		after, a, err := part.Claim(c)
		if err != nil || !reflect.DeepEqual(a, answers) {
			w.t.Fatalf("on a part: %+v, %v; on all: %+v", a, err, answers)
		}
		w.apply(next, part, after)
	} else {
		all := w.part(All)
		after, _, _ := all.Claim(c)
		w.apply(next, all, after)
	}
	return next, answers
}

func byRange(a, b Range) int { return int(a.A) - int(b.A) }

// expect is the oracle's own decision about r, compared with the answer; it reports
// whether something changed.
func (w *world) expect(c Claim, r Range, a Answer) bool {
	over := w.reigns(r)
	var blocked []*reign
	var own *reign
	if len(over) == 1 && over[0].bounds == r && over[0].held {
		k := over[0]
		if k.host.Incarnation == c.Host.Incarnation || k.host.Owner == c.Host.Owner && k.volume != "" && k.volume == volumeOf(c.Host) {
			own = k
		}
	}
	for _, k := range over {
		free := !k.held && (k.wait == 0 || k.heir == c.Host.Owner)
		if k != own && !free && !w.dead(k, w.sights...) {
			blocked = append(blocked, k)
		}
	}
	switch held := (*HeldError)(nil); {
	case own != nil && own.epoch > c.Floor:
		return w.goOn(own, c, a)
	case len(blocked) > 0:
		var ok bool
		if held, ok = a.Err.(*HeldError); !ok || len(held.Rows) != len(blocked) || held.Range != r {
			w.t.Fatalf("%v is in the way of %v: %+v", blocked, r, a)
		}
		return false
	case a.Err != nil || !a.Fresh || a.Row.Epoch != max(w.highest, c.Floor)+1 || w.given[a.Row.Epoch]:
		w.t.Fatalf("a claim of %v above %d, counter %d: %+v", r, c.Floor, w.highest, a)
	}
	k := &reign{bounds: r, epoch: max(w.highest, c.Floor) + 1, host: *c.Host, volume: volumeOf(c.Host), held: true, ttl: c.Host.TTLMS}
	if own != nil {
		k.ttl = max(k.ttl, own.ttl)
	}
	w.highest = k.epoch
	w.given[k.epoch] = true
	for _, old := range over {
		for i := range span {
			if s := slotAt(i); old.bounds.Contains(s) {
				w.slots[s] = nil
			}
		}
	}
	for i := range span {
		s := slotAt(i)
		if !r.Contains(s) {
			continue
		}
		if w.top[s] >= k.epoch {
			w.t.Fatalf("slot %d: epoch %d after %d", s, k.epoch, w.top[s])
		}
		w.slots[s], w.top[s] = k, k.epoch
	}
	return true
}

// goOn is a claim of what is the claimant's already.
func (w *world) goOn(k *reign, c Claim, a Answer) bool {
	if a.Err != nil || a.Fresh || a.Row.Epoch != k.epoch || a.Row.Host.Incarnation != c.Host.Incarnation {
		w.t.Fatalf("its own %+v, answered %+v", k, a)
	}
	ttl := max(k.ttl, c.Host.TTLMS)
	changed := c.Host.Kind == lease.Self || k.host.Incarnation != c.Host.Incarnation || ttl != k.ttl || k.volume != volumeOf(c.Host)
	k.host, k.volume, k.ttl = *c.Host, volumeOf(c.Host), ttl
	if changed {
		k.writes++
	}
	return changed
}
