//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package tenure

import (
	"errors"
	"os"
	"syscall"
)

// tryLockFile makes path if need be and locks it, or returns nil if it is locked. The
// lock belongs to the open file, which no child inherits: it ends when the file is
// closed, and with the process however that ends.
func tryLockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return f, nil
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EWOULDBLOCK):
			err = nil
		default:
			err = os.NewSyscallError("flock", err)
		}
		return nil, errors.Join(err, f.Close())
	}
}
