//go:build !unix

package main

import (
	"os"
)

// shellArgs run a line as the system's shell does.
func shellArgs(line string) []string { return []string{"cmd", "/C", line} }

// replaceStdout makes w this process's standard output, and takes w over. to is the
// output that it had.
func replaceStdout(w *os.File) (to *os.File, undo func(), err error) {
	to, os.Stdout = os.Stdout, w
	return to, func() {
		os.Stdout = to
		_ = w.Close()
	}, nil
}
