package etcdstore

import (
	"context"
	"iter"
	"math"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"

	"github.com/tenure-project/tenure/store"
)

const (
	// overhead is more than all of a reply with one record but its body.
	overhead = 4 << 10
	// pageKeys is how many keys a listing fetches at once, and pageBytes more
	// than they can take.
	pageKeys  = 1000
	pageBytes = 4 << 20
)

// Get returns the present state of key: a linearizable read (ST3). A longer
// body than limit is refused by its announced length (ST7).
func (s *Store) Get(ctx context.Context, key string, limit int) (store.Object, error) {
	o, _, err := s.get(ctx, "get", key, limit)
	return o, err
}

// get also returns the revision of the whole store at which it read.
func (s *Store) get(ctx context.Context, op, key string, limit int) (store.Object, int64, error) {
	var none store.Object
	if err := s.check(ctx, op, key, nil); err != nil {
		return none, 0, err
	}
	c := &call{op: op, key: key, method: methodRange, limit: limit}
	most := min(max(limit, 0), math.MaxInt32-overhead) + overhead
	r, err := s.fetch(ctx, c, &pb.RangeRequest{Key: []byte(s.records + key)}, most)
	if err != nil {
		return none, 0, err
	}
	at := r.Header.Revision
	if len(r.Kvs) == 0 {
		return none, at, store.Errorf(store.ErrNotFound, s.identity, op, key, "")
	}
	if len(r.Kvs) != 1 || string(r.Kvs[0].Key) != s.records+key {
		return none, at, store.Errorf(store.ErrCorrupt, s.identity, op, key, "the reply is about other keys")
	}
	o, err := s.object(c, key, r.Kvs[0], limit)
	return o, at, err
}

// object takes a stored value apart, if it is one of this store's and its body is
// not longer than limit.
func (s *Store) object(c *call, key string, kv *mvccpb.KeyValue, limit int) (store.Object, error) {
	body, stamp, ok := unwrap(kv.Value)
	if kv.ModRevision <= 0 || !ok {
		return store.Object{}, store.Errorf(store.ErrCorrupt, s.identity, c.op, key, "the value does not begin as this store writes it; somebody else wrote %s", s.records+key)
	}
	if len(body) > limit {
		return store.Object{}, store.Errorf(store.ErrCorrupt, s.identity, c.op, key, "the record has %d bytes, more than the %d that the reader accepts", len(body), limit)
	}
	return store.Object{Body: body, Version: version{kv.ModRevision, stamp}.mark()}, nil
}

// fetch sends one linearizable read whose reply has at most most bytes.
func (s *Store) fetch(ctx context.Context, c *call, q *pb.RangeRequest, most int) (*pb.RangeResponse, error) {
	return send(ctx, s, c, func(ctx context.Context) (*pb.RangeResponse, error) {
		return s.kv.Range(ctx, q, grpc.MaxCallRecvMsgSize(most))
	})
}

// present reports whether key is there.
func (s *Store) present(ctx context.Context, op, key string) (bool, error) {
	c := &call{op: op, key: key, method: methodRange}
	r, err := s.fetch(ctx, c, &pb.RangeRequest{Key: []byte(s.records + key), CountOnly: true}, overhead)
	if err != nil {
		return false, err
	}
	return r.Count > 0, nil
}

// List yields keys in byte order. Each page is a linearizable read of its own
// (ST6).
func (s *Store) List(ctx context.Context, prefix, after string) iter.Seq2[string, error] {
	const op = "list"
	return func(yield func(string, error) bool) {
		from, end := s.records+prefix, rangeEnd(s.records+prefix)
		if after >= prefix {
			from = s.records + after + "\x00"
		}
		for more := true; more; {
			if err := s.alive(ctx, op, prefix); err != nil {
				yield("", err)
				return
			}
			if from >= end {
				return
			}
			c := &call{op: op, key: prefix, method: methodRange}
			r, err := s.fetch(ctx, c, &pb.RangeRequest{Key: []byte(from), RangeEnd: []byte(end), KeysOnly: true, Limit: pageKeys}, pageBytes)
			if err != nil {
				yield("", err)
				return
			}
			for _, kv := range r.Kvs {
				if string(kv.Key) < from || string(kv.Key) >= end {
					yield("", store.Errorf(store.ErrCorrupt, s.identity, op, prefix, "the listing holds a key outside of its range"))
					return
				}
				from = string(kv.Key) + "\x00"
				if !yield(string(kv.Key[len(s.records):]), nil) {
					return
				}
			}
			more = r.More && len(r.Kvs) > 0
		}
	}
}

// rangeEnd is the first key after all that start with prefix, which is not
// empty and holds only ASCII.
func rangeEnd(prefix string) string {
	last := len(prefix) - 1
	return prefix[:last] + string([]byte{prefix[last] + 1})
}
