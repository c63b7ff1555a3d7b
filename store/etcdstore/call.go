package etcdstore

import (
	"context"
	"fmt"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/stats"

	"github.com/tenure-project/tenure/store"
)

// call is one request to the cluster.
type call struct {
	op, key string
	// method is the gRPC method that is counted in sent.
	method string
	// write says that the request can have an effect.
	write bool
	// limit is the largest body that the caller of a read accepts.
	limit int
	// sent counts how often the request was handed to a connection. gRPC hands
	// it over a second time only after the server certified that it did not look
	// at the first.
	sent atomic.Int32
}

const (
	methodRange  = pb.KV_Range_FullMethodName
	methodTxn    = pb.KV_Txn_FullMethodName
	methodDelete = pb.KV_DeleteRange_FullMethodName
	methodGrant  = pb.Lease_LeaseGrant_FullMethodName
	methodRevoke = pb.Lease_LeaseRevoke_FullMethodName
)

// sendWatch learns from gRPC when a request leaves. What never left certainly
// did nothing.
type sendWatch struct{}

type callKey struct{}

// TagRPC leaves the call in the context of its own request only, and not in
// that of a login on its behalf.
func (sendWatch) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	if c, _ := ctx.Value(callKey{}).(*call); c != nil && c.method != info.FullMethodName {
		return context.WithValue(ctx, callKey{}, (*call)(nil))
	}
	return ctx
}

// HandleRPC counts the requests that leave.
func (sendWatch) HandleRPC(ctx context.Context, s stats.RPCStats) {
	if _, ok := s.(*stats.OutPayload); !ok {
		return
	}
	if c, _ := ctx.Value(callKey{}).(*call); c != nil {
		c.sent.Add(1)
	}
}

// TagConn is not needed.
func (sendWatch) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn is not needed.
func (sendWatch) HandleConn(context.Context, stats.ConnStats) {}

// reply is what all replies have.
type reply interface{ GetHeader() *pb.ResponseHeader }

// send sends one request and judges its outcome. A member without a leader
// refuses at once, rather than keep the request.
func send[R reply](ctx context.Context, s *Store, c *call, request func(ctx context.Context) (R, error)) (R, error) {
	var none R
	ctx, cancel := s.bound(ctx)
	defer cancel()
	floor := s.history.revision.Load()
	r, err := request(clientv3.WithRequireLeader(context.WithValue(ctx, callKey{}, c)))
	if err != nil {
		return none, s.judge(ctx, c, err)
	}
	if flaw := s.history.accept(r.GetHeader(), floor, c.linearizable()); flaw != "" {
		return none, s.unsound(c, flaw)
	}
	return r, nil
}

// bound is ctx, ended by Close too.
func (s *Store) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	unbind := context.AfterFunc(s.stop, func() { cancel(context.Canceled) })
	return ctx, func() {
		unbind()
		cancel(nil)
	}
}

// linearizable reports whether the header of the reply is of one point in the
// order of all writes.
func (c *call) linearizable() bool {
	return c.method == methodRange || c.method == methodTxn || c.method == methodDelete
}

// unsound is the error for a reply that cannot be right.
func (s *Store) unsound(c *call, flaw string) error {
	if c.write {
		return store.Errorf(store.ErrUnknown, s.identity, c.op, c.key, "%s", flaw)
	}
	if s.history.verdict() != "" {
		return store.Errorf(store.ErrCorrupt, s.identity, c.op, c.key, "%s", flaw)
	}
	return store.Errorf(store.ErrUnavailable, s.identity, c.op, c.key, "%s", flaw)
}

// accept notes what h says and returns what is wrong with it. floor is the
// highest revision known when the call began.
func (h *history) accept(header *pb.ResponseHeader, floor int64, linearizable bool) string {
	if header == nil || header.ClusterId == 0 || linearizable && header.Revision <= 0 {
		return "the reply has no header; is this an etcd server?"
	}
	if !h.cluster.CompareAndSwap(0, header.ClusterId) && h.cluster.Load() != header.ClusterId {
		return h.end(fmt.Sprintf("the replies come from two clusters, %x and %x: the endpoints belong to different ones, or the cluster was replaced; stop all programs that use it", h.cluster.Load(), header.ClusterId))
	}
	if !linearizable {
		return ""
	}
	if header.Revision < floor {
		return h.end(fmt.Sprintf("the cluster went back from revision %d to %d: it was restored from a snapshot, or something answers from a copy; stop all programs that use it", floor, header.Revision))
	}
	for {
		old := h.revision.Load()
		if header.Revision <= old || h.revision.CompareAndSwap(old, header.Revision) {
			return ""
		}
	}
}

// end makes all later calls fail.
func (h *history) end(why string) string {
	h.broken.CompareAndSwap(nil, &why)
	return why
}
