package s3store

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"go.uber.org/goleak"

	"github.com/tenure-project/tenure/internal/testserver"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/storetest"
)

// Credentials of tests; what looks like a secret must never be printed.
const (
	testKey     = "AKIATESTTESTTESTTEST"
	testSecret  = "sEcReT/of+the/tests"
	testSession = "sEsSiOn-of-the-tests"
)

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "tenure-s3-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	cleanEnvironment(dir)
	servers.dir = dir
	code := m.Run()
	servers.stop()
	_ = os.RemoveAll(dir)
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// cleanEnvironment keeps what this machine's user has set up away from tests.
func cleanEnvironment(dir string) {
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		if strings.HasPrefix(name, "AWS_") || strings.HasSuffix(strings.ToLower(name), "_proxy") {
			_ = os.Unsetenv(name)
		}
	}
	for name, value := range map[string]string{
		"AWS_CONFIG_FILE": filepath.Join(dir, "no-config"), "AWS_SHARED_CREDENTIALS_FILE": filepath.Join(dir, "no-credentials"),
		"AWS_EC2_METADATA_DISABLED": "true", "AWS_ACCESS_KEY_ID": testKey, "AWS_SECRET_ACCESS_KEY": testSecret,
	} {
		_ = os.Setenv(name, value)
	}
}

// gateways are two versitygw processes on one folder, started once.
type gateways struct {
	dir    string
	once   sync.Once
	err    error
	gw     [2]*testserver.Versitygw
	places atomic.Int64
}

var servers gateways

const gatewayBucket = "leases"

func (g *gateways) start() {
	for i := range g.gw {
		if g.gw[i], g.err = testserver.StartVersitygw(g.dir); g.err != nil {
			return
		}
	}
	client := rawClient(g.gw[0].Endpoint, g.gw[0].Access, g.gw[0].Secret)
	_, g.err = client.CreateBucket(context.Background(), &s3.CreateBucketInput{Bucket: aws.String(gatewayBucket)})
	if t, ok := client.Options().HTTPClient.(*http.Client); ok {
		t.CloseIdleConnections()
	}
}

func (g *gateways) stop() {
	for _, gw := range g.gw {
		if gw != nil && gw.Process != nil {
			gw.Stop()
		}
	}
}

// versitygw returns the gateways, or skips the test and says so.
func versitygw(t testing.TB) *gateways {
	t.Helper()
	servers.once.Do(servers.start)
	testserver.Need(t, "versitygw", servers.err)
	return &servers
}

// rawClient is an ordinary client with a pool of its own.
func rawClient(endpoint, access, secret string) *s3.Client {
	return s3.New(s3.Options{
		Region: "us-east-1", BaseEndpoint: aws.String(endpoint), UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(access, secret, ""),
		HTTPClient:  &http.Client{Transport: &http.Transport{}},
	})
}

// harnessOf opens fresh prefixes of a bucket, peers through another endpoint of
// the same server.
func harnessOf(first, peer, access, secret, bucket string, conditionalDelete bool) storetest.Harness {
	open := func(t testing.TB, endpoint, prefix string) store.Store {
		t.Helper()
		s, err := New(rawClient(endpoint, access, secret), Config{Bucket: bucket, Prefix: prefix, ConditionalDelete: conditionalDelete})
		if err != nil {
			t.Fatal(err)
		}
		// Two gateways of one folder are one place; only their addresses differ.
		s.info.Identity = strings.ReplaceAll(s.info.Identity, peer, first)
		return s
	}
	return storetest.Harness{
		Slow: raceEnabled, // fewer rounds
		Open: func(t testing.TB) store.Store {
			return open(t, first, fmt.Sprintf("place-%d/x", servers.places.Add(1)))
		},
		Peer: func(t testing.TB, s store.Store) store.Store {
			return open(t, peer, strings.TrimSuffix(s.(*Store).base, "/"))
		},
	}
}

// serve starts a server on loopback.
func serve(t testing.TB, h http.Handler) *httptest.Server {
	t.Helper()
	srv := unstarted(h)
	srv.Start()
	t.Cleanup(srv.Close)
	return srv
}

func unstarted(h http.Handler) *httptest.Server {
	srv := httptest.NewUnstartedServer(h)
	srv.Config.ErrorLog = log.New(io.Discard, "", 0) // of broken handshakes, and of gofakes3
	return srv
}

// serveTLS starts a server whose certificate nobody knows.
func serveTLS(t testing.TB, h http.Handler) *httptest.Server {
	t.Helper()
	srv := unstarted(h)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	return srv
}

// at opens a store on a server that checks no signatures.
func at(t testing.TB, endpoint string) *Store {
	t.Helper()
	s, err := New(rawClient(endpoint, testKey, testSecret), Config{Bucket: "bucket", Prefix: "p", ConditionalDelete: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}
