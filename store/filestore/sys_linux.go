package filestore

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// kernelProves says that this system names its boots, so that a free lock or
// an earlier boot can prove a death.
const kernelProves = true

// oneReadIsSnapshot says that one getdents(2) call reads under the lock of the
// directory, so that what it returns was there at one instant.
const oneReadIsSnapshot = true

// diskFS are file systems that live on a block device which only one kernel
// can have mounted, by their statfs(2) number; other local ones stand for
// themselves in localFS.
var diskFS = map[uint32]string{
	0xEF53:     "ext4",
	0x58465342: "xfs",
	0x9123683E: "btrfs",
	0xF2F52010: "f2fs",
	0x2FC12FC1: "zfs",
	0xCA451A4E: "bcachefs",
	0x3153464A: "jfs",
	0x52654973: "reiserfs",
}

var localFS = map[uint32]string{
	0x01021994: "tmpfs",
	0x858458F6: "ramfs",
	0x794C7630: "overlay",
	0x4D44:     "vfat",
	0x2011BAB0: "exfat",
	0x5346544E: "ntfs",
}

// fileSystem describes the file system that holds a directory.
func fileSystem(fd int) (fsInfo, error) {
	var st unix.Statfs_t
	for {
		err := unix.Fstatfs(fd, &st)
		if err == nil {
			break
		}
		if err != unix.EINTR {
			return fsInfo{}, err
		}
	}
	magic := uint32(st.Type) //nolint:unconvert // the type differs by architecture
	if name, ok := diskFS[magic]; ok {
		return fsInfo{name: name, disk: true, durable: true}, nil
	}
	if name, ok := localFS[magic]; ok {
		return fsInfo{name: name, durable: name != "tmpfs" && name != "ramfs"}, nil
	}
	return fsInfo{name: fmt.Sprintf("%#x", magic), durable: true}, nil
}

func syncFD(fd int) error {
	for {
		if err := unix.Fsync(fd); err != unix.EINTR {
			return err
		}
	}
}

// dirBuffers are large enough for any directory of one key.
var dirBuffers = sync.Pool{New: func() any { b := make([]byte, 64<<10); return &b }}

// readNames lists a directory from its beginning. reads is how many system
// calls returned something.
func readNames(fd int) (names []string, reads int, err error) {
	if _, err := unix.Seek(fd, 0, 0); err != nil {
		return nil, 0, err
	}
	buf := dirBuffers.Get().(*[]byte)
	defer dirBuffers.Put(buf)
	for {
		n, err := unix.Getdents(fd, *buf)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.ENOENT: // the directory was removed: it is empty
			return names, reads, nil
		case err != nil:
			return nil, reads, err
		case n == 0:
			return names, reads, nil
		}
		reads++
		_, _, names = unix.ParseDirent((*buf)[:n], -1, names)
	}
}

// machineID names this installation of the system; "" if it has no name.
func machineID() string {
	b, err := os.ReadFile("/etc/machine-id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func modTime(st unix.Stat_t) time.Time { return time.Unix(st.Mtim.Unix()) }

// syncAll makes everything on the file system of fd durable.
func syncAll(fd int) error { return unix.Syncfs(fd) }
