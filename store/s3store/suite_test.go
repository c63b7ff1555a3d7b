package s3store

import (
	"net/http/httptest"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/tenure-project/tenure/store/storetest"
)

func modelHarness(t testing.TB, m *model) storetest.Harness {
	srv := serve(t, m)
	return harnessOf(srv.URL, srv.URL, testKey, testSecret, "bucket", true)
}

// SPEC ST1 ST2 ST3 ST4 ST5 ST6 ST7 ST8 ST10 ST11 ST13 ST14
func TestSuiteModel(t *testing.T) {
	t.Parallel()
	storetest.Run(t, modelHarness(t, newModel()))
}

// With ETags that do not come back: a create that lands a second time after a
// delete would bring the version of its bytes back, and a replace with it.
//
// SPEC ST9
func TestLostModel(t *testing.T) {
	t.Parallel()
	m := newModel()
	m.unique = true
	storetest.Lost(t, modelHarness(t, m))
}

// gatewayHarness reaches one folder through two gateways: the store through
// one, its peers through the other.
func gatewayHarness(t testing.TB) storetest.Harness {
	g := versitygw(t)
	return harnessOf(g.gw[0].Endpoint, g.gw[1].Endpoint, g.gw[0].Access, g.gw[0].Secret, gatewayBucket, false)
}

// SPEC ST1 ST2 ST3 ST4 ST5 ST6 ST7 ST8 ST10 ST11 ST13 ST14 ST16
func TestSuiteVersitygw(t *testing.T) {
	t.Parallel()
	h := gatewayHarness(t)
	h.Slow = true // fewer rounds; TestLostVersitygw races in full
	storetest.Run(t, h)
}

// SPEC ST9
func TestLostVersitygw(t *testing.T) {
	t.Parallel()
	storetest.Lost(t, gatewayHarness(t))
}

func fakes3(t testing.TB) *httptest.Server {
	backend := s3mem.New()
	if err := backend.CreateBucket("bucket"); err != nil {
		t.Fatal(err)
	}
	return serve(t, gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server())
}

// gofakes3 answers 412 to If-Match on an absent key, as HTTP has it and Amazon
// does not; the driver tells the two apart by a read.
func TestSuiteGofakes3(t *testing.T) {
	t.Parallel()
	srv := fakes3(t)
	h := harnessOf(srv.URL, srv.URL, testKey, testSecret, "bucket", false)
	h.Slow = true
	storetest.Run(t, h)
}
