package storetest_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
	"github.com/tenure-project/tenure/store/memstore"
	"github.com/tenure-project/tenure/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is the harness of the reference driver.
func memory() storetest.Harness {
	return storetest.Harness{
		Open: func(testing.TB) store.Store { return memstore.New() },
		Peer: func(_ testing.TB, s store.Store) store.Store { return s.(*memstore.Store).Peer() },
	}
}

func TestReferenceDriver(t *testing.T) { storetest.Run(t, memory()) }

func TestReferenceDriverWithLosses(t *testing.T) { storetest.Lost(t, memory()) }

// A driver without powers, and one whose versions are digests of the content,
// can keep the contract too.
func TestPlainDriver(t *testing.T) {
	wrap := func(s store.Store) store.Store { return faultstore.New(s, faultstore.Options{Info: without}) }
	storetest.Run(t, storetest.Harness{Open: func(testing.TB) store.Store { return wrap(memstore.New()) }})
}

func TestContentVersionDriver(t *testing.T) {
	storetest.Run(t, storetest.Harness{Open: func(testing.TB) store.Store {
		return faultstore.New(memstore.New(), faultstore.Options{ContentVersions: true, Info: func(i store.Info) store.Info {
			i.ContentVersions = true
			return i
		}})
	}})
}

// without takes all powers away.
func without(i store.Info) store.Info {
	i.Can = 0
	return i
}

func BenchmarkReferenceDriver(b *testing.B) { storetest.Bench(b, memory()) }
