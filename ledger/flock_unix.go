//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package ledger

import (
	"errors"
	"os"
	"syscall"
)

// flock tries to lock f. The lock belongs to the open file, which no child inherits: it
// holds against other goroutines, too, and ends with the process.
func flock(f *os.File) (bool, error) {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, syscall.EWOULDBLOCK):
			return false, nil
		case !errors.Is(err, syscall.EINTR):
			return false, os.NewSyscallError("flock", err)
		}
	}
}

// keepOwner gives file the owner and the group that was has.
func keepOwner(file *os.File, was os.FileInfo) error {
	now, err := file.Stat()
	if err != nil {
		return err
	}
	a, old := was.Sys().(*syscall.Stat_t)
	b, fresh := now.Sys().(*syscall.Stat_t)
	if !old || !fresh || a.Uid == b.Uid && a.Gid == b.Gid {
		return nil
	}
	return file.Chown(int(a.Uid), int(a.Gid))
}
