package etcdstore

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// script is a gRPC server that gives the answers it is told to, and counts the
// requests.
type script struct {
	pb.UnimplementedKVServer
	pb.UnimplementedWatchServer
	pb.UnimplementedLeaseServer

	endpoint string
	asked    atomic.Int32 // unary requests
	lax      atomic.Int32 // those that a member without a leader, or behind it, would serve

	mu      sync.Mutex
	onRange func(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error)
	onTxn   func(context.Context, *pb.TxnRequest) (*pb.TxnResponse, error)
	onDel   func(context.Context, *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error)
	onWatch func(pb.Watch_WatchServer) error
}

// newScript starts a scripted server.
func newScript(t testing.TB) *script {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &script{endpoint: "http://" + l.Addr().String()}
	g := grpc.NewServer()
	pb.RegisterKVServer(g, s)
	pb.RegisterWatchServer(g, s)
	pb.RegisterLeaseServer(g, s)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = g.Serve(l)
	}()
	t.Cleanup(func() {
		g.Stop()
		<-done
	})
	return s
}

// count notes a request.
func (s *script) count(ctx context.Context, serializable bool) {
	s.asked.Add(1)
	md, _ := metadata.FromIncomingContext(ctx)
	if serializable || len(md.Get(rpctypes.MetadataRequireLeaderKey)) == 0 {
		s.lax.Add(1)
	}
}

func (s *script) Range(ctx context.Context, q *pb.RangeRequest) (*pb.RangeResponse, error) {
	s.count(ctx, q.Serializable)
	s.mu.Lock()
	f := s.onRange
	s.mu.Unlock()
	return f(ctx, q)
}

func (s *script) Txn(ctx context.Context, q *pb.TxnRequest) (*pb.TxnResponse, error) {
	s.count(ctx, false)
	s.mu.Lock()
	f := s.onTxn
	s.mu.Unlock()
	return f(ctx, q)
}

func (s *script) DeleteRange(ctx context.Context, q *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	s.count(ctx, false)
	s.mu.Lock()
	f := s.onDel
	s.mu.Unlock()
	return f(ctx, q)
}

func (s *script) Watch(w pb.Watch_WatchServer) error {
	s.mu.Lock()
	f := s.onWatch
	s.mu.Unlock()
	return f(w)
}

// all gives every unary request the same error.
func (s *script) all(answer func(ctx context.Context) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onRange = func(ctx context.Context, _ *pb.RangeRequest) (*pb.RangeResponse, error) { return nil, answer(ctx) }
	s.onTxn = func(ctx context.Context, _ *pb.TxnRequest) (*pb.TxnResponse, error) { return nil, answer(ctx) }
	s.onDel = func(ctx context.Context, _ *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
		return nil, answer(ctx)
	}
}

// ranges sets what reads get.
func (s *script) ranges(f func(*pb.RangeRequest) *pb.RangeResponse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onRange = func(_ context.Context, q *pb.RangeRequest) (*pb.RangeResponse, error) { return f(q), nil }
}

// txns sets what transactions get.
func (s *script) txns(r *pb.TxnResponse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onTxn = func(context.Context, *pb.TxnRequest) (*pb.TxnResponse, error) { return r, nil }
}

// watches sets what a stream of watches does.
func (s *script) watches(f func(pb.Watch_WatchServer) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onWatch = f
}

func (s *script) open(t testing.TB) *Store {
	return openWith(t, Config{Client: clientv3.Config{Endpoints: []string{s.endpoint}}})
}

// header is a sound header.
func header(revision int64) *pb.ResponseHeader {
	return &pb.ResponseHeader{ClusterId: 7, MemberId: 1, Revision: revision, RaftTerm: 1}
}
