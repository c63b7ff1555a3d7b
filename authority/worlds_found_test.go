package authority

import (
	"context"
	"errors"
	"testing"

	tenure "github.com/tenure-project/tenure"
	core "github.com/tenure-project/tenure/internal/core/authority"
	"github.com/tenure-project/tenure/internal/core/authority/recovery"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

// A prune that meets a missing entry, and cannot read the head again, does not call
// the log corrupt: a compaction may have removed the entry, and nobody knows.
//
// SPEC LA5 LA8
func TestPruneThatCannotLookAgain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, q := w.proc(), w.proc()
		l := p.lead()
		first := p.append(l, abort(1), Created)
		p.append(l, abort(2), Created)
		key := p.key(string(core.KindEntry), first.Winner.Name().Element())
		w.set(key, nil)
		q.link.Add(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpGet}, Key: q.headKey, Skip: 1, Fault: faultstore.Fail(store.ErrUnavailable)})
		if _, err := Prune(t.Context(), q.client, theOne); !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrCorrupt) {
			t.Errorf("prune: %v", err)
		}
		q.link.Clear()
		if _, err := Prune(t.Context(), q.client, theOne); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("prune of a broken log: %v", err)
		}
	})
}

// Work that has stopped is not called overlapping because the wait for it ends at
// the same time.
//
// SPEC LA6
func TestStoppedWorkDoesNotOverlap(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		l := w.proc().lead()
		over, cancel := context.WithCancel(t.Context())
		cancel()
		l.running = make(chan struct{})
		if err := l.awaitWork(over); !errors.Is(err, tenure.ErrOverlap) {
			t.Errorf("work that goes on: %v", err)
		}
		close(l.running)
		for range 64 { // a choice between both would be by chance
			if err := l.awaitWork(over); err != nil {
				t.Fatalf("work that has stopped: %v", err)
			}
		}
	})
}

// A pending report of another start than the one that the head has for its term is
// told to be corrupt, not hidden as one that the head shows.
//
// SPEC RF ST7
func TestPendingOfAnotherStart(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.proc()
		p.lead()
		if _, err := p.Report(t.Context(), "disk"); err != nil {
			t.Fatal(err)
		}
		p.die()
		alien := core.Report{Node: p.me.Node, Incarnation: deployment, Term: p.me.Term, Request: 2}
		pending := recovery.Pending{V: record.Level, Authority: theOne, Report: alien, Attempt: deployment}
		w.set(p.key(kindReport, reportElement(alien)), must(pending.Encode()))
		q := w.proc()
		if all, err := q.Reader().Pending(t.Context()); len(all) != 0 || !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("%v, %v", all, err)
		}
	})
}
