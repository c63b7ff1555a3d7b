//go:build linux || darwin

package filestore

import (
	"testing"

	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/storetest"
)

// harness is a store per test, and a peer that shares nothing but the
// directory: locks, watches and descriptors are the peer's own.
func harness(opts ...Option) storetest.Harness {
	open := func(t testing.TB, path string) store.Store {
		t.Helper()
		s, err := Open(path, opts...)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	return storetest.Harness{
		Open: func(t testing.TB) store.Store { return open(t, quick(t)) },
		Peer: func(t testing.TB, s store.Store) store.Store { return open(t, s.(*Store).root) },
	}
}

func TestSuite(t *testing.T) {
	t.Parallel()
	storetest.Run(t, harness())
}

// Where the kernel gives no notice, the store polls, and has fewer powers.
func TestSuitePolling(t *testing.T) {
	t.Parallel()
	storetest.Run(t, harness(remote, WithNetworkFS()))
}
