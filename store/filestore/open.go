//go:build linux || darwin

package filestore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/tenure-project/tenure/internal/bootid"
	"github.com/tenure-project/tenure/internal/netfs"
	"github.com/tenure-project/tenure/store"
)

// The names in the root directory. None can be an element of a key, for those
// hold no dot.
const (
	markName   = ".tenure"
	tmpName    = ".tmp"
	queueName  = ".queue"
	locksName  = ".locks"
	lifeSuffix = ".d"
	lifeName   = "life"
	// sourceSuffix marks a temporary file whose links are files "life".
	sourceSuffix = ".life"
)

// storeMark begins the file markName; a higher level is store.ErrNewer.
const storeMark = "tenure-store/1"

// Open opens the store in the directory path, which it makes if only the last
// element is missing; MustExist forbids that. It refuses, with store.ErrInvalid,
// a directory that holds something else and a file system that is unfit;
// WithNetworkFS allows a network file system. A store that lost its mark is
// store.ErrCorrupt.
func Open(path string, opts ...Option) (*Store, error) {
	cfg := config{grace: defaultGraces, remote: netfs.Remote}
	for _, o := range opts {
		o(&cfg)
	}
	if err := checkPath(path); err != nil {
		return nil, err
	}
	s := &Store{seam: seam{tracer: cfg.tracer}, grace: cfg.grace, rootFD: -1, tmpFD: -1, identity: scheme, held: map[releaser]struct{}{}, ending: make(chan struct{})}
	if err := s.open(path, cfg); err != nil {
		for _, fd := range []int{s.rootFD, s.tmpFD} {
			if fd >= 0 {
				closeFD(fd)
			}
		}
		return nil, s.explain("open", "", err)
	}
	s.lifeFile.s = s
	s.lanes, s.parents, s.notifier, s.pollers = newLanes(), newParents(s), &notifier{}, newPollers(s)
	s.sweep()
	return s, nil
}

func (s *Store) open(path string, cfg config) error {
	abs, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	s.root = abs
	if err := s.enterRoot(abs, cfg); err != nil {
		return err
	}
	if s.network {
		s.boot = ""
	} else {
		s.boot = bootid.Boot()
	}
	return s.claim(cfg.mustExist)
}

// enterRoot opens the root directory and looks at what it lies on.
func (s *Store) enterRoot(abs string, cfg config) error {
	made, err := makeRoot(abs, cfg.mustExist)
	if err != nil {
		return err
	}
	root, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return err
	}
	s.root, s.identity = root, scheme+":"+root
	info, err := os.Lstat(root)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return store.Errorf(store.ErrInvalid, s.identity, "open", "", "%s is not a directory", root)
	}
	if s.rootFD, err = openDir(unix.AT_FDCWD, root); err != nil {
		return fault("open", root, err)
	}
	st, err := statOf(s.rootFD)
	if err != nil {
		return fault("stat", root, err)
	}
	s.rootFile, s.modes = fileOf(st), modesOf(info.Mode())
	if made {
		if err := syncPath(filepath.Dir(root)); err != nil {
			return err
		}
	}
	return s.inspect(cfg)
}

// makeRoot makes the root directory if it is missing, and may be.
func makeRoot(abs string, mustExist bool) (made bool, err error) {
	if mustExist {
		if _, err = os.Stat(abs); errors.Is(err, fs.ErrNotExist) {
			return false, noStore(scheme, abs, "the directory does not exist")
		}
	} else {
		err = os.Mkdir(abs, 0o700)
	}
	switch {
	case err == nil:
		return !mustExist, nil
	case errors.Is(err, fs.ErrExist):
		return false, nil
	case errors.Is(err, unix.ENOTDIR):
		return false, store.Errorf(store.ErrInvalid, scheme, "open", "", "%s is not a directory", filepath.Dir(abs))
	case errors.Is(err, fs.ErrNotExist):
		return false, store.Errorf(store.ErrInvalid, scheme, "open", "", "the directory %s does not exist; make it first, or correct the path", filepath.Dir(abs))
	}
	if _, statErr := os.Stat(abs); statErr != nil {
		return false, err // such as a read-only parent, which does not matter to a directory that exists
	}
	return false, nil
}

// inspect refuses a file system on which the store's promises would not hold.
func (s *Store) inspect(cfg config) error {
	var err error
	if s.fs, err = fileSystem(s.rootFD); err != nil {
		return fault("statfs", s.root, err)
	}
	name, remote, err := cfg.remote(s.root)
	if err != nil {
		return err
	}
	if remote {
		if !cfg.network {
			return store.Errorf(store.ErrInvalid, s.identity, "open", "",
				"%s is on a network or user-space file system (%s), which may show one client's writes late to another; "+
					"use a local disk, or another kind of store for several machines; "+
					"if every process is on this one machine, network=allow permits it", s.root, name)
		}
		s.fs, s.network = fsInfo{name: name, durable: true}, true
	}
	return nil
}

// makeStore writes the mark, unless another process is first.
func (s *Store) makeStore() error {
	var err error
	if s.tmpFD, err = s.ensureDir(tmpName); err != nil {
		return err
	}
	if err := s.probe(); err != nil {
		return err
	}
	tmp, fd, err := s.writeTemp(randomID(), []byte(storeMark+" "+randomID()+"\n"))
	if err != nil {
		return err
	}
	defer closeFD(fd)
	if err := s.sync(fd); err != nil {
		return fault("sync", s.tmpPath(tmp), err)
	}
	if err := s.link(s.tmpFD, tmp, s.rootFD, markName); err != nil && err != unix.EEXIST {
		return fault("link", filepath.Join(s.root, markName), err)
	}
	if err := s.sync(s.rootFD); err != nil {
		return fault("sync", s.root, err)
	}
	_ = s.unlink(s.tmpFD, tmp)
	return nil
}

// probe finds out whether the file system has what the store rests on: hard
// links that are exclusive and counted, and a rename that never replaces a
// directory in use.
func (s *Store) probe() error {
	unfit := func(what string, err error) error {
		return &store.Error{Kind: store.ErrInvalid, Store: s.identity, Op: "open", Cause: err,
			Detail: fmt.Sprintf("the file system of %s (%s) is unfit: %s", s.root, s.fs.name, what)}
	}
	id := randomID()
	tmp, fd, err := s.writeTemp(id, nil)
	if err != nil {
		return err
	}
	defer closeFD(fd)
	defer func() { _ = s.unlink(s.tmpFD, tmp) }()
	dirs := []string{id + ".1", id + ".2"}
	for _, d := range dirs {
		if err := s.mkdir(s.tmpFD, d, s.modes); err != nil {
			return fault("mkdir", s.tmpPath(d), err)
		}
		defer func() { _ = s.rmdir(s.tmpFD, d) }()
		inside := d + "/" + lifeName
		if err := s.link(s.tmpFD, tmp, s.tmpFD, inside); err != nil {
			return unfit("it has no hard links", err)
		}
		defer func() { _ = s.unlink(s.tmpFD, inside) }()
	}
	if err := s.link(s.tmpFD, tmp, s.tmpFD, dirs[0]+"/"+lifeName); err != unix.EEXIST {
		return unfit("a second link to one name is not refused", err)
	}
	if st, err := statOf(fd); err != nil || st.Nlink != 3 {
		return unfit("it does not count links", err)
	}
	if err := s.rename(s.tmpFD, dirs[0], s.tmpFD, dirs[1]); err != unix.ENOTEMPTY && err != unix.EEXIST {
		return unfit("a rename replaces a directory that is not empty", err)
	}
	return nil
}

// readMark checks the mark, and makes it durable if its maker may not have.
func (s *Store) readMark() error {
	path := filepath.Join(s.root, markName)
	fd, err := openat(s.rootFD, markName, unix.O_RDONLY, 0)
	if err != nil {
		return fault("open", path, err)
	}
	defer closeFD(fd)
	line := make([]byte, 256)
	n, err := unix.Pread(fd, line, 0)
	if err != nil {
		return fault("read", path, err)
	}
	fields := strings.Split(strings.TrimSuffix(string(line[:n]), "\n"), " ")
	switch {
	case fields[0] != storeMark && newer(fields[0], storeMark):
		return store.Errorf(store.ErrNewer, s.identity, "open", "", "the store has the format %q, this program knows %q", fields[0], storeMark)
	case fields[0] != storeMark || len(fields) != 2 || len(fields[1]) != 2*idBytes:
		return store.Errorf(store.ErrCorrupt, s.identity, "open", "", "%s does not hold the mark of a store", path)
	}
	if st, err := statOf(fd); err != nil || st.Nlink > 1 {
		if err := s.sync(s.rootFD); err != nil {
			return fault("sync", s.root, err)
		}
	}
	return nil
}

// ensureDir opens a directory of the root, and makes it if it is missing.
func (s *Store) ensureDir(name string) (int, error) {
	fd, err := openDir(s.rootFD, name)
	if err == unix.ENOENT {
		if err = s.mkdir(s.rootFD, name, s.modes); err != nil && err != unix.EEXIST {
			return -1, fault("mkdir", filepath.Join(s.root, name), err)
		}
		fd, err = openDir(s.rootFD, name)
	}
	if err != nil {
		return -1, fault("open", filepath.Join(s.root, name), err)
	}
	return fd, nil
}

// writeTemp makes a temporary file that holds data, not yet synced.
func (s *Store) writeTemp(name string, data []byte) (string, int, error) {
	fd, err := s.create(s.tmpFD, name, s.modes)
	if err != nil {
		return "", -1, fault("create", s.tmpPath(name), err)
	}
	if len(data) > 0 {
		if err := s.write(fd, data); err != nil {
			closeFD(fd)
			_ = s.unlink(s.tmpFD, name)
			return "", -1, fault("write", s.tmpPath(name), err)
		}
	}
	return name, fd, nil
}

func (s *Store) tmpPath(name string) string { return filepath.Join(s.root, tmpName, name) }

// names lists a directory as it was at one instant; one that is too large to be
// read at once is read until it no longer changes.
func (s *Store) names(fd int) ([]string, error) {
	names, reads, err := readNames(fd)
	if err != nil || reads <= 1 && oneReadIsSnapshot && !s.network {
		return names, err
	}
	slices.Sort(names)
	for {
		again, _, err := readNames(fd)
		if err != nil {
			return nil, err
		}
		slices.Sort(again)
		if slices.Equal(names, again) {
			return names, nil
		}
		names = again
	}
}

// fileOfInfo is fileOf for package os.
func fileOfInfo(info fs.FileInfo) file {
	st := info.Sys().(*syscall.Stat_t)
	return file{dev: uint64(st.Dev), ino: st.Ino} //nolint:unconvert // int32 on some systems
}

func syncPath(path string) error {
	fd, err := openDir(unix.AT_FDCWD, path)
	if err != nil {
		return fault("open", path, err)
	}
	defer closeFD(fd)
	if err := syncFD(fd); err != nil {
		return fault("sync", path, err)
	}
	return nil
}
