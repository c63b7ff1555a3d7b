//go:build linux || darwin

package proc

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// openFiles lists the descriptors from 3 on that stay open over an exec.
func openFiles(dir string) []int {
	d, err := os.Open(dir)
	if err != nil {
		return nil
	}
	names, _ := d.Readdirnames(-1)
	_ = d.Close()
	var fds []int
	for _, name := range names {
		fd, err := strconv.Atoi(name)
		if err != nil || fd < 3 {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			fds = append(fds, fd)
		}
	}
	return fds
}

// letGo gives up this process's copies of what it passed on to a child: standard
// input and output, and the inherited descriptors. A pipe then ends when the
// command ends its side of it, not when we exit.
func letGo(inherited []int) {
	for _, fd := range inherited {
		_ = unix.Close(fd)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return
	}
	defer null.Close()
	_ = dup2(int(null.Fd()), 0)
	_ = dup2(int(null.Fd()), 1)
}
