package etcdstore

import (
	"bytes"
	"context"
	"math"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/tenure-project/tenure/store"
)

// keyBytes is more than one key takes in a reply, with all that is said of it
// beside its value.
const keyBytes = 2 << 10

// Commit makes all changes if each condition holds, and none otherwise (SL4): one
// transaction, sent once. A refusal says in the same reply what is there.
func (s *Store) Commit(ctx context.Context, changes []store.Change) ([]store.Version, error) {
	c := &call{op: "commit", method: methodTxn}
	if err := store.CheckChanges(changes, MaxBody); err != nil {
		return nil, store.Wrap(store.ErrInvalid, s.identity, c.op, "", err)
	}
	c.key = changes[0].Key
	if err := s.alive(ctx, c.op, c.key); err != nil {
		return nil, err
	}
	q, stamps := &pb.TxnRequest{}, make([]string, len(changes))
	for i, ch := range changes {
		holds, ok := condition(s.records+ch.Key, ch.Over)
		if !ok {
			return nil, store.Errorf(store.ErrConflict, s.identity, c.op, ch.Key, "it is not at version %q, which this store never gave", string(ch.Over))
		}
		q.Compare = append(q.Compare, holds...)
		q.Failure = append(q.Failure, look(s.records+ch.Key))
		c.write = c.write || ch.Do != store.Keep
		switch ch.Do {
		case store.Put:
			value, stamp := wrap(ch.Body)
			stamps[i] = stamp
			q.Success = append(q.Success, put(s.records+ch.Key, value, 0))
		case store.Remove:
			q.Success = append(q.Success, remove(s.records+ch.Key))
		case store.Keep:
			// A transaction that reads nothing may be answered from an old state, and
			// what was read shows that the reply is to this request.
			q.Success = append(q.Success, look(s.records+ch.Key))
		}
	}
	r, err := send(ctx, s, c, func(ctx context.Context) (*pb.TxnResponse, error) {
		return s.kv.Txn(ctx, q, grpc.MaxCallRecvMsgSize(overhead+len(changes)*keyBytes))
	})
	if err != nil {
		return nil, err
	}
	return s.outcome(c, changes, q, r, stamps)
}

// condition holds for a key at version v, or absent if v is "". It is false for a
// version that no store of this kind gives.
func condition(key string, v store.Version) ([]*pb.Compare, bool) {
	if v == "" {
		return absent(key), true
	}
	exact, ok := parseVersion(v)
	return conditions(key, exact), ok
}

// look reads a key's revision and not its value.
func look(key string) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte(key), KeysOnly: true}}}
}

// outcome reads the reply to a commit. One that does not fit the request leaves
// the outcome unknown.
func (s *Store) outcome(c *call, changes []store.Change, q *pb.TxnRequest, r *pb.TxnResponse, stamps []string) ([]store.Version, error) {
	asked := q.Failure
	if r.Succeeded {
		asked = q.Success
	}
	if len(r.Responses) != len(asked) {
		return nil, s.unsound(c, "the reply does not fit the request; is this an etcd server?")
	}
	for i, op := range asked {
		if !changed(op, r.Responses[i]) {
			return nil, s.unsound(c, "the reply does not fit the request; is this an etcd server?")
		}
	}
	if !r.Succeeded {
		return nil, s.conflict(c, changes, r)
	}
	made := make([]store.Version, len(changes))
	for i, ch := range changes {
		if ch.Do == store.Put {
			made[i] = version{r.Header.Revision, stamps[i]}.mark()
		}
	}
	return made, nil
}

// conflict names a key whose condition did not hold. If all revisions are as
// wanted, it was a stamp, and the cluster has another history than the caller.
func (s *Store) conflict(c *call, changes []store.Change, r *pb.TxnResponse) error {
	for i, ch := range changes {
		kvs := r.Responses[i].GetResponseRange().GetKvs()
		want, _ := parseVersion(ch.Over)
		switch {
		case len(kvs) == 0 && ch.Over != "":
			return store.Errorf(store.ErrConflict, s.identity, c.op, ch.Key, "it is absent")
		case len(kvs) > 0 && kvs[0].ModRevision != want.revision:
			return store.Errorf(store.ErrConflict, s.identity, c.op, ch.Key, "it is not at version %q", string(ch.Over))
		}
	}
	return store.Errorf(store.ErrConflict, s.identity, c.op, c.key, "it or another key of the commit is at another version")
}

// Scan returns the objects in r from one snapshot, in the order of r: one
// linearizable read (ST3).
func (s *Store) Scan(ctx context.Context, r store.ScanRange) ([]store.Keyed, error) {
	c := &call{op: "scan", method: methodRange, limit: r.Limit}
	if err := store.CheckScan(r); err != nil {
		return nil, store.Wrap(store.ErrInvalid, s.identity, c.op, "", err)
	}
	if err := s.alive(ctx, c.op, ""); err != nil {
		return nil, err
	}
	if r.From == r.To {
		return []store.Keyed{}, nil // to a server, a range without an end
	}
	q := &pb.RangeRequest{Key: []byte(s.records + r.From), RangeEnd: []byte(s.records + r.To), Limit: int64(r.Most)}
	if r.Backwards {
		q.SortOrder, q.SortTarget = pb.RangeRequest_DESCEND, pb.RangeRequest_KEY
	}
	most := int64(overhead) + int64(r.Most)*(int64(min(r.Limit, MaxBody))+keyBytes)
	reply, err := s.fetch(ctx, c, q, int(min(most, math.MaxInt32)))
	if err != nil {
		return nil, err
	}
	found := make([]store.Keyed, 0, len(reply.Kvs))
	from, to := s.records+r.From, s.records+r.To
	for i, kv := range reply.Kvs {
		key := string(kv.Key)
		step := 1
		if i > 0 {
			step = bytes.Compare(kv.Key, reply.Kvs[i-1].Key)
		}
		if i > 0 && r.Backwards {
			step = -step
		}
		if len(reply.Kvs) > r.Most || key < from || key >= to || step <= 0 {
			return nil, store.Errorf(store.ErrCorrupt, s.identity, c.op, "", "the reply holds a key outside of its range or order, or too many")
		}
		o, err := s.object(c, key[len(s.records):], kv, r.Limit)
		if err != nil {
			return nil, err
		}
		found = append(found, store.Keyed{Key: key[len(s.records):], Object: o})
	}
	return found, nil
}
