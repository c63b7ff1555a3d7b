package sqlstore

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/tenure-project/tenure/store"
)

// A read that hangs where the writer works keeps its caller no longer than its
// context lives, and no other reader at all. Who wants to write meanwhile is told
// that nothing happened.
//
// SPEC ST13
// CASE B83
func TestHungReadKeepsNobody(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, filepath.Join(dir, "leases.db"))
		if _, err := s.Create(t.Context(), key, []byte("x")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the writer is idle
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		hang, done := make(chan struct{}), make(chan error, 2)
		go func() {
			_, err := readQuick(ctx, s, "get", key, func(*conn) (int, error) { <-hang; return 1, nil })
			done <- err
		}()
		synctest.Wait() // it hangs
		if o, err := s.Get(t.Context(), key, 10); err != nil || string(o.Body) != "x" {
			t.Errorf("Get beside a hung read: %q, %v", o.Body, err)
		}
		go func() {
			_, err := s.Create(ctx, "suite/lease/behind", nil)
			done <- err
		}()
		synctest.Wait()
		cancel()
		kindIs(t, <-done, store.ErrUnavailable, "a call whose context ended")
		kindIs(t, <-done, store.ErrUnavailable, "the other call whose context ended")
		close(hang)
		if _, err := s.Create(t.Context(), "suite/lease/behind", nil); err != nil {
			t.Errorf("Create after the read came back, of a key that was given up: %v", err)
		}
	})
}

// A reader is shown nothing of a transaction that the writer could not end.
//
// SPEC ST1 ST3
func TestNoReadInTheMiddleOfATransaction(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "leases.db")
	s := open(t, path)
	w := &writer{s: s, c: mustConnect(t, s)}
	defer func() { _ = w.c.close() }()
	if w.reads() == nil {
		t.Fatal("an idle writer takes no reads")
	}
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	w.renew() // as after a commit or roll back that failed
	if w.reads() != nil {
		t.Error("a writer whose connection may be in a transaction takes reads")
	}
	if err := os.Rename(path+".away", path); err != nil {
		t.Fatal(err)
	}
	if w.renew(); w.reads() == nil {
		t.Error("a writer with a new connection takes no reads")
	}
}

// What another process changed is seen by the next write, also if it was seen
// before by a read on the same connection.
//
// SPEC ST4 ST15
func TestReadHidesNoChangeFromTheWriter(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, c := range map[string]struct {
		change string
		kind   error
	}{
		"format":  {"UPDATE tenure_meta SET format = 2", store.ErrNewer},
		"counter": {"UPDATE tenure_meta SET counter = 0", store.ErrCorrupt},
	} {
		synctest.Test(t, func(t *testing.T) {
			path := filepath.Join(dir, name+".db")
			s := open(t, path)
			for _, k := range []string{key, key + "2"} { // the writer knows both numbers
				if _, err := s.Create(t.Context(), k, nil); err != nil {
					t.Fatal(err)
				}
			}
			withConn(t, path, func(lent *conn) {
				if _, err := lent.exec(c.change); err != nil {
					t.Fatal(err)
				}
			})
			synctest.Wait() // the writer is idle
			if _, err := s.Get(t.Context(), key, 10); err != nil {
				t.Error(err)
			}
			_, err := s.Create(t.Context(), key+"3", nil)
			kindIs(t, err, c.kind, name)
		})
	}
}
