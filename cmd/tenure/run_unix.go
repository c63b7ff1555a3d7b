//go:build unix

package main

import "os"

// jobPID is the process that the user started, and whom a signal reaches. It is
// called in the supervisor, whose parent that is.
func jobPID() int { return os.Getppid() }
