//go:build linux || darwin

package filestore_test

import (
	"testing"

	"github.com/tenure-project/tenure/ledger/ledgertest"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/filestore"
	"github.com/tenure-project/tenure/store/storetest"
)

// Each run happens once, and its ledger says so.
//
// SPEC EX1 EX3 EX4 EX6 EX7 ST9
func TestLedgers(t *testing.T) {
	t.Parallel()
	open := func(t testing.TB, path string) store.Store {
		s, err := filestore.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		return folder{s, path}
	}
	ledgertest.Run(t, storetest.Harness{
		Open: func(t testing.TB) store.Store { return open(t, t.TempDir()) },
		Peer: func(t testing.TB, s store.Store) store.Store { return open(t, s.(folder).path) },
	})
}
