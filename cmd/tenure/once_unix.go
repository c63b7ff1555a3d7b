//go:build unix

package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// shellArgs run a line as cron does.
func shellArgs(line string) []string { return []string{"/bin/sh", "-c", line} }

// replaceStdout makes w this process's standard output, and takes w over. to is the
// output that it had.
func replaceStdout(w *os.File) (to *os.File, undo func(), err error) {
	fd, err := unix.FcntlInt(1, unix.F_DUPFD_CLOEXEC, 3)
	if err != nil { // it has none
		if to, err = os.OpenFile(os.DevNull, os.O_WRONLY, 0); err != nil {
			return nil, nil, err
		}
	} else {
		to = os.NewFile(uintptr(fd), "standard output")
	}
	if err := unix.Dup2(int(w.Fd()), 1); err != nil {
		_ = to.Close()
		return nil, nil, os.NewSyscallError("dup2", err)
	}
	_ = w.Close()
	return to, func() { _ = unix.Dup2(int(to.Fd()), 1) }, nil
}
