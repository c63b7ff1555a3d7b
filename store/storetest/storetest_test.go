package storetest_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/tenure-project/tenure/store"
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

func BenchmarkReferenceDriver(b *testing.B) { storetest.Bench(b, memory()) }
