// Command tenure holds, watches and ends leases from a shell, and checks the
// store that they are kept in (UI1).
//
// docs/cli.md lists every command, flag, environment variable, exit code and
// JSON shape.
package main

import (
	"io"
	"os"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Environ()))
}

// run is the whole program: arguments without the program's name in, exit code
// out.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer, environ []string) int {
	if code, ok := contend(environ, stdin, stdout); ok {
		return code
	}
	a := newApp(stdin, stdout, stderr, environ)
	return a.run(newRootCmd(a), args)
}
