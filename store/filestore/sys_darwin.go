package filestore

import (
	"errors"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// kernelProves: a boot has no exact name here.
const kernelProves = false

// oneReadIsSnapshot: nothing is known of how a directory is read here.
const oneReadIsSnapshot = false

// fileSystem describes the file system that holds a directory.
func fileSystem(fd int) (fsInfo, error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil {
		return fsInfo{}, err
	}
	name := unix.ByteSliceToString(st.Fstypename[:])
	return fsInfo{name: name, durable: !strings.HasPrefix(name, "tmpfs")}, nil
}

// syncFD asks the drive itself to write, which fsync does not do here.
func syncFD(fd int) error {
	for {
		_, err := unix.FcntlInt(uintptr(fd), unix.F_FULLFSYNC, 0)
		switch {
		case err == unix.EINTR:
		case errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTTY):
			return unix.Fsync(fd)
		default:
			return err
		}
	}
}

// readNames lists a directory from its beginning.
func readNames(fd int) (names []string, reads int, err error) {
	own, err := openDir(fd, ".")
	if err == unix.ENOENT { // the directory was removed: it is empty
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	f := os.NewFile(uintptr(own), "directory")
	defer f.Close()
	names, err = f.Readdirnames(-1)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return names, 1, err
}

func modTime(st unix.Stat_t) time.Time { return time.Unix(st.Mtim.Unix()) }

// syncAll makes everything durable.
func syncAll(int) error { return unix.Sync() }
