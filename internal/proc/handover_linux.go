package proc

import (
	"os"

	"golang.org/x/sys/unix"
)

// handover gives the terminal back to a command that has a process group of its
// own, as an interactive shell makes one. On fg the user's shell gives the
// terminal to the job's group, which is the wrapper's.
type handover struct {
	tty   *os.File
	group int
}

// rememberTerminal is called before the wrapper stops. It returns nil unless the
// command's own group has the terminal now.
func rememberTerminal(command int) *handover {
	group, err := unix.Getpgid(command)
	if err != nil || group == unix.Getpgrp() {
		return nil
	}
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	h := &handover{tty: tty, group: group}
	if h.foreground() != group {
		_ = tty.Close()
		return nil
	}
	return h
}

func (h *handover) foreground() int {
	group, err := unix.IoctlGetInt(int(h.tty.Fd()), unix.TIOCGPGRP)
	if err != nil {
		return 0
	}
	return group
}

// restore is called when the wrapper goes on. In the background it does nothing.
func (h *handover) restore() {
	if h == nil {
		return
	}
	defer h.tty.Close()
	if h.foreground() == unix.Getpgrp() {
		_ = unix.IoctlSetPointerInt(int(h.tty.Fd()), unix.TIOCSPGRP, h.group)
	}
}
