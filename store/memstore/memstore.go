// Package memstore keeps records in the memory of one process.
//
// It is the reference driver: the whole contract of package store, every
// optional power but the proof of death, and no I/O. Use it in tests, in
// simulations and for leases among goroutines. Nothing outlives the last
// handle, so "acknowledged" means "visible" here and no more.
//
// It reads time from package time and waits on channels only, without holding
// a lock, so that it can be used inside a testing/synctest bubble.
package memstore

import (
	"context"
	"crypto/rand"
	"iter"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tenure-project/tenure/store"
)

// MaxBody is the largest body in bytes that the store accepts.
const MaxBody = 8 << 20

// pageSize is how many keys a listing copies each time it takes the lock.
const pageSize = 512

// Store is a handle to a place in memory. All methods are safe for concurrent
// use. It implements store.Store, ConditionalDeleter, Watcher, Clocker, Queuer
// and Committer.
type Store struct {
	place  *place
	closed chan struct{}
	once   sync.Once
}

// place is what all handles of one store share. Invariants, all under mu:
//
//	M1  keys holds exactly the keys of entries;
//	M2  last is at least every version ever given out, so none comes back;
//	M3  a line in lines has at least one ticket, a watch in watches at least
//	    one waiter.
type place struct {
	identity string
	start    time.Time

	mu      sync.Mutex
	entries map[string]entry
	keys    index
	last    uint64
	watches map[string]*watch
	lines   map[string]*line
}

type entry struct {
	body     []byte
	version  store.Version
	modified time.Time
}

var (
	_ store.Store              = (*Store)(nil)
	_ store.ConditionalDeleter = (*Store)(nil)
	_ store.Watcher            = (*Store)(nil)
	_ store.Clocker            = (*Store)(nil)
	_ store.Queuer             = (*Store)(nil)
	_ store.Committer          = (*Store)(nil)
)

// New makes an empty store that nothing else can reach.
func New() *Store {
	return &Store{
		closed: make(chan struct{}),
		place: &place{
			identity: "mem:" + strings.ToLower(rand.Text()[:10]),
			start:    time.Now(),
			entries:  map[string]entry{},
			watches:  map[string]*watch{},
			lines:    map[string]*line{},
		},
	}
}

// Peer returns another handle to the same place, as another process would open
// it: closing one leaves the other alone, and gives up only its own places in
// the waiting lines.
func (s *Store) Peer() *Store {
	return &Store{place: s.place, closed: make(chan struct{})}
}

// Driver opens `mem:` URLs. Each Open makes a fresh, private store; a name
// after the colon is ErrInvalid, because two opens could not share it: pass the
// Store value itself, or its Peer.
func Driver() store.Driver {
	return store.Driver{Scheme: "mem", Open: func(ctx context.Context, u *url.URL) (store.Store, error) {
		if err := store.CtxErr(ctx, "mem", "open", ""); err != nil {
			return nil, err
		}
		if err := store.CheckParams(u); err != nil {
			return nil, err
		}
		if u.Host != "" || u.Path != "" || u.Opaque != "" || u.User != nil || u.Fragment != "" {
			return nil, store.Errorf(store.ErrInvalid, "mem", "open", "",
				"the URL must be just \"mem:\": every open makes a store of its own, so a name could not be shared")
		}
		return New(), nil
	}}
}

// Info describes the store.
func (s *Store) Info() store.Info {
	return store.Info{
		Scheme:     "mem",
		Identity:   s.place.identity,
		Driver:     "memstore/1",
		Can:        store.CanDeleteIf | store.CanWatch | store.CanClock | store.CanQueue | store.CanModTime | store.CanCommit,
		MaxBody:    MaxBody,
		SingleHost: true,
	}
}

// Get returns the present state of key (ST3, ST7).
func (s *Store) Get(ctx context.Context, key string, limit int) (store.Object, error) {
	const op = "get"
	if err := s.check(ctx, op, key, nil); err != nil {
		return store.Object{}, err
	}
	p := s.place
	p.mu.Lock()
	e, ok := p.entries[key]
	p.mu.Unlock()
	if !ok {
		return store.Object{}, s.fail(store.ErrNotFound, op, key, "")
	}
	if len(e.body) > limit {
		return store.Object{}, store.Errorf(store.ErrCorrupt, p.identity, op, key,
			"the body has %d bytes, the caller accepts %d", len(e.body), limit)
	}
	// An entry's body is never changed in place, so it can be copied unlocked.
	return store.Object{Body: slices.Clone(e.body), Version: e.version, Modified: e.modified}, nil
}

// Create stores body only if key is absent (ST1).
func (s *Store) Create(ctx context.Context, key string, body []byte) (store.Version, error) {
	const op = "create"
	if err := s.check(ctx, op, key, body); err != nil {
		return "", err
	}
	body = slices.Clone(body)
	p := s.place
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.entries[key]; ok {
		return "", s.fail(store.ErrExists, op, key, "")
	}
	p.keys.insert(key)
	return p.put(key, body), nil
}

// Replace stores body only if key is at exactly version v (ST2).
func (s *Store) Replace(ctx context.Context, key string, body []byte, v store.Version) (store.Version, error) {
	const op = "replace"
	if err := s.check(ctx, op, key, body); err != nil {
		return "", err
	}
	body = slices.Clone(body)
	p := s.place
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := s.at(op, key, v); err != nil {
		return "", err
	}
	return p.put(key, body), nil
}

// Delete removes key; an absent key is a success (ST5).
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := s.check(ctx, "delete", key, nil); err != nil {
		return err
	}
	s.place.mu.Lock()
	defer s.place.mu.Unlock()
	if _, ok := s.place.entries[key]; ok {
		s.place.remove(key)
	}
	return nil
}

// DeleteIf removes key if it is at version v (ST5).
func (s *Store) DeleteIf(ctx context.Context, key string, v store.Version) error {
	const op = "delete-if"
	if err := s.check(ctx, op, key, nil); err != nil {
		return err
	}
	s.place.mu.Lock()
	defer s.place.mu.Unlock()
	if err := s.at(op, key, v); err != nil {
		return err
	}
	s.place.remove(key)
	return nil
}

// List yields the keys with prefix after the key after, in byte order (ST6).
func (s *Store) List(ctx context.Context, prefix, after string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for {
			if err := s.check(ctx, "list", "", nil); err != nil {
				yield("", err)
				return
			}
			page := s.place.page(prefix, after)
			for _, key := range page {
				if !yield(key, nil) {
					return
				}
			}
			if len(page) < pageSize {
				return
			}
			after = page[len(page)-1]
		}
	}
}

// Now reads the store's clock (ST12), which no step of the wall clock moves.
func (s *Store) Now(ctx context.Context) (store.Reading, error) {
	if err := s.check(ctx, "now", "", nil); err != nil {
		return store.Reading{}, err
	}
	return store.Reading{Time: s.place.now(), Instance: s.place.identity}, nil
}

// Close ends the calls in flight on this handle and gives up its places in the
// waiting lines. It never fails, and may be called again.
func (s *Store) Close() error {
	s.once.Do(func() {
		close(s.closed)
		s.place.dropTickets(s)
	})
	return nil
}

// check is what every call does before it touches anything. An empty key is
// for calls that have none.
func (s *Store) check(ctx context.Context, op, key string, body []byte) error {
	if key != "" || op != "list" && op != "now" {
		if err := store.CheckKey(key); err != nil {
			return store.Wrap(store.ErrInvalid, s.place.identity, op, key, err)
		}
	}
	if len(body) > MaxBody {
		return store.Errorf(store.ErrInvalid, s.place.identity, op, key,
			"the body has %d bytes, at most %d are accepted", len(body), MaxBody)
	}
	return s.alive(ctx, op, key)
}

// alive is an error if the store is closed or nobody waits for the call.
func (s *Store) alive(ctx context.Context, op, key string) error {
	select {
	case <-s.closed:
		return s.fail(store.ErrUnavailable, op, key, "the store is closed")
	default:
		return store.CtxErr(ctx, s.place.identity, op, key)
	}
}

func (s *Store) fail(kind error, op, key, detail string) error {
	return store.Errorf(kind, s.place.identity, op, key, "%s", detail)
}

// at returns nil if key is at version v. Under mu.
func (s *Store) at(op, key string, v store.Version) error {
	e, ok := s.place.entries[key]
	switch {
	case !ok:
		return s.fail(store.ErrNotFound, op, key, "")
	case e.version != v:
		return store.Errorf(store.ErrConflict, s.place.identity, op, key, "it is at version %s, not %q", e.version, v)
	}
	return nil
}

// put stores body, which it owns from now on, at a version never used before.
// Under mu; key is in p.keys.
func (p *place) put(key string, body []byte) store.Version {
	p.last++
	v := store.Version(strconv.FormatUint(p.last, 10))
	p.entries[key] = entry{body: body, version: v, modified: p.now()}
	p.wakeWatchers(key)
	return v
}

// remove takes a present key away. Under mu.
func (p *place) remove(key string) {
	delete(p.entries, key)
	p.keys.remove(key)
	p.wakeWatchers(key)
}

func (p *place) page(prefix, after string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.keys.page(prefix, after, pageSize)
}

// now is the wall clock as it was when the place was made, moved on by the
// monotonic clock.
func (p *place) now() time.Time {
	return p.start.Add(time.Since(p.start)).Round(0)
}
