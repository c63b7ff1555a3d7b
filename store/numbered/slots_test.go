package numbered_test

import (
	"testing"

	"github.com/tenure-project/tenure/slots/slotstest"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/memstore"
	"github.com/tenure-project/tenure/store/numbered"
	"github.com/tenure-project/tenure/store/storetest"
)

// Each slot has one owner at a time, also over a store that can only create: the register
// is replaced all the same.
//
// SPEC ST17 SL2 SL3 SL4 SL5 SL7 SL8 SL9 LS8 LS11 LS12 ST9
func TestSlots(t *testing.T) {
	t.Parallel()
	open := func(m *memstore.Store) store.Store { return place{numbered.New(m).(*numbered.Store), m} }
	slotstest.Run(t, storetest.Harness{
		Open: func(testing.TB) store.Store { return open(memstore.New()) },
		Peer: func(_ testing.TB, s store.Store) store.Store { return open(s.(place).under.Peer()) },
	})
}
