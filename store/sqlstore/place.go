package sqlstore

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tenure-project/tenure/internal/netfs"
	"github.com/tenure-project/tenure/store"
)

// companions are what SQLite keeps beside a database in WAL mode. While a
// connection is open, neither may be removed or replaced: two processes that
// see different ones exclude each other from nothing.
var companions = []string{"-wal", "-shm"}

// resolvePath turns what a user gave into the one absolute name of the
// database file, so that two spellings are one store. It refuses what SQLite
// would take for something else than a file on this machine.
func resolvePath(path string) (string, error) {
	switch {
	case path == "":
		return "", badPath(path, "it is empty; give the path of a database file")
	case strings.ContainsRune(path, 0):
		return "", badPath(path, "it holds a NUL byte")
	case strings.Contains(path, ":memory:") || strings.HasPrefix(path, "file:"):
		return "", badPath(path, "give the path of a file: a database in memory is seen by one connection only (use mem: for tests)")
	case strings.HasSuffix(path, string(filepath.Separator)):
		return "", badPath(path, "it names a folder; name a file in it")
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", store.Wrap(store.ErrInvalid, schemeSQLite, opOpen, "", err)
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(abs))
	if err != nil {
		return "", pathError(path, "its folder cannot be used: make it first", err)
	}
	name, remote, err := netfs.Remote(dir)
	if err != nil {
		return "", pathError(path, "its folder cannot be examined", err)
	}
	if remote {
		return "", badPath(path, "it is on a network file system ("+name+"), where SQLite's locks do not hold between machines: use a local disk, or a store that is made for several machines")
	}
	return resolveFile(path, filepath.Join(dir, filepath.Base(abs)))
}

// resolveFile follows a link to the file itself, because SQLite puts its
// companions beside the file and not beside the link.
func resolveFile(path, abs string) (string, error) {
	if _, err := os.Lstat(abs); errors.Is(err, fs.ErrNotExist) {
		return abs, nil
	}
	real, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return "", pathError(path, "it cannot be followed to a file", err)
	}
	info, err := os.Stat(real)
	switch {
	case err != nil:
		return "", pathError(path, "it cannot be examined", err)
	case !info.Mode().IsRegular():
		return "", badPath(path, "it is not a regular file")
	case hardLinks(info) > 1:
		return "", badPath(path, "the file has more than one hard link: opened by two names it would have two logs and be destroyed; remove the other names")
	}
	return real, nil
}

func badPath(path, why string) error {
	return store.Errorf(store.ErrInvalid, schemeSQLite, opOpen, "", "path %q: %s", path, why)
}

func pathError(path, what string, cause error) error {
	kind := store.ErrInvalid
	if errors.Is(cause, fs.ErrPermission) {
		kind = store.ErrDenied
	}
	e := store.Errorf(kind, schemeSQLite, opOpen, "", "path %q: %s", path, what)
	e.Cause = cause
	return e
}

// place is the set of files that an open database consists of, as they were
// when it was opened. It is safe for concurrent use.
type place struct {
	names []string
	files []fileID
	good  atomic.Pointer[sight] // of when all files were in place; nil: look at them
	age   time.Duration         // sightAge; tests do not wait so long
}

// sight is how the folder looked when its files were looked at.
type sight struct {
	folder folderState
	until  time.Time // look at the files again
}

const (
	// sightAge is how long ago a folder must have changed last for its state to
	// tell a later change: file systems count time in steps of up to 2 seconds.
	sightAge = 3 * time.Second
	// sightLife is how long a sight is good for at most. A file system that was
	// mounted over a file leaves no trace in the folder.
	sightLife = 100 * time.Millisecond
)

// look notes which files are in place. The database has been read before, so
// all of them exist.
func look(path string) (*place, error) {
	p := &place{names: []string{path}, age: sightAge}
	for _, suffix := range companions {
		p.names = append(p.names, path+suffix)
	}
	for _, name := range p.names {
		file, err := fileAt(name)
		if err != nil {
			return nil, err
		}
		p.files = append(p.files, file)
	}
	return p, nil
}

// moved returns what is wrong if the open files are no longer those that their
// names lead to: what is written then would be lost, and what is read be old.
// A database that is gone is ErrUnavailable, for it may come back; one that was
// replaced, or lost a companion, is ErrCorrupt.
//
// Every call of the store asks this, some twice. To take a file away or to put
// another in its place changes the folder, so while that stands unchanged one
// look at it tells as much as one at every file.
func (p *place) moved() *store.Error {
	now := time.Now()
	folder, known := folderAt(filepath.Dir(p.names[0])) // before its files
	if good := p.good.Load(); known && good != nil && folder == good.folder && now.Before(good.until) {
		return nil
	}
	p.good.Store(nil)
	if e := p.movedFile(); e != nil {
		return e
	}
	if known && now.Sub(folder.changed()) > p.age {
		p.good.Store(&sight{folder: folder, until: now.Add(sightLife)})
	}
	return nil
}

// movedFile looks at every file.
func (p *place) movedFile() *store.Error {
	for i, name := range p.names {
		file, err := fileAt(name)
		if err == nil && file.same(p.files[i]) {
			continue
		}
		e := &store.Error{Kind: store.ErrCorrupt, Cause: err}
		switch {
		case err == nil:
			e.Detail = name + " was replaced while the database was open: stop every program that uses it, see to it that the right file is in place, run a jump if it is an older one, and start again"
		case i == 0:
			e.Kind, e.Detail = store.ErrUnavailable, "the database file is gone"
		default:
			e.Detail = name + " was removed while the database was open: stop every program that uses it, then start again"
		}
		return e
	}
	return nil
}
