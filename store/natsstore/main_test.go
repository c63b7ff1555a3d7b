package natsstore

import (
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/tenure-project/tenure/store"
)

// shared is the server of the tests that need nothing special: one for the
// process, and a bucket for each test.
var shared *server.Server

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "natsstore")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ignored := []goleak.Option{}
	if shared, err = startServer(serverOptions(dir)); err != nil {
		fmt.Println(err)
		return 1
	}
	code := m.Run()
	for _, s := range []*server.Server{shared, plainServer} {
		if s != nil {
			s.Shutdown()
			s.WaitForShutdown()
		}
	}
	if err := goleak.Find(ignored...); code == 0 && err != nil {
		fmt.Println(err)
		return 1
	}
	return code
}

// serverOptions are those of a server alone that syncs each write.
func serverOptions(dir string) *server.Options {
	return &server.Options{
		ServerName: "alone", Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true,
		JetStream: true, StoreDir: dir, SyncAlways: true, DisableJetStreamBanner: true,
	}
}

func startServer(o *server.Options) (*server.Server, error) {
	s, err := server.NewServer(o)
	if err != nil {
		return nil, err
	}
	s.Start()
	if !s.ReadyForConnections(time.Minute) {
		s.Shutdown()
		return nil, fmt.Errorf("the embedded server did not start")
	}
	return s, nil
}

// ownServer is a server for one test.
func ownServer(t testing.TB, change func(*server.Options)) *server.Server {
	t.Helper()
	o := serverOptions(t.TempDir())
	if change != nil {
		change(o)
	}
	s, err := startServer(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	return s
}

var buckets atomic.Int64

// newBucket is the name of a bucket that no other test uses.
func newBucket() string { return fmt.Sprintf("test-%d", buckets.Add(1)) }

// dial connects to a server as the driver would.
func dial(t testing.TB, url string, opts ...nats.Option) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(url, append([]nats.Option{nats.ReconnectBufSize(-1), nats.MaxReconnects(-1),
		nats.ReconnectWait(10 * time.Millisecond),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}), nats.IgnoreAuthErrorAbort(), nats.ReconnectJitter(0, 0)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// openAt opens a bucket by its URL.
func openAt(t testing.TB, url string) *Store {
	t.Helper()
	s, err := openString(t, url)
	if err != nil {
		t.Fatalf("open %s: %v", url, err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s.(*Store)
}

// fresh is a store in a new bucket of the shared server.
func freshStore(t testing.TB) *Store {
	t.Helper()
	return openAt(t, shared.ClientURL()+"/"+newBucket())
}

// key is a key as Tenure makes them.
func key(name string) string { return store.Key("test", "lease", name) }
