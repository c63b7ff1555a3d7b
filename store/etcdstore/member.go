package etcdstore

import (
	"context"
	"errors"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/tenure-project/tenure/store"
)

// membership is an etcd lease that this store keeps alive while it has tickets.
type membership struct {
	id      int64
	granted time.Time
	end     context.CancelFunc
}

func isLeaseGone(err error) bool {
	return errors.Is(rpctypes.Error(causeOf(err)), rpctypes.ErrLeaseNotFound)
}

// causeOf is the cluster's answer behind an error of this store.
func causeOf(err error) error {
	var e *store.Error
	if errors.As(err, &e) && e.Cause != nil {
		return e.Cause
	}
	return err
}

// join returns the lease of this store, a new one if there is none.
func (q *queue) join(ctx context.Context, op, key string) (*membership, error) {
	select {
	case q.granting <- struct{}{}:
		defer func() { <-q.granting }()
	case <-ctx.Done():
		return nil, store.CtxErr(ctx, q.s.identity, op, key)
	case <-q.s.stop.Done():
		return nil, q.s.errClosed(op, key)
	}
	q.mu.Lock()
	m := q.lease
	q.mu.Unlock()
	if m != nil {
		return m, nil
	}
	asked := time.Now()
	c := &call{op: op, key: key, method: methodGrant}
	r, err := send(ctx, q.s, c, func(ctx context.Context) (*pb.LeaseGrantResponse, error) {
		return q.remote.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: int64(q.ttl / time.Second)}, grpc.MaxCallRecvMsgSize(overhead))
	})
	if err != nil {
		return nil, err // a lease that was granted all the same ends by itself
	}
	life, end := context.WithCancel(q.s.stop)
	m = &membership{id: r.ID, granted: asked, end: end}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lease = m
	if !q.s.spawn(func() { q.keep(life, m) }) {
		end()
		q.lease = nil
		return nil, q.s.errClosed(op, key)
	}
	return m, nil
}

// forget lets go of a lease that is gone, or not needed.
func (q *queue) forget(m *membership) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.lease == m {
		q.lease = nil
	}
	m.end()
}

// keep pings for m until it is gone or nobody needs it.
func (q *queue) keep(ctx context.Context, m *membership) {
	defer m.end()
	alive, needed := m.granted, time.Now()
	for ctx.Err() == nil {
		err := q.ping(ctx, m, &alive, &needed)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errIdle):
			q.forget(m)
			q.revoke(m)
			return
		case errors.Is(err, errLeaseGone) || time.Since(alive) > q.ttl:
			q.forget(m)
			return
		}
		sleep(ctx, sweepPause)
	}
}

var (
	errIdle      = errors.New("the lease is not needed")
	errLeaseGone = errors.New("the lease is gone")
)

// ping opens a stream and sends signs of life on it until one fails.
func (q *queue) ping(ctx context.Context, m *membership, alive, needed *time.Time) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watchdog := time.AfterFunc(q.ttl, cancel)
	defer watchdog.Stop()
	stream, err := q.remote.LeaseKeepAlive(clientv3.WithRequireLeader(ctx))
	if err != nil {
		return err
	}
	for {
		if q.busy() {
			*needed = time.Now()
		} else if time.Since(*needed) > memberIdle {
			return errIdle
		}
		watchdog.Reset(q.ttl)
		sent := time.Now()
		if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: m.id}); err != nil {
			_, err = stream.Recv()
			return err
		}
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		if r.TTL <= 0 {
			return errLeaseGone
		}
		*alive = sent
		watchdog.Stop()
		if sleep(ctx, q.ttl/4); ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// busy reports whether a ticket stands in line or is to be removed.
func (q *queue) busy() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.lines)+len(q.leaving) > 0
}

// revoke ends a lease, and with it all its tickets.
func (q *queue) revoke(m *membership) {
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	// Not bound to the store's end: this is part of it. If it fails, the lease
	// ends by itself.
	_, _ = q.remote.LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: m.id}, grpc.MaxCallRecvMsgSize(overhead))
}

// abandon leaves all lines, at the end of the store.
func (q *queue) abandon() {
	q.mu.Lock()
	m := q.lease
	q.lease = nil
	q.mu.Unlock()
	if m != nil {
		q.revoke(m)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
