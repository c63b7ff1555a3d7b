package sqlstore

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/storetest"
)

func harness() storetest.Harness {
	return storetest.Harness{
		Open: func(t testing.TB) store.Store { return open(t, filepath.Join(t.TempDir(), "leases.db")) },
		Peer: func(t testing.TB, s store.Store) store.Store { return open(t, s.(*SQLite).path) },
	}
}

// SPEC ST1 ST2 ST3 ST4 ST5 ST6 ST7 ST8 ST11 ST13 ST14 LS9
func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, harness())
}

// SPEC ST9
func TestConformanceWithLosses(t *testing.T) {
	t.Parallel()
	storetest.Lost(t, harness())
}

func BenchmarkStore(b *testing.B) { storetest.Bench(b, harness()) }

// open opens a store that is closed with the test.
func open(t testing.TB, path string, opts ...Option) *SQLite {
	t.Helper()
	s, err := OpenSQLite(t.Context(), path, opts...)
	if err != nil {
		t.Fatalf("OpenSQLite(%s): %v", path, err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

// withConn lends a connection of its own to the database at path.
func withConn(t testing.TB, path string, f func(c *conn)) {
	t.Helper()
	at, err := settings(path, syncFull, true)
	if err != nil {
		t.Fatal(err)
	}
	c, err := connect(at)
	if err != nil {
		t.Fatal(err)
	}
	f(c)
	if err := c.close(); err != nil {
		t.Error(err)
	}
}

func fileSize(t testing.TB, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}
