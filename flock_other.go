//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package tenure

import (
	"errors"
	"os"
)

// tryLockFile refuses: a lock that does not end with its process is worse than none.
func tryLockFile(string) (*os.File, error) {
	return nil, errors.New("this system has no flock")
}
