//go:build darwin || (linux && !amd64 && !arm64)

package proc

import (
	"os"

	"golang.org/x/sys/unix"
)

// probeSignal is for systems on which the kernel is asked.
func probeSignal(unix.Signal) error { return nil }

// arrivals guesses where a signal came from: INT and QUIT came from the terminal
// if this process is in the terminal's foreground group. A person who sends them
// to the wrapper alone at such a time must send them to the command. Stops are
// taken for the terminal's.
func arrivals(sig unix.Signal) (kernel, process int) {
	switch sig {
	case unix.SIGINT, unix.SIGQUIT:
		if inForeground() {
			return 1, 0
		}
	case unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU:
		return 1, 0
	}
	return 0, 1
}

func inForeground() bool {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return false
	}
	defer tty.Close()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}
