package prices

import (
	"context"
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/clock"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A price is shown only for a place whose price is known.
func TestPriceLists(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		scheme, identity string
		want             List
		known            bool
	}{
		{"s3", "s3://bucket", amazon, true},
		{"s3", "s3://bucket/teams/a", amazon, true},
		{"s3", "s3://bucket?endpoint=https://acc.r2.cloudflarestorage.com", cloudflare, true},
		{"s3", "s3://bucket/x?endpoint=https://acc.eu.r2.cloudflarestorage.com", cloudflare, true},
		{"s3", "s3://bucket?endpoint=https://fly.storage.tigris.dev", tigris, true},
		{"s3", "s3://bucket?endpoint=http://127.0.0.1:9000", List{}, false},
		{"s3", "s3://bucket?endpoint=https://r2.cloudflarestorage.com.example.org", List{}, false},
		{"s3", "s3://bucket?endpoint=https://notr2.cloudflarestorage.com", List{}, false},
		{"s3", "s3://bucket?endpoint=minio", List{}, false},
		{"gs", "gs://bucket/p", google, true},
		{"gs", "gs://bucket?endpoint=http://127.0.0.1:4443", List{}, false},
		{"azblob", "azblob://acc.blob.core.windows.net/container/p", azure, true},
		{"azblob", "azblob://127.0.0.1:10000/devstoreaccount1/container/", List{}, false},
		{"file", "file:/var/lib/tenure", List{}, false},
		{"sqlite", "sqlite:/var/lib/x.db", List{}, false},
		{"mem", "mem:1", List{}, false},
		{"postgres", "postgres://h/db", List{}, false},
		{"etcd", "etcd://h:2379", List{}, false},
		{"nats", "nats://h", List{}, false},
	} {
		got, known := Of(store.Info{Scheme: c.scheme, Identity: c.identity})
		if got != c.want || known != c.known {
			t.Errorf("%s: %+v, %v", c.identity, got, known)
		}
	}
	if !Billed("s3") || !Billed("gs") || !Billed("azblob") || Billed("file") || Billed("postgres") {
		t.Error("which stores are billed by request is wrong")
	}
}

// The default TTL of 15 s: a renewal every 3 s is 864,000 in 30 days, 921,600
// with the library's jitter.
func TestLeaseCost(t *testing.T) {
	t.Parallel()
	even, average := Renewals(15 * time.Second)
	near(t, "renewals", even, 864_000)
	near(t, "renewals with jitter", average, 921_600)
	renewal := Requests{Writes: 1}
	for _, c := range []struct {
		list    List
		even    float64 // dollars a month
		average float64
		read    float64 // a read each second
		ttl     time.Duration
	}{
		{amazon, 4.32, 4.608, 1.0368, 70 * time.Second},
		{google, 4.32, 4.608, 1.0368, 70 * time.Second},
		{azure, 4.752, 5.0688, 1.140480, 77 * time.Second},
		{cloudflare, 3.888, 4.1472, 0.933120, 63 * time.Second},
	} {
		near(t, c.list.Provider, c.list.Dollars(renewal.Times(even)), c.even)
		near(t, c.list.Provider, c.list.Dollars(renewal.Times(average)), c.average)
		near(t, c.list.Provider, c.list.Dollars(WaiterFor(store.Info{}, 15*time.Second).Month), c.read)
		ttl := c.list.LeastTTL(1, renewal, 0)
		if ttl != c.ttl {
			t.Errorf("%s: below $1 from %v, want %v", c.list.Provider, ttl, c.ttl)
		}
		_, at := Renewals(ttl)
		_, before := Renewals(ttl - time.Second)
		if c.list.Dollars(renewal.Times(at)) >= 1 || c.list.Dollars(renewal.Times(before)) < 1 {
			t.Errorf("%s: %v is not the shortest TTL below $1", c.list.Provider, ttl)
		}
	}
	if got := amazon.LeastTTL(100, renewal, 10*time.Second+time.Millisecond); got != 11*time.Second {
		t.Errorf("the store's own limit gives %v", got)
	}
}

func TestClassify(t *testing.T) {
	t.Parallel()
	got := Classify(map[string]float64{"create": 1, "replace": 2, "list": 3, "get": 4, "waiting": 5, "delete": 6, "delete-if": 7})
	if got != (Requests{Writes: 6, Reads: 9}) || got.Total() != 15 {
		t.Errorf("%+v", got)
	}
}

// SPEC ST14
func TestLowestTTL(t *testing.T) {
	t.Parallel()
	for rate, want := range map[float64]time.Duration{0: 100 * time.Millisecond, 1: 10 * time.Second, 0.5: 20 * time.Second, 1000: 100 * time.Millisecond} {
		if got := LowestTTL(store.Info{WritesPerSecond: rate}); got != want {
			t.Errorf("%g writes per second: %v, want %v", rate, got, want)
		}
	}
}

// What the arithmetic says, the library does: requests are counted over some time
// of a virtual clock, for a holder and for a waiter, on a store that wakes waiters
// and on one that does not.
//
// SPEC DL5
func TestTheLibraryDoesSo(t *testing.T) {
	t.Parallel()
	for _, ttl := range []time.Duration{time.Second, 15 * time.Second, time.Minute} {
		for _, can := range []store.Power{0, store.CanWatch | store.CanQueue} {
			t.Run(fmt.Sprint(ttl, " ", can != 0), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { countRequests(t, ttl, can) })
			})
		}
	}
}

func countRequests(t *testing.T, ttl time.Duration, can store.Power) {
	st := memstore.New()
	holder, waiter := &counted{Store: st, can: can}, &counted{Store: st, can: can}
	clients := map[*counted]*tenure.Client{}
	for _, s := range []*counted{holder, waiter} {
		c, err := tenure.New(t.Context(), s, tenure.WithClock(clock.NewVirtual(1)), tenure.WithoutProbe(), tenure.WithTTL(ttl))
		if err != nil {
			t.Fatal(err)
		}
		clients[s] = c
	}
	l, err := clients[holder].Acquire(t.Context(), "job")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	waited := make(chan error, 1)
	go func() {
		_, err := clients[waiter].Acquire(ctx, "job")
		waited <- err
	}()
	span := max(48*ttl, 100*time.Second) // 240 renewals and 1,000 looks at least
	time.Sleep(ttl)
	holder.take()
	waiter.take()
	time.Sleep(span)
	held, looked := holder.take(), waiter.take()
	stop()
	<-waited
	for _, err := range []error{l.Release(context.Background()), clients[holder].Close(), clients[waiter].Close(), st.Close()} {
		if err != nil {
			t.Error(err)
		}
	}
	_, average := Renewals(ttl)
	part := float64(span) / float64(Month)
	within(t, "renewals", float64(held["replace"]), average*part, 0.03) // without the jitter it is 0.06 less
	if held["get"]+held["create"] > 0 {
		t.Errorf("a holder sends more than renewals: %v", held)
	}
	want := WaiterFor(store.Info{Can: can}, ttl)
	within(t, "a waiter's looks", float64(looked["get"]), want.Month.Reads*part, 0.05)
	if want.Month.Writes != 0 || looked["replace"]+looked["create"] > 0 {
		t.Errorf("a waiter writes: %v", looked)
	}
}

// counted counts calls, and has the powers of its own choice.
type counted struct {
	*memstore.Store
	can   store.Power
	mu    sync.Mutex
	calls map[string]int
}

func (c *counted) Info() store.Info {
	i := c.Store.Info()
	i.Can &= c.can
	return i
}

func (c *counted) note(op string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls == nil {
		c.calls = map[string]int{}
	}
	c.calls[op]++
}

func (c *counted) take() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	calls := c.calls
	c.calls = nil
	return calls
}

func (c *counted) Get(ctx context.Context, key string, limit int) (store.Object, error) {
	c.note("get")
	return c.Store.Get(ctx, key, limit)
}

func (c *counted) Create(ctx context.Context, key string, body []byte) (store.Version, error) {
	c.note("create")
	return c.Store.Create(ctx, key, body)
}

func (c *counted) Replace(ctx context.Context, key string, body []byte, v store.Version) (store.Version, error) {
	c.note("replace")
	return c.Store.Replace(ctx, key, body, v)
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > want*1e-9 {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// within allows for the luck of the jitter.
func within(t *testing.T, what string, got, want, part float64) {
	t.Helper()
	if math.Abs(got-want) > want*part {
		t.Errorf("%s: %v, want about %.0f", what, got, want)
	}
}
