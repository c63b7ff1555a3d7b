package bench

import (
	"context"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/filestore"
	"github.com/tenure-project/tenure/store/memstore"
	"github.com/tenure-project/tenure/store/sqlstore"
)

func openMem(b *testing.B, opts ...tenure.Option) *tenure.Client {
	b.Helper()
	return client(b, memstore.New(), opts...)
}

// client opens a client on a store that something else has proven, and closes
// it at the end. What it holds then is released first.
func client(b *testing.B, st store.Store, opts ...tenure.Option) *tenure.Client {
	b.Helper()
	c, err := tenure.New(b.Context(), st, append([]tenure.Option{tenure.WithoutProbe()}, opts...)...)
	check(b, err)
	b.Cleanup(func() { _ = c.Close() })
	return c
}

// local opens a store of scheme "file" or "sqlite" at url's place.
func local(b *testing.B, url string) linedStore {
	b.Helper()
	st, _, err := tenure.OpenStore(b.Context(), url, tenure.WithDrivers(sqlstore.Driver()))
	check(b, err)
	b.Cleanup(func() { _ = st.Close() })
	return st.(linedStore)
}

// place is a fresh store that processes can share.
type place struct{ kind, url string }

func places(b *testing.B) []place {
	b.Helper()
	dir := b.TempDir()
	return []place{
		{"File", "file://" + filepath.Join(dir, "store")},
		{"SQLite", "sqlite://" + filepath.Join(dir, "leases.db")},
	}
}

func filePlace(b *testing.B) string { return places(b)[0].url }

// floor makes, twice, the durable write that the store at p cannot do without.
func (p place) floor(b *testing.B) func() {
	if p.kind == "SQLite" {
		return newSQLFloor(b).twice
	}
	return newFileFloor(b).twice
}

// linedStore is what the stores for processes of one machine can do.
type linedStore interface {
	store.Store
	store.ConditionalDeleter
	store.Watcher
	store.Queuer
}

var (
	_ linedStore = (*filestore.Store)(nil)
	_ linedStore = (*sqlstore.SQLite)(nil)
)

// counted counts what a client asks of a store.
type counted struct {
	linedStore
	reads, writes, waits atomic.Int64
}

// calls is how many calls there were of every kind.
func (c *counted) calls() int64 { return c.reads.Load() + c.writes.Load() + c.waits.Load() }

func (c *counted) Get(ctx context.Context, key string, limit int) (store.Object, error) {
	c.reads.Add(1)
	return c.linedStore.Get(ctx, key, limit)
}

func (c *counted) Create(ctx context.Context, key string, body []byte) (store.Version, error) {
	c.writes.Add(1)
	return c.linedStore.Create(ctx, key, body)
}

func (c *counted) Replace(ctx context.Context, key string, body []byte, v store.Version) (store.Version, error) {
	c.writes.Add(1)
	return c.linedStore.Replace(ctx, key, body, v)
}

func (c *counted) Watch(ctx context.Context, key string, v store.Version) error {
	c.waits.Add(1)
	return c.linedStore.Watch(ctx, key, v)
}

func (c *counted) Waiting(ctx context.Context, key string) (bool, error) {
	c.reads.Add(1)
	return c.linedStore.Waiting(ctx, key)
}

func (c *counted) Enqueue(ctx context.Context, key string) (store.Ticket, error) {
	c.writes.Add(1)
	t, err := c.linedStore.Enqueue(ctx, key)
	if err != nil {
		return nil, err
	}
	return &countedTicket{Ticket: t, c: c}, nil
}

type countedTicket struct {
	store.Ticket
	c *counted
}

func (t *countedTicket) Wait(ctx context.Context, patience time.Duration) error {
	t.c.waits.Add(1)
	return t.Ticket.Wait(ctx, patience)
}
