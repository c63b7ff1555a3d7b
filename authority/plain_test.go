package authority

import (
	"errors"
	"strings"
	"testing"

	tenure "github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/core/authority/catalog"
	"github.com/tenure-project/tenure/internal/core/authority/checkpoint"
	"github.com/tenure-project/tenure/store"
)

// A leader leads, decides, is read, steps down, and leads again with the next token.
//
// SPEC LA1 LA3 LA4 LA5
func TestPlainPath(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, q := w.proc(), w.proc()
		_, err := q.Reader().Snapshot(t.Context())
		wantErr(t, err, store.ErrNotFound)
		l := p.lead()
		if l.Token() != 1 || !l.Live() || !p.Leads(l.Proof()) || l.Proof() != (tenure.Proof{Node: "n1", Incarnation: p.s.Proof().Incarnation, Term: 1, Token: 1}) {
			t.Errorf("leader %+v", l.Proof())
		}
		_, err = q.TryLead(t.Context())
		var held *HeldError
		if wantErr(t, err, tenure.ErrHeld); !errors.As(err, &held) || held.Leader != l.Proof() {
			t.Errorf("held by %v", err)
		}
		first := p.append(l, abort(1), Created)
		p.append(l, abort(1), Unchanged)
		p.append(l, abort(2), Created)
		if res := p.append(l, abort(1), Unchanged); res.Winner != first.Winner {
			t.Errorf("the winner is %+v, not %+v", res.Winner, first.Winner)
		}
		s, err := q.Reader().Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if who, ok := s.Leader(); !ok || who != l.Proof() || !s.Leads(l.Proof()) || s.Sequence() != 3 {
			t.Errorf("snapshot: %v, sequence %d", who, s.Sequence())
		}
		var epochs []uint64
		for e, err := range q.Reader().Entries(t.Context(), Checkpoint) {
			if err != nil {
				t.Fatal(err)
			}
			epochs = append(epochs, e.Value.(*checkpoint.Outcome).Epoch)
		}
		if len(epochs) != 2 || epochs[0] != 2 || epochs[1] != 1 {
			t.Errorf("epochs %v", epochs)
		}
		if report := w.audit(q.Reader()); report.Entries != 2 {
			t.Errorf("%d entries", report.Entries)
		}
		w.stepDown(l)
		if l.Live() || p.Leads(l.Proof()) || p.Leader() != nil {
			t.Error("it leads after it stepped down")
		}
		wantErr(t, l.Err(), tenure.ErrReleased)
		again := p.lead()
		if again.Token() != 2 || again.Proof() == l.Proof() || p.Leads(l.Proof()) {
			t.Errorf("token %d", again.Token())
		}
		p.append(l, abort(1), Unchanged) // the old proof is told what stands
		p.append(l, abort(3), Fenced)
		w.stepDown(again)
		if m := q.lead(); m.Token() != 3 {
			t.Errorf("token %d", m.Token())
		}
	})
}

// A renewal is one request, and one list of reports per interval; a decision two, with
// a blob three; a look at the head one; and a decision takes the place of a renewal.
//
// SPEC LA2 LA4 RF
func TestRequests(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, q := w.proc(), w.proc()
		if got := p.used(func() { p.lead() }); got != "get head, list entry, create head" {
			t.Errorf("the first grant: %s", got)
		}
		l := p.Leader()
		renew := p.cfg.timing.Renew
		rested(t, renew/4)
		if got := p.used(func() { rested(t, 10*renew) }); strings.Count(got, "replace head") < 10 || strings.Count(got, "replace head") > 12 ||
			strings.Count(got, "list report") != 10 || strings.Count(got, ",") != strings.Count(got, "replace head")+9 {
			t.Errorf("ten intervals: %s", got)
		}
		if got := p.used(func() { p.append(l, abort(1), Created) }); got != "create entry, replace head" {
			t.Errorf("a decision: %s", got)
		}
		body, err := (&catalog.Manifest{V: 1, Definitions: []catalog.Definition{{Name: "t", Text: strings.Repeat("x", 70<<10)}}}).Encode()
		if err != nil {
			t.Fatal(err)
		}
		if got := p.used(func() {
			if res, err := p.Append(t.Context(), l.Proof(), catalog.Rules{}, body); err != nil || res.Answer != Created {
				t.Errorf("%v, %v", res, err)
			}
		}); got != "create blob, create entry, replace head" {
			t.Errorf("a decision with a blob: %s", got)
		}
		got := p.used(func() {
			for epoch := uint64(2); epoch < 22; epoch++ {
				rested(t, renew/2)
				p.append(l, abort(epoch), Created)
			}
		})
		if strings.Count(got, "replace head") != 20 {
			t.Errorf("decisions do not count as renewals: %s", got)
		}
		if got := q.used(func() { _, err = q.Reader().Snapshot(t.Context()) }); got != "get head" || err != nil {
			t.Errorf("a look at the head: %s, %v", got, err)
		}
		s, err := q.Reader().Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		rested(t, renew)
		if got := q.used(func() { err = s.Validate(t.Context()) }); got != "get head" || err != nil {
			t.Errorf("validation: %s, %v", got, err)
		}
		p.append(l, abort(22), Created)
		wantErr(t, s.Validate(t.Context()), ErrChanged)
		wantErr(t, s.Validate(t.Context(), PartCheckpoint), ErrChanged)
		if err := s.Validate(t.Context(), PartLeader, PartFaults, PartCatalog); err != nil {
			t.Error(err)
		}
		w.audit(q.Reader())
		if d := p.cfg.timing.Life() - l.own.Remaining(); d > 0 {
			t.Errorf("the last decision did not extend the deadline: %v ago", d)
		}
	})
}
