package etcdstore

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/tenure-project/tenure/store"
)

// Create stores body if key is absent (ST1): one transaction, sent once.
func (s *Store) Create(ctx context.Context, key string, body []byte) (store.Version, error) {
	const op = "create"
	if err := s.check(ctx, op, key, body); err != nil {
		return "", err
	}
	value, stamp := wrap(body)
	done, err := s.transact(ctx, op, key, &pb.TxnRequest{
		Compare: absent(s.records + key),
		Success: []*pb.RequestOp{put(s.records+key, value, 0)},
		Failure: []*pb.RequestOp{count(s.records + key)},
	})
	switch {
	case err != nil:
		return "", err
	case done.refused:
		return "", store.Errorf(store.ErrExists, s.identity, op, key, "")
	}
	return version{done.revision, stamp}.mark(), nil
}

// Replace stores body if key is at version v (ST2). A refusal says in the same
// reply whether the key is absent or at another version.
func (s *Store) Replace(ctx context.Context, key string, body []byte, v store.Version) (store.Version, error) {
	const op = "replace"
	if err := s.check(ctx, op, key, body); err != nil {
		return "", err
	}
	value, stamp := wrap(body)
	revision, err := s.change(ctx, op, key, v, put(s.records+key, value, 0))
	if err != nil {
		return "", err
	}
	return version{revision, stamp}.mark(), nil
}

// DeleteIf removes key if it is at version v, by one transaction (ST5).
func (s *Store) DeleteIf(ctx context.Context, key string, v store.Version) error {
	const op = "delete if"
	if err := s.check(ctx, op, key, nil); err != nil {
		return err
	}
	_, err := s.change(ctx, op, key, v, remove(s.records+key))
	return err
}

// Delete removes key; an absent key is a success (ST5).
func (s *Store) Delete(ctx context.Context, key string) error {
	const op = "delete"
	if err := s.check(ctx, op, key, nil); err != nil {
		return err
	}
	c := &call{op: op, key: key, method: methodDelete, write: true}
	_, err := send(ctx, s, c, func(ctx context.Context) (*pb.DeleteRangeResponse, error) {
		return s.kv.DeleteRange(ctx, &pb.DeleteRangeRequest{Key: []byte(s.records + key)})
	})
	return err
}

// change does one thing to key if it is at version v.
func (s *Store) change(ctx context.Context, op, key string, v store.Version, do *pb.RequestOp) (revision int64, err error) {
	exact, ok := parseVersion(v)
	if !ok {
		return 0, s.neverGiven(ctx, op, key, v)
	}
	done, err := s.transact(ctx, op, key, &pb.TxnRequest{
		Compare: conditions(s.records+key, exact),
		Success: []*pb.RequestOp{do},
		Failure: []*pb.RequestOp{count(s.records + key)},
	})
	switch {
	case err != nil:
		return 0, err
	case done.refused:
		return 0, s.refused(op, key, v, done.present)
	}
	return done.revision, nil
}

// neverGiven is the error for a version that this store never gave.
func (s *Store) neverGiven(ctx context.Context, op, key string, v store.Version) error {
	present, err := s.present(ctx, op, key)
	if err != nil {
		return err
	}
	return s.refused(op, key, v, present)
}

func (s *Store) refused(op, key string, v store.Version, present bool) error {
	if !present {
		return store.Errorf(store.ErrNotFound, s.identity, op, key, "")
	}
	return store.Errorf(store.ErrConflict, s.identity, op, key, "it is not at version %q", string(v))
}

// done is how a transaction ended.
type done struct {
	refused  bool
	present  bool  // if refused: whether the key is there
	revision int64 // if not refused: of the change
}

// transact sends a transaction of one change, or one count in its place. A
// reply that does not fit the request leaves the outcome unknown.
func (s *Store) transact(ctx context.Context, op, key string, q *pb.TxnRequest) (done, error) {
	c := &call{op: op, key: key, method: methodTxn, write: true}
	r, err := send(ctx, s, c, func(ctx context.Context) (*pb.TxnResponse, error) {
		return s.kv.Txn(ctx, q, grpc.MaxCallRecvMsgSize(overhead))
	})
	if err != nil {
		return done{}, err
	}
	if len(r.Responses) == 1 {
		counted := r.Responses[0].GetResponseRange()
		switch {
		case !r.Succeeded && counted != nil:
			return done{refused: true, present: counted.Count > 0}, nil
		case r.Succeeded && changed(q.Success[0], r.Responses[0]):
			return done{revision: r.Header.Revision}, nil
		}
	}
	return done{}, s.unsound(c, "the reply does not fit the request; is this an etcd server?")
}

// changed reports whether r is the reply to q, and tells of a change if q is one.
func changed(q *pb.RequestOp, r *pb.ResponseOp) bool {
	switch {
	case q.GetRequestPut() != nil:
		return r.GetResponsePut() != nil
	case q.GetRequestRange() != nil:
		return r.GetResponseRange() != nil
	}
	return r.GetResponseDeleteRange().GetDeleted() == 1
}

func put(key string, value []byte, lease int64) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte(key), Value: value, Lease: lease}}}
}

func remove(key string) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte(key)}}}
}

func count(key string) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte(key), CountOnly: true}}}
}
