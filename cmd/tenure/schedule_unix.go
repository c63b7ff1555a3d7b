//go:build unix

package main

import (
	"os"
	"os/exec"
	"slices"
	"syscall"
)

// hangUps are the signals on which a schedule is read again.
var hangUps = []os.Signal{syscall.SIGHUP}

func isHangUp(s os.Signal) bool { return slices.Contains(hangUps, s) }

// apart gives cmd a process group of its own: a signal of the terminal is for the
// scheduler, which lets its jobs end by themselves.
func apart(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
