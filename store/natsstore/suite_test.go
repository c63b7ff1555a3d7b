package natsstore

import (
	"net/url"
	"testing"
	"time"

	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/storetest"
)

func openString(t testing.TB, raw string) (store.Store, error) {
	t.Helper()
	return openWithin(t, 30*time.Second, raw)
}

func openWithin(t testing.TB, d time.Duration, raw string) (store.Store, error) {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return Driver().Open(within(t, d), u)
}

// harness is a bucket per test on a real server, and a peer with a connection
// of its own.
func harness() storetest.Harness {
	return storetest.Harness{
		Open: func(t testing.TB) store.Store { return freshStore(t) },
		Peer: func(t testing.TB, s store.Store) store.Store {
			return openAt(t, shared.ClientURL()+"/"+s.(*Store).cfg.Bucket+"?create=no")
		},
	}
}

// SPEC ST1 ST2 ST3 ST4 ST5 ST6 ST7 ST8 ST10 ST11 ST13 ST14 ST16
func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, harness())
}

// SPEC ST9
// CASE B02
func TestConformanceWithLosses(t *testing.T) {
	t.Parallel()
	storetest.Lost(t, harness())
}

func BenchmarkStore(b *testing.B) { storetest.Bench(b, harness()) }
