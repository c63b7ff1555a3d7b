//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package tenure

import (
	"errors"
	"os"

	"github.com/tenure-project/tenure/internal/flock"
)

// tryLockFile makes path if need be and locks it, or returns nil if it is locked. The
// lock ends when the file is closed, and with the process however that ends.
func tryLockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	locked, err := flock.Try(f)
	if locked {
		return f, nil
	}
	return nil, errors.Join(err, f.Close())
}
