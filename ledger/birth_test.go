package ledger

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tenure-project/tenure/store"
)

// worlds counts those of other, so that no two of their hosts draw the same ids.
var worlds atomic.Int32

// other is a world with a store of its own.
func (w *world) other() *world {
	return &world{t: w.t, hosts: 1000 * int(worlds.Add(1)), st: newStore(w.t), plain: map[RunID]int{}, runs: map[RunID]int{}}
}

// exported is the log of h, as text and as a Log.
func exported(t *testing.T, h *host) (string, *Log) {
	t.Helper()
	var b bytes.Buffer
	if err := h.Export(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	g := NewLog()
	if err := g.ReadFrom("log", strings.NewReader(b.String())); err != nil {
		t.Fatal(err)
	}
	return b.String(), g
}

// Two stores whose ledgers are both called main by default: neither a merge of their logs
// nor an import takes one's attempt for the other's, and what was unknown stays so.
//
// SPEC EX3 EX4 EX7
func TestTwoStoresOfOneSiteName(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, v := w.host(), w.other()
		b := v.host()
		want(t, a.do(at(1)), Ran, 1)
		want(t, b.do(at(1)), Ran, 1)
		w.leave(at(2), true)
		want(t, b.do(at(2)), Ran, 1)
		one, _ := exported(t, a)
		two, log := exported(t, b)
		_, err := a.Import(t.Context(), log)
		wantErr(t, err, store.ErrInvalid)
		if i := w.info(at(2)); !i.Running && !i.Unknown || i.Committed || len(w.head().Epochs) != 0 {
			t.Errorf("the import left %+v", i)
		}
		g := NewLog()
		if err := errors.Join(g.ReadFrom("one", strings.NewReader(one)), g.ReadFrom("one again", strings.NewReader(one))); err != nil {
			t.Fatal(err)
		}
		err = g.ReadFrom("two", strings.NewReader(two))
		if wantErr(t, err, store.ErrInvalid); !strings.Contains(err.Error(), "two") {
			t.Error(err)
		}
		_, err = g.WriteTo(&bytes.Buffer{})
		wantErr(t, err, store.ErrInvalid)
		_, err = v.other().host().Import(t.Context(), g)
		wantErr(t, err, store.ErrInvalid)

		c := v.other().host(func(s *setup) { s.opts = []Option{Site("lyon")} })
		want(t, c.do(at(3)), Ran, 1)
		_, lyon := exported(t, c)
		if _, err := a.Import(t.Context(), lyon); err != nil {
			t.Fatal(err)
		}
		d := v.other().host(func(s *setup) { s.opts = []Option{Site("lyon")} })
		want(t, d.do(at(4)), Ran, 1)
		_, lyon = exported(t, d)
		_, err = a.Import(t.Context(), lyon) // another lyon
		wantErr(t, err, store.ErrInvalid)
	})
}

// A ledger whose store was lost goes on in another store from its log: what it wrote before
// and what it writes there is one ledger's.
//
// SPEC EX7
func TestLedgerIsMoved(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.host()
		want(t, a.do(at(1)), Ran, 1)
		_, old := exported(t, a)
		v := w.other()
		b := v.host()
		if _, err := b.Import(t.Context(), old); err != nil {
			t.Fatal(err)
		}
		if got := v.head(); got.Birth != w.head().Birth {
			t.Errorf("born as %s, was %s", got.Birth, w.head().Birth)
		}
		want(t, b.do(at(1)), Done, 1)
		want(t, b.do(at(2)), Ran, 1)
		_, log := exported(t, b)
		if _, err := a.Import(t.Context(), log); err != nil {
			t.Fatal(err)
		}
		want(t, a.do(at(2)), Done, 1)
	})
}

// A log file has a birth, too, which its first run gives it.
//
// SPEC EX7
func TestTwoFilesOfOneSiteName(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var logs [2]*Log
		for i := range logs {
			f, err := OpenFile(filepath.Join(t.TempDir(), "log"), job, DefaultSite)
			if err != nil {
				t.Fatal(err)
			}
			for n := range 2 {
				if out, err := f.Once(t.Context(), at(n), func(context.Context, *Attempt) (Result, error) { return Result{}, nil }); err != nil || out.State != Ran {
					t.Fatalf("%v, %v", out.State, err)
				}
			}
			if logs[i], err = f.Read(); err != nil {
				t.Fatal(err)
			}
		}
		h := w.host()
		want(t, h.do(at(5)), Ran, 1)
		_, err := h.Import(t.Context(), logs[0]) // called as the store's
		wantErr(t, err, store.ErrInvalid)
		lyon := w.other().host(func(s *setup) { s.opts = []Option{Site("lyon")} })
		if _, err := lyon.Import(t.Context(), logs[0]); err != nil {
			t.Fatal(err)
		}
		if _, err := lyon.Import(t.Context(), logs[0]); err != nil {
			t.Fatal(err)
		}
		_, err = lyon.Import(t.Context(), logs[1])
		wantErr(t, err, store.ErrInvalid)
	})
}

// A ledger that is called like another is refused by the log at once, and changes nothing
// in it.
//
// SPEC EX7
func TestLogRefusesASecondLedgerOfOneName(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		load := func(h *host) *Listing {
			h.do(at(h.w.hosts))
			x, err := h.Load(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return x
		}
		g := NewLog()
		if err := g.Add(load(w.host())); err != nil {
			t.Fatal(err)
		}
		var before, after bytes.Buffer
		if _, err := g.WriteTo(&before); err != nil {
			t.Fatal(err)
		}
		wantErr(t, g.Add(load(w.other().host())), store.ErrInvalid)
		if _, err := g.WriteTo(&after); err != nil || !bytes.Equal(before.Bytes(), after.Bytes()) {
			t.Errorf("%v", err)
		}
	})
}
