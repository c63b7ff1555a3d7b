//go:build !unix

package demo

import "syscall"

// This system cannot pause a process; Run is not called here.
const (
	sigKill = syscall.SIGKILL
	sigStop = syscall.SIGKILL
	sigCont = syscall.SIGKILL
)

// Supported says whether this system can pause a process.
const Supported = false
