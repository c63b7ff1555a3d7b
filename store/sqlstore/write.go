package sqlstore

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/binary"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tenure-project/tenure/store"
)

// version is the mark of one state of a row: a number that the store gives once,
// and a random one. The number alone would come back when an operator puts an
// older copy of the database in place.
type version struct{ number, nonce int64 }

// noVersion is what a mark that this store never gave is read as; no row has it.
var noVersion = version{-1, -1}

func (v version) mark() store.Version {
	return store.Version(strconv.FormatInt(v.number, 10) + "-" + strconv.FormatInt(v.nonce, 36))
}

func parseVersion(mark store.Version) version {
	number, nonce, _ := strings.Cut(string(mark), "-")
	n, err := strconv.ParseInt(number, 10, 64)
	m, err2 := strconv.ParseInt(nonce, 36, 64)
	if v := (version{n, m}); err == nil && err2 == nil && n > 0 && v.mark() == mark {
		return v
	}
	return noVersion
}

// write is one conditional write on its way through the writer.
type write struct {
	op, key string
	apply   func(t *tx, w *write) error
	body    []byte
	at      version
	changes []change // of a commit

	state atomic.Int32 // one of the states below
	done  chan struct{}
	// The outcome, set before done is closed.
	made version
	err  error
}

// commitGrace is how long a caller whose context ended still waits for a commit
// that is under way: a healthy disk answers within it, which saves the caller
// an unknown outcome.
const commitGrace = 50 * time.Millisecond

// A write is waiting until the writer has the database's write lock, then
// either taken, after which its outcome is the commit's, or it was given up.
const (
	waiting = iota
	taken
	givenUp
)

// Create stores body only if key is absent (ST1).
func (s *SQLite) Create(ctx context.Context, key string, body []byte) (store.Version, error) {
	return s.write(ctx, &write{op: "create", key: key, body: body, apply: (*tx).create})
}

// Replace stores body only if key is at exactly version v (ST2).
func (s *SQLite) Replace(ctx context.Context, key string, body []byte, v store.Version) (store.Version, error) {
	return s.write(ctx, &write{op: "replace", key: key, body: body, at: parseVersion(v), apply: (*tx).replace})
}

// Delete removes key; an absent key is a success (ST5).
func (s *SQLite) Delete(ctx context.Context, key string) error {
	_, err := s.write(ctx, &write{op: "delete", key: key, apply: (*tx).delete})
	return err
}

// DeleteIf removes key if it is at version v (ST5).
func (s *SQLite) DeleteIf(ctx context.Context, key string, v store.Version) error {
	_, err := s.write(ctx, &write{op: "delete-if", key: key, at: parseVersion(v), apply: (*tx).deleteIf})
	return err
}

// write carries out the write of one key.
func (s *SQLite) write(ctx context.Context, w *write) (store.Version, error) {
	if err := s.check(ctx, w.op, w.key, w.body); err != nil {
		return "", err
	}
	w.body = append([]byte{}, w.body...) // the writer may outlive this call
	if err := s.submit(ctx, w); err != nil {
		return "", err
	}
	return w.made.mark(), nil
}

// submit gives w to the writer and waits for its outcome, but not longer than
// ctx lives (ST13). Once w is in a commit that nobody can stop any more, an
// ended context makes the outcome unknown (ST9). Only after a success are w's
// results the caller's to read.
func (s *SQLite) submit(ctx context.Context, w *write) error {
	w.done = make(chan struct{})
	select {
	case s.calls <- w:
	case <-ctx.Done():
		return store.CtxErr(ctx, s.identity, w.op, w.key)
	case <-s.stop.Done():
		return s.errClosed(w.op, w.key)
	}
	select {
	case <-w.done:
	case <-ctx.Done():
		if w.state.CompareAndSwap(waiting, givenUp) {
			return s.busyErr(ctx, w)
		}
		if !w.endsWithin(commitGrace) {
			e := store.Wrap(store.ErrUnknown, s.identity, w.op, w.key, context.Cause(ctx))
			e.Detail = "the commit was under way"
			return e
		}
	}
	return w.err
}

// size is how many bytes of bodies w writes.
func (w *write) size() int {
	n := len(w.body)
	for _, c := range w.changes {
		n += len(c.body)
	}
	return n
}

// endsWithin waits for the outcome, but no longer than d.
func (w *write) endsWithin(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-w.done:
		return true
	case <-t.C:
		return false
	}
}

func (s *SQLite) busyErr(ctx context.Context, w *write) error {
	e := store.Wrap(store.ErrUnavailable, s.identity, w.op, w.key, context.Cause(ctx))
	e.Detail = "the database's write lock was not free in time; if its holder was stopped, continue or end it"
	return e
}

// numbers are reserved version numbers: those above last, up to end. Each open
// store reserves a block at a time, so that an ordinary write changes one page
// of the database and not two.
type numbers struct{ last, end int64 }

// blockSize is how many numbers are reserved at once. Those that a process does
// not use are lost, which 2^63 of them can bear.
const blockSize = 1 << 20

// tx is one open transaction of the writer. Its methods change nothing unless
// their condition holds.
type tx struct {
	s        *SQLite
	c        *conn
	counter  int64 // the highest number reserved by anybody, this transaction included
	numbers  numbers
	reserved bool // this transaction reserved a block
	changed  bool
	now      int64 // milliseconds since the epoch, for people
}

// next is a version that no row ever had.
func (t *tx) next() version {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	if t.numbers.last == t.numbers.end {
		t.numbers = numbers{t.counter, t.counter + blockSize}
		t.counter, t.reserved = t.numbers.end, true
	}
	t.numbers.last++
	return version{t.numbers.last, int64(binary.LittleEndian.Uint64(b[:]) >> 1)}
}

// The statements that change rows.
const (
	execCreate   = `INSERT INTO tenure_register (key, body, version, nonce, modified) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`
	execReplace  = `UPDATE tenure_register SET body = ?, version = ?, nonce = ?, modified = ? WHERE key = ? AND version = ? AND nonce = ?`
	execDeleteIf = `DELETE FROM tenure_register WHERE key = ? AND version = ? AND nonce = ?`
)

func (t *tx) create(w *write) error {
	v := t.next()
	n, err := t.c.exec(execCreate, w.key, w.body, v.number, v.nonce, t.now)
	if err == nil && n == 0 {
		err = store.Errorf(store.ErrExists, t.s.identity, w.op, w.key, "")
	}
	return t.wrote(w, v, err)
}

func (t *tx) replace(w *write) error {
	v := t.next()
	n, err := t.c.exec(execReplace, w.body, v.number, v.nonce, t.now, w.key, w.at.number, w.at.nonce)
	if err == nil && n == 0 {
		err = t.whyNot(w)
	}
	return t.wrote(w, v, err)
}

func (t *tx) delete(w *write) error {
	n, err := t.c.exec(`DELETE FROM tenure_register WHERE key = ?`, w.key)
	if err == nil && n == 0 {
		return nil // it is absent: nothing to commit
	}
	return t.wrote(w, version{}, err)
}

func (t *tx) deleteIf(w *write) error {
	n, err := t.c.exec(execDeleteIf, w.key, w.at.number, w.at.nonce)
	if err == nil && n == 0 {
		err = t.whyNot(w)
	}
	return t.wrote(w, version{}, err)
}

func (t *tx) wrote(w *write, v version, err error) error {
	if err == nil {
		w.made, t.changed = v, true
	}
	return err
}

// whyNot says why a condition on a version did not hold.
func (t *tx) whyNot(w *write) error {
	var there version
	err := t.c.row(queryVersion, []any{w.key}, &there.number, &there.nonce)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return store.Errorf(store.ErrNotFound, t.s.identity, w.op, w.key, "")
	case err != nil:
		return err
	}
	return store.Errorf(store.ErrConflict, t.s.identity, w.op, w.key, "it is at version %s", there.mark())
}

// refusal tells a condition that did not hold from a failure.
func refusal(err error) bool {
	return errors.Is(err, store.ErrExists) || errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrNotFound)
}

// nowMillis stamps rows for people who look at them. Nothing is decided by it.
func nowMillis() int64 { return time.Now().UnixMilli() }
