package natsstore

import (
	"context"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tenure-project/tenure/store"
)

const (
	scheme = "nats"
	opOpen = "open"

	// overhead is what a message carries beside the body: headers, subject and
	// what a server adds on the way.
	overhead = 4 << 10

	// oldest is the first server that the driver was made for. Older ones do
	// not check a condition while another write to the key is under way.
	oldestMajor, oldestMinor = 2, 12
)

// Config says which bucket to open and how.
type Config struct {
	// Bucket is the bucket's name: letters, digits, '-' and '_'. Its stream is
	// "KV_" and this.
	Bucket string
	// Domain is the JetStream domain; empty is the account's own.
	Domain string
	// Replicas is how many servers keep the bucket: 1 to 5. 0 takes an existing
	// bucket as it is, and makes a new one with 3 in a cluster and 1 elsewhere.
	Replicas int
	// MaxBytes bounds a new bucket, for accounts that demand a bound; 0 is none.
	// A full bucket refuses writes and loses nothing.
	MaxBytes int64
	// MustExist makes it an error that the bucket does not exist yet.
	MustExist bool
	// Memory allows a bucket that is kept in memory only. It forgets all tokens
	// when its servers restart (ST16).
	Memory bool
	// LeaderReads spares a replicated bucket the write before each read. Reads
	// may then be stale for the seconds in which a deposed leader does not know
	// that it is (ST3); writes are as safe as ever.
	LeaderReads bool
}

// Store is a store in a NATS JetStream bucket. All methods are safe for
// concurrent use. It implements store.Store, ConditionalDeleter and Watcher.
type Store struct {
	w           *wire
	cfg         Config
	place       place
	info        store.Info
	fence       *fence
	hub         *hub
	inspecting  chan struct{} // holds one token for whoever inspects
	noSweep     sweepFlag
	closing     sync.Once
	replicated  bool
	judgeDelays []time.Duration
}

var (
	_ store.Store              = (*Store)(nil)
	_ store.ConditionalDeleter = (*Store)(nil)
	_ store.Watcher            = (*Store)(nil)
)

// Open opens a bucket over a connection that stays the caller's. The
// connection must have been made with nats.ReconnectBufSize(-1), or Open
// refuses it: a write that waits in the client until it is connected again
// would be sent after its caller gave it up. The store takes over the
// connection's error handler, and passes on to the one that was there; no
// other store may share the connection.
//
// A bucket that could lose records or answer stale is ErrInvalid, with what to
// change. ctx bounds the opening only.
func Open(ctx context.Context, nc *nats.Conn, cfg Config) (*Store, error) {
	return open(ctx, nc, false, cfg)
}

func open(ctx context.Context, nc *nats.Conn, own bool, cfg Config) (*Store, error) {
	bad := func(format string, args ...any) error {
		return store.Errorf(store.ErrInvalid, scheme, opOpen, "", format, args...)
	}
	if err := cfg.check(); err != nil {
		return nil, err
	}
	switch {
	case nc == nil:
		return nil, bad("the connection is nil")
	case nc.Opts.ReconnectBufSize >= 0:
		return nil, bad("the connection keeps messages while it is broken; connect with nats.ReconnectBufSize(-1)")
	case nc.Opts.UseOldRequestStyle:
		return nil, bad("the connection uses the old request style, whose replies cannot be told apart")
	case tooOld(nc.ConnectedServerVersion()):
		return nil, bad("the server is NATS %s; %d.%d or newer is needed", nc.ConnectedServerVersion(), oldestMajor, oldestMinor)
	}
	w := newWire(nc, own)
	p, err := find(ctx, w, cfg)
	if err != nil {
		w.stopNow(errClosed)
		w.nc.RemoveStatusListener(w.events)
		if !own {
			nc.SetErrorHandler(w.before)
		}
		w.running.Wait()
		return nil, err
	}
	w.identity = scheme + ":" + cfg.Bucket + "@" + p.birth()
	s := &Store{w: w, cfg: cfg, place: p, inspecting: make(chan struct{}, 1), replicated: p.replicas > 1, judgeDelays: judgeDelays}
	s.fence = &fence{s: s}
	s.hub = &hub{s: s, spaces: map[string]*space{}}
	largest := nc.MaxPayload()
	if p.maxMsg > 0 {
		largest = min(largest, p.maxMsg)
	}
	s.info = store.Info{
		Scheme: scheme, Identity: w.identity, Place: wayTo(nc, cfg), Driver: "natsstore/1",
		Can: store.CanDeleteIf | store.CanWatch, MaxBody: int(max(largest-overhead, 0)),
	}
	if p.young {
		s.settle(ctx)
	}
	return s, nil
}

// wayTo names the servers that the connection was told of, and the bucket:
// unlike the identity it stays when the bucket is lost and made anew.
func wayTo(nc *nats.Conn, cfg Config) string {
	given := nc.Opts.Servers
	if len(given) == 0 {
		given = strings.Split(nc.Opts.Url, ",")
	}
	var hosts []string
	for _, g := range given {
		if u, err := url.Parse(strings.TrimSpace(g)); err == nil && u.Host != "" {
			hosts = append(hosts, u.Host)
		}
	}
	slices.Sort(hosts)
	return scheme + "://" + strings.Join(slices.Compact(hosts), ",") + "/" + cfg.Domain + "/" + cfg.Bucket
}

func (c Config) check() error {
	bad := func(format string, args ...any) error {
		return store.Errorf(store.ErrInvalid, scheme, opOpen, "", format, args...)
	}
	plain := func(s string) bool {
		return strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == "" && len(s) <= 128
	}
	switch {
	case c.Bucket == "" || !plain(c.Bucket):
		return bad("the bucket name %q is not 1 to 128 letters, digits, '-' and '_'", c.Bucket)
	case !plain(c.Domain):
		return bad("the domain %q is not made of letters, digits, '-' and '_'", c.Domain)
	case c.Replicas < 0 || c.Replicas > 5:
		return bad("%d replicas; give 1 to 5", c.Replicas)
	case c.MaxBytes < 0:
		return bad("a largest size of %d bytes", c.MaxBytes)
	}
	return nil
}

func tooOld(version string) bool {
	major, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	a, errA := strconv.Atoi(major)
	b, errB := strconv.Atoi(minor)
	return errA == nil && errB == nil && (a < oldestMajor || a == oldestMajor && b < oldestMinor)
}

// Info describes the store (ST14).
func (s *Store) Info() store.Info { return s.info }

// Close ends the calls in flight and what was opened for the store. It may be
// called again.
func (s *Store) Close() error {
	s.closing.Do(func() {
		s.hub.close()
		s.w.close()
		s.hub.wait()
		s.fence.wait()
	})
	return nil
}

// check is what every call does before it sends anything.
func (s *Store) check(ctx context.Context, op, key string, body []byte) error {
	if err := store.CheckKey(key); err != nil {
		return store.Wrap(store.ErrInvalid, s.w.identity, op, key, err)
	}
	if len(body) > s.info.MaxBody {
		return store.Errorf(store.ErrInvalid, s.w.identity, op, key, "the body has %d bytes, at most %d are accepted", len(body), s.info.MaxBody)
	}
	return s.alive(ctx, op, key)
}

// alive is an error if the store is closed, nobody waits for the call, or the
// bucket is not the one that was opened.
func (s *Store) alive(ctx context.Context, op, key string) error {
	if s.w.stop.Err() != nil {
		return store.Wrap(store.ErrUnavailable, s.w.identity, op, key, errClosed)
	}
	if err := store.CtxErr(ctx, s.w.identity, op, key); err != nil {
		return err
	}
	if !s.w.isRenewed() {
		return nil
	}
	return s.inspect(ctx, op, key)
}

// isRenewed reports whether the connection was made anew since the bucket was
// last looked at: it may have been changed or made again meanwhile.
func (w *wire) isRenewed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.renewed
}

// inspect makes sure that the bucket is still the one that was opened and
// still fit.
func (s *Store) inspect(ctx context.Context, op, key string) error {
	select {
	case s.inspecting <- struct{}{}:
		defer func() { <-s.inspecting }()
	case <-ctx.Done():
		return store.CtxErr(ctx, s.w.identity, op, key)
	}
	s.w.mu.Lock()
	needed := s.w.renewed
	s.w.renewed = false
	s.w.mu.Unlock()
	if !needed {
		return nil
	}
	cfg := s.cfg
	cfg.MustExist = true
	p, err := find(ctx, s.w, cfg)
	switch {
	case err == nil && p.created.Equal(s.place.created) && (p.replicas > 1) == s.replicated:
		return nil
	case err == nil && !p.created.Equal(s.place.created):
		err = store.Errorf(store.ErrCorrupt, s.w.identity, op, key,
			"the bucket was deleted and made again while it was open; its tokens are lost. Stop all programs that use it, then raise the tokens above the highest one seen")
	case err == nil:
		err = store.Errorf(store.ErrInvalid, s.w.identity, op, key, "the bucket now has %d replicas; open it anew", p.replicas)
	}
	s.w.mu.Lock()
	s.w.renewed = true
	s.w.mu.Unlock()
	kind := store.KindOf(err)
	if kind == store.ErrInvalid { // not the caller's input, but what an operator can mend
		kind = store.ErrUnavailable
	}
	return store.Errorf(kind, s.w.identity, op, key, "after the connection was made anew: %v", err)
}

// failed makes the error of a call that certainly had no effect.
func (s *Store) failed(op, key string, o *outcome) error {
	return store.Wrap(o.kind, s.w.identity, op, key, o.err)
}
