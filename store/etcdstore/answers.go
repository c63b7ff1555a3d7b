package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tenure-project/tenure/store"
)

// refusal is an answer that says for certain that nothing happened: the server
// gives it before it proposes the request, or every member alike gives it
// instead of applying it.
type refusal struct {
	kind   error
	detail string
}

// refusals are the certain refusals. Every other answer to a write leaves its
// outcome unknown: a timeout of the server's above all, but also a stop of the
// server, or a change of leader.
var refusals = map[error]refusal{
	rpctypes.ErrNoLeader:        {store.ErrUnavailable, "the member has no leader; an election is under way, or a quorum is lost"},
	rpctypes.ErrTooManyRequests: {store.ErrUnavailable, "the cluster has more requests than it can apply"},
	rpctypes.ErrNotCapable:      {store.ErrUnavailable, "the member is just starting"},
	rpctypes.ErrNoSpace: {store.ErrUnavailable, "the database has reached its quota, and the cluster refuses all writes: " +
		"compact (etcdctl compact), defragment every member (etcdctl defrag), then etcdctl alarm disarm; raise --quota-backend-bytes if it comes back"},
	rpctypes.ErrRequestTooLarge: {store.ErrInvalid, "the server takes no request of this size; raise its --max-request-bytes to the default of 1.5 MiB"},
	rpctypes.ErrTooManyOps:      {store.ErrInvalid, "the server takes fewer changes in one transaction; raise its --max-txn-ops to the default of 128"},
	rpctypes.ErrCorrupt:         {store.ErrCorrupt, "the cluster has raised its corruption alarm: its members differ; find the wrong member and replace it"},
	rpctypes.ErrAuthFailed:      {store.ErrDenied, "user name or password is wrong"},
	rpctypes.ErrAuthOldRevision: {store.ErrUnavailable, "the rights have just changed"},
	rpctypes.ErrLeaseNotFound:   {store.ErrUnavailable, "the place in line had expired"},
	rpctypes.Error(rpctypes.ErrGRPCNotSupportedForLearner): {store.ErrUnavailable,
		"this endpoint is a learner, which takes no requests; leave learners out of the endpoints"},
}

// judge makes the error of a call that gave no reply. ctx is the call's.
func (s *Store) judge(ctx context.Context, c *call, err error) error {
	if r, ok := s.refusalOf(c, err); ok {
		e := store.Wrap(r.kind, s.identity, c.op, c.key, err)
		e.Detail = r.detail
		return e
	}
	kind := store.ErrUnavailable
	if c.write && c.sent.Load() > 0 {
		kind = store.ErrUnknown
	}
	cause := err
	if ctx.Err() != nil {
		cause = context.Cause(ctx)
	}
	e := store.Wrap(kind, s.identity, c.op, c.key, cause)
	switch text := rpctypes.ErrorDesc(err); {
	case s.stop.Err() != nil:
		e.Detail = "the store was closed"
	case c.sent.Load() > 0:
		if ctx.Err() != nil {
			e.Detail = "no answer in time"
		}
	case strings.Contains(text, "remote error: tls:"):
		e.Kind, e.Detail = store.ErrDenied, "the server refuses the client certificate"
	default:
		e.Detail = "not connected"
		if ctx.Err() != nil && text != ctx.Err().Error() {
			e.Detail += ": " + text
		}
	}
	return e
}

// refusalOf finds out whether err says for certain that nothing happened.
func (s *Store) refusalOf(c *call, err error) (refusal, bool) {
	known := rpctypes.Error(err)
	switch {
	case errors.Is(known, rpctypes.ErrPermissionDenied):
		return refusal{store.ErrDenied, s.missing(c)}, true
	case errors.Is(known, rpctypes.ErrUserEmpty) && !s.user:
		return refusal{store.ErrDenied, "the cluster wants a user: give user and password, or a client certificate with a name"}, true
	case errors.Is(known, rpctypes.ErrInvalidAuthToken) && !s.user:
		return refusal{store.ErrDenied, "the token has expired or is of another cluster"}, true
	case errors.Is(known, rpctypes.ErrInvalidAuthToken), errors.Is(known, rpctypes.ErrUserEmpty):
		return refusal{store.ErrUnavailable, "the login had expired and was renewed"}, true
	case tooLong(err) && !c.write:
		return refusal{store.ErrCorrupt, fmt.Sprintf("the reply is longer than the reader accepts (a body of %d bytes)", c.limit)}, true
	}
	var e rpctypes.EtcdError
	if !errors.As(known, &e) {
		return refusal{}, false
	}
	r, ok := refusals[e]
	return r, ok
}

// tooLong reports whether gRPC refused a reply for its length, which it knows
// before it reads it.
func tooLong(err error) bool {
	st, ok := status.FromError(err)
	return ok && st.Code() == codes.ResourceExhausted && strings.Contains(st.Message(), "received message larger than max")
}

// missing names the right that c lacks.
func (s *Store) missing(c *call) string {
	right := "read"
	if c.write {
		right = "readwrite"
	}
	prefix := strings.TrimSuffix(s.records, "records/")
	return "the user needs the permission " + right + " on the keys that start with " + prefix +
		" (etcdctl role grant-permission ROLE --prefix=true readwrite " + prefix + ")"
}
