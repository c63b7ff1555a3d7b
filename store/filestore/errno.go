//go:build linux || darwin

package filestore

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/tenure-project/tenure/store"
)

// fault is a failed system call: what was tried on which path.
func fault(doing, path string, err error) error {
	return &fs.PathError{Op: doing, Path: path, Err: err}
}

// explain gives a worker's error its kind. An error that has one keeps it; an
// error of the operating system says that nothing happened, for a step that
// may have taken effect is never reported bare.
func (s *Store) explain(op, key string, err error) error {
	if err == nil {
		return nil
	}
	var done *store.Error
	if errors.As(err, &done) {
		return err
	}
	detail, kind := s.kindOf(err)
	return &store.Error{Kind: kind, Store: s.identity, Op: op, Key: key, Detail: detail, Cause: err}
}

func (s *Store) kindOf(err error) (detail string, kind error) {
	var errno unix.Errno
	if !errors.As(err, &errno) {
		return "", store.ErrUnavailable
	}
	switch errno {
	case unix.EACCES, unix.EPERM:
		return "this process lacks the right to do that in " + s.root + "; it needs to read, write and search the directory", store.ErrDenied
	case unix.EROFS:
		return "the file system of " + s.root + " is mounted read-only", store.ErrDenied
	case unix.ENOSPC, unix.EDQUOT:
		return "the file system of " + s.root + " has no room left (bytes, inodes or quota)", store.ErrUnavailable
	case unix.ENOTDIR, unix.ELOOP, unix.EISDIR:
		return "something in " + s.root + " that is not of this store is in the way", store.ErrCorrupt
	case unix.EXDEV:
		return s.root + " must be on one file system, and no directory in it a mount point or a link", store.ErrCorrupt
	case unix.EMFILE, unix.ENFILE:
		return "too many open files; raise the limit of open files", store.ErrUnavailable
	}
	return "", store.ErrUnavailable
}

// certain reports whether a failed link or rename certainly did nothing, now
// and later. After any other error the change may have been made.
func certain(err error) bool {
	for _, e := range []unix.Errno{
		unix.EEXIST, unix.ENOTEMPTY, unix.ENOENT, unix.ENOTDIR, unix.EISDIR, unix.ELOOP, unix.ENAMETOOLONG, unix.EXDEV,
		unix.ENOSPC, unix.EDQUOT, unix.EMLINK, unix.EACCES, unix.EPERM, unix.EROFS, unix.EINVAL, unix.EBADF, unix.EBUSY,
		unix.ENOTSUP,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// fail makes an error of a kind for the call under way.
func (s *Store) fail(c *call, kind error, format string, args ...any) error {
	return store.Errorf(kind, s.identity, c.op, c.key, format, args...)
}

// unknown is the error of a change that may have been made.
func (s *Store) unknown(c *call, detail string, cause error) error {
	return &store.Error{Kind: store.ErrUnknown, Store: s.identity, Op: c.op, Key: c.key, Detail: detail, Cause: cause}
}
