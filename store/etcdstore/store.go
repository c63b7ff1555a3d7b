package etcdstore

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenure-project/tenure/store"
)

// MaxBody is the largest body in bytes that the store accepts: a server takes
// requests of 1.5 MiB by default.
const MaxBody = 1<<20 - 8<<10

// closeLimit bounds how long Close waits for the waiting lines to be left.
const closeLimit = time.Second

// Store is a store in an etcd cluster. All methods are safe for concurrent use.
// It implements store.Store, ConditionalDeleter, Watcher, Queuer and Committer.
type Store struct {
	identity string
	records  string // what the keys of records start with
	lines    string // what the keys of waiting lines start with
	user     bool   // whether a user and password are given

	client *clientv3.Client
	kv     pb.KVClient

	stop    context.Context // ends when Close begins
	stopNow context.CancelFunc
	history history
	hub     *hub
	queue   *queue

	mu      sync.Mutex
	shut    bool           // no goroutine may start any more
	running sync.WaitGroup // the goroutines of this store

	closing sync.Once
	closed  error
}

var (
	_ store.Store              = (*Store)(nil)
	_ store.ConditionalDeleter = (*Store)(nil)
	_ store.Watcher            = (*Store)(nil)
	_ store.Queuer             = (*Store)(nil)
	_ store.Committer          = (*Store)(nil)
)

// Open opens the store that c describes. It takes a configuration and not a
// client, because a client cannot be told afterwards to send every call once.
// Without a user it does no I/O; with one it logs in, within ctx and
// c.Client.DialTimeout (10 seconds if 0). Bad input is ErrInvalid, a refused
// login ErrDenied, a cluster out of reach ErrUnavailable.
func Open(ctx context.Context, c Config) (*Store, error) {
	c, err := c.checked()
	if err != nil {
		return nil, err
	}
	if err := store.CtxErr(ctx, scheme, opOpen, ""); err != nil {
		return nil, err
	}
	s := &Store{
		identity: c.identity(),
		records:  c.Prefix + "/records/",
		lines:    c.Prefix + "/lines/",
		user:     c.Client.Username != "" && c.Client.Password != "",
	}
	s.stop, s.stopNow = context.WithCancel(context.Background())
	life, end := context.WithCancel(context.Background())
	unbind := context.AfterFunc(ctx, end)
	s.client, err = c.client(life)
	if err != nil {
		err = s.judge(ctx, &call{op: opOpen}, err)
		s.stopNow()
		end()
		return nil, err
	}
	if !unbind() {
		s.stopNow()
		_ = s.client.Close()
		end()
		return nil, store.CtxErr(ctx, s.identity, opOpen, "")
	}
	s.kv = pb.NewKVClient(s.client.ActiveConnection())
	s.hub = newHub(s)
	s.queue = newQueue(s, c.memberTTL)
	s.running.Go(func() {
		<-s.stop.Done()
		s.queue.abandon()
		end()
	})
	return s, nil
}

// Info describes the store (ST14).
func (s *Store) Info() store.Info {
	return store.Info{
		Scheme:   scheme,
		Identity: s.identity,
		Driver:   "etcdstore/1",
		Can:      store.CanDeleteIf | store.CanWatch | store.CanQueue | store.CanCommit,
		MaxBody:  MaxBody,
	}
}

// Close ends the calls in flight, leaves the waiting lines, for which it takes
// a second at most, and closes the connections. It may be called again.
func (s *Store) Close() error {
	s.closing.Do(func() {
		s.mu.Lock()
		s.shut = true
		s.mu.Unlock()
		s.stopNow()
		s.running.Wait()
		if err := s.client.Close(); err != nil && s.client.Ctx().Err() == nil {
			s.closed = store.Wrap(store.ErrUnavailable, s.identity, "close", "", err)
		}
	})
	return s.closed
}

// spawn runs f in a goroutine that Close waits for, unless it is too late.
func (s *Store) spawn(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shut {
		return false
	}
	s.running.Go(f)
	return true
}

// check is what every call does before it sends anything.
func (s *Store) check(ctx context.Context, op, key string, body []byte) error {
	if err := store.CheckKey(key); err != nil {
		return store.Wrap(store.ErrInvalid, s.identity, op, key, err)
	}
	if len(body) > MaxBody {
		return store.Errorf(store.ErrInvalid, s.identity, op, key, "the body has %d bytes, at most %d are accepted", len(body), MaxBody)
	}
	return s.alive(ctx, op, key)
}

// alive is an error if the store is closed, or is not to be used any more, or
// nobody waits for the call.
func (s *Store) alive(ctx context.Context, op, key string) error {
	if s.stop.Err() != nil {
		return s.errClosed(op, key)
	}
	if broken := s.history.verdict(); broken != "" {
		return store.Errorf(store.ErrCorrupt, s.identity, op, key, "%s", broken)
	}
	return store.CtxErr(ctx, s.identity, op, key)
}

func (s *Store) errClosed(op, key string) error {
	return store.Errorf(store.ErrUnavailable, s.identity, op, key, "the store is closed")
}

// history holds replies against each other. Within one history of one cluster,
// a linearizable call shows a revision at least as high as every call that
// ended before it began.
type history struct {
	cluster  atomic.Uint64
	revision atomic.Int64
	broken   atomic.Pointer[string]
}

func (h *history) verdict() string {
	if b := h.broken.Load(); b != nil {
		return *b
	}
	return ""
}
