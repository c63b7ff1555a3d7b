//go:build linux || darwin

package filestore

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenure-project/tenure/store"
)

// Replace stores body only if key is at exactly version v (ST2).
func (s *Store) Replace(ctx context.Context, key string, body []byte, v store.Version) (store.Version, error) {
	if err := s.checkWrite("replace", key, body); err != nil {
		return "", err
	}
	body = cloneBody(body) // the caller may be gone before it is written
	return perform(ctx, s, "replace", key, func(c *call) (store.Version, error) {
		return s.advance(c, record, body, func(at store.Version) bool { return at == v })
	})
}

// DeleteIf removes key if it is at version v (ST5). It is atomic against
// Replace: both link the same next number.
func (s *Store) DeleteIf(ctx context.Context, key string, v store.Version) error {
	if err := s.checkKey("delete-if", key); err != nil {
		return err
	}
	_, err := perform(ctx, s, "delete-if", key, func(c *call) (store.Version, error) {
		return s.advance(c, tombstone, nil, func(at store.Version) bool { return at == v })
	})
	return err
}

// Delete removes key; an absent key is a success (ST5). It needs room on the
// disk for a tombstone.
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := s.checkKey("delete", key); err != nil {
		return err
	}
	_, err := perform(ctx, s, "delete", key, func(c *call) (store.Version, error) {
		for {
			v, err := s.advance(c, tombstone, nil, func(store.Version) bool { return true })
			switch {
			case errors.Is(err, store.ErrNotFound):
				return "", nil
			case !errors.Is(err, store.ErrConflict):
				return v, err
			}
		}
	})
	return err
}

// advance links the next state of the call's key, if the present one is a
// record whose version is right.
func (s *Store) advance(c *call, k kind, body []byte, right func(store.Version) bool) (store.Version, error) {
	l, st, err := s.find(c)
	if err != nil {
		return "", err
	}
	keep := false // l is still needed when this returns
	defer func() {
		if !keep {
			l.close()
		}
	}()
	defer st.close() // open until the end: no other file can pass for it meanwhile
	if at := st.version(); !right(at) {
		return "", s.fail(c, store.ErrConflict, "it is at version %s", at)
	}
	next := st.next(k, body)
	tmp, fd, err := s.writeTemp(next.nonce, append(next.line(), body...))
	if err != nil {
		return "", err
	}
	defer closeFD(fd)
	if err := s.sync(fd); err != nil {
		_ = s.unlink(s.tmpFD, tmp)
		return "", fault("sync", s.tmpPath(tmp), err)
	}
	if err := s.publish(c, l, st, next, fd); err != nil {
		if !errors.Is(err, errNotSynced) { // else the second name tells readers so
			_ = s.unlink(s.tmpFD, tmp)
		}
		return "", err
	}
	_ = s.unlink(s.tmpFD, tmp)
	if k == tombstone {
		s.remove(l)
	} else {
		keep = true
		c.tail = func() {
			defer l.close()
			s.tidy(l, next.number)
		}
	}
	return next.version(), nil
}

// errNotSynced is the cause where a change is visible but perhaps not durable.
var errNotSynced = errors.New("the change is there, but may not outlive a power cut")

// publish makes next the highest state, durably, if st still is. fd is next's
// file, whose name in the temporary directory is its nonce.
func (s *Store) publish(c *call, l *life, st *state, next header, fd int) error {
	// Most who come too late learn so here. It decides nothing.
	if !sameAt(l.fd, numberName(st.number), st.file) {
		return s.lost(c)
	}
	if !c.commit() {
		return errAbandoned
	}
	start := time.Now()
	name := numberName(next.number)
	if err := s.link(s.tmpFD, next.nonce, l.fd, name); err != nil && !linked(fd) {
		path := filepath.Join(s.lifeDir(c.key), name)
		if !certain(err) {
			return s.unknown(c, "", fault("link", path, err))
		}
		c.retract()
		return s.refused(c, fd, fault("link", path, err))
	}
	if err := s.verify(c, l, st, next, fd, start); err != nil {
		return err
	}
	if next.kind == tombstone {
		// From here on the life is dead, even once its files are unlinked one
		// by one. A failure leaves it over, which is as good.
		_ = s.unlink(l.fd, lifeName)
	}
	if err := s.sync(l.fd); err != nil {
		return s.unknown(c, "", errors.Join(errNotSynced, fault("sync", s.lifeDir(c.key), err)))
	}
	return nil
}

// linked reports whether a new file got its second name although the link
// failed: a network file system may answer a repeated request.
func linked(fd int) bool {
	st, err := statOf(fd)
	return err == nil && st.Nlink > 1
}

// refused says why the next number could not be linked.
func (s *Store) refused(c *call, fd int, cause error) error {
	switch {
	case errors.Is(cause, unix.EEXIST): // another write was first
		return s.lost(c)
	case errors.Is(cause, unix.ENOENT):
		if st, err := statOf(fd); err != nil || st.Nlink == 0 {
			return cause // the temporary file was taken for stale and removed
		}
		return s.fail(c, store.ErrNotFound, "it was deleted meanwhile") // and its directory too
	default:
		return cause
	}
}

// lost is the error of a write that did not happen because another did.
func (s *Store) lost(c *call) error {
	l, st, err := s.find(c)
	if err != nil {
		return err
	}
	defer l.close()
	defer st.close()
	return s.fail(c, store.ErrConflict, "it is at version %s", st.version())
}
