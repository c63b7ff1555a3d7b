//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package ledger

import (
	"errors"
	"os"
)

var errNoFlock = errors.New("this system has no flock: a log file cannot be a site here; use a store")

// tryFlock refuses: without locks that end with their process two could be at it.
func tryFlock(*os.File) (bool, error) { return false, errNoFlock }

// keepOwner is never called: nobody has the lock.
func keepOwner(*os.File, os.FileInfo) error { return errNoFlock }
