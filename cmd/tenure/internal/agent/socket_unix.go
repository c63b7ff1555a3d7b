//go:build linux || darwin

package agent

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Supported says whether this system has agents.
const Supported = true

// maxPath is the longest path of a socket in bytes.
const maxPath = len(unix.RawSockaddrUnix{}.Path) - 1

const noFollow = unix.O_NOFOLLOW

var errLocked = errors.New("locked by another process")

// tryLock locks f for as long as this process has it open.
func tryLock(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return errLocked
	}
	return err
}

// private says whether a folder is this user's and nobody else's.
func private(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid() && info.Mode().Perm()&0o077 == 0
}

// refused says whether err means that nobody listens.
func refused(err error) bool { return errors.Is(err, unix.ECONNREFUSED) }

// absent says whether err means that there is no agent: no socket, or nobody
// listens on it.
func absent(err error) bool {
	return refused(err) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR)
}

// peerOf is the user of the process at the other end.
func peerOf(c *net.UnixConn) (uid int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return -1, err
	}
	var id uint32
	var credErr error
	if err := raw.Control(func(fd uintptr) { id, credErr = peerUID(int(fd)) }); err != nil {
		return -1, err
	}
	if credErr != nil {
		return -1, os.NewSyscallError("getsockopt", credErr)
	}
	return int(id), nil
}
