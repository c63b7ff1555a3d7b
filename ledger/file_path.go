package ledger

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
)

// maxLinks is how many symbolic links in a row a path may have, as on Linux.
const maxLinks = 40

// lockPath is where the log's lock is: beside the file itself, so that a log has one lock
// by whatever symbolic links it is named. The file need not be there yet.
func (f *FileLedger) lockPath() (string, error) {
	path := f.path
	for range maxLinks {
		at, err := filepath.EvalSymlinks(path)
		if err == nil {
			return at + ".lock", nil
		}
		if !errors.Is(err, os.ErrNotExist) {
			return "", err
		}
		dir, name := filepath.Split(path) // not cleaned: what ".." means, the links say
		if at, err = filepath.EvalSymlinks(cmp.Or(dir, ".")); err != nil {
			return "", err
		}
		path = filepath.Join(at, name)
		to, err := os.Readlink(path)
		if err != nil { // it is no link: nothing is there yet
			return path + ".lock", nil
		}
		if path = to; !filepath.IsAbs(to) {
			path = at + string(filepath.Separator) + to
		}
	}
	return "", errors.New("too many symbolic links")
}
