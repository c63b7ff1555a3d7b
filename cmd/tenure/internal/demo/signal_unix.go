//go:build unix

package demo

import "syscall"

// What the director does to contenders.
const (
	sigKill = syscall.SIGKILL
	sigStop = syscall.SIGSTOP
	sigCont = syscall.SIGCONT
)

// Supported says whether this system can pause a process.
const Supported = true
