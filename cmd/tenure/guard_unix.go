//go:build unix

package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// inheritable makes f stay open in a child, at the same number.
func inheritable(f *os.File) error {
	_, err := unix.FcntlInt(f.Fd(), unix.F_SETFD, 0)
	return os.NewSyscallError("fcntl", err)
}
