package sqlstore

import (
	"context"
	"database/sql/driver"
	"errors"
	"math/rand/v2"
	"net/url"
	"time"

	"modernc.org/sqlite"

	"github.com/tenure-project/tenure/store"
)

// The waits between two tries of a step that another connection keeps busy.
// Nobody tells when a lock gets free, so a waiter looks often: a try costs a few
// microseconds, and the lock is normally held for the time of one fsync.
const (
	busyFirst = 200 * time.Microsecond
	busyMost  = 1500 * time.Microsecond
)

// conn is one connection with its prepared statements. It is used by one
// goroutine at a time and never with a context that can end: SQLite is told to
// wait for nothing, so no call of it takes longer than the disk does, and
// callers that do not want to wait for the disk leave it to its goroutine.
//
// It talks to the driver itself. A pool has nothing to do for connections that
// have one owner each, and its locks and conversions take as long as SQLite does.
type conn struct {
	c     driver.Conn
	stmts map[string]*statement
}

// sync is how durable the commits of a connection are (ST16).
type syncMode string

const (
	// syncFull: a commit is on the disk before it is acknowledged.
	syncFull syncMode = "FULL"
	// syncNormal: a commit may be lost with the power, but nothing is damaged.
	syncNormal syncMode = "NORMAL"
)

// settings make connections to the database at path, and make the file if create
// is set. Nothing is opened yet.
func settings(path string, mode syncMode, create bool) (driver.Connector, error) {
	access := "rw" // a file that was taken away must not come back empty
	if create {
		access = "rwc"
	}
	q := url.Values{"mode": {access}, "_pragma": {
		"busy_timeout(0)",
		"synchronous(" + string(mode) + ")",
		"fullfsync(1)", "checkpoint_fullfsync(1)",
		"journal_size_limit(8388608)",
		"cell_size_check(1)",
		"trusted_schema(0)",
	}}
	u := url.URL{Path: path}
	return sqlite.NewConnector("file:" + u.EscapedPath() + "?" + q.Encode())
}

// connect opens a connection.
func connect(to driver.Connector) (*conn, error) {
	c, err := to.Connect(context.Background())
	if err != nil {
		return nil, err
	}
	return &conn{c: c, stmts: map[string]*statement{}}, nil
}

// state is a number that differs after each commit that the connection made or
// came to see, by beginning a transaction; 0 if it is not known.
func (c *conn) state() uint32 {
	if control, ok := c.c.(sqlite.FileControl); ok {
		if n, err := control.FileControlDataVersion("main"); err == nil {
			return n
		}
	}
	return 0
}

// close ends the connection, whatever it is in the middle of: an open
// transaction is rolled back, and its locks are gone.
func (c *conn) close() error {
	var errs []error
	for _, s := range c.stmts {
		errs = append(errs, s.s.Close())
	}
	return errors.Join(append(errs, c.c.Close())...)
}

// closeIfOpen closes a connection that need not have been opened.
func (c *conn) closeIfOpen() {
	if c != nil {
		_ = c.close()
	}
}

// atomically runs f in one immediate transaction, for set-up and for the
// waiting line. Busy is an error; the caller tries again.
func (c *conn) atomically(f func() error) error {
	if _, err := c.exec("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	err := f()
	if err == nil {
		_, err = c.exec("COMMIT")
	}
	if err != nil {
		if _, back := c.exec("ROLLBACK"); back != nil {
			err = errors.Join(err, back)
		}
	}
	return err
}

// whileBusy repeats f until it is not refused for a lock of another connection,
// or ctx ends. Only steps that are certain to have had no effect may be passed.
func whileBusy(ctx context.Context, f func() error) error {
	for wait := busyFirst; ; wait = min(2*wait, busyMost) {
		err := f()
		if !isBusy(err) {
			return err
		}
		if !pause(ctx, wait) {
			return err
		}
	}
}

// pause waits for about d, or until ctx ends, and reports whether ctx lives.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(jitter(d))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// jitter spreads d over its two halves, so that waiters do not step in time.
func jitter(d time.Duration) time.Duration {
	return d/2 + rand.N(d)
}

// Primary result codes of SQLite that matter here (sqlite.org/rescode.html).
const (
	codePerm     = 3
	codeBusy     = 5
	codeLocked   = 6
	codeReadOnly = 8
	codeCorrupt  = 11
	codeCantOpen = 14
	codeTooBig   = 18
	codeMisuse   = 21
	codeAuth     = 23
	codeNotADB   = 26
	codeError    = 1
	codeConstr   = 19
)

// code is err's primary result code, 0 if it is no error of SQLite.
func code(err error) int {
	var e *sqlite.Error
	if errors.As(err, &e) {
		return e.Code() & 0xff
	}
	return 0
}

func isBusy(err error) bool {
	return err != nil && (code(err) == codeBusy || code(err) == codeLocked)
}

// kindOf is what a failure means that came before anything was committed:
// nothing happened (ST8).
func kindOf(path string, err error) error {
	switch code(err) {
	case codePerm, codeAuth, codeReadOnly:
		return store.ErrDenied
	case codeCantOpen:
		if denied(path) {
			return store.ErrDenied
		}
		return store.ErrUnavailable
	case codeCorrupt, codeNotADB, codeConstr, codeError:
		// Of these the last two mean that the tables are not the ones that
		// this program made.
		return store.ErrCorrupt
	case codeTooBig, codeMisuse:
		return store.ErrInvalid
	}
	return store.ErrUnavailable
}

// detailOf tells a person what to do about a failure of the kind.
func detailOf(path string, kind error) string {
	switch kind {
	case store.ErrDenied:
		return "write access to " + path + ", its -wal and -shm files and their folder is needed"
	case store.ErrCorrupt:
		return path + " is damaged or not a database of this program: stop, and restore or examine it"
	}
	return ""
}
