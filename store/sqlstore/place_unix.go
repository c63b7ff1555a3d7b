//go:build unix

package sqlstore

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

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
