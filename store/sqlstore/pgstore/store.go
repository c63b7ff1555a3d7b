package pgstore

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenure-project/tenure/store"
)

const (
	// MaxBody is the largest body in bytes that the store accepts.
	MaxBody = 8 << 20

	// openLimit bounds what Open does beyond the limits of its context.
	openLimit = 30 * time.Second
	// closeGrace is how long Close waits for the server to see connections off
	// before it cuts them.
	closeGrace = time.Second
	// idleLimit is how long a connection may be unused before it is closed.
	idleLimit = 5 * time.Minute
)

// Store is a store in one table of a PostgreSQL database. All methods are safe
// for concurrent use. It implements store.Store, ConditionalDeleter, Watcher,
// Clocker, Queuer and Committer.
type Store struct {
	cfg      Config
	label    string   // names the place in messages
	place    string   // how it was found: hosts, database and table
	identity string   // names it to machines
	secrets  []string // what no message may hold
	sql      statements
	can      store.Power

	stop    context.Context // ends when Close begins
	stopNow context.CancelFunc
	wires   *wires
	pool    *pgxpool.Pool
	running sync.WaitGroup // the goroutines of listener and line
	hub     *hub
	line    *line

	closing sync.Once
	closed  error
}

var (
	_ store.Store              = (*Store)(nil)
	_ store.ConditionalDeleter = (*Store)(nil)
	_ store.Watcher            = (*Store)(nil)
	_ store.Clocker            = (*Store)(nil)
	_ store.Queuer             = (*Store)(nil)
	_ store.Committer          = (*Store)(nil)
)

// Open opens the store that cfg names. It makes the tables if they are absent
// and the user may. It refuses a server or a table on which an acknowledged
// write would not be durable with ErrInvalid (ST16), missing rights with
// ErrDenied, and a standby with ErrUnavailable. ctx bounds the opening only,
// which takes 30 seconds at most.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if err := store.CtxErr(ctx, scheme, opOpen, ""); err != nil {
		return nil, err
	}
	cfg.Pool = cfg.Pool.Copy()
	cc := cfg.Pool.ConnConfig
	s := &Store{
		cfg:     cfg,
		label:   fmt.Sprintf("%s:%s:%d/%s/%s.%s", scheme, cc.Host, cc.Port, cc.Database, cfg.Schema, cfg.Table),
		secrets: secretsOf(cc.Password),
		sql:     newStatements(cfg.Schema, cfg.Table, cfg.queueTable()),
	}
	s.stop, s.stopNow = context.WithCancel(context.Background())
	s.wires = newWires(s.stop, cc.DialFunc)
	s.hub, s.line = newHub(s), newLine(s)
	s.configure(cfg.Pool)
	var err error
	if s.pool, err = pgxpool.NewWithConfig(context.WithoutCancel(ctx), cfg.Pool); err != nil {
		s.stopNow()
		return nil, s.failed(ctx, request{op: opOpen}, err)
	}
	limited, cancel := context.WithTimeout(ctx, openLimit)
	defer cancel()
	if err := s.setUp(limited); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// secretsOf leaves out what is too short to be told from ordinary text.
func secretsOf(password string) []string {
	if len(password) < 4 {
		return nil
	}
	return []string{password}
}

// configure puts the store's hooks into a pool's configuration.
func (s *Store) configure(p *pgxpool.Config) {
	cc := p.ConnConfig
	cc.DialFunc = s.wires.dialTracked
	cc.OnNotice = notice
	cc.OnNotification = nil
	cc.OnPgError = func(_ *pgconn.PgConn, e *pgconn.PgError) bool { return !fatal(e) }
	if cc.RuntimeParams["application_name"] == "" {
		cc.RuntimeParams["application_name"] = "tenure"
	}
	p.MinConns, p.MinIdleConns = 0, 0
	p.MaxConnIdleTime = min(p.MaxConnIdleTime, idleLimit)
	// A ping would be a second round trip; a look at the socket costs none.
	p.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	p.PrepareConn = func(_ context.Context, c *pgx.Conn) (bool, error) { return fresh(c), nil }
}

// Info describes the store (ST14).
func (s *Store) Info() store.Info {
	return store.Info{Scheme: scheme, Identity: s.identity, Place: s.place, Driver: "pgstore/1", Can: s.can, MaxBody: MaxBody}
}

// Close ends the calls in flight, leaves the waiting lines and closes the
// connections, within about a second also if the server hangs. It may be called
// again.
func (s *Store) Close() error {
	s.closing.Do(func() {
		s.end()
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.running.Wait()
			s.pool.Close()
		}()
		grace := time.NewTimer(closeGrace)
		defer grace.Stop()
		select {
		case <-done:
		case <-grace.C:
		}
		s.wires.cutAll()
		limit := time.NewTimer(closeGrace)
		defer limit.Stop()
		select {
		case <-done:
		case <-limit.C:
			s.closed = store.Errorf(store.ErrUnavailable, s.label, "close", "", "a call did not end")
		}
	})
	return s.closed
}

// end lets no goroutine start from here on.
func (s *Store) end() {
	s.line.mu.Lock()
	defer s.line.mu.Unlock()
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	s.stopNow()
}
