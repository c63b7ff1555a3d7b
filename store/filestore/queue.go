//go:build linux || darwin

package filestore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/tenure-project/tenure/store"
)

// A line is the directory .queue/<SHA-256 of the key>. A ticket in it is a file
// named by its number, on which its owner holds an exclusive flock(2): the
// kernel frees it when the owner is gone, so a ticket whose lock is free stands
// for nobody. A ticket is locked before it gets its name in line, so there is
// no instant at which a living one looks dead. Whoever removes a dead ticket
// holds its lock, so no two do, and none removes a ticket that came later.

// errNoQueue is for stores that do not declare the power.
func (s *Store) errNoQueue(op, key string) error {
	return store.Errorf(store.ErrInvalid, s.identity, op, key, "there are no waiting lines on a network file system")
}

// Enqueue joins the end of the line for key (LS9). The place is lost when the
// process ends or the store is closed.
func (s *Store) Enqueue(ctx context.Context, key string) (store.Ticket, error) {
	const op = opEnqueue
	if err := s.checkKey(op, key); err != nil {
		return nil, err
	}
	if s.network {
		return nil, s.errNoQueue(op, key)
	}
	t, err := obtain(ctx, s, op, key, s.join, (*ticket).release)
	if err != nil {
		return nil, err
	}
	if !s.hold(t) {
		t.release()
		return nil, store.Wrap(store.ErrUnavailable, s.identity, op, key, errClosed)
	}
	return t, nil
}

// Waiting reports whether anybody alive stands in line for key (LS9). It
// writes nothing.
func (s *Store) Waiting(ctx context.Context, key string) (bool, error) {
	const op = opWaiting
	if err := s.checkKey(op, key); err != nil {
		return false, err
	}
	if s.network {
		return false, s.errNoQueue(op, key)
	}
	return perform(ctx, s, op, key, func(*call) (bool, error) {
		q, err := s.openLine(key)
		if err != nil || q == nil {
			return false, err
		}
		defer q.close()
		numbers, err := q.numbers()
		if err != nil {
			return false, err
		}
		for _, n := range numbers {
			alive, err := q.alive(n, false)
			if alive || err != nil {
				return alive, err
			}
		}
		return false, nil
	})
}

// line is an open directory of tickets.
type line struct {
	s    *Store
	path string // below the root
	fd   int
}

func linePath(key string) string {
	sum := sha256.Sum256([]byte(key))
	return queueName + "/" + hex.EncodeToString(sum[:])
}

// openLine opens the line for key; nil if there is none.
func (s *Store) openLine(key string) (*line, error) {
	if err := s.checkRoot(); err != nil {
		return nil, err
	}
	q := &line{s: s, path: linePath(key)}
	var err error
	switch q.fd, err = openDir(s.rootFD, q.path); err {
	case nil:
		return q, nil
	case unix.ENOENT:
		return nil, nil
	}
	return nil, fault("open", q.full(""), err)
}

// makeLine opens the line for key, and makes it if there is none. It is nil if
// somebody removed the empty line at that moment.
func (s *Store) makeLine(key string) (*line, error) {
	q, err := s.openLine(key)
	if err != nil || q != nil {
		return q, err
	}
	all, err := s.ensureDir(queueName)
	if err != nil {
		return nil, err
	}
	defer closeFD(all)
	if err := s.mkdir(s.rootFD, linePath(key), s.modes); err != nil && err != unix.EEXIST {
		return nil, fault("mkdir", filepath.Join(s.root, linePath(key)), err)
	}
	return s.openLine(key)
}

func (q *line) close() { closeFD(q.fd) }

func (q *line) full(name string) string { return filepath.Join(q.s.root, q.path, name) }

// numbers are the tickets in line, in ascending order.
func (q *line) numbers() ([]uint64, error) {
	names, _, err := readNames(q.fd)
	if err != nil {
		return nil, fault("list", q.full(""), err)
	}
	var numbers []uint64
	for _, name := range names {
		if n, ok := numberOf(name); ok {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}

// alive reports whether somebody holds ticket n. With clear, the ticket of
// nobody is removed.
func (q *line) alive(n uint64, clear bool) (bool, error) {
	name := numberName(n)
	fd, err := openat(q.fd, name, unix.O_RDONLY, 0)
	if err == unix.ENOENT {
		return false, nil
	}
	if err != nil {
		return false, fault("open", q.full(name), err)
	}
	defer closeFD(fd)
	held, err := lockedByOther(fd)
	if err != nil {
		return false, fault("lock", q.full(name), err)
	}
	if held || !clear {
		return held, nil
	}
	if unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) == nil {
		q.s.unlinkIfSame(q.fd, name, fd)
	}
	return false, nil
}

// lockedByOther reports whether anybody holds the exclusive lock of an open
// file. Any number may ask at once without seeing one another.
func lockedByOther(fd int) (bool, error) {
	for {
		switch err := unix.Flock(fd, unix.LOCK_SH|unix.LOCK_NB); err {
		case nil:
			return false, nil
		case unix.EWOULDBLOCK:
			return true, nil
		case unix.EINTR:
		default:
			return false, err
		}
	}
}

// unlinkIfSame unlinks name in dir if it is the open file fd. Where a rival may
// make that name anew, the caller holds what keeps it from that: the lock of a
// ticket or witness.
func (s *Store) unlinkIfSame(dir int, name string, fd int) {
	if st, err := statOf(fd); err == nil && sameAt(dir, name, fileOf(st)) {
		_ = s.unlink(dir, name)
	}
}

// lockedTemp makes a temporary file that this open descriptor has locked.
func (s *Store) lockedTemp(name string, data []byte) (int, error) {
	_, fd, err := s.writeTemp(name, data)
	if err != nil {
		return -1, err
	}
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		closeFD(fd)
		_ = s.unlink(s.tmpFD, name)
		return -1, fault("lock", s.tmpPath(name), err)
	}
	return fd, nil
}

// join takes a number behind everybody who stands in line.
func (s *Store) join(c *call) (*ticket, error) {
	tmp := randomID() + ".q"
	fd, err := s.lockedTemp(tmp, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = s.unlink(s.tmpFD, tmp) }()
	for c.abandoned().IsZero() {
		n, err := s.standInLine(c.key, tmp)
		if err != nil {
			closeFD(fd)
			return nil, err
		}
		if n > 0 {
			return &ticket{s: s, key: c.key, number: n, fd: fd, gone: make(chan struct{})}, nil
		}
	}
	closeFD(fd)
	return nil, errAbandoned
}

// standInLine gives tmp the number after the last; 0 if another was faster.
func (s *Store) standInLine(key, tmp string) (uint64, error) {
	q, err := s.makeLine(key)
	if err != nil || q == nil {
		return 0, err
	}
	defer q.close()
	last, err := q.last()
	if err != nil {
		return 0, err
	}
	switch err := s.link(s.tmpFD, tmp, q.fd, numberName(last+1)); err {
	case nil:
		return last + 1, nil
	case unix.EEXIST:
		return 0, nil
	case unix.ENOENT:
		if _, err := lstatAt(s.tmpFD, tmp); err == nil {
			return 0, nil // the line was empty and somebody removed it
		}
		return 0, fault("link", s.tmpPath(tmp), err)
	default:
		return 0, fault("link", q.full(numberName(last+1)), err)
	}
}

// last is the highest number in line, after removing the tickets of nobody from
// its end.
func (q *line) last() (uint64, error) {
	numbers, err := q.numbers()
	if err != nil {
		return 0, err
	}
	for _, n := range slices.Backward(numbers) {
		if alive, err := q.alive(n, true); alive || err != nil {
			return n, err
		}
		if _, err := lstatAt(q.fd, numberName(n)); err == nil {
			return n, nil // dead, but another process is removing it
		}
	}
	return 0, nil
}
