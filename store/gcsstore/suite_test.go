package gcsstore

import (
	"testing"

	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/storetest"
)

// harness is a fresh prefix per test, and a peer with a client of its own.
func harness(endpoint string) storetest.Harness {
	open := func(t testing.TB, prefix string) store.Store {
		return openStore(t, Config{Bucket: testBucket, Prefix: prefix, Endpoint: endpoint})
	}
	return storetest.Harness{
		Open: func(t testing.TB) store.Store { return open(t, freshPrefix()) },
		Peer: func(t testing.TB, s store.Store) store.Store { return open(t, trimSlash(s.(*Store).prefix)) },
	}
}

func trimSlash(prefix string) string { return prefix[:len(prefix)-1] }

// SPEC ST1 ST2 ST3 ST4 ST5 ST6 ST7 ST8 ST10 ST11 ST13 ST14 ST16
func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, harness(newCloud(t, nil).URL))
}

// SPEC ST9
func TestConformanceWithLosses(t *testing.T) {
	t.Parallel()
	storetest.Lost(t, harness(newCloud(t, nil).URL))
}
