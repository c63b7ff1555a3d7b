package checkpoint_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/tenure-project/tenure/authority"
	"github.com/tenure-project/tenure/authority/checkpoint"
	"github.com/tenure-project/tenure/authority/internal/chaintest"
	"github.com/tenure-project/tenure/store"
)

// broken audits, and returns the one break that is found.
func (l *leading) broken() *authority.BrokenError {
	l.W.Helper()
	report, err := l.A.Reader().Audit(l.W.Context())
	var b *authority.BrokenError
	if !errors.As(err, &b) || len(report.Breaks) != 1 {
		l.W.Fatalf("audit: %v, %d breaks", err, len(report.Breaks))
	}
	return b
}

// A capsule that is lost for good, be it the newest, is mended by a later commit and a
// horizon above it, and by nothing less.
//
// SPEC CK LA5
func TestLostCapsuleIsOutlived(t *testing.T) {
	chaintest.Run(t, func(w *chaintest.World) {
		ctx := w.Context()
		a := lead(w, "a", chaintest.Deployment)
		for epoch := uint64(1); epoch <= 3; epoch++ {
			a.commit(epoch, authority.Created)
		}
		keys := w.Keys(a.A, "capsule")
		lost := keys[len(keys)-1]
		w.Damage(lost, nil)
		if b := a.broken(); b.Flaw != authority.Missing || b.Link.Key != 3 || !strings.HasSuffix(lost, "/"+b.Where()) {
			t.Errorf("audit: %v, where %s; lost is %s", b, b.Where(), lost)
		}
		if _, err := a.c.Advance(ctx, a.p, 3, accept); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("advance to the lost one: %v", err)
		}
		a.commit(4, authority.Created)
		a.advance(3) // what remains is sound, but the lost one is still to be kept
		if b := a.broken(); b.Link.Key != 3 {
			t.Error(b)
		}
		a.advance(4)
		w.Sound(a.A.Reader())
		if got := a.history().HighestCommit(); got.Epoch != 4 {
			t.Errorf("the newest commit is %d", got.Epoch)
		}
	})
}

// A broken entry below the newest one stops every history and every advance, not the
// next decision, and no later one mends it. Its bytes do.
//
// SPEC CK LA5
func TestBrokenMiddle(t *testing.T) {
	chaintest.Run(t, func(w *chaintest.World) {
		ctx := w.Context()
		a := lead(w, "a", chaintest.Deployment)
		var key string
		for epoch := uint64(1); epoch <= 3; epoch++ {
			if o := a.commit(epoch, authority.Created); epoch == 2 {
				key = a.A.Kit().Key("entry", o.Link.Name().Element())
			}
		}
		o, err := w.Store.Get(ctx, key, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		w.Damage(key, nil)
		fresh := checkpoint.Read(w.Start("z").A.Reader())
		for _, newest := range []uint64{3, 4} {
			if newest == 4 {
				a.commit(newest, authority.Created)
			}
			if b := a.broken(); b.Link.Key != 2 || !strings.HasSuffix(key, "/"+b.Where()) {
				t.Errorf("audit: %v", b)
			}
			if _, err := fresh.History(ctx); !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("a history: %v", err)
			}
			if _, top, err := fresh.Newest(ctx); err != nil || top.Epoch != newest {
				t.Errorf("the newest commit: %+v, %v", top, err)
			}
			if _, err := a.c.Advance(ctx, a.p, newest, accept); !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("advance to %d: %v", newest, err)
			}
		}
		w.Put(key, o.Body)
		w.Sound(a.A.Reader())
		if _, err := fresh.History(ctx); err != nil {
			t.Error(err)
		}
	})
}

// A broken newest entry hides what is current, until the next outcome stands.
//
// SPEC CK LA5
func TestBrokenNewest(t *testing.T) {
	chaintest.Run(t, func(w *chaintest.World) {
		ctx := w.Context()
		a := lead(w, "a", chaintest.Deployment)
		a.commit(1, authority.Created)
		o := a.commit(2, authority.Created)
		w.Damage(a.A.Kit().Key("entry", o.Link.Name().Element()), nil)
		fresh := checkpoint.Read(w.Start("z").A.Reader())
		if _, _, err := fresh.Newest(ctx); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("the newest outcome: %v", err)
		}
		a.commit(3, authority.Created)
		if _, top, err := fresh.Newest(ctx); err != nil || top.Epoch != 3 {
			t.Errorf("the newest commit: %+v, %v", top, err)
		}
		if b := a.broken(); b.Link.Key != 2 {
			t.Error(b)
		}
	})
}
