package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tenure-project/tenure/store"
)

// format is the level of the tables below. A program that meets a higher one
// touches nothing (ST15).
const format = 1

// openLimit bounds the set-up, which may have to wait for other processes that
// open or close the same database.
const openLimit = 10 * time.Second

// The tables. tenure_meta has one row; its counter is the highest version number
// ever given or reserved. Keys are text, which SQLite compares byte by byte.
//
// The records are in a table with row ids, beside its index of keys, and not in
// the index itself: a record of up to some 4,000 bytes is one cell of a table but
// three pieces of an index, and a change of it writes one page and not three.
const schema = `
CREATE TABLE IF NOT EXISTS tenure_meta (
	id      INTEGER PRIMARY KEY CHECK (id = 1),
	format  INTEGER NOT NULL,
	counter INTEGER NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS tenure_register (
	key      TEXT    NOT NULL PRIMARY KEY COLLATE BINARY,
	body     BLOB    NOT NULL,
	version  INTEGER NOT NULL,
	nonce    INTEGER NOT NULL,
	modified INTEGER NOT NULL
) STRICT;
INSERT INTO tenure_meta (id, format, counter) VALUES (1, 1, 0) ON CONFLICT DO NOTHING;
`

// setUp opens the writer's connection, makes what is absent, and checks that
// the database is ours and as durable as it must be.
func (s *SQLite) setUp(ctx context.Context, o options) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, openLimit)
	defer cancel()
	_, statErr := os.Stat(s.path)
	absent := errors.Is(statErr, fs.ErrNotExist)
	if absent && o.mustExist {
		return nil, badPath(s.path, "the database does not exist; check the path, or allow it to be created")
	}
	c, err := s.prepareAsync(ctx, absent)
	if err != nil {
		return nil, s.failed(opOpen, "", err)
	}
	if absent {
		if err := syncDir(filepath.Dir(s.path)); err != nil {
			_ = c.close()
			return nil, s.failed(opOpen, "", err)
		}
	}
	return c, nil
}

// prepareAsync leaves prepare to itself when ctx ends, for it may hang on a dead
// disk.
func (s *SQLite) prepareAsync(ctx context.Context, absent bool) (*conn, error) {
	type opened struct {
		c   *conn
		err error
	}
	done := make(chan opened, 1)
	go func() {
		c, err := s.prepare(ctx, absent)
		done <- opened{c, err}
	}()
	select {
	case r := <-done:
		return r.c, r.err
	case <-ctx.Done():
		go func() {
			if r := <-done; r.c != nil {
				_ = r.c.close()
			}
		}()
		return nil, context.Cause(ctx)
	}
}

// prepare opens the writer's connection. An absent file is made through a
// connection of its own, because no later one may make a file.
func (s *SQLite) prepare(ctx context.Context, absent bool) (*conn, error) {
	if absent {
		at, err := settings(s.path, syncFull, true)
		if err != nil {
			return nil, err
		}
		maker, err := s.steps(ctx, at, s.checkOwner)
		if err != nil {
			return nil, err
		}
		defer func() { _ = maker.close() }()
	}
	return s.steps(ctx, s.at, s.checkOwner, s.setMode, s.makeTables, s.checkFormat, s.notePlace)
}

// steps opens a connection and takes steps with it, each until no other
// connection is in its way.
func (s *SQLite) steps(ctx context.Context, at driver.Connector, steps ...func(*conn) error) (c *conn, err error) {
	err = whileBusy(ctx, func() (err error) { c, err = connect(at); return err })
	if err != nil {
		return nil, err
	}
	for _, step := range steps {
		if err := whileBusy(ctx, func() error { return step(c) }); err != nil {
			_ = c.close()
			return nil, err
		}
	}
	return c, nil
}

// checkOwner refuses a database with tables of another program, before anything
// in it is changed: its long transactions would hold up every lease.
func (s *SQLite) checkOwner(c *conn) error {
	var ours, others int
	err := c.row(`SELECT count(*) FILTER (WHERE name = 'tenure_meta'), count(*) FILTER (WHERE name NOT LIKE 'sqlite\_%' ESCAPE '\')
		FROM sqlite_schema`, nil, &ours, &others)
	if err != nil {
		return err
	}
	if ours == 0 && others > 0 {
		return badPath(s.path, "it is the database of another program; give the leases a file of their own")
	}
	return nil
}

// setMode switches to the write-ahead log, so that readers and the writer do
// not wait for each other, and checks what a commit is worth (ST16).
func (s *SQLite) setMode(c *conn) error {
	var mode, encoding string
	var sync int
	if err := c.row("PRAGMA journal_mode(WAL)", nil, &mode); err != nil {
		return err
	}
	if err := c.row("PRAGMA synchronous", nil, &sync); err != nil {
		return err
	}
	if err := c.row("PRAGMA encoding", nil, &encoding); err != nil {
		return err
	}
	switch {
	case !strings.EqualFold(mode, "wal"):
		return badPath(s.path, "its file system does not allow a write-ahead log (the mode stays "+mode+"); use another disk")
	case sync != 2:
		return store.Errorf(store.ErrInvalid, s.identity, opOpen, "", "synchronous is %d and not FULL", sync)
	case encoding != "UTF-8":
		return badPath(s.path, "its text encoding is "+encoding+", so its keys are not in byte order; make a new database")
	}
	return nil
}

// makeTables makes the tables where there are none. It never repairs: a counter
// that began again would give old versions anew.
func (s *SQLite) makeTables(c *conn) error {
	var tables int
	if err := c.row("SELECT count(*) FROM sqlite_schema WHERE name = 'tenure_meta'", nil, &tables); err != nil || tables > 0 {
		return err
	}
	return c.atomically(func() error { return c.script(schema) })
}

func (s *SQLite) checkFormat(c *conn) error {
	_, err := s.counter(c, opOpen)
	return err
}

// counter reads the highest version number reserved so far, and checks on the way that
// the database is still of the format that this program writes.
func (s *SQLite) counter(c *conn, op string) (int64, error) {
	var level, counter int64
	err := c.row("SELECT format, counter FROM tenure_meta WHERE id = 1", nil, &level, &counter)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return 0, store.Errorf(store.ErrCorrupt, s.identity, op, "", "tenure_meta has no row: restore the database")
	case err != nil:
		return 0, err
	case level > format:
		return 0, store.Errorf(store.ErrNewer, s.identity, op, "",
			"the database has format level %d, this program knows %d: use a newer tenure", level, format)
	case level < 1 || counter < 0:
		return 0, store.Errorf(store.ErrCorrupt, s.identity, op, "", "tenure_meta holds format %d and counter %d: restore the database", level, counter)
	}
	return counter, nil
}

// notePlace comes last: now the log and its index exist.
func (s *SQLite) notePlace(*conn) (err error) {
	s.place, err = look(s.path)
	return err
}
