//go:build unix

package sqlstore

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// fileID tells a file from every other one of this machine.
type fileID struct{ device, inode uint64 }

// fileAt is the file that name leads to. It is asked several times per call, so it
// makes nothing but the system call.
func fileAt(name string) (fileID, error) {
	var st syscall.Stat_t
	for {
		err := syscall.Stat(name, &st)
		switch {
		case err == nil:
			return fileID{uint64(st.Dev), st.Ino}, nil
		case !errors.Is(err, syscall.EINTR):
			return fileID{}, &fs.PathError{Op: "stat", Path: name, Err: err}
		}
	}
}

func (f fileID) same(other fileID) bool { return f == other }

// folderState differs after an entry of the folder was made, removed or renamed,
// and between two folders.
type folderState struct {
	fileID
	ctime unix.Timespec
}

// folderAt is the state of the folder that name leads to; ok is false if it is not
// known.
func folderAt(name string) (s folderState, ok bool) {
	var st unix.Stat_t
	if unix.Stat(name, &st) != nil {
		return s, false
	}
	return folderState{fileID{uint64(st.Dev), st.Ino}, st.Ctim}, true
}

// changed is when the folder last changed, by the file system's clock.
func (s folderState) changed() time.Time { return time.Unix(s.ctime.Unix()) }

// hardLinks is how many names a file has; 0 where that is not known.
func hardLinks(info os.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Nlink)
	}
	return 0
}

// accessWrite is W_OK of access(2).
const accessWrite = 2

// denied reports whether this process lacks the right to write path, or to
// make it and its companions. It opens nothing: closing a descriptor of a
// database would drop the locks that SQLite holds on it in this process.
func denied(path string) bool {
	err := syscall.Access(path, accessWrite)
	if errors.Is(err, syscall.ENOENT) || err == nil {
		err = syscall.Access(filepath.Dir(path), accessWrite)
	}
	return errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EROFS)
}

// syncDir makes the names in dir durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	return errors.Join(err, d.Close())
}
