package checkpoint_test

import (
	"errors"
	"testing"

	"github.com/tenure-project/tenure/authority"
	"github.com/tenure-project/tenure/authority/checkpoint"
	"github.com/tenure-project/tenure/authority/internal/chaintest"
	"github.com/tenure-project/tenure/store"
)

// Pending, fenced and settled are three things: an attempt of a superseded leader
// that has no outcome never gets one from it, and is not waited for.
//
// SPEC CK LA4
func TestFate(t *testing.T) {
	chaintest.Run(t, func(w *chaintest.World) {
		a := lead(w, "a", idA)
		a.commit(1, authority.Created)
		for epoch, want := range map[uint64]checkpoint.Fate{1: checkpoint.Settled, 2: checkpoint.Pending} {
			if got := a.history().Fate(attempt(epoch), a.p); got != want {
				w.Errorf("epoch %d: %v", epoch, got)
			}
		}
		a.StepDown()
		b := lead(w, "b", idA) // the same deployment
		if got := b.history().Fate(attempt(2), a.p); got != checkpoint.Fenced {
			w.Errorf("of a superseded leader: %v", got)
		}
		if got := b.history().Fate(attempt(2), b.p); got != checkpoint.Pending {
			w.Errorf("of its successor: %v", got)
		}
		b.commit(2, authority.Created)
		if got := b.history().Fate(attempt(2), a.p); got != checkpoint.Settled {
			w.Errorf("once its successor settled it: %v", got)
		}
	})
}

// A commit under a proof that leads nothing writes no capsule.
//
// SPEC CK LA4
func TestStaleCommitWritesNoCapsule(t *testing.T) {
	chaintest.Run(t, func(w *chaintest.World) {
		a := lead(w, "a", idA)
		a.commit(1, authority.Created)
		stale := a.p
		a.StepDown()
		b := lead(w, "b", idA)
		before := len(w.Keys(b.A, "capsule"))
		a.commit(2, authority.Fenced)
		b.commit(2, authority.Created)
		if got := a.commit(2, authority.Conflict); got == nil || got.Proof != b.p {
			w.Errorf("%+v", got)
		}
		stale.Token = 0
		if _, err := a.c.Commit(w.Context(), stale, a.capsule(3)); !errors.Is(err, store.ErrInvalid) {
			w.Errorf("%v", err)
		}
		if n := len(w.Keys(b.A, "capsule")); n != before+1 {
			w.Errorf("%d capsules, want %d", n, before+1)
		}
	})
}

// An audit reads the capsules of the commits that may be recovered from, and says which
// is gone or is another's.
//
// SPEC LA5 CK
func TestAuditReadsCapsules(t *testing.T) {
	chaintest.Run(t, func(w *chaintest.World) {
		a := lead(w, "a", idA)
		for epoch := uint64(1); epoch <= 3; epoch++ {
			a.commit(epoch, authority.Created)
		}
		w.Sound(a.A.Reader())
		keys := w.Keys(a.A, "capsule")
		for i, what := range []string{"altered", "missing"} {
			w.Damage(keys[1], [][]byte{[]byte("{}"), nil}[i])
			report, err := a.A.Reader().Audit(w.Context())
			var b *authority.BrokenError
			if !errors.As(err, &b) || !errors.Is(err, store.ErrCorrupt) || string(b.Flaw) != what || b.Link.Key != 2 || len(report.Breaks) != 1 {
				w.Errorf("%s: %v", what, err)
			}
		}
		a.advance(3)
		w.Sound(a.A.Reader()) // it is not needed any more
	})
}
