package etcdstore

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tenure-project/tenure/store"
)

const key = "suite/lease/k"

var someVersion = version{5, strings.Repeat("A", stampLength)}.mark()

// operation is one call of the contract.
type operation struct {
	name  string
	write bool
	call  func(ctx context.Context, s *Store) error
}

var operations = []operation{
	{"get", false, func(ctx context.Context, s *Store) error { _, err := s.Get(ctx, key, 1000); return err }},
	{"list", false, func(ctx context.Context, s *Store) error {
		for _, err := range s.List(ctx, "suite/", "") {
			return err
		}
		return nil
	}},
	{"create", true, func(ctx context.Context, s *Store) error { _, err := s.Create(ctx, key, []byte("x")); return err }},
	{"replace", true, func(ctx context.Context, s *Store) error {
		_, err := s.Replace(ctx, key, []byte("x"), someVersion)
		return err
	}},
	{"delete if", true, func(ctx context.Context, s *Store) error { return s.DeleteIf(ctx, key, someVersion) }},
	{"delete", true, func(ctx context.Context, s *Store) error { return s.Delete(ctx, key) }},
	{"commit", true, func(ctx context.Context, s *Store) error {
		_, err := s.Commit(ctx, []store.Change{{Key: key, Body: []byte("x")}, {Key: "suite/lease/other", Over: someVersion, Do: store.Remove}})
		return err
	}},
	{"commit of conditions", false, func(ctx context.Context, s *Store) error {
		_, err := s.Commit(ctx, []store.Change{{Key: key, Over: someVersion, Do: store.Keep}})
		return err
	}},
	{"scan", false, func(ctx context.Context, s *Store) error {
		_, err := s.Scan(ctx, store.ScanRange{From: "suite/", To: "suite0", Most: 10, Limit: 1000})
		return err
	}},
}

// SPEC ST8 ST9
// CASE B20 B26
func TestAnswers(t *testing.T) {
	t.Parallel()
	const doubt = true // a write has an unknown outcome
	rows := []struct {
		name   string
		answer error
		kind   error // of reads, and of writes without doubt
		doubt  bool
		says   string
	}{
		{"no leader", rpctypes.ErrGRPCNoLeader, store.ErrUnavailable, false, "no leader"},
		{"leader changed", rpctypes.ErrGRPCLeaderChanged, store.ErrUnavailable, doubt, ""},
		{"timeout", rpctypes.ErrGRPCTimeout, store.ErrUnavailable, doubt, ""},
		{"timeout, leader failed", rpctypes.ErrGRPCTimeoutDueToLeaderFail, store.ErrUnavailable, doubt, ""},
		{"timeout, connection lost", rpctypes.ErrGRPCTimeoutDueToConnectionLost, store.ErrUnavailable, doubt, ""},
		{"timeout, applied index", rpctypes.ErrGRPCTimeoutWaitAppliedIndex, store.ErrUnavailable, doubt, ""},
		{"server stopped", rpctypes.ErrGRPCStopped, store.ErrUnavailable, doubt, ""},
		{"unhealthy", rpctypes.ErrGRPCUnhealthy, store.ErrUnavailable, doubt, ""},
		{"not leader", rpctypes.ErrGRPCNotLeader, store.ErrUnavailable, doubt, ""},
		{"too many requests", rpctypes.ErrGRPCRequestTooManyRequests, store.ErrUnavailable, false, ""},
		{"no space", rpctypes.ErrGRPCNoSpace, store.ErrUnavailable, false, "etcdctl alarm disarm"},
		{"too large", rpctypes.ErrGRPCRequestTooLarge, store.ErrInvalid, false, "--max-request-bytes"},
		{"too many operations", rpctypes.ErrGRPCTooManyOps, store.ErrInvalid, false, "--max-txn-ops"},
		{"corrupt", rpctypes.ErrGRPCCorrupt, store.ErrCorrupt, false, "alarm"},
		{"not capable", rpctypes.ErrGRPCNotCapable, store.ErrUnavailable, false, ""},
		{"learner", rpctypes.ErrGRPCNotSupportedForLearner, store.ErrUnavailable, false, "learner"},
		{"permission", rpctypes.ErrGRPCPermissionDenied, store.ErrDenied, false, "keys that start with tenure/"},
		{"no user", rpctypes.ErrGRPCUserEmpty, store.ErrDenied, false, "user"},
		{"token", rpctypes.ErrGRPCInvalidAuthToken, store.ErrDenied, false, "expired"},
		{"password", rpctypes.ErrGRPCAuthFailed, store.ErrDenied, false, "password is wrong"},
		{"rights changed", rpctypes.ErrGRPCAuthOldRevision, store.ErrUnavailable, false, ""},
		// The client repeats a write on these three, unless it is told not to.
		{"cancelled by the server", status.Error(codes.Canceled, "context canceled"), store.ErrUnavailable, doubt, ""},
		{"deadline of the server", status.Error(codes.DeadlineExceeded, "context deadline exceeded"), store.ErrUnavailable, doubt, ""},
		{"no connection beyond a proxy", status.Error(codes.Unavailable, "there is no connection available"), store.ErrUnavailable, doubt, ""},
		{"bad gateway", status.Error(codes.Unavailable, "unexpected HTTP status code received from server: 502 (Bad Gateway)"), store.ErrUnavailable, doubt, ""},
		{"forbidden by a proxy", status.Error(codes.PermissionDenied, "403 (Forbidden)"), store.ErrUnavailable, doubt, ""},
		{"quota of a proxy", status.Error(codes.ResourceExhausted, "429"), store.ErrUnavailable, doubt, ""},
		{"proposal dropped", status.Error(codes.Unknown, "raft proposal dropped"), store.ErrUnavailable, doubt, ""},
		{"internal", status.Error(codes.Internal, "stream terminated by RST_STREAM"), store.ErrUnavailable, doubt, ""},
		{"not etcd", status.Error(codes.Unimplemented, "unknown service"), store.ErrUnavailable, doubt, ""},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			srv := newScript(t)
			s := srv.open(t)
			srv.all(func(context.Context) error { return row.answer })
			for i, o := range operations {
				want := row.kind
				if o.write && row.doubt {
					want = store.ErrUnknown
				}
				err := o.call(t.Context(), s)
				kindIs(t, err, want, o.name)
				if !strings.Contains(err.Error(), row.says) {
					t.Errorf("%s: %q does not say %q", o.name, err, row.says)
				}
				if n := int(srv.asked.Load()); n != i+1 {
					t.Fatalf("%s: %d requests came after %d calls", o.name, n, i+1)
				}
			}
			if n := srv.lax.Load(); n != 0 {
				t.Errorf("%d requests do not ask for a leader, or are reads of what one member has", n)
			}
		})
	}
}

// The setting that keeps the client from repeating writes is what does it.
//
// SPEC ST9
func TestClientsDefaultRepeatsWrites(t *testing.T) {
	t.Parallel()
	srv := newScript(t)
	srv.all(func(context.Context) error { return status.Error(codes.Canceled, "context canceled") })
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{srv.endpoint}, MaxUnaryRetries: 3, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Txn(t.Context()).Then(clientv3.OpPut("k", "v")).Commit(); err == nil {
		t.Error("the transaction succeeded")
	}
	if n := srv.asked.Load(); n != 3 {
		t.Errorf("the client sent the write %d times; it was known to repeat it", n)
	}
}

// A reply that does not fit its request is no success and no refusal.
//
// SPEC ST9
func TestRepliesThatDoNotFit(t *testing.T) {
	t.Parallel()
	puts := []*pb.ResponseOp{{Response: &pb.ResponseOp_ResponsePut{ResponsePut: &pb.PutResponse{}}}}
	deleted := func(n int64) []*pb.ResponseOp {
		return []*pb.ResponseOp{{Response: &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: &pb.DeleteRangeResponse{Deleted: n}}}}
	}
	counts := []*pb.ResponseOp{{Response: &pb.ResponseOp_ResponseRange{ResponseRange: &pb.RangeResponse{Count: 1}}}}
	rows := []struct {
		name     string
		r        *pb.TxnResponse
		replace  error
		deleteIf error
	}{
		{"nothing", &pb.TxnResponse{}, store.ErrUnknown, store.ErrUnknown},
		{"no header", &pb.TxnResponse{Succeeded: true, Responses: puts}, store.ErrUnknown, store.ErrUnknown},
		{"no revision", &pb.TxnResponse{Header: header(0), Succeeded: true, Responses: puts}, store.ErrUnknown, store.ErrUnknown},
		{"no response", &pb.TxnResponse{Header: header(9), Succeeded: true}, store.ErrUnknown, store.ErrUnknown},
		{"refusal without a count", &pb.TxnResponse{Header: header(9)}, store.ErrUnknown, store.ErrUnknown},
		{"success with a count", &pb.TxnResponse{Header: header(9), Succeeded: true, Responses: counts}, store.ErrUnknown, store.ErrUnknown},
		{"nothing deleted", &pb.TxnResponse{Header: header(9), Succeeded: true, Responses: deleted(0)}, store.ErrUnknown, store.ErrUnknown},
		{"put", &pb.TxnResponse{Header: header(9), Succeeded: true, Responses: puts}, nil, store.ErrUnknown},
		{"deleted", &pb.TxnResponse{Header: header(9), Succeeded: true, Responses: deleted(1)}, store.ErrUnknown, nil},
		{"refused", &pb.TxnResponse{Header: header(9), Responses: counts}, store.ErrConflict, store.ErrConflict},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			srv := newScript(t)
			s := srv.open(t)
			srv.txns(row.r)
			_, err := s.Replace(t.Context(), key, nil, someVersion)
			kindIs(t, err, row.replace, "Replace")
			kindIs(t, s.DeleteIf(t.Context(), key, someVersion), row.deleteIf, "DeleteIf")
		})
	}
}

// What is stored by somebody else, or is not what was asked for, is no record.
//
// SPEC ST7
func TestForeignValuesAreCorrupt(t *testing.T) {
	t.Parallel()
	good, _ := wrap([]byte("body"))
	at := "tenure/records/" + key
	for name, kv := range map[string]*mvccpb.KeyValue{
		"plain":         {Key: []byte(at), Value: []byte(`{"a":1}`), ModRevision: 3},
		"empty":         {Key: []byte(at), ModRevision: 3},
		"cut off":       {Key: []byte(at), Value: good[:headLength-1], ModRevision: 3},
		"stamp damaged": {Key: []byte(at), Value: bytes.Replace(good, []byte(good[12:14]), []byte("a\x00"), 1), ModRevision: 3},
		"other key":     {Key: []byte(at + "2"), Value: good, ModRevision: 3},
		"no revision":   {Key: []byte(at), Value: good},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := newScript(t)
			s := srv.open(t)
			srv.ranges(func(*pb.RangeRequest) *pb.RangeResponse {
				return &pb.RangeResponse{Header: header(9), Kvs: []*mvccpb.KeyValue{kv}, Count: 1}
			})
			_, err := s.Get(t.Context(), key, 100)
			kindIs(t, err, store.ErrCorrupt, "Get")
		})
	}
}

// A reply that is too long is refused by its announced length.
//
// SPEC ST7
func TestLongRepliesAreNotLoaded(t *testing.T) {
	t.Parallel()
	srv := newScript(t)
	s := srv.open(t)
	value, _ := wrap(make([]byte, 20<<20))
	srv.ranges(func(*pb.RangeRequest) *pb.RangeResponse {
		return &pb.RangeResponse{Header: header(9), Kvs: []*mvccpb.KeyValue{{Key: []byte("tenure/records/" + key), Value: value, ModRevision: 3}}}
	})
	_, err := s.Get(t.Context(), key, 1000)
	kindIs(t, err, store.ErrCorrupt, "Get of 20 MiB with a limit of 1000 bytes")
	if err == nil || !strings.Contains(err.Error(), "larger than max") {
		t.Errorf("Get answered %v; the reply was read before it was refused", err)
	}
}

// A call whose context ends while its request is under way does not know; one
// whose request never left does.
//
// SPEC ST9 ST13
// CASE B05
func TestContextEndsInFlight(t *testing.T) {
	t.Parallel()
	srv := newScript(t)
	s := srv.open(t)
	here := make(chan struct{}, 10)
	srv.all(func(ctx context.Context) error {
		here <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	})
	for _, o := range operations {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- o.call(ctx, s) }()
		<-here
		cancel()
		err := <-ended
		want := store.ErrUnavailable
		if o.write {
			want = store.ErrUnknown
		}
		kindIs(t, err, want, o.name)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v does not wrap the context's error", o.name, err)
		}
	}
	if n := srv.asked.Load(); int(n) != len(operations) {
		t.Errorf("%d requests came for %d calls", n, len(operations))
	}
}

// SPEC ST8 ST13
// CASE B26
func TestNotConnected(t *testing.T) {
	t.Parallel()
	u, err := freeURL()
	if err != nil {
		t.Fatal(err)
	}
	mute, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	for name, row := range map[string]struct {
		endpoint string
		at       time.Duration // when it must have failed, without a limit of the caller's
	}{
		"refused": {u.String(), 2 * time.Second},
		"mute":    {"http://" + mute.Addr().String(), 0},
	} {
		s := openAt(t, "p", row.endpoint)
		for _, o := range operations {
			ctx, cancel := t.Context(), func() {}
			if row.at == 0 {
				ctx, cancel = context.WithTimeout(ctx, 50*time.Millisecond)
			}
			begun := time.Now()
			err := o.call(ctx, s)
			cancel()
			kindIs(t, err, store.ErrUnavailable, name+": "+o.name)
			if took := time.Since(begun); took > max(row.at, 2*time.Second) {
				t.Errorf("%s: %s took %v", name, o.name, took)
			}
		}
	}
}
