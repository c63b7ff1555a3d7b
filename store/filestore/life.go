//go:build linux || darwin

package filestore

import (
	"errors"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenure-project/tenure/store"
)

// life is an open directory of one key: the key from one Create to one Delete.
// Everything is done relative to the open directory, so a caller that slept
// touches the life that it looked at and never a later one of the same key.
//
// A life is
//
//	alive  while it holds the file "life" and its highest state is a record;
//	over   once its highest state is a tombstone: nothing is linked after it;
//	dead   once "life" is gone, for ever, whatever else the directory holds.
//
// See verify.go for why a writer that slept does no harm.
type life struct {
	key string
	fd  int
}

// state is an open state file, its header read.
type state struct {
	header
	fd       int
	file     file
	unsynced bool // its writer may not have synced the directory yet
	stat     unix.Stat_t
}

// openLife opens the directory of key's life; nil if there is none.
func (s *Store) openLife(key string) (*life, error) {
	fd, err := openDir(s.rootFD, lifePath(key))
	switch {
	case err == unix.ENOENT:
		return nil, nil
	case err != nil:
		return nil, fault("open", s.lifeDir(key), err)
	}
	return &life{key: key, fd: fd}, nil
}

func (l *life) close() { closeFD(l.fd) }

func (s *Store) lifeDir(key string) string { return filepath.Join(s.root, lifePath(key)) }

// numbers lists the life at one instant: its state numbers in ascending order,
// and whether it is not dead.
func (s *Store) numbers(l *life) (numbers []uint64, living bool, err error) {
	names, err := s.names(l.fd)
	if err != nil {
		return nil, false, fault("list", s.lifeDir(l.key), err)
	}
	for _, name := range names {
		if n, ok := numberOf(name); ok {
			numbers = append(numbers, n)
		}
		living = living || name == lifeName
	}
	slices.Sort(numbers)
	return numbers, living, nil
}

// head opens the highest state of a life; nil if the life is dead. The caller
// closes it.
func (s *Store) head(l *life) (*state, error) {
	for {
		numbers, living, err := s.numbers(l)
		if err != nil || !living {
			return nil, err
		}
		if len(numbers) == 0 {
			return nil, s.damaged(l.key, "it holds no state", nil)
		}
		st, err := s.openState(l, numbers[len(numbers)-1])
		if errors.Is(err, unix.ENOENT) {
			continue // two writers were faster, and the second tidied up
		}
		return st, err
	}
}

// openState opens one state and reads its header.
func (s *Store) openState(l *life, n uint64) (*state, error) {
	name := numberName(n)
	fd, err := openat(l.fd, name, unix.O_RDONLY, 0)
	if err != nil {
		return nil, fault("open", filepath.Join(s.lifeDir(l.key), name), err)
	}
	st, err := s.readHeader(l.key, n, fd)
	if err != nil {
		closeFD(fd)
		return nil, err
	}
	return st, nil
}

func (s *Store) readHeader(key string, n uint64, fd int) (*state, error) {
	name := numberName(n)
	stat, err := statOf(fd)
	if err != nil {
		return nil, fault("stat", filepath.Join(s.lifeDir(key), name), err)
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, s.damaged(key, name+" is not a file", nil)
	}
	line, err := readAt(fd, 0, min(stat.Size, maxHeader))
	if err != nil {
		return nil, fault("read", filepath.Join(s.lifeDir(key), name), err)
	}
	h, err := parseHeader(line, key, n)
	if err != nil {
		return nil, s.damaged(key, name, err)
	}
	if h.size+h.length != stat.Size {
		return nil, s.damaged(key, name+" has not the length that it says", nil)
	}
	return &state{header: h, fd: fd, file: fileOf(stat), unsynced: stat.Nlink > 1, stat: stat}, nil
}

func (st *state) close() { closeFD(st.fd) }

// body reads and verifies what the state holds.
func (s *Store) body(st *state) ([]byte, error) {
	body, err := readAt(st.fd, st.size, st.length)
	if err != nil {
		return nil, fault("read", filepath.Join(s.lifeDir(st.key), numberName(st.number)), err)
	}
	if !st.matches(body) {
		return nil, s.damaged(st.key, numberName(st.number)+" does not match its checksum", nil)
	}
	return body, nil
}

// readAt reads n bytes, or as many as there are.
func readAt(fd int, off, n int64) ([]byte, error) {
	buf := make([]byte, n)
	got := 0
	for got < len(buf) {
		k, err := unix.Pread(fd, buf[got:], off+int64(got))
		switch {
		case err == unix.EINTR:
		case err != nil:
			return nil, err
		case k == 0:
			return buf[:got], nil
		default:
			got += k
		}
	}
	return buf, nil
}

// damaged is the error of a record that cannot be right, or is too new.
func (s *Store) damaged(key, what string, cause error) error {
	kind := store.ErrCorrupt
	if errors.Is(cause, errNewerFormat) {
		kind = store.ErrNewer
	}
	return &store.Error{Kind: kind, Store: s.identity, Op: "read", Key: key,
		Detail: "the record in " + s.lifeDir(key) + " cannot be right: " + what, Cause: cause}
}

// settle makes sure that what a reader is about to be told outlives a power
// cut. A state's writer removes the second name of the file only after it has
// synced the directory, so a file that has one name is durable.
func (s *Store) settle(l *life, st *state) error {
	if !st.unsynced {
		return nil
	}
	if err := s.sync(l.fd); err != nil {
		return fault("sync", s.lifeDir(l.key), err)
	}
	if st.number == 1 {
		if err := s.parents.settle(l.key); err != nil {
			return err
		}
	}
	if time.Since(modTime(st.stat)) > keepFor { // its writer was killed
		_ = s.unlink(s.tmpFD, st.nonce)
	}
	return nil
}

// sweepNumbers unlinks state files by rule R of verify.go: in ascending order
// and each only after it saw that the one before is gone. It stops at the first
// that it must leave.
//
// A caller may have slept, so that its numbers were linked anew in between by a
// writer that slept too. That is harmless below the two highest, which is where
// tidying keeps, and in a dead life, which nobody reads.
func (s *Store) sweepNumbers(l *life, numbers []uint64) error {
	for _, n := range numbers {
		if n > 1 {
			if _, err := lstatAt(l.fd, numberName(n-1)); err == nil {
				return nil // a writer that slept put it there: list again
			} else if err != unix.ENOENT {
				return fault("stat", s.lifeDir(l.key)+"/"+numberName(n-1), err)
			}
		}
		if err := s.unlink(l.fd, numberName(n)); err != nil && err != unix.ENOENT {
			return fault("unlink", s.lifeDir(l.key)+"/"+numberName(n), err)
		}
	}
	return nil
}
