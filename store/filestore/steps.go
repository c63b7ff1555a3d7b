//go:build linux || darwin

package filestore

import (
	"io/fs"

	"golang.org/x/sys/unix"
)

// modes are the permissions of what the store makes. They follow the root
// directory: what its group may do there, it may do with everything inside.
type modes struct {
	dir, file uint32
}

func modesOf(root fs.FileMode) modes {
	group := uint32(root.Perm()) & 0o070
	return modes{dir: 0o700 | group, file: 0o600 | group&0o060}
}

func (m modes) shared() bool { return m.dir&0o070 != 0 }

// mkdir makes a directory. One that inherited the set-group-ID bit keeps it, so
// that all below it belongs to the group of the root and not to its maker's.
func (s seam) mkdir(dir int, name string, m modes) error {
	return s.take(step{kind: stepMkdir, dir: dir, name: name}, func() error {
		if err := unix.Mkdirat(dir, name, m.dir); err != nil {
			return err
		}
		if !m.shared() {
			return nil
		}
		st, err := lstatAt(dir, name)
		if err != nil {
			return err
		}
		have, want := uint32(st.Mode)&0o7777, m.dir|uint32(st.Mode)&unix.S_ISGID
		if have == want { // chmod may drop the bit, where the maker is not of the group
			return nil
		}
		return unix.Fchmodat(dir, name, want, 0) // the umask took the group's rights
	})
}

// create makes an empty file that did not exist, for reading and writing. No
// child process inherits it.
func (s seam) create(dir int, name string, m modes) (fd int, err error) {
	fd = -1
	err = s.take(step{kind: stepCreate, dir: dir, name: name}, func() error {
		fd, err = openat(dir, name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, m.file)
		if err == nil && m.shared() {
			err = unix.Fchmod(fd, m.file)
		}
		return err
	})
	if err != nil && fd >= 0 {
		closeFD(fd)
		fd = -1
	}
	return fd, err
}

// write writes all of data at the beginning of a file.
func (s seam) write(fd int, data []byte) error {
	return s.take(step{kind: stepWrite, fd: fd, data: data}, func() error {
		for off := int64(0); off < int64(len(data)); {
			n, err := unix.Pwrite(fd, data[off:], off)
			switch {
			case err == unix.EINTR:
			case err != nil:
				return err
			case n == 0:
				return unix.EIO
			default:
				off += int64(n)
			}
		}
		return nil
	})
}

// sync makes a file's data, or a directory's entries, durable.
func (s seam) sync(fd int) error {
	return s.take(step{kind: stepSync, fd: fd}, func() error { return syncFD(fd) })
}

// link gives a file a second name. It fails with EEXIST if that name is taken.
func (s seam) link(from int, old string, dir int, name string) error {
	return s.take(step{kind: stepLink, from: from, old: old, dir: dir, name: name}, func() error {
		return unix.Linkat(from, old, dir, name, 0)
	})
}

// rename moves a name. A directory replaces only an empty directory.
func (s seam) rename(from int, old string, dir int, name string) error {
	return s.take(step{kind: stepRename, from: from, old: old, dir: dir, name: name}, func() error {
		return unix.Renameat(from, old, dir, name)
	})
}

// unlink removes a file's name.
func (s seam) unlink(dir int, name string) error {
	return s.take(step{kind: stepUnlink, dir: dir, name: name}, func() error {
		return unix.Unlinkat(dir, name, 0)
	})
}

// rmdir removes an empty directory.
func (s seam) rmdir(dir int, name string) error {
	return s.take(step{kind: stepRmdir, dir: dir, name: name}, func() error {
		return unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
	})
}

// openat opens a name in a directory for this process alone. It follows no
// link and waits for no pipe.
func openat(dir int, name string, flags int, mode uint32) (int, error) {
	for {
		fd, err := unix.Openat(dir, name, flags|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, mode)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

// openDir opens a directory below dir.
func openDir(dir int, path string) (int, error) {
	return openat(dir, path, unix.O_RDONLY|unix.O_DIRECTORY, 0)
}

func closeFD(fd int) { _ = unix.Close(fd) }

// statOf is fstat.
func statOf(fd int) (unix.Stat_t, error) {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	return st, err
}

// lstatAt is fstatat that follows no link.
func lstatAt(dir int, name string) (unix.Stat_t, error) {
	var st unix.Stat_t
	err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return st, err
}

// file is the identity of a file: while it is open anywhere, no other has it.
type file struct {
	dev, ino uint64
}

func fileOf(st unix.Stat_t) file {
	return file{dev: uint64(st.Dev), ino: st.Ino} //nolint:unconvert // int32 on some systems
}

// sameAt reports whether name in dir is the file f.
func sameAt(dir int, name string, f file) bool {
	st, err := lstatAt(dir, name)
	return err == nil && fileOf(st) == f
}
