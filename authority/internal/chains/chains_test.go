package chains_test

import (
	"errors"
	"testing"

	"go.uber.org/goleak"

	"github.com/tenure-project/tenure/authority"
	"github.com/tenure-project/tenure/authority/catalog"
	"github.com/tenure-project/tenure/authority/internal/chains"
	"github.com/tenure-project/tenure/authority/internal/chaintest"
	core "github.com/tenure-project/tenure/internal/core/authority/catalog"
	"github.com/tenure-project/tenure/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func seal(w *chaintest.World, p *chaintest.Process, text string) authority.Link {
	w.Helper()
	res, err := catalog.Seal(w.Context(), p.A, p.A.Leader().Proof(), []catalog.Definition{{Name: "s", Text: text}})
	w.Want("seal", res.Result, err, authority.Created)
	return res.Winner
}

// What was given up while the chain moved on is read again at the newer head; what is
// missing at an unchanged one that has entries is damage, and at one without them not
// there yet.
//
// SPEC LA5 LA8
func TestReread(t *testing.T) {
	chaintest.Run(t, func(w *chaintest.World) {
		p := w.Start("a")
		p.Lead()
		calls := 0
		err := chains.Reread(w.Context(), p.A.Reader(), authority.Catalog, func(s authority.Snapshot) error {
			if calls++; calls == 1 {
				seal(w, p, "x")
				return store.ErrNotFound
			}
			return nil
		})
		if err != nil || calls != 2 {
			t.Errorf("a chain that moved on: %d calls, %v", calls, err)
		}
		calls = 0
		err = chains.Reread(w.Context(), p.A.Reader(), authority.Catalog, func(authority.Snapshot) error { calls++; return store.ErrNotFound })
		if !errors.Is(err, store.ErrCorrupt) || errors.Is(err, store.ErrNotFound) || calls != 1 {
			t.Errorf("a chain that did not: %d calls, %v", calls, err)
		}
		calls = 0
		err = chains.Reread(w.Context(), p.A.Reader(), authority.Assignment, func(authority.Snapshot) error { calls++; return store.ErrNotFound })
		if !errors.Is(err, store.ErrNotFound) || calls != 1 {
			t.Errorf("an empty chain: %d calls, %v", calls, err)
		}
		calls = 0
		err = chains.Reread(w.Context(), p.A.Reader(), authority.Catalog, func(authority.Snapshot) error { calls++; return store.ErrCorrupt })
		if !errors.Is(err, store.ErrCorrupt) || calls != 1 {
			t.Errorf("damage: %d calls, %v", calls, err)
		}
	})
}

// A decision is returned only with the linked bytes, and with its blob.
//
// SPEC LA4 LA5
func TestDecode(t *testing.T) {
	chaintest.Run(t, func(w *chaintest.World) {
		p := w.Start("a")
		p.Lead()
		l := seal(w, p, string(make([]byte, 70<<10)))
		d, err := chains.Decode(w.Context(), p.A.Reader(), core.Rules{}, l)
		if err != nil || d.Proof != p.A.Leader().Proof() || len(d.Item.Value.(*core.Manifest).Definitions[0].Text) != 70<<10 {
			t.Fatalf("decision %+v, %v", d.Proof, err)
		}
		blob := w.Keys(p.A, "blob")[0]
		o, err := w.Store.Get(w.Context(), blob, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		other := append([]byte(nil), o.Body...)
		other[len(other)/2]++
		w.Damage(blob, other)
		if _, err := chains.Decode(w.Context(), p.A.Reader(), core.Rules{}, l); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("an altered blob: %v", err)
		}
		w.Damage(blob, nil)
		if _, err := chains.Decode(w.Context(), p.A.Reader(), core.Rules{}, l); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("a missing blob: %v", err)
		}
		if _, err := chains.Standing(w.Context(), p.A.Reader(), core.Rules{}, l); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("a missing blob of what must stand: %v", err)
		}
	})
}

// What is created once has one content: the first.
//
// SPEC AS
func TestCreate(t *testing.T) {
	chaintest.Run(t, func(w *chaintest.World) {
		p := w.Start("a")
		k := p.A.Kit().Session().Client
		key := p.A.Kit().Key("proposal", "x")
		for _, x := range []struct {
			body, stands string
			ours         bool
		}{{"one", "one", true}, {"one", "one", true}, {"two", "one", false}} {
			stands, ours, err := chains.Create(w.Context(), k, key, []byte(x.body), 100)
			if err != nil || string(stands) != x.stands || ours != x.ours {
				t.Errorf("create %s: %s, %v, %v", x.body, stands, ours, err)
			}
		}
	})
}
