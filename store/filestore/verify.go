//go:build linux || darwin

package filestore

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// A number that was linked once and is free again must not be taken for one
// that was never linked. All of this file rests on one rule that everybody who
// unlinks state files keeps:
//
//	R  The name n+1 is unlinked only by someone who saw, after n+1 had been
//	   linked, that the name n was gone.
//
// So while a file that was the highest state, or that this writer linked, is
// still there under its number, the next number has not been unlinked since.

// verify finds out whether next, which was just linked after st, was the first
// file ever to have its number; start is an instant before that link.
//
// If st's very file is still there, it was (R): this is what nearly every
// writer finds. Else this writer was held up since it looked.
func (s *Store) verify(c *call, l *life, st *state, next header, fd int, start time.Time) error {
	if !sameAt(l.fd, numberName(st.number), st.file) {
		return s.verifyLate(c, l, next, fd, start)
	}
	dir, err := statOf(l.fd)
	if err != nil {
		return s.unknown(c, "", fault("stat", s.lifeDir(c.key), err))
	}
	if sameAt(s.rootFD, lifePath(c.key), fileOf(dir)) {
		return nil
	}
	if _, err := lstatAt(l.fd, lifeName); err == unix.ENOENT {
		return nil // it was this write, and then somebody deleted the key
	}
	return s.unknown(c, s.lifeDir(c.key)+" was moved by hand", nil)
}

// verifyLate is verify for a writer that finds the state before its own gone.
//
// If its file was the first of its number, that state was unlinked because
// others went on: then the next state names this one as the one it replaced, and
// is there as long as this one is (R). Only a tombstone has no next state: that
// before it is unlinked by its own writer, or by others a grace later.
func (s *Store) verifyLate(c *call, l *life, next header, fd int, start time.Time) error {
	held := time.Since(start)
	after, err := s.openState(l, next.number+1)
	switch {
	case err == nil:
		defer after.close()
		if after.prev == next.nonce {
			return nil
		}
		return s.withdraw(c, l, next, fd)
	case !errors.Is(err, unix.ENOENT):
		return s.unknown(c, err.Error(), nil)
	}
	own, err := statOf(fd)
	if err != nil || !sameAt(l.fd, numberName(next.number), fileOf(own)) || next.kind == tombstone && held >= s.grace.clear {
		return s.unknown(c, "this process was held up for so long that the traces of what happened are gone; read again", nil)
	}
	return s.withdraw(c, l, next, fd)
}

// withdraw takes back a link that was in vain: its number had been linked
// before. Nobody reads it, for it is not the highest, or the life is dead.
func (s *Store) withdraw(c *call, l *life, next header, fd int) error {
	s.unlinkIfSame(l.fd, numberName(next.number), fd)
	return s.lost(c)
}

// awaitWriter gives the writer of a state file a moment to verify it before the
// file is unlinked: a file with two names is of a writer that is not done, or
// was killed. until is when that is over.
func (s *Store) awaitWriter(l *life, n uint64, until time.Time) {
	for {
		st, err := lstatAt(l.fd, numberName(n))
		if err != nil || st.Nlink < 2 || !time.Now().Before(until) {
			return
		}
		time.Sleep(time.Millisecond)
	}
}
