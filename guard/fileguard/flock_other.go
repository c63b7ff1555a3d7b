//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package fileguard

import (
	"errors"
	"os"
)

var errNoFlock = errors.New("this system has no flock; a file guard cannot work here")

// flock refuses: without locks that end with their process there is no guard.
func flock(*os.File, bool) (bool, error) { return false, errNoFlock }

// duplicate refuses, because nothing can be locked here.
func duplicate(*os.File) (*os.File, error) { return nil, errNoFlock }
