//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package ledger

import (
	"os"
	"syscall"

	"github.com/tenure-project/tenure/internal/flock"
)

// tryFlock tries to lock f, for this open file alone.
func tryFlock(f *os.File) (bool, error) { return flock.Try(f) }

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
