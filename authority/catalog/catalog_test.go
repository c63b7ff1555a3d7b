package catalog_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/tenure-project/tenure/authority"
	"github.com/tenure-project/tenure/authority/catalog"
	"github.com/tenure-project/tenure/authority/internal/chaintest"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func definitions(names ...string) []catalog.Definition {
	var all []catalog.Definition
	for _, n := range names {
		all = append(all, catalog.Definition{Name: n, Text: "create " + n})
	}
	return all
}

// One manifest is sealed, whoever seals it; the same again is unchanged, anything else
// a conflict, and every later leader carries it.
//
// SPEC CT LA4
func TestSealedOnce(t *testing.T) {
	chaintest.Run(t, func(w *chaintest.World) {
		ctx := w.Context()
		a, b := w.Start("a"), w.Start("b")
		p := a.Lead()
		if _, err := catalog.Read(ctx, b.A.Reader()); !errors.Is(err, store.ErrNotFound) {
			t.Fatalf("before the seal: %v", err)
		}
		first := definitions("s", "t")
		res, err := catalog.Seal(ctx, a.A, p, first)
		w.Want("seal", res.Result, err, authority.Created)
		again, err := catalog.Seal(ctx, a.A, p, first)
		w.Want("seal again", again.Result, err, authority.Unchanged)
		other, err := catalog.Seal(ctx, a.A, p, definitions("t", "s"))
		w.Want("another order", other.Result, err, authority.Conflict)
		if !slices.Equal(other.Sealed.Definitions, first) || other.Sealed.Proof != p {
			t.Errorf("the conflict shows %+v", other.Sealed)
		}
		a.StepDown()
		q := b.Lead()
		res, err = catalog.Seal(ctx, b.A, q, first)
		w.Want("the next leader, the same", res.Result, err, authority.Unchanged)
		res, err = catalog.Seal(ctx, b.A, q, definitions("x"))
		w.Want("the next leader, another", res.Result, err, authority.Conflict)
		res, err = catalog.Seal(ctx, a.A, p, first)
		w.Want("a stale proof, the same", res.Result, err, authority.Unchanged)
		m, err := catalog.Read(ctx, a.A.Reader())
		if err != nil || !slices.Equal(m.Definitions, first) || m.Proof != p || m.Link != other.Winner {
			t.Errorf("read %+v, %v", m, err)
		}
		w.Sound(a.A.Reader())
	})
}

// A seal of somebody who does not lead any more admits nothing.
//
// SPEC CT LA4
func TestSealIsFenced(t *testing.T) {
	chaintest.Run(t, func(w *chaintest.World) {
		ctx := w.Context()
		a, b := w.Start("a"), w.Start("b")
		p := a.Lead()
		a.StepDown()
		q := b.Lead()
		res, err := catalog.Seal(ctx, a.A, p, definitions("s"))
		w.Want("a stale seal", res.Result, err, authority.Fenced)
		if _, err := catalog.Read(ctx, b.A.Reader()); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("after it: %v", err)
		}
		res, err = catalog.Seal(ctx, b.A, q, definitions("s"))
		w.Want("the leader's", res.Result, err, authority.Created)
	})
}

// A manifest out of bounds is refused before anything is written; the largest one is a
// blob, and is read back.
//
// SPEC CT LA4
func TestBounds(t *testing.T) {
	chaintest.Run(t, func(w *chaintest.World) {
		ctx := w.Context()
		a := w.Start("a")
		p := a.Lead()
		var many []catalog.Definition
		for i := range catalog.MaxDefinitions {
			many = append(many, catalog.Definition{Name: fmt.Sprint("d", i), Text: strings.Repeat("x", 300)})
		}
		for what, bad := range map[string][]catalog.Definition{
			"none":     nil,
			"twice":    definitions("s", "s"),
			"no text":  {{Name: "s"}},
			"a name":   {{Name: " s", Text: "x"}},
			"too many": append(slices.Clone(many), catalog.Definition{Name: "more", Text: "x"}),
			"too long": {{Name: "s", Text: strings.Repeat("x", catalog.MaxBytes)}},
		} {
			if _, err := catalog.Seal(ctx, a.A, p, bad); !errors.Is(err, store.ErrInvalid) {
				t.Errorf("%s: %v, want ErrInvalid", what, err)
			}
		}
		if n := len(w.Keys(a.A, "entry")) + len(w.Keys(a.A, "blob")); n != 0 {
			t.Errorf("%d objects were written for what was refused", n)
		}
		res, err := catalog.Seal(ctx, a.A, p, many)
		w.Want("the largest", res.Result, err, authority.Created)
		if m, err := catalog.Read(ctx, a.A.Reader()); err != nil || !slices.Equal(m.Definitions, many) {
			t.Errorf("read back: %v", err)
		}
		if n := len(w.Keys(a.A, "blob")); n != 1 {
			t.Errorf("%d blobs", n)
		}
	})
}

// Racers and lost replies end in one catalog, and every caller learns which.
//
// SPEC CT LA4
func TestRacingSeals(t *testing.T) {
	chaintest.Run(t, func(w *chaintest.World) {
		ctx := w.Context()
		a := w.Start("a")
		p := a.Lead()
		a.Link.Add(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpCreate, faultstore.OpReplace}, Every: 2, Times: 6, Fault: faultstore.LoseReply()})
		var mu sync.Mutex
		created, links := 0, map[authority.Link]bool{}
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				res, err := catalog.Seal(ctx, a.A, p, definitions(fmt.Sprint("d", i%2)))
				if err != nil {
					t.Errorf("racer %d: %v", i, err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				links[res.Winner] = true
				if res.Answer == authority.Created {
					created++
				}
			})
		}
		wg.Wait()
		if created != 1 || len(links) != 1 {
			t.Errorf("%d created, %d winners", created, len(links))
		}
		w.Sound(a.A.Reader())
	})
}

// A sealed catalog that was damaged is never returned.
//
// SPEC CT LA5
func TestDamagedCatalog(t *testing.T) {
	chaintest.Run(t, func(w *chaintest.World) {
		ctx := w.Context()
		a := w.Start("a")
		p := a.Lead()
		res, err := catalog.Seal(ctx, a.A, p, definitions("s"))
		w.Want("seal", res.Result, err, authority.Created)
		key := a.A.Kit().Key("entry", res.Winner.Name().Element())
		o, err := w.Store.Get(ctx, key, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		for what, body := range map[string][]byte{
			"altered": []byte(strings.Replace(string(o.Body), "create s", "create t", 1)),
			"no JSON": []byte("<html>"),
		} {
			w.Damage(key, body)
			if m, err := catalog.Read(ctx, a.A.Reader()); !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("%s: %+v, %v", what, m, err)
			}
		}
		w.Damage(key, nil)
		if m, err := catalog.Read(ctx, a.A.Reader()); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("missing: %+v, %v", m, err)
		}
		_, err = a.A.Reader().Audit(ctx)
		var broken *authority.BrokenError
		if !errors.As(err, &broken) || broken.Flaw != authority.Missing || broken.Chain != authority.Catalog {
			t.Errorf("audit: %v", err)
		}
	})
}
