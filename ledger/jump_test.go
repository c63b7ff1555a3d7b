package ledger

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	tenure "github.com/tenure-project/tenure"
	core "github.com/tenure-project/tenure/internal/core/ledger"
	"github.com/tenure-project/tenure/store"
)

// lose removes the ledger from the store: another volume, or none, is at its place.
func (w *world) lose() {
	w.t.Helper()
	for _, kind := range []string{kindHead, kindLog} {
		for key, err := range w.keys(store.Prefix("default", kind)) {
			if err == nil {
				err = w.st.Delete(context.Background(), key)
			}
			if err != nil {
				w.t.Fatal(err)
			}
		}
	}
}

func (w *world) keys(prefix string) func(yield func(string, error) bool) {
	return func(yield func(string, error) bool) {
		for key, err := range w.st.List(context.Background(), prefix, "") {
			if !yield(key, err) {
				return
			}
		}
	}
}

// A host that has seen the ledger starts nothing where it is gone, and says what to do:
// else an empty store would let it do everything again. It goes on once it was told to
// begin anew.
//
// SPEC LS12 EX3
func TestLedgerThatIsGone(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		h := w.host()
		want(t, h.do(at(1)), Ran, 1)
		w.lose()
		out, err := h.Once(t.Context(), at(1), h.work)
		var gone *GoneError
		var fell *tenure.RegressedError
		if wantErr(t, err, tenure.ErrRegressed); !errors.As(err, &gone) || !errors.As(err, &fell) || gone.Agent != job || !strings.Contains(err.Error(), "mounted") || out.State != NotRun {
			t.Fatalf("%+v, %v", out, err)
		}
		if _, err := h.Did(t.Context(), at(2)); !errors.As(err, &gone) {
			t.Errorf("an answer where the ledger is gone: %v", err)
		}
		wantErr(t, h.Jump(t.Context(), fell.Seen), store.ErrNotFound)
		wantErr(t, h.Begin(t.Context(), fell.Seen-1), store.ErrInvalid)
		if plain, _ := w.effects(at(1)); plain != 1 {
			t.Errorf("%d effects", plain)
		}
		for range 2 { // the second time it is there
			if err := h.Begin(t.Context(), fell.Seen); err != nil {
				t.Fatal(err)
			}
		}
		if got := w.head().Sequence; got != fell.Seen {
			t.Errorf("the new ledger has sequence %d, want %d", got, fell.Seen)
		}
		want(t, h.do(at(1)), Ran, 1) // nobody knows of it any more
	})
}

// A newcomer needs no other step than its first run.
//
// SPEC UI4
func TestNewcomerBeginsTheLedger(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		want(t, w.host().do(at(1)), Ran, 1)
		w.lose()
		want(t, w.host().do(at(1)), Ran, 1) // it has never seen another
	})
}

// What a copy knows comes back before anybody goes on: an import mends a ledger that is
// gone, or was set back, and lets go on only who is told to by a jump.
//
// SPEC LS12 EX7
func TestLostLedgerComesBack(t *testing.T) {
	for name, lose := range map[string]func(w *world, old []byte){
		"gone":     func(w *world, _ []byte) { w.lose() },
		"set back": func(w *world, old []byte) { w.set(store.Key("default", kindHead, job), old) },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				h := w.host()
				want(t, h.do(at(1)), Ran, 1)
				old, err := w.st.Get(t.Context(), h.headKey, core.MaxHead)
				if err != nil {
					t.Fatal(err)
				}
				want(t, h.do(at(2)), Ran, 1)
				var log bytes.Buffer
				if err := h.Export(t.Context(), &log); err != nil {
					t.Fatal(err)
				}
				want(t, h.do(at(3)), Ran, 1) // the log does not know of it
				lose(w, old.Body)
				g := NewLog()
				if err := g.ReadFrom("log", &log); err != nil {
					t.Fatal(err)
				}
				done, err := h.Import(t.Context(), g)
				if err != nil || done.Seen == 0 {
					t.Fatalf("%+v, %v", done, err)
				}
				_, err = h.Once(t.Context(), at(3), h.work)
				wantErr(t, err, tenure.ErrRegressed)
				if err := h.Jump(t.Context(), done.Seen); err != nil {
					t.Fatal(err)
				}
				want(t, h.do(at(1)), Done, 1)
				want(t, h.do(at(2)), Done, 1)
				want(t, h.do(at(3)), Ran, 1)
				if again, err := h.Import(t.Context(), g); err != nil || again.Seen != 0 {
					t.Errorf("a ledger that is whole: %+v, %v", again, err)
				}
			})
		})
	}
}
