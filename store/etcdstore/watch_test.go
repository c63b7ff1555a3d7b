package etcdstore

import (
	"context"
	"errors"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/metadata"

	"github.com/tenure-project/tenure/store"
)

// absentAt lets the scripted server say that every key is absent.
func absentAt(revision int64) func(*pb.RangeRequest) *pb.RangeResponse {
	return func(*pb.RangeRequest) *pb.RangeResponse { return &pb.RangeResponse{Header: header(revision)} }
}

// created answers the request to create a watch and returns it.
func created(w pb.Watch_WatchServer) (*pb.WatchCreateRequest, error) {
	q, err := w.Recv()
	if err != nil {
		return nil, err
	}
	c := q.GetCreateRequest()
	return c, w.Send(&pb.WatchResponse{Header: header(9), WatchId: c.GetWatchId(), Created: true})
}

// A watch begins at the revision after the read, asks for a leader, and starts
// again if that revision was compacted.
//
// SPEC ST14
func TestWatchGoesOnAfterCompaction(t *testing.T) {
	t.Parallel()
	srv := newScript(t)
	s := srv.open(t)
	srv.ranges(absentAt(41))
	from := make(chan int64, 2)
	srv.watches(func(w pb.Watch_WatchServer) error {
		if md, _ := metadata.FromIncomingContext(w.Context()); len(md.Get(rpctypes.MetadataRequireLeaderKey)) == 0 {
			t.Error("the watch does not ask for a leader")
		}
		c, err := created(w)
		if err != nil {
			return err
		}
		from <- c.StartRevision
		srv.ranges(absentAt(50))
		if err := w.Send(&pb.WatchResponse{Header: header(50), WatchId: c.WatchId, Canceled: true, CompactRevision: 45}); err != nil {
			return err
		}
		if c, err = created(w); err != nil {
			return err
		}
		from <- c.StartRevision
		if err := w.Send(&pb.WatchResponse{Header: header(51), WatchId: c.WatchId, Events: []*mvccpb.Event{{Kv: &mvccpb.KeyValue{ModRevision: 51}}}}); err != nil {
			return err
		}
		<-w.Context().Done()
		return nil
	})
	if err := s.Watch(t.Context(), key, ""); err != nil {
		t.Error(err)
	}
	if a, b := <-from, <-from; a != 42 || b != 51 {
		t.Errorf("the watches began at %d and %d, want 42 and 51", a, b)
	}
}

// SPEC ST14
func TestBrokenWatches(t *testing.T) {
	t.Parallel()
	refused := func(reason string) func(pb.Watch_WatchServer) error {
		return func(w pb.Watch_WatchServer) error {
			if _, err := w.Recv(); err != nil {
				return err
			}
			if err := w.Send(&pb.WatchResponse{Header: header(9), WatchId: -1, Created: true, Canceled: true, CancelReason: reason}); err != nil {
				return err
			}
			<-w.Context().Done()
			return nil
		}
	}
	for name, row := range map[string]struct {
		stream func(pb.Watch_WatchServer) error
		kind   error
	}{
		"no leader": {func(w pb.Watch_WatchServer) error {
			if _, err := created(w); err != nil {
				return err
			}
			return rpctypes.ErrGRPCNoLeader
		}, store.ErrUnavailable},
		"closed":        {func(pb.Watch_WatchServer) error { return nil }, store.ErrUnavailable},
		"permission":    {refused(rpctypes.ErrGRPCPermissionDenied.Error()), store.ErrDenied},
		"token":         {refused(rpctypes.ErrGRPCInvalidAuthToken.Error()), store.ErrDenied},
		"anything else": {refused("out of watches"), store.ErrUnavailable},
		"other number": {func(w pb.Watch_WatchServer) error {
			if _, err := w.Recv(); err != nil {
				return err
			}
			if err := w.Send(&pb.WatchResponse{Header: header(9), WatchId: 12345, Created: true}); err != nil {
				return err
			}
			<-w.Context().Done()
			return nil
		}, store.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := newScript(t)
			s := srv.open(t)
			srv.ranges(absentAt(9))
			srv.watches(row.stream)
			for range 2 { // the second one gets a stream of its own
				kindIs(t, s.Watch(t.Context(), key, ""), row.kind, "Watch")
			}
		})
	}
}

// All watches of a store share a stream; those that end give their place up.
//
// SPEC ST14
func TestWatchesShareOneStream(t *testing.T) {
	t.Parallel()
	srv := newScript(t)
	s := srv.open(t)
	srv.ranges(absentAt(9))
	streams, places := make(chan bool, 10), make(chan bool, 100)
	srv.watches(func(w pb.Watch_WatchServer) error {
		streams <- true
		for {
			q, err := w.Recv()
			if err != nil {
				return err
			}
			if c := q.GetCreateRequest(); c != nil {
				err = w.Send(&pb.WatchResponse{Header: header(9), WatchId: c.WatchId, Created: true})
			} else if c := q.GetCancelRequest(); c != nil {
				err = w.Send(&pb.WatchResponse{Header: header(9), WatchId: c.WatchId, Canceled: true})
			}
			if err != nil {
				return err
			}
			places <- q.GetCreateRequest() != nil
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	for range 10 {
		go func() { ended <- s.Watch(ctx, key, "") }()
	}
	for range 10 {
		if !<-places {
			t.Error("a watch was given up before its time")
		}
	}
	cancel()
	for range 10 {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if <-places {
			t.Error("another watch was made")
		}
	}
	if len(streams) != 1 {
		t.Errorf("%d streams were opened", len(streams))
	}
}

// A record that nobody writes for long is watched without spinning, although
// its revision is compacted away.
//
// SPEC ST14
func TestWatchOfAnOldRecord(t *testing.T) {
	t.Parallel()
	n := own(t, nil)
	s := openAt(t, fresh(), n.endpoint)
	v, err := s.Create(t.Context(), key, []byte("old"))
	if err != nil {
		t.Fatal(err)
	}
	var last store.Version
	for _, k := range []string{"a", "b", "c"} {
		if last, err = s.Create(t.Context(), k, nil); err != nil {
			t.Fatal(err)
		}
	}
	newest, _ := parseVersion(last)
	admin := client(t, clientv3.Config{Endpoints: []string{n.endpoint}})
	if _, err := admin.Compact(t.Context(), newest.revision); err != nil {
		t.Fatal(err)
	}
	before := n.wire.count("Range")
	short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	err = s.Watch(short, key, v)
	cancel()
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Watch of an unchanged record: %v", err)
	}
	if reads := n.wire.count("Range") - before; reads > 2 {
		t.Errorf("one Watch made %d reads", reads)
	}
	woken := make(chan error)
	go func() { woken <- s.Watch(t.Context(), key, v) }()
	if _, err := s.Replace(t.Context(), key, []byte("new"), v); err != nil {
		t.Fatal(err)
	}
	if err := <-woken; err != nil {
		t.Error(err)
	}
}

// client is a client for what a test does as an administrator.
func client(t testing.TB, cfg clientv3.Config) *clientv3.Client {
	t.Helper()
	cfg.Logger = zap.NewNop()
	c, err := clientv3.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}
