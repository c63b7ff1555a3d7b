package numbered_test

import (
	"testing"

	"github.com/tenure-project/tenure/ledger/ledgertest"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/memstore"
	"github.com/tenure-project/tenure/store/numbered"
	"github.com/tenure-project/tenure/store/storetest"
)

// Each run happens once, also over a store that can only create: blocks and heads are
// replaced all the same.
//
// SPEC ST17 EX1 EX3 EX4 EX6 EX7 ST9
func TestLedgers(t *testing.T) {
	t.Parallel()
	open := func(m *memstore.Store) store.Store { return place{numbered.New(m).(*numbered.Store), m} }
	ledgertest.Run(t, storetest.Harness{
		Open: func(testing.TB) store.Store { return open(memstore.New()) },
		Peer: func(_ testing.TB, s store.Store) store.Store { return open(s.(place).under.Peer()) },
	})
}
