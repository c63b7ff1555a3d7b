package sqlstore

import (
	"context"
	"database/sql/driver"
	"errors"
	"net/url"
	"sync"
	"time"

	"github.com/tenure-project/tenure/store"
)

const (
	schemeSQLite = "sqlite"
	opOpen       = "open"

	// MaxBody is the largest body in bytes that the store accepts.
	MaxBody = 8 << 20

	// readers is how many reads run at once; more wait for one of them.
	readers = 4

	// closeLimit is how long Close waits for the disk.
	closeLimit = 5 * time.Second
)

// SQLite is a store in one SQLite file, for the processes of one machine. All
// methods are safe for concurrent use. It implements store.Store,
// ConditionalDeleter, Watcher, Queuer and Committer.
//
// Reads never wait for a writer. A write waits for the writers of other
// processes until its context ends; a process that was stopped inside its own
// write makes all others wait, which ends in ErrUnavailable and never in a lost
// or double grant (docs/stores/sqlite.md).
type SQLite struct {
	path     string
	identity string
	at       driver.Connector
	place    *place

	stop     context.Context // ends when Close begins
	stopNow  context.CancelFunc
	running  sync.WaitGroup   // the goroutines that own a connection
	calls    chan *write      // to the writer
	idle     chan func(*conn) // to the writer, while it has nothing to do
	readConn chan *conn       // idle readers; nil stands for one not yet opened
	changes  *changes
	line     *line

	closing sync.Once
	closed  error

	// commit runs the commit of a batch. Tests put faults here.
	commit func(do func() error) error
	// newBell makes what tells of other processes' writes. Tests in virtual time
	// do without, for a goroutine that listens to the kernel stops its clock.
	newBell func() *bell
}

var (
	_ store.Store              = (*SQLite)(nil)
	_ store.ConditionalDeleter = (*SQLite)(nil)
	_ store.Watcher            = (*SQLite)(nil)
	_ store.Queuer             = (*SQLite)(nil)
	_ store.Committer          = (*SQLite)(nil)
)

// Option changes how a SQLite store is opened.
type Option func(*options)

type options struct{ mustExist bool }

// MustExist makes it an error that the database file does not exist yet, so
// that a misspelt path does not become a second, empty world.
func MustExist() Option { return func(o *options) { o.mustExist = true } }

// Driver opens `sqlite:` URLs: "sqlite:///abs/path.db" or "sqlite:path.db". The
// parameter "create=no" is MustExist (UI4).
func Driver() store.Driver {
	return store.Driver{Scheme: schemeSQLite, Open: openURL}
}

func openURL(ctx context.Context, u *url.URL) (store.Store, error) {
	if err := store.CheckParams(u, "create"); err != nil {
		return nil, err
	}
	path, err := urlPath(u)
	if err != nil {
		return nil, err
	}
	var opts []Option
	switch create := u.Query().Get("create"); create {
	case "", "yes":
	case "no":
		opts = append(opts, MustExist())
	default:
		return nil, store.Errorf(store.ErrInvalid, schemeSQLite, opOpen, "", "create=%q: say yes or no", create)
	}
	s, err := OpenSQLite(ctx, path, opts...)
	if err != nil {
		return nil, err // not a typed nil in the interface
	}
	return s, nil
}

func urlPath(u *url.URL) (string, error) {
	if u.Host != "" || u.User != nil || u.Fragment != "" {
		return "", store.Errorf(store.ErrInvalid, schemeSQLite, opOpen, "",
			"the URL %q has a host, user or fragment; write sqlite:///absolute/path.db or sqlite:relative/path.db", u.Redacted())
	}
	if u.Opaque == "" {
		return u.Path, nil
	}
	path, err := url.PathUnescape(u.Opaque)
	if err != nil {
		return "", store.Wrap(store.ErrInvalid, schemeSQLite, opOpen, "", err)
	}
	return path, nil
}

// OpenSQLite opens the store in the database file path and makes the file if
// it is absent. The folder must exist and be on a local disk. A database of
// another program is ErrInvalid, one of a newer format ErrNewer, a damaged one
// ErrCorrupt. ctx bounds the opening only, which takes 10 seconds at most.
func OpenSQLite(ctx context.Context, path string, opts ...Option) (*SQLite, error) {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	if err := store.CtxErr(ctx, schemeSQLite, opOpen, ""); err != nil {
		return nil, err
	}
	real, err := resolvePath(path)
	if err != nil {
		return nil, err
	}
	s := &SQLite{
		path:     real,
		identity: schemeSQLite + ":" + real,
		calls:    make(chan *write),
		idle:     make(chan func(*conn)),
		readConn: make(chan *conn, readers),
		commit:   func(do func() error) error { return do() },
		newBell:  newBell,
	}
	s.stop, s.stopNow = context.WithCancel(context.Background())
	if s.at, err = settings(real, syncFull, false); err != nil {
		return nil, store.Wrap(store.ErrInvalid, s.identity, opOpen, "", err)
	}
	w, err := s.setUp(ctx, o)
	if err != nil {
		s.stopNow()
		return nil, err
	}
	for range readers {
		s.readConn <- nil
	}
	s.changes = newChanges(s)
	s.line = newLine(s)
	s.running.Go(func() { (&writer{s: s, c: w}).loop() })
	return s, nil
}

// Info describes the store (ST14).
func (s *SQLite) Info() store.Info {
	return store.Info{
		Scheme:     schemeSQLite,
		Identity:   s.identity,
		Driver:     "sqlstore-sqlite/1",
		Can:        store.CanDeleteIf | store.CanWatch | store.CanQueue | store.CanCommit,
		MaxBody:    MaxBody,
		SingleHost: true,
	}
}

// Close ends the calls in flight, leaves the waiting lines and closes the
// database. It waits a few seconds for a disk that hangs, then says so and
// leaves the rest to the end of the process. It may be called again.
func (s *SQLite) Close() error {
	s.closing.Do(func() {
		s.stopNow()
		done := make(chan error, 1)
		go func() {
			s.running.Wait()
			s.changes.close()
			var errs []error
			for range readers { // each comes back when its read is over
				if c := <-s.readConn; c != nil {
					errs = append(errs, c.close())
				}
			}
			done <- errors.Join(errs...)
		}()
		limit := time.NewTimer(closeLimit)
		defer limit.Stop()
		select {
		case err := <-done:
			if err != nil {
				s.closed = store.Wrap(store.ErrUnavailable, s.identity, "close", "", err)
			}
		case <-limit.C:
			s.closed = store.Errorf(store.ErrUnavailable, s.identity, "close", "", "the disk did not answer for %v; a call is stuck in it", closeLimit)
		}
	})
	return s.closed
}

// check is what every call does before it touches anything.
func (s *SQLite) check(ctx context.Context, op, key string, body []byte) error {
	if err := store.CheckKey(key); err != nil {
		return store.Wrap(store.ErrInvalid, s.identity, op, key, err)
	}
	if len(body) > MaxBody {
		return store.Errorf(store.ErrInvalid, s.identity, op, key, "the body has %d bytes, at most %d are accepted", len(body), MaxBody)
	}
	return s.alive(ctx, op, key)
}

// alive is an error if the store is closed or nobody waits for the call.
func (s *SQLite) alive(ctx context.Context, op, key string) error {
	if s.stop.Err() != nil {
		return s.errClosed(op, key)
	}
	return store.CtxErr(ctx, s.identity, op, key)
}

func (s *SQLite) errClosed(op, key string) error {
	return store.Errorf(store.ErrUnavailable, s.identity, op, key, "the store is closed")
}

// failed makes the error of a call that certainly had no effect.
func (s *SQLite) failed(op, key string, cause error) error {
	var known *store.Error
	if errors.As(cause, &known) {
		e := *known
		e.Op = op
		if key != "" {
			e.Key = key
		}
		return &e
	}
	kind := kindOf(s.path, cause)
	e := store.Wrap(kind, s.identity, op, key, cause)
	e.Detail = detailOf(s.path, kind)
	if isBusy(cause) {
		e.Detail = "another process is in the middle of a write; if it was stopped, continue or end it"
	}
	return e
}

// connect opens one more connection to the very file that the store opened.
func (s *SQLite) connect() (*conn, error) {
	c, err := connect(s.at)
	if err != nil {
		return nil, err
	}
	if err := s.inPlace(opOpen, ""); err != nil {
		_ = c.close()
		return nil, err
	}
	return c, nil
}

// inPlace is an error if the database was moved or replaced.
func (s *SQLite) inPlace(op, key string) error {
	e := s.place.moved()
	if e == nil {
		return nil
	}
	e.Store, e.Op, e.Key = s.identity, op, key
	return e
}
