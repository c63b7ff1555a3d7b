//go:build linux || darwin

package filestore

import (
	"path/filepath"
	"testing"

	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/storetest"
)

// harness is a store per test, and a peer that shares nothing but the
// directory: locks, watches and descriptors are the peer's own.
func harness() storetest.Harness {
	open := func(t testing.TB, path string) store.Store {
		t.Helper()
		s, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	return storetest.Harness{
		Open: func(t testing.TB) store.Store { return open(t, filepath.Join(t.TempDir(), "store")) },
		Peer: func(t testing.TB, s store.Store) store.Store { return open(t, s.(*Store).root) },
	}
}

func TestSuite(t *testing.T) {
	t.Parallel()
	storetest.Run(t, harness())
}
