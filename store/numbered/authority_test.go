package numbered_test

import (
	"testing"

	"github.com/tenure-project/tenure/authority/authoritytest"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/memstore"
	"github.com/tenure-project/tenure/store/numbered"
	"github.com/tenure-project/tenure/store/storetest"
)

// place is a register that remembers what it stands on, for its peers.
type place struct {
	*numbered.Store
	under *memstore.Store
}

// An authority has one leader at a time, and a fenced log, also over a store that can
// only create. The root package knows this one, so that its tests are outside.
//
// SPEC ST17 LA2 LA3 LA4 LA5 LA8 CK AS RF CT ST9
func TestAuthorities(t *testing.T) {
	t.Parallel()
	open := func(m *memstore.Store) store.Store { return place{numbered.New(m).(*numbered.Store), m} }
	authoritytest.Run(t, storetest.Harness{
		Open: func(testing.TB) store.Store { return open(memstore.New()) },
		Peer: func(_ testing.TB, s store.Store) store.Store { return open(s.(place).under.Peer()) },
	})
}
