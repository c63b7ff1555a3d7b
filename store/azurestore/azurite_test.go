package azurestore

import (
	"crypto/rand"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	azlog "github.com/Azure/azure-sdk-for-go/sdk/azcore/log"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"go.uber.org/goleak"

	"github.com/tenure-project/tenure/internal/testserver"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(suite{m}) }

// suite ends the emulator before goroutines are counted, and looks through
// everything that the SDK would log for secrets.
type suite struct{ *testing.M }

func (s suite) Run() int {
	var leaks atomic.Int64
	azlog.SetEvents(azlog.EventRequest, azlog.EventResponse, azlog.EventRetryPolicy)
	azlog.SetListener(func(_ azlog.Event, text string) {
		for _, secret := range secrets {
			if strings.Contains(text, secret) && leaks.Add(1) == 1 {
				fmt.Fprintf(os.Stderr, "the secret %q is in the log:\n%s\n", secret, text)
			}
		}
	})
	if code := s.run(); code != 0 || leaks.Load() == 0 {
		return code
	}
	return 1
}

func (s suite) run() int {
	defer func() {
		emulator.Lock()
		defer emulator.Unlock()
		if emulator.a != nil {
			emulator.a.Stop()
		}
	}()
	return s.M.Run()
}

// emulator is the one Azurite of the test process, started by the first test
// that needs it.
var emulator struct {
	sync.Mutex
	a   *testserver.Azurite
	err error
}

const testContainer = "suite"

// azurite starts the emulator if need be and makes the container.
func azurite(t testing.TB) *testserver.Azurite {
	t.Helper()
	emulator.Lock()
	defer emulator.Unlock()
	if emulator.a == nil && emulator.err == nil {
		if emulator.a, emulator.err = testserver.StartAzurite(); emulator.err == nil {
			emulator.err = makeContainer(t, emulator.a)
		}
	}
	testserver.Need(t, "Azurite", emulator.err)
	return emulator.a
}

func makeContainer(t testing.TB, a *testserver.Azurite) error {
	s, err := keyed(a.Endpoint, a, "").open()
	if err != nil {
		return err
	}
	defer s.Close()
	for { // it listens a moment before it answers
		_, err = s.container.Create(t.Context(), nil)
		if err == nil || t.Context().Err() != nil {
			return err
		}
		time.Sleep(20 * time.Millisecond) // poll
	}
}

// keyed is a store at endpoint, which leads to a, with the emulator's key.
func keyed(endpoint string, a *testserver.Azurite, prefix string) *config {
	u, err := url.Parse(endpoint)
	if err != nil {
		panic(err)
	}
	return &config{container: testContainer, prefix: prefix, account: a.Account, endpoint: u, key: a.Key}
}

func openAt(t testing.TB, c *config) *Store {
	t.Helper()
	s, err := c.open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// place is a fresh prefix in the emulator.
func place(t testing.TB) *config {
	t.Helper()
	a := azurite(t)
	return keyed(a.Endpoint, a, strings.ToLower(rand.Text())+"/")
}

// harness reaches the emulator. slow makes fewer rounds, for the clauses that
// are no races.
func harness(slow bool) storetest.Harness {
	return storetest.Harness{
		Slow: slow,
		Open: func(t testing.TB) store.Store { return openAt(t, place(t)) },
		Peer: func(t testing.TB, s store.Store) store.Store {
			a := azurite(t)
			return openAt(t, keyed(a.Endpoint, a, s.(*Store).prefix))
		},

		Limit: 20 * time.Second,
	}
}

// SPEC ST1 ST2 ST3 ST4 ST5 ST6 ST7 ST8 ST10 ST11 ST13 ST14 ST16
func TestConformance(t *testing.T) {
	t.Parallel()
	azurite(t)
	storetest.Run(t, harness(true))
}

// SPEC ST9
// CASE B02 B20
func TestConformanceWithLosses(t *testing.T) {
	t.Parallel()
	azurite(t)
	storetest.Lost(t, harness(false))
}

func BenchmarkStore(b *testing.B) {
	azurite(b)
	storetest.Bench(b, harness(true))
}

// Listings of several pages are whole, whether or not they begin in the middle.
//
// SPEC ST6
func TestPages(t *testing.T) {
	t.Parallel()
	s := openAt(t, place(t))
	s.pageSize = to.Ptr[int32](7)
	want := []string{}
	for i := range 40 {
		k := store.Key("ns", "lease", string([]byte{'a' + byte(i/10), '0' + byte(i%10)}))
		if _, err := s.Create(t.Context(), k, nil); err != nil {
			t.Fatal(err)
		}
		want = append(want, k)
	}
	for i := -1; i < len(want); i++ {
		after := ""
		if i >= 0 {
			after = want[i]
		}
		got := []string{}
		for k, err := range s.List(t.Context(), "ns/lease/", after) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, k)
		}
		if strings.Join(got, " ") != strings.Join(want[i+1:], " ") {
			t.Fatalf("after %q: %q", after, got)
		}
	}
}

// A blob with snapshots, which a backup tool may have made, can be deleted, with
// and without a version.
//
// SPEC ST5
func TestDeleteWithSnapshots(t *testing.T) {
	t.Parallel()
	s := openAt(t, place(t))
	for _, conditional := range []bool{false, true} {
		v, err := s.Create(t.Context(), "a/b/c", []byte("x"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.blob("a/b/c").CreateSnapshot(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if conditional {
			kindIs(t, s.DeleteIf(t.Context(), "a/b/c", "0xOLD"), store.ErrConflict, "DeleteIf at another version")
			err = s.DeleteIf(t.Context(), "a/b/c", v)
		} else {
			err = s.Delete(t.Context(), "a/b/c")
		}
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Get(t.Context(), "a/b/c", 10)
		kindIs(t, err, store.ErrNotFound, "Get of a deleted key")
	}
}

// kindIs fails the test unless err is of the kind.
func kindIs(t testing.TB, err, kind error, what string) {
	t.Helper()
	if store.KindOf(err) != kind {
		t.Fatalf("%s gave %v (kind %v), want the kind %v", what, err, store.KindOf(err), kind)
	}
}
