package etcdstore

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"

	"github.com/tenure-project/tenure/store"
)

func TestMain(m *testing.M) {
	if place := os.Getenv(childVariable); place != "" {
		standInLine(place)
		return
	}
	code := m.Run()
	shared.close()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// childVariable makes the test binary a member of a line: "ENDPOINT PREFIX".
const childVariable = "ETCDSTORE_TEST_CHILD"

// standInLine is the life of such a process. It ends without a word to the
// cluster.
func standInLine(place string) {
	var endpoint, prefix string
	if _, err := fmt.Sscan(place, &endpoint, &prefix); err != nil {
		panic(err)
	}
	ctx := context.Background()
	s, err := Open(ctx, Config{Client: clientv3.Config{Endpoints: []string{endpoint}}, Prefix: prefix, memberTTL: quickTTL})
	if err != nil {
		panic(err)
	}
	q, err := s.Enqueue(ctx, key)
	if err != nil {
		panic(err)
	}
	fmt.Println("in line")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); { // each line asks for a turn
		if err := q.Wait(ctx, 0); err != nil {
			panic(err)
		}
		fmt.Println("turn")
	}
}

// wire counts the requests that reach a server, by gRPC method and key.
type wire struct {
	mu    sync.Mutex
	calls map[string]int
}

type wireMethod struct{}

func (w *wire) TagRPC(ctx context.Context, i *stats.RPCTagInfo) context.Context {
	method := i.FullMethodName[strings.LastIndexByte(i.FullMethodName, '/')+1:]
	w.add(method)
	return context.WithValue(ctx, wireMethod{}, method)
}

func (w *wire) HandleRPC(ctx context.Context, s stats.RPCStats) {
	in, ok := s.(*stats.InPayload)
	if !ok {
		return
	}
	method, _ := ctx.Value(wireMethod{}).(string)
	switch q := in.Payload.(type) {
	case *pb.RangeRequest:
		w.add(method + " " + string(q.Key))
	case *pb.DeleteRangeRequest:
		w.add(method + " " + string(q.Key))
	case *pb.TxnRequest:
		if len(q.Compare) > 0 {
			w.add(method + " " + string(q.Compare[0].Key))
		}
	}
}

func (w *wire) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

func (w *wire) HandleConn(context.Context, stats.ConnStats) {}

func (w *wire) add(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.calls == nil {
		w.calls = map[string]int{}
	}
	w.calls[what]++
}

// count is how many requests for method came.
func (w *wire) count(method string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calls[method]
}

// countKey is how many requests for method and key came.
func (w *wire) countKey(method, key string) int { return w.count(method + " " + key) }

// node is one embedded member.
type node struct {
	cfg      *embed.Config
	etcd     *embed.Etcd
	endpoint string
	wire     *wire
}

// freeURL is a loopback address that was free a moment ago.
func freeURL() (url.URL, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return url.URL{}, err
	}
	defer l.Close()
	return url.URL{Scheme: "http", Host: l.Addr().String()}, nil
}

// newNode prepares a member; dir is its folder.
func newNode(name, dir string) (*node, error) {
	n := &node{cfg: embed.NewConfig(), wire: &wire{}}
	client, err := freeURL()
	if err != nil {
		return nil, err
	}
	peer, err := freeURL()
	if err != nil {
		return nil, err
	}
	n.endpoint = client.String()
	c := n.cfg
	c.Name, c.Dir = name, dir
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	c.InitialCluster = name + "=" + peer.String()
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	c.LogLevel = "panic"
	c.GRPCAdditionalServerOptions = []grpc.ServerOption{grpc.StatsHandler(n.wire)}
	return n, nil
}

// start starts a member and does not wait for a leader.
func (n *node) start() error {
	var err error
	n.etcd, err = embed.StartEtcd(n.cfg)
	return err
}

func (n *node) ready() error {
	select {
	case <-n.etcd.Server.ReadyNotify():
		return nil
	case err := <-n.etcd.Err():
		return err
	case <-time.After(20 * time.Second):
		return fmt.Errorf("the member %s did not become ready", n.cfg.Name)
	}
}

func (n *node) stop() {
	if n.etcd != nil {
		n.etcd.Close()
		n.etcd = nil
	}
}

// sharedNode is the one server that most tests use, each with a prefix of its
// own.
type sharedNode struct {
	once sync.Once
	n    *node
	dir  string
	err  error
}

var shared sharedNode

func (s *sharedNode) node(t testing.TB) *node {
	t.Helper()
	s.once.Do(func() {
		if s.dir, s.err = os.MkdirTemp("", "etcdstore"); s.err != nil {
			return
		}
		if s.n, s.err = newNode("shared", s.dir); s.err != nil {
			return
		}
		if s.err = s.n.start(); s.err == nil {
			s.err = s.n.ready()
		}
	})
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.n
}

func (s *sharedNode) close() {
	if s.n != nil {
		s.n.stop()
	}
	if s.dir != "" {
		_ = os.RemoveAll(s.dir)
	}
}

// own starts a server for one test.
func own(t testing.TB, change func(*embed.Config)) *node {
	t.Helper()
	n, err := newNode("own", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(n.cfg)
	}
	t.Cleanup(n.stop)
	if err := n.start(); err != nil {
		t.Fatal(err)
	}
	if err := n.ready(); err != nil {
		t.Fatal(err)
	}
	return n
}

var places atomic.Int64

// fresh is a prefix that no other test uses.
func fresh() string { return fmt.Sprintf("test-%d/%d", os.Getpid(), places.Add(1)) }

// openAt opens a store that is closed with the test.
func openAt(t testing.TB, prefix string, endpoints ...string) *Store {
	t.Helper()
	return openWith(t, Config{Client: clientv3.Config{Endpoints: endpoints}, Prefix: prefix})
}

func openWith(t testing.TB, c Config) *Store {
	t.Helper()
	s, err := Open(t.Context(), c)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

// kindIs reports an error that is not of the kind want and of no other.
func kindIs(t testing.TB, err, want error, what string) {
	t.Helper()
	if store.KindOf(err) != want {
		t.Errorf("%s: got %v, want the kind %v", what, err, want)
	}
}
