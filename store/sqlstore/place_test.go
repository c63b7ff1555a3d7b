package sqlstore

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenure-project/tenure/store"
)

// A database whose files were taken away or exchanged is not written to, and
// what it says is not believed: the writes would be lost, or two processes
// would exclude each other from nothing.
//
// SPEC ST3 ST8 ST16
func TestDatabaseMovedWhileOpen(t *testing.T) {
	t.Parallel()
	rename := func(t *testing.T, from, to string) {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name string
		do   func(t *testing.T, path string)
		kind error
		says string
	}{
		{"removed", func(t *testing.T, path string) { rename(t, path, path+".old") }, store.ErrUnavailable, "gone"},
		{"replaced", func(t *testing.T, path string) {
			copyFile(t, path, path+".new")
			rename(t, path+".new", path)
		}, store.ErrCorrupt, "replaced"},
		{"log removed", func(t *testing.T, path string) { rename(t, path+"-wal", path+".old") }, store.ErrCorrupt, "removed"},
		{"index removed", func(t *testing.T, path string) { rename(t, path+"-shm", path+".old") }, store.ErrCorrupt, "removed"},
		{"index replaced", func(t *testing.T, path string) {
			copyFile(t, path+"-shm", path+".new")
			rename(t, path+".new", path+"-shm")
		}, store.ErrCorrupt, "replaced"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "leases.db")
			s := open(t, path)
			v, err := s.Create(t.Context(), key, []byte("old"))
			if err != nil {
				t.Fatal(err)
			}
			watched := make(chan error, 1)
			go func() { watched <- s.Watch(t.Context(), key, v) }()
			c.do(t, path)

			_, get := s.Get(t.Context(), key, 10)
			_, replace := s.Replace(t.Context(), key, []byte("new"), v)
			_, conflict := s.Replace(t.Context(), key, []byte("new"), "1-1")
			for what, err := range map[string]error{"Get": get, "Replace": replace, "a Replace that would be refused": conflict, "Watch": <-watched} {
				kindIs(t, err, c.kind, what)
				if !strings.Contains(err.Error(), c.says) {
					t.Errorf("%s: the error %q does not say %q", what, err, c.says)
				}
			}
		})
	}
}

// copyFile copies a file that no SQLite connection of this process needs its
// locks on.
func copyFile(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, in, 0o600); err != nil {
		t.Fatal(err)
	}
}

// A database that is gone for a moment is unavailable for that moment.
//
// SPEC ST8
func TestDatabaseBackInPlace(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "leases.db")
	s := open(t, path)
	v, err := s.Create(t.Context(), "suite/lease/k", []byte("old"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	_, err = s.Replace(t.Context(), "suite/lease/k", []byte("new"), v)
	kindIs(t, err, store.ErrUnavailable, "Replace without the file")
	if err := os.Rename(path+".away", path); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Replace(t.Context(), "suite/lease/k", []byte("new"), v); err != nil {
		t.Errorf("Replace with the file back: %v", err)
	}
}

// A write that was committed into a file that was moved away meanwhile may be
// lost: its outcome is unknown.
//
// SPEC ST9 ST16
func TestDatabaseMovedDuringACommit(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "leases.db")
	s := open(t, path)
	s.commit = func(do func() error) error {
		if err := os.Rename(path, path+".away"); err != nil {
			t.Error(err)
		}
		return do()
	}
	_, err := s.Create(t.Context(), "suite/lease/k", []byte("x"))
	kindIs(t, err, store.ErrUnknown, "Create while the file is moved")
}

// A database that was put back to an older state gives no version twice: what
// was read from the lost state neither replaces nor deletes the new one.
//
// SPEC ST4 LS12
// CASE B46
func TestVersionsDoNotComeBackAfterARestore(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "leases.db")
	use := func(f func(ctx context.Context, s *SQLite)) {
		s := open(t, path)
		f(t.Context(), s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	var first, lost store.Version
	use(func(ctx context.Context, s *SQLite) { first, _ = s.Create(ctx, key, []byte("first")) })
	copyFile(t, path, path+".backup")
	use(func(ctx context.Context, s *SQLite) { lost, _ = s.Replace(ctx, key, []byte("lost"), first) })
	copyFile(t, path+".backup", path)
	use(func(ctx context.Context, s *SQLite) {
		again, err := s.Replace(ctx, key, []byte("again"), first)
		if err != nil {
			t.Fatal(err)
		}
		if again == lost {
			t.Errorf("the version %s came back after the restore", lost)
		}
		_, err = s.Replace(ctx, key, []byte("stale"), lost)
		kindIs(t, err, store.ErrConflict, "Replace from a version of the lost state")
		kindIs(t, s.DeleteIf(ctx, key, lost), store.ErrConflict, "DeleteIf at a version of the lost state")
	})
}

// An older state that is written over the open file is noticed by the next
// write, because the counter fell.
//
// SPEC ST4 ST8
func TestCounterThatFell(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "leases.db")
	s := open(t, path)
	if _, err := s.Create(t.Context(), "suite/lease/a", nil); err != nil {
		t.Fatal(err)
	}
	withConn(t, path, func(c *conn) {
		if _, err := c.exec("UPDATE tenure_meta SET counter = 0"); err != nil {
			t.Fatal(err)
		}
	})
	_, err := s.Create(t.Context(), "suite/lease/b", nil)
	kindIs(t, err, store.ErrCorrupt, "Create after the counter fell")
}

// A format that was raised while the database is open stops the writes of a
// program that does not know it.
//
// SPEC ST15
func TestFormatRaisedWhileOpen(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "leases.db")
	s := open(t, path)
	withConn(t, path, func(c *conn) {
		if _, err := c.exec("UPDATE tenure_meta SET format = 2"); err != nil {
			t.Fatal(err)
		}
	})
	_, err := s.Create(t.Context(), "suite/lease/k", nil)
	kindIs(t, err, store.ErrNewer, "Create in a newer format")
}

// Tables that were dropped are corruption, not an absent key.
//
// SPEC ST3 ST8
func TestTableDroppedWhileOpen(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "leases.db")
	s := open(t, path)
	withConn(t, path, func(c *conn) {
		if _, err := c.exec("DROP TABLE tenure_register"); err != nil {
			t.Fatal(err)
		}
	})
	_, err := s.Get(t.Context(), "suite/lease/k", 10)
	kindIs(t, err, store.ErrCorrupt, "Get without the table")
	_, err = s.Create(t.Context(), "suite/lease/k", nil)
	kindIs(t, err, store.ErrCorrupt, "Create without the table")
}

// A damaged page is corruption, and nothing is written on top of it.
//
// SPEC ST8
func TestDamagedDatabase(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "leases.db")
	s := open(t, path)
	for _, k := range []string{"suite/lease/a", "suite/lease/b"} {
		if _, err := s.Create(t.Context(), k, []byte(strings.Repeat("x", 3000))); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	size, _ := f.Seek(0, io.SeekEnd)
	for page := int64(4096); page < size; page += 4096 {
		if _, err := f.WriteAt([]byte(strings.Repeat("\xa5", 64)), page); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	s, err = OpenSQLite(t.Context(), path)
	if err == nil {
		defer func() { _ = s.Close() }()
		_, err = s.Get(t.Context(), "suite/lease/a", 5000)
	}
	kindIs(t, err, store.ErrCorrupt, "a damaged database")
}
