package slots

import (
	"reflect"

	"pgregory.net/rapid"

	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/store"
)

func (w *world) renew(*rapid.T) {
	h := w.proc()
	hold, k := w.some()
	n := Renewal{Host: h, Holds: []Hold{hold}, Attempt: w.id()}
	next, answers, err := w.table.Renew(n)
	part := w.part(hold.Range)
	after, twin, err2 := part.Renew(n)
	if err != nil || err2 != nil || (answers[0].Err == nil) != (twin[0].Err == nil) || !reflect.DeepEqual(answers[0].Row, twin[0].Row) {
		w.t.Fatalf("%+v %v; %+v %v", answers, err, twin, err2)
	}
	mine := k != nil && k.held && k.host.Incarnation == h.Incarnation
	if mine != (answers[0].Err == nil) || !mine && next != w.table {
		w.t.Fatalf("renewal by %s of %+v (%+v): %+v", h.Owner, hold, k, answers)
	}
	if row := w.table.RowAt(hold.Range); row != nil { // as a home of rows does
		alone, err := row.Renew(h, hold, n.Attempt)
		if (err == nil) != mine || err == nil && !reflect.DeepEqual(alone, answers[0].Row) {
			w.t.Fatalf("%+v %v", alone, err)
		}
	}
	if mine && k.host.Kind == lease.Self {
		k.writes++
	}
	w.apply(next, part, after)
}

func (w *world) release(*rapid.T) {
	h := w.proc()
	hold, k := w.some()
	l := Release{Host: h, Holds: []Hold{hold}, Attempt: w.id(), NowMS: 5}
	if rapid.Bool().Draw(w.t, "for somebody") {
		l.Successor, l.HoldMS = rapid.SampledFrom([]string{"a", "b", "z"}).Draw(w.t, "heir"), rapid.Int64Range(1, h.TTLMS).Draw(w.t, "hold")
	}
	next, answers, err := w.table.Release(l)
	part := w.part(hold.Range)
	after, twin, err2 := part.Release(l)
	if err != nil || err2 != nil || (answers[0].Err == nil) != (twin[0].Err == nil) {
		w.t.Fatalf("%+v %v; %+v %v", answers, err, twin, err2)
	}
	mine := k != nil && k.held && k.host.Incarnation == h.Incarnation
	again := w.slots[hold.Range.A]
	done := again != nil && again.bounds == hold.Range && again.epoch == hold.Epoch && again.released && again.host.Owner == h.Owner
	if (mine || done) != (answers[0].Err == nil) || !mine && next != w.table {
		w.t.Fatalf("release by %s of %+v (%+v): %+v", h.Owner, hold, k, answers)
	}
	if mine {
		k.held, k.released, k.wait, k.heir = false, true, l.HoldMS, l.Successor
		k.writes++
	}
	w.apply(next, part, after)
}

func (w *world) steal(*rapid.T) {
	hold, _ := w.some()
	s := Theft{Range: hold.Range, Epoch: hold.Epoch, Why: "fire", By: "anna", NowMS: 5, Vouch: rapid.Bool().Draw(w.t, "vouch"), Attempt: w.id()}
	var sights []seen
	if len(w.sights) > 0 {
		sights = []seen{rapid.SampledFrom(w.sights).Draw(w.t, "sight")}
		s.Sight = &sights[0].Sight
	}
	next, row, err := w.table.Steal(s)
	part := w.part(hold.Range)
	after, twin, err2 := part.Steal(s)
	if (err == nil) != (err2 == nil) || !reflect.DeepEqual(row, twin) {
		w.t.Fatalf("%+v %v; %+v %v", row, err, twin, err2)
	}
	k := w.slots[hold.Range.A] // an operator names bounds and epoch alone
	may := k != nil && k.held && k.bounds == hold.Range && k.epoch == hold.Epoch
	if may && k.host.Kind == lease.Session {
		may = w.dead(k, sights...)
	}
	if may != (err == nil) {
		w.t.Fatalf("steal of %+v (%+v): %+v %v", hold, k, row, err)
	}
	if err != nil {
		if kind := store.KindOf(err); kind != store.ErrConflict && kind != store.ErrInvalid {
			w.t.Fatal(err)
		}
		return
	}
	k.held, k.writes, k.wait = false, k.writes+1, k.ttl
	if s.Vouch || k.host.Kind == lease.Session {
		k.wait = 0
	}
	k.released = k.host.Kind == lease.Session && s.Sight.How == lease.HowReleased
	w.highest++
	w.apply(next, part, after)
}

func (w *world) jump(*rapid.T) {
	above := rapid.Uint64Range(0, w.highest+5).Draw(w.t, "above")
	attempt := w.id()
	next := must(w.table.Jump(attempt, above))
	head := must(DecodeTable("k", "orders", w.counter))
	after := must(head.Jump(attempt, above))
	w.highest = max(w.highest, above)
	w.apply(next, head, after)
}

func (w *world) clear(*rapid.T) {
	r, me := w.span(), rapid.SampledFrom([]string{"a", "b"}).Draw(w.t, "me")
	most := rapid.IntRange(0, 3).Draw(w.t, "most")
	attempt := w.id()
	next, n, err := w.table.Clear(r, me, most, attempt)
	part := w.part(r)
	after, twin, err2 := part.Clear(r, me, most, attempt)
	if err != nil || err2 != nil || n != twin {
		w.t.Fatalf("%d %v; %d %v", n, err, twin, err2)
	}
	want := 0
	for _, k := range w.reigns(r) {
		if want < most && !k.held && (k.wait == 0 || k.heir == me) {
			want++
			for i := range span {
				if s := slotAt(i); k.bounds.Contains(s) {
					w.slots[s] = nil
				}
			}
		}
	}
	if n != want {
		w.t.Fatalf("%d rows went, not %d", n, want)
	}
	w.apply(next, part, after)
}
