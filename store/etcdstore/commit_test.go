package etcdstore

import (
	"fmt"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/tenure-project/tenure/store"
)

// A reply to a commit that does not fit the request is no success and no refusal.
//
// SPEC SL4 ST9
func TestCommitRepliesThatDoNotFit(t *testing.T) {
	t.Parallel()
	put := &pb.ResponseOp{Response: &pb.ResponseOp_ResponsePut{ResponsePut: &pb.PutResponse{}}}
	removed := func(n int64) *pb.ResponseOp {
		return &pb.ResponseOp{Response: &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: &pb.DeleteRangeResponse{Deleted: n}}}
	}
	looked := &pb.ResponseOp{Response: &pb.ResponseOp_ResponseRange{ResponseRange: &pb.RangeResponse{Kvs: []*mvccpb.KeyValue{{ModRevision: 5}}}}}
	for name, row := range map[string]struct {
		r    *pb.TxnResponse
		want error
	}{
		"nothing":          {&pb.TxnResponse{}, store.ErrUnknown},
		"no header":        {&pb.TxnResponse{Succeeded: true, Responses: []*pb.ResponseOp{put, removed(1), looked}}, store.ErrUnknown},
		"too few":          {&pb.TxnResponse{Header: header(9), Succeeded: true, Responses: []*pb.ResponseOp{put, removed(1)}}, store.ErrUnknown},
		"another order":    {&pb.TxnResponse{Header: header(9), Succeeded: true, Responses: []*pb.ResponseOp{removed(1), put, looked}}, store.ErrUnknown},
		"nothing removed":  {&pb.TxnResponse{Header: header(9), Succeeded: true, Responses: []*pb.ResponseOp{put, removed(0), looked}}, store.ErrUnknown},
		"refused by a put": {&pb.TxnResponse{Header: header(9), Responses: []*pb.ResponseOp{put, removed(1), looked}}, store.ErrUnknown},
		"done":             {&pb.TxnResponse{Header: header(9), Succeeded: true, Responses: []*pb.ResponseOp{put, removed(1), looked}}, nil},
		"refused":          {&pb.TxnResponse{Header: header(9), Responses: []*pb.ResponseOp{looked, looked, looked}}, store.ErrConflict},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := newScript(t)
			s := srv.open(t)
			srv.txns(row.r)
			made, err := s.Commit(t.Context(), []store.Change{{Key: key}, {Key: "n/k/b", Over: someVersion, Do: store.Remove}, {Key: "n/k/c", Over: someVersion, Do: store.Keep}})
			kindIs(t, err, row.want, "Commit")
			if (err == nil) != (len(made) == 3) {
				t.Errorf("it gave the versions %q", made)
			}
		})
	}
}

// What a server answers to a scan must be in the range, in order, and a record.
//
// SPEC SL4 ST7
func TestScanRepliesThatDoNotFit(t *testing.T) {
	t.Parallel()
	good, _ := wrap([]byte("body"))
	kv := func(k string) *mvccpb.KeyValue {
		return &mvccpb.KeyValue{Key: []byte("tenure/records/" + k), Value: good, ModRevision: 3}
	}
	for name, kvs := range map[string][]*mvccpb.KeyValue{
		"outside":      {kv("n/l/a")},
		"below":        {kv("n/j/a")},
		"at the end":   {kv("n/k0")},
		"out of order": {kv("n/k/b"), kv("n/k/a")},
		"twice":        {kv("n/k/a"), kv("n/k/a")},
		"too many":     {kv("n/k/a"), kv("n/k/b"), kv("n/k/c")},
		"foreign":      {{Key: []byte("tenure/records/n/k/a"), Value: []byte("{}"), ModRevision: 3}},
		"no revision":  {{Key: []byte("tenure/records/n/k/a"), Value: good}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := newScript(t)
			s := srv.open(t)
			srv.ranges(func(*pb.RangeRequest) *pb.RangeResponse { return &pb.RangeResponse{Header: header(9), Kvs: kvs} })
			_, err := s.Scan(t.Context(), store.ScanRange{From: "n/k/", To: "n/k0", Most: 2, Limit: 100})
			kindIs(t, err, store.ErrCorrupt, "Scan")
		})
	}
}

// As many conditions as a commit may have fit into one transaction of a server
// with its default limit, of which each version takes three.
//
// SPEC SL4
func TestLargestCommitFits(t *testing.T) {
	t.Parallel()
	const serverLimit = 128
	changes := make([]store.Change, store.MaxChanges)
	n := 0
	for i := range changes {
		holds, _ := condition(fmt.Sprint(i), someVersion)
		n += len(holds)
	}
	if n > serverLimit {
		t.Errorf("%d changes are %d comparisons; a server takes %d", len(changes), n, serverLimit)
	}
}
