//go:build linux || darwin

package filestore

import (
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tenure-project/tenure/store"
)

// claim makes sure that the directory is a store, or makes it one.
func (s *Store) claim(mustExist bool) error {
	_, err := lstatAt(s.rootFD, markName)
	if err == unix.ENOENT {
		if err = s.checkFresh(mustExist); err == nil {
			err = s.makeStore()
		}
	}
	if err != nil {
		return err
	}
	if err := s.readMark(); err != nil {
		return err
	}
	if s.tmpFD < 0 {
		s.tmpFD, err = s.ensureDir(tmpName)
	}
	return err
}

// checkFresh refuses a directory without a mark that is not to become a store.
// Another process may be making the store at the same time, one that was killed
// meanwhile has left tmpName, and a fresh file system has lost+found.
func (s *Store) checkFresh(mustExist bool) error {
	names, _, err := readNames(s.rootFD)
	if err != nil {
		return fault("list", s.root, err)
	}
	foreign := slices.IndexFunc(names, func(n string) bool { return n != tmpName && n != markName && n != "lost+found" })
	if foreign >= 0 {
		remains := s.remains(names)
		if _, err := lstatAt(s.rootFD, markName); err == nil {
			return nil // another process made the store since we looked
		}
		if remains != "" {
			return s.lostMark(remains)
		}
	}
	below := s.storeBelow(names)
	switch {
	case below != "":
		return store.Errorf(store.ErrInvalid, s.identity, "open", "", "%s is no store, but %s in it is one; was that meant?", s.root, below)
	case mustExist:
		return noStore(s.identity, s.root, "the directory has no file "+markName)
	case foreign >= 0:
		return store.Errorf(store.ErrInvalid, s.identity, "open", "",
			"%s is not a store and not empty (it holds %q); name an empty or a new directory", s.root, names[foreign])
	}
	return nil
}

// storeBelow is a directory in the root that is a store of its own, "" if there
// is none: a path with an element too few names its parent.
func (s *Store) storeBelow(names []string) string {
	for _, name := range names {
		if _, err := lstatAt(s.rootFD, name+"/"+markName); err == nil {
			return name
		}
	}
	return ""
}

func noStore(where, path, why string) error {
	return store.Errorf(store.ErrInvalid, where, "open", "",
		"there is no store at %s: %s; check the path, or open it once without create=no (MustExist) to make one", path, why)
}

// lostMark is the error of a store without its mark. An empty store in its
// place, or beside it, would give out its tokens again.
func (s *Store) lostMark(remains string) error {
	return store.Errorf(store.ErrCorrupt, s.identity, "open", "",
		"%s holds %s: it is a store whose mark, the file %s, is gone. Do not go on in another directory, where tokens would start again. "+
			"Find out what else is gone. Then restore the file from a backup, or write it anew: "+
			"one line of \"%s\", a space and %d hexadecimal digits (see docs/stores/filestore.md)",
		s.root, remains, markName, storeMark, 2*idBytes)
}

// remainsMost bounds the directories that are searched for remains: a foreign
// directory may be large.
const remainsMost = 1000

// remains is a path in the root that only a store has; "" if none is found. The
// directory tmpName alone is no such path, for a store in which no record was
// made may have it and nothing is lost with that.
func (s *Store) remains(names []string) string {
	for _, name := range []string{locksName, queueName} {
		if slices.Contains(names, name) {
			return name
		}
	}
	todo := []string{"."}
	for looks := 0; looks < len(todo) && looks < remainsMost; looks++ {
		dir := todo[looks]
		if _, err := lstatAt(s.rootFD, dir+"/"+markName); err == nil && dir != "." {
			continue // a store of its own
		}
		fd, err := openDir(s.rootFD, dir)
		if err != nil {
			continue
		}
		names, _, err := readNames(fd)
		if err != nil {
			names = nil
		}
		for _, name := range names {
			element, isLife := strings.CutSuffix(name, lifeSuffix)
			if store.CheckKey(element) != nil {
				continue
			}
			if !isLife {
				todo = append(todo, filepath.Join(dir, name))
			} else if _, err := lstatAt(fd, name+"/"+lifeName); err == nil {
				closeFD(fd)
				return filepath.Join(dir, name, lifeName)
			}
		}
		closeFD(fd)
	}
	return ""
}
