//go:build !unix

package main

import "os"

// jobPID is the process that the user started. There is only one here.
func jobPID() int { return os.Getpid() }
