package etcdstore

import (
	"context"
	"crypto/rand"
	"strconv"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/tenure-project/tenure/internal/standing"
	"github.com/tenure-project/tenure/store"
)

// A line is the keys below "lines/KEY//"; no key of a record has an empty
// element, so no line lies within another. A ticket is one key, bound to the
// etcd lease of its store; the order is that of the creation revisions. When a
// process is gone or stopped, its lease ends and its tickets vanish.

const (
	// memberTTL is the life of the lease without a sign of life, in whole
	// seconds, and how long a line may be out of sight before its waiters are
	// told and do without it.
	memberTTL = 5 * time.Second
	// memberIdle is how long a lease without tickets is kept for the next one.
	memberIdle = 10 * time.Second
	// doubtLasts is longer than any server keeps a request that it has.
	doubtLasts = 30 * time.Second
)

// queue is this store's part in the waiting lines.
type queue struct {
	s      *Store
	remote pb.LeaseClient
	member string // begins the names of this store's tickets
	ttl    time.Duration

	granting chan struct{} // held by whoever asks for a lease

	mu      sync.Mutex
	number  int64
	lease   *membership // nil if there is none
	lines   map[string]*line
	leaving map[string]time.Time // keys to remove, at least once and until then
	swept   chan struct{}        // there is something to remove
	sweeps  bool                 // the sweeper runs
}

func newQueue(s *Store, ttl time.Duration) *queue {
	return &queue{
		s: s, remote: pb.NewLeaseClient(s.client.ActiveConnection()), member: rand.Text(), ttl: ttl,
		granting: make(chan struct{}, 1), lines: map[string]*line{},
		leaving: map[string]time.Time{}, swept: make(chan struct{}, 1),
	}
}

func (q *queue) linePrefix(key string) string { return q.s.lines + key + "//" }

// mine reports whether a ticket is of this store.
func (q *queue) mine(ticketKey, prefix string) bool {
	return strings.HasPrefix(ticketKey, prefix+q.member+".")
}

// Enqueue joins the end of the line for key. The line spans all processes and
// is first come, first served by the order in which the cluster took the places
// (LS9). A process that is gone or stopped is passed over 5 seconds after its
// last sign of life, or some seconds later if the cluster's leader changed.
func (s *Store) Enqueue(ctx context.Context, key string) (store.Ticket, error) {
	const op = "enqueue"
	if err := s.check(ctx, op, key, nil); err != nil {
		return nil, err
	}
	q := s.queue
	t := &ticket{q: q, key: key, place: standing.New()}
	if err := q.place(ctx, op, t); err != nil {
		return nil, err
	}
	if !q.stand(t) {
		t.Leave()
		return nil, s.errClosed(op, key)
	}
	return t, nil
}

// place makes the key of t, at the end of its line.
func (q *queue) place(ctx context.Context, op string, t *ticket) error {
	for attempt := 0; ; attempt++ {
		m, err := q.join(ctx, op, t.key)
		if err != nil {
			return err
		}
		q.mu.Lock()
		q.number++
		name := q.linePrefix(t.key) + q.member + "." + strconv.FormatInt(q.number, 10)
		q.mu.Unlock()
		c := &call{op: op, key: t.key, method: methodTxn, write: true}
		r, err := send(ctx, q.s, c, func(ctx context.Context) (*pb.TxnResponse, error) {
			return q.s.kv.Txn(ctx, &pb.TxnRequest{Compare: absent(name), Success: []*pb.RequestOp{put(name, nil, m.id)}}, grpc.MaxCallRecvMsgSize(overhead))
		})
		switch {
		case err == nil && r.Succeeded:
			q.mu.Lock()
			t.name, t.created = name, r.Header.Revision
			q.mu.Unlock()
			return nil
		case err == nil:
			return store.Errorf(store.ErrUnavailable, q.s.identity, op, t.key, "the place in line is taken")
		case isLeaseGone(err):
			q.forget(m)
			if attempt > 0 {
				return err
			}
			continue
		}
		if store.KindOf(err) == store.ErrUnknown {
			q.remove(name, doubtLasts)
			err = store.Wrap(store.ErrUnavailable, q.s.identity, op, t.key, causeOf(err))
		}
		return err
	}
}

// Waiting reports whether anybody stands in line for key, by one read. Those
// who left through this store do not count, even if their keys are still there.
func (s *Store) Waiting(ctx context.Context, key string) (bool, error) {
	const op = "waiting"
	if err := s.check(ctx, op, key, nil); err != nil {
		return false, err
	}
	q := s.queue
	prefix := q.linePrefix(key)
	q.mu.Lock()
	gone := map[string]bool{}
	for name := range q.leaving {
		if strings.HasPrefix(name, prefix) {
			gone[name] = true
		}
	}
	q.mu.Unlock()
	c := &call{op: op, key: key, method: methodRange}
	r, err := s.fetch(ctx, c, &pb.RangeRequest{
		Key: []byte(prefix), RangeEnd: []byte(rangeEnd(prefix)), KeysOnly: true, Limit: int64(len(gone)) + 1,
	}, pageBytes)
	if err != nil {
		return false, err
	}
	for _, kv := range r.Kvs {
		if !gone[string(kv.Key)] {
			return true, nil
		}
	}
	return false, nil
}

// remove sees to it that the key of a ticket goes. If its creation may still be
// under way, it is removed again and again for a while.
func (q *queue) remove(name string, doubt time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.leaving[name] = time.Now().Add(doubt)
	if !q.sweeps {
		q.sweeps = q.s.spawn(q.sweep)
	}
	poke(q.swept)
}

const (
	sweepBatch = 64 // a server takes 128 changes in one transaction by default
	sweepPause = 250 * time.Millisecond
	sweepAgain = 5 * time.Second
)

// sweep removes keys until there are none to remove.
func (q *queue) sweep() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-q.swept:
		case <-timer.C:
		case <-q.s.stop.Done():
			return // the end of the lease removes them
		}
		q.mu.Lock()
		var names []string
		for name := range q.leaving {
			if names = append(names, name); len(names) == sweepBatch {
				break
			}
		}
		q.mu.Unlock()
		ok := q.removeNow(names)
		q.mu.Lock()
		now := time.Now()
		for _, name := range names {
			if ok && !now.Before(q.leaving[name]) {
				delete(q.leaving, name)
			}
		}
		left := len(q.leaving)
		if left == 0 {
			q.sweeps = false
			q.mu.Unlock()
			return
		}
		q.mu.Unlock()
		switch {
		case !ok:
			timer.Reset(sweepPause)
		case len(names) == left: // all are in doubt
			timer.Reset(sweepAgain)
		default:
			timer.Reset(0)
		}
	}
}

// removeNow removes keys and reports whether they are gone.
func (q *queue) removeNow(names []string) bool {
	if len(names) == 0 {
		return true
	}
	ctx, cancel := context.WithTimeout(q.s.stop, q.ttl)
	defer cancel()
	t := &pb.TxnRequest{}
	for _, name := range names {
		t.Success = append(t.Success, remove(name))
	}
	c := &call{op: "leave line", method: methodTxn, write: true}
	_, err := send(ctx, q.s, c, func(ctx context.Context) (*pb.TxnResponse, error) {
		return q.s.kv.Txn(ctx, t, grpc.MaxCallRecvMsgSize(pageBytes))
	})
	return err == nil
}
