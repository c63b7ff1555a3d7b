//go:build linux || darwin

package filestore

import (
	"path"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenure-project/tenure/store"
)

const (
	// keepFor is how long a state stays whose writer is not done.
	keepFor = time.Second
	// keepMost bounds how many states a key keeps for such writers.
	keepMost = 128
)

// tidy unlinks the states of a life that nobody needs any more. highest was
// just linked; it and the one before stay in any case, so that a reader who
// chose the highest from a listing finds it. What cannot be unlinked stays for
// the next.
func (s *Store) tidy(l *life, highest uint64) {
	numbers, _, err := s.numbers(l)
	if err != nil {
		return
	}
	end, _ := slices.BinarySearch(numbers, highest-1)
	n := 0
	for n < end && (len(numbers)-n > keepMost || !s.inMaking(l, numbers[n])) {
		n++
	}
	_ = s.sweepNumbers(l, numbers[:n])
}

// inMaking reports whether the writer of state n may not be done yet: then its
// file still has its temporary name.
func (s *Store) inMaking(l *life, n uint64) bool {
	st, err := lstatAt(l.fd, numberName(n))
	return err == nil && st.Nlink > 1 && time.Since(modTime(st)) < keepFor
}

// bury empties the directory of a life that is over or dead. Any number of
// callers may do it at once and stop at any point; each step is one that is
// harmless in such a life. First the life is made dead, durably: were a state
// unlinked before that, a power cut could bring an older one to light.
func (s *Store) bury(l *life) error {
	dir := s.lifeDir(l.key)
	if err := s.unlink(l.fd, lifeName); err != nil && err != unix.ENOENT {
		return fault("unlink", dir+"/"+lifeName, err)
	}
	if err := s.sync(l.fd); err != nil {
		return fault("sync", dir, err)
	}
	return s.empty(l)
}

// empty unlinks everything in a dead life. A writer that slept may still link
// one more number, so it looks again until nothing is left.
func (s *Store) empty(l *life) error {
	until := time.Now().Add(s.grace.clear)
	for {
		names, err := s.names(l.fd)
		if err != nil || len(names) == 0 {
			return err
		}
		var numbers []uint64
		for _, name := range names {
			if n, ok := numberOf(name); ok {
				numbers = append(numbers, n)
				continue
			}
			switch err := s.unlink(l.fd, name); err {
			case nil, unix.ENOENT:
			case unix.EISDIR, unix.EPERM: // a directory, by Linux and by POSIX
				return store.Errorf(store.ErrCorrupt, s.identity, "delete", l.key,
					"the directory %s of a deleted record holds %q, which is not of this store; remove it", s.lifeDir(l.key), name)
			default:
				return fault("unlink", s.lifeDir(l.key)+"/"+name, err)
			}
		}
		slices.Sort(numbers)
		for _, n := range numbers {
			s.awaitWriter(l, n, until)
		}
		if err := s.sweepNumbers(l, numbers); err != nil {
			return err
		}
	}
}

// remove gives back what a dead life takes: its files, its directory, and the
// directories above it that became empty, but for namespaces and their kinds,
// which are few. It does what it can: whoever creates the key anew, or the
// sweep of a later Open, does the rest.
func (s *Store) remove(l *life) {
	if s.empty(l) != nil {
		return
	}
	// Whatever stands there by now, an empty directory is no living record.
	if err := s.rmdir(s.rootFD, lifePath(l.key)); err != nil && err != unix.ENOENT {
		return
	}
	dir := path.Dir(l.key)
	for ; depth(dir) > 2; dir = path.Dir(dir) {
		if s.rmdir(s.rootFD, dir) != nil {
			return
		}
	}
}

// depth counts the elements of a key's path.
func depth(dir string) int {
	if dir == "." {
		return 0
	}
	n := 1
	for _, c := range dir {
		if c == '/' {
			n++
		}
	}
	return n
}
