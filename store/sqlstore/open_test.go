package sqlstore

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tenure-project/tenure/store"
)

// SPEC ST8 ST11
func TestOpenRefusesBadPaths(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name string, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	linked := write("linked.db", "")
	if err := os.Link(linked, filepath.Join(dir, "other-name.db")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "nowhere"), filepath.Join(dir, "dangling.db")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, path string
		kind       error
		says       string
	}{
		{"empty", "", store.ErrInvalid, "empty"},
		{"memory", ":memory:", store.ErrInvalid, "memory"},
		{"memory URI", "file::memory:?cache=shared", store.ErrInvalid, "memory"},
		{"URI", "file:x.db?mode=memory", store.ErrInvalid, "path of a file"},
		{"NUL", "a\x00b.db", store.ErrInvalid, "NUL"},
		{"folder", dir, store.ErrInvalid, "regular file"},
		{"folder by its slash", dir + "/", store.ErrInvalid, "folder"},
		{"absent folder", filepath.Join(dir, "absent", "leases.db"), store.ErrInvalid, "make it first"},
		{"hard link", linked, store.ErrInvalid, "hard link"},
		{"dangling link", filepath.Join(dir, "dangling.db"), store.ErrInvalid, "followed"},
		{"no database", write("text.db", strings.Repeat("no database ", 100)), store.ErrCorrupt, "not a database"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, err := OpenSQLite(t.Context(), c.path)
			if err == nil {
				_ = s.Close()
			}
			kindIs(t, err, c.kind, "OpenSQLite("+c.path+")")
			if !strings.Contains(err.Error(), c.says) {
				t.Errorf("the error %q does not say %q", err, c.says)
			}
		})
	}
}

// SPEC ST8 ST15 ST16
func TestOpenRefusesForeignDatabases(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		setUp []string
		kind  error
		says  string
	}{
		{"another program's", []string{"CREATE TABLE users (id INTEGER)"}, store.ErrInvalid, "another program"},
		{"UTF-16", []string{"PRAGMA encoding = 'UTF-16le'", "CREATE TABLE tenure_x (id INTEGER)", "DROP TABLE tenure_x"}, store.ErrInvalid, "encoding"},
		{"newer", []string{schema, "UPDATE tenure_meta SET format = 2"}, store.ErrNewer, "newer tenure"},
		{"no level", []string{schema, "UPDATE tenure_meta SET format = 0"}, store.ErrCorrupt, "format 0"},
		{"fallen counter", []string{schema, "UPDATE tenure_meta SET counter = -1"}, store.ErrCorrupt, "counter -1"},
		{"no counter", []string{schema, "DELETE FROM tenure_meta"}, store.ErrCorrupt, "no row"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "leases.db")
			withConn(t, path, func(conn *conn) {
				for _, q := range c.setUp {
					if err := conn.script(q); err != nil {
						t.Fatal(err)
					}
				}
			})
			s, err := OpenSQLite(t.Context(), path)
			if err == nil {
				_ = s.Close()
			}
			kindIs(t, err, c.kind, "OpenSQLite")
			if !strings.Contains(err.Error(), c.says) {
				t.Errorf("the error %q does not say %q", err, c.says)
			}
		})
	}
}

// A refused database is left as it was.
func TestForeignDatabaseIsNotTouched(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "users.db")
	withConn(t, path, func(c *conn) {
		if _, err := c.exec("CREATE TABLE users (id INTEGER)"); err != nil {
			t.Fatal(err)
		}
	})
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = OpenSQLite(t.Context(), path)
	kindIs(t, err, store.ErrInvalid, "OpenSQLite")
	after, err := os.ReadFile(path)
	if err != nil || string(after) != string(before) {
		t.Errorf("the file changed: %v", err)
	}
}

// Two spellings of a path are one store, and odd names are only names.
//
// SPEC ST8 ST14
func TestIdentity(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	name := "a b?c#d%20e&f=é.db"
	path := filepath.Join(dir, name)
	s := open(t, path)
	if want := "sqlite:" + path; s.Info().Identity != want {
		t.Errorf("the identity is %q, want %q", s.Info().Identity, want)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the database is not where it was asked for: %v", err)
	}
	if err := os.Symlink(dir, filepath.Join(dir, "folder")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(path, filepath.Join(dir, "link.db")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(t.Context(), "suite/lease/k", nil); err != nil {
		t.Fatal(err)
	}
	for _, other := range []string{filepath.Join(dir, "folder", name), filepath.Join(dir, "link.db")} {
		o := open(t, other)
		if o.Info() != s.Info() {
			t.Errorf("%s gives %+v, want %+v", other, o.Info(), s.Info())
		}
		if _, err := o.Get(t.Context(), "suite/lease/k", 10); err != nil {
			t.Errorf("through %s: %v", other, err)
		}
	}
}

// SPEC UI4
func TestDriverURLs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "empty.db"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		url  string
		kind error // nil: opens
	}{
		{"sqlite://" + dir + "/a.db", nil},
		{"sqlite:" + dir + "/b.db", nil},
		{"sqlite://" + dir + "/a%20b.db", nil},
		{"sqlite://" + dir + "/empty.db?create=no", nil},
		{"sqlite://" + dir + "/c.db?create=yes", nil},
		{"sqlite://" + dir + "/absent.db?create=no", store.ErrInvalid},
		{"sqlite://" + dir + "/d.db?create=maybe", store.ErrInvalid},
		{"sqlite://" + dir + "/d.db?busy_timeout=5000", store.ErrInvalid},
		{"sqlite://host" + dir + "/d.db", store.ErrInvalid},
		{"sqlite://" + dir + "/d.db#x", store.ErrInvalid},
		{"sqlite:", store.ErrInvalid},
		{"sqlite::memory:", store.ErrInvalid},
		{"sqlite:x%zz.db", store.ErrInvalid},
	} {
		t.Run(c.url, func(t *testing.T) {
			t.Parallel()
			u, err := url.Parse(c.url)
			if err != nil {
				t.Fatal(err)
			}
			s, err := Driver().Open(t.Context(), u)
			if err == nil {
				_ = s.Close()
			} else if s != nil {
				t.Error("the error comes with a store")
			}
			if store.KindOf(err) != c.kind {
				t.Errorf("got %v, want the kind %v", err, c.kind)
			}
		})
	}
	if _, err := os.Stat(filepath.Join(dir, "absent.db")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("create=no left a file behind: %v", err)
	}
}

// SPEC ST13
func TestOpenWithEndedContext(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "leases.db")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := OpenSQLite(ctx, path)
	kindIs(t, err, store.ErrUnavailable, "OpenSQLite with an ended context")
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it left a file behind: %v", err)
	}
}

// Making the database needs the write lock; a process that keeps it does not
// keep an opener beyond its context.
//
// SPEC ST13
func TestOpenBesideAHolderEndsWithItsContext(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "leases.db")
	withConn(t, path, func(c *conn) {
		if _, err := c.exec("BEGIN EXCLUSIVE"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		begun := time.Now()
		_, err := OpenSQLite(ctx, path)
		kindIs(t, err, store.ErrUnavailable, "OpenSQLite beside a holder")
		if d := time.Since(begun); d > 2*time.Second {
			t.Errorf("it took %v", d)
		}
	})
}

// Acknowledged means durable: every commit is synced, whatever the defaults of
// SQLite are.
//
// SPEC ST16
func TestConnectionsSyncEveryCommit(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "leases.db"))
	withConn(t, s.path, func(c *conn) {
		for pragma, want := range map[string]int{"synchronous": 2, "busy_timeout": 0, "fullfsync": 1} {
			var got int
			if err := c.row("PRAGMA "+pragma, nil, &got); err != nil || got != want {
				t.Errorf("%s is %d (%v), want %d", pragma, got, err, want)
			}
		}
		var mode string
		if err := c.row("PRAGMA journal_mode", nil, &mode); err != nil || mode != "wal" {
			t.Errorf("the journal mode is %q (%v), want wal", mode, err)
		}
	})
}
