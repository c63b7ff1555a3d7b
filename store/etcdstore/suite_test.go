package etcdstore

import (
	"os"
	"strings"
	"testing"

	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/storetest"
)

// otherServer names a running server, such as an older one, for the suite to use
// instead of the embedded one: "http://127.0.0.1:2379".
const otherServer = "ETCDSTORE_TEST_ENDPOINT"

func harness(t testing.TB) storetest.Harness {
	endpoint := os.Getenv(otherServer)
	if endpoint == "" {
		endpoint = shared.node(t).endpoint
	}
	return storetest.Harness{
		Open: func(t testing.TB) store.Store { return openCalm(t, fresh(), endpoint) },
		Peer: func(t testing.TB, s store.Store) store.Store {
			return openCalm(t, strings.TrimSuffix(s.(*Store).records, "/records/"), endpoint)
		},
	}
}

// SPEC ST1 ST2 ST3 ST4 ST5 ST6 ST7 ST8 ST11 ST13 ST14 ST16 LS9
func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, harness(t))
}

// SPEC ST9
func TestConformanceWithLosses(t *testing.T) {
	t.Parallel()
	storetest.Lost(t, harness(t))
}

func BenchmarkStore(b *testing.B) { storetest.Bench(b, harness(b)) }
