package assignment_test

import (
	"errors"
	"testing"

	"github.com/tenure-project/tenure/authority"
	"github.com/tenure-project/tenure/authority/assignment"
	"github.com/tenure-project/tenure/authority/checkpoint"
	"github.com/tenure-project/tenure/authority/internal/chaintest"
	"github.com/tenure-project/tenure/store"
)

// An audit reads the map that is current wherever it stands: staged, written down, or
// behind aborts where the one before it does; and says when it is not there.
//
// SPEC LA5 AS
func TestAuditReadsTheMap(t *testing.T) {
	chaintest.Run(t, func(w *chaintest.World) {
		a := lead(w, "a")
		b := assignment.Participant{Node: "b", Incarnation: a.me.Incarnation}
		a.seed(a.me)
		w.Sound(a.A.Reader())
		a.abort(a.begin(a.me, b), authority.Created) // version 2 is 1's map
		a.abort(a.begin(a.me, b), authority.Created)
		w.Sound(a.A.Reader())
		a.commit(a.begin(a.me, b), authority.Created) // version 4
		w.Sound(a.A.Reader())
		broken := func(what string, flaw authority.Flaw) {
			w.Helper()
			_, err := a.A.Reader().Audit(w.Context())
			var found *authority.BrokenError
			if !errors.As(err, &found) || !errors.Is(err, store.ErrCorrupt) || found.Flaw != flaw || found.Chain != authority.Assignment || found.Link.Key != 4 {
				w.Errorf("%s: %v", what, err)
			}
		}
		staged := w.Keys(a.A, "proposal")
		last := staged[len(staged)-1]
		body, err := w.Store.Get(w.Context(), last, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		w.Damage(last, []byte("{}"))
		broken("altered", authority.Altered)
		w.Damage(last, nil)
		broken("missing", authority.Missing)
		w.Put(last, body.Body)
		if _, err := a.c.Materialize(w.Context()); err != nil {
			t.Fatal(err)
		}
		w.Damage(last, nil)
		w.Sound(a.A.Reader()) // it is written down
	})
}

// The map of version 1 is named by no decision. Where it is gone, and checkpoints were
// made under it, nobody seeds another in its place.
//
// SPEC AS CK
func TestLostSeed(t *testing.T) {
	chaintest.Run(t, func(w *chaintest.World) {
		a := lead(w, "a")
		b := assignment.Participant{Node: "b", Incarnation: a.me.Incarnation}
		a.seed(a.me)
		cp, err := checkpoint.Open(a.A, "dddddddd-4444-4444-8444-444444444444")
		if err != nil {
			t.Fatal(err)
		}
		cur, err := a.c.Current(w.Context())
		if err != nil {
			t.Fatal(err)
		}
		res, err := cp.Commit(w.Context(), a.p, checkpoint.Capsule{Attempt: checkpoint.Attempt{Epoch: 1, Checkpoint: 1}, Fence: cur.Fence})
		w.Want("commit", res.Result, err, authority.Created)
		w.Damage(w.Keys(a.A, "assignment")[0], nil)
		if _, _, err := a.c.Seed(w.Context(), spread(a.me, b)); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("another seed: %v", err)
		}
		if _, ours, err := a.c.Seed(w.Context(), spread(a.me)); err != nil || !ours {
			t.Errorf("the very one: %v, %v", ours, err)
		}
	})
}
