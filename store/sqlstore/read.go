package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"iter"
	"time"

	"github.com/tenure-project/tenure/store"
)

const (
	// pageSize is how many keys one query of a listing fetches.
	pageSize = 512

	// quickBody is the longest body in bytes that is read in the writer's goroutine.
	// A lease's record is shorter, what is longer is in no hurry.
	quickBody = 64 << 10

	queryVersion = "SELECT version, nonce FROM tenure_register WHERE key = ?"

	// queryGet takes the length from the row's header, so a body beyond the
	// limit is not read (ST7).
	queryGet = `SELECT version, nonce, modified, length(body), CASE WHEN length(body) <= ?2 THEN body END
		FROM tenure_register WHERE key = ?1`

	// queryList needs no LIKE: a key's bytes are all below 0x7f, so the keys with
	// a prefix are those from the prefix up to the prefix and that byte.
	queryList = "SELECT key FROM tenure_register WHERE key > ?1 AND key >= ?2 AND key < ?2 || char(127) ORDER BY key LIMIT ?3"
)

// outcome is that of a read.
type outcome[T any] struct {
	value T
	err   error
}

// readQuick is read for an f that is short. If the writer has nothing to do at
// this very moment, it runs f: its connection knows the pages that it wrote, which
// every other connection must read again after each commit. Whoever writes
// meanwhile waits for f; whoever reads while the writer is busy does not wait.
func readQuick[T any](ctx context.Context, s *SQLite, op, key string, f func(c *conn) (T, error)) (T, error) {
	if err := s.alive(ctx, op, key); err != nil {
		var none T
		return none, err
	}
	done := make(chan outcome[T], 1)
	select {
	case s.idle <- func(c *conn) {
		var r outcome[T]
		r.value, r.err = f(c)
		if err := s.inPlace(op, key); err != nil {
			r.err = err
		}
		done <- r
	}:
		value, err := await(ctx, s, op, key, done)
		if !isBusy(err) {
			return value, err
		}
	default:
	}
	return read(ctx, s, op, key, f)
}

// await waits for a read. If ctx ends, the caller goes and the read is left to
// itself: only the disk can keep it, and it keeps no more than one goroutine per
// connection (ST13).
func await[T any](ctx context.Context, s *SQLite, op, key string, done <-chan outcome[T]) (T, error) {
	var none T
	select {
	case r := <-done:
		if r.err != nil {
			return none, s.readFailed(ctx, op, key, r.err)
		}
		return r.value, nil
	case <-ctx.Done():
		return none, store.CtxErr(ctx, s.identity, op, key)
	case <-s.stop.Done():
		return none, s.errClosed(op, key)
	}
}

// read runs f on one of the readers' connections.
func read[T any](ctx context.Context, s *SQLite, op, key string, f func(c *conn) (T, error)) (T, error) {
	var none T
	if err := s.alive(ctx, op, key); err != nil {
		return none, err
	}
	var c *conn
	select {
	case c = <-s.readConn:
	case <-ctx.Done():
		return none, store.CtxErr(ctx, s.identity, op, key)
	case <-s.stop.Done():
		return none, s.errClosed(op, key)
	}
	done := make(chan outcome[T], 1)
	go func() {
		var r outcome[T]
		r.err = whileBusy(ctx, func() (err error) {
			if s.stop.Err() != nil {
				return s.errClosed(op, key)
			}
			if c == nil {
				if c, err = s.connect(); err != nil {
					return err
				}
			}
			r.value, err = f(c)
			return err
		})
		// Checked after the read: what was read came from the file in place.
		if err := s.inPlace(op, key); err != nil {
			r.err = err
			c.closeIfOpen() // it may be one to another file
			c = nil
		}
		s.readConn <- c
		done <- r
	}()
	return await(ctx, s, op, key, done)
}

func (s *SQLite) readFailed(ctx context.Context, op, key string, err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return store.Errorf(store.ErrNotFound, s.identity, op, key, "")
	}
	if isBusy(err) && ctx.Err() != nil {
		return store.CtxErr(ctx, s.identity, op, key)
	}
	return s.failed(op, key, err)
}

// Get returns the present state of key (ST3, ST7). It waits for no writer.
func (s *SQLite) Get(ctx context.Context, key string, limit int) (store.Object, error) {
	const op = "get"
	if err := s.check(ctx, op, key, nil); err != nil {
		return store.Object{}, err
	}
	get := func(c *conn) (store.Object, error) {
		var v version
		var modified, size int64
		var body []byte
		if err := c.row(queryGet, []any{key, limit}, &v.number, &v.nonce, &modified, &size, &body); err != nil {
			return store.Object{}, err
		}
		if size > int64(limit) {
			return store.Object{}, store.Errorf(store.ErrCorrupt, s.identity, op, key,
				"the body has %d bytes, the caller accepts %d", size, limit)
		}
		if body == nil {
			body = []byte{}
		}
		return store.Object{Body: body, Version: v.mark(), Modified: time.UnixMilli(modified)}, nil
	}
	if limit <= quickBody {
		return readQuick(ctx, s, op, key, get)
	}
	return read(ctx, s, op, key, get)
}

// List yields the keys with prefix after the key after, in byte order (ST6). No
// transaction is open while the caller looks at a page.
func (s *SQLite) List(ctx context.Context, prefix, after string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for {
			page, err := read(ctx, s, "list", "", func(c *conn) ([]string, error) { return page(c, prefix, after) })
			if err != nil {
				yield("", err)
				return
			}
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

func page(c *conn, prefix, after string) ([]string, error) {
	keys := make([]string, 0, 16)
	err := c.rows(queryList, []any{after, prefix, pageSize}, func(into func(...any) error) error {
		var key string
		if err := into(&key); err != nil {
			return err
		}
		keys = append(keys, key)
		return nil
	})
	return keys, err
}
