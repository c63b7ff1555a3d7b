//go:build linux || darwin

package filestore

import (
	"context"
	"iter"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenure-project/tenure/store"
)

// A listing looks up firstPage keys before it hands any out, then four times as
// many each time, up to maxPage: many callers want only a few.
const firstPage, maxPage = 8, 512

// List yields the keys that start with prefix and are greater than after, in
// byte order (ST6). It holds the names of one directory per level in memory, and
// nothing is locked or in use while the caller works. A directory of the store
// without the file "life" is no key, and neither is a file that is not of the
// store; a damaged record is listed, and Get says what is wrong with it. A
// symbolic link in the place of a directory hides what belongs there: the
// listing ends with store.ErrCorrupt.
func (s *Store) List(ctx context.Context, prefix, after string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		w := &walk{s: s, prefix: prefix, after: after, size: firstPage}
		for {
			page, err := perform(ctx, s, "list", "", w.next)
			if err != nil {
				yield("", err)
				return
			}
			for _, key := range page {
				if !yield(key, nil) {
					return
				}
			}
			if len(page) == 0 { // asked once more, so that an ended context shows
				return
			}
		}
	}
}

// walk is a listing under way: what is still to be visited, the next last. An
// entry that ends in a slash stands for all keys that begin with it.
type walk struct {
	s             *Store
	prefix, after string
	started       bool
	size          int
	todo          []string
}

// next finds some more keys; none when there are no more.
func (w *walk) next(c *call) ([]string, error) {
	if !w.started {
		w.started = true
		if err := w.s.checkRoot(); err != nil {
			return nil, err
		}
		dir := w.start()
		for i, c := range dir { // above it, links would be followed
			if c == '/' {
				if err := w.s.refuseLink("", dir[:i]); err != nil {
					return nil, err
				}
			}
		}
		if err := w.expand(dir); err != nil {
			return nil, err
		}
	}
	var page []string
	for len(w.todo) > 0 && len(page) < w.size {
		if !c.abandoned().IsZero() {
			return nil, errAbandoned
		}
		entry := w.todo[len(w.todo)-1]
		w.todo = w.todo[:len(w.todo)-1]
		if strings.HasSuffix(entry, "/") {
			if err := w.expand(entry); err != nil {
				return nil, err
			}
			continue
		}
		there, err := w.s.present(entry)
		if err != nil {
			return nil, err
		}
		if there {
			page = append(page, entry)
		}
	}
	w.size = min(4*w.size, maxPage)
	return page, nil
}

// start is the deepest directory that holds all keys with the prefix.
func (w *walk) start() string {
	dir := w.prefix[:strings.LastIndexByte(w.prefix, '/')+1]
	if dir != "" && store.CheckKey(strings.TrimSuffix(dir, "/")) != nil {
		return "" // no key begins so; it leads nowhere
	}
	return dir
}

// expand puts the entries of a directory on the list, in the order of the keys
// that they stand for: "a" < "a-b" < "a/b" < "a0".
func (w *walk) expand(dir string) error {
	path := strings.TrimSuffix(dir, "/") // with the slash, a link would be followed
	fd, err := openDir(w.s.rootFD, "./"+path)
	if err == unix.ENOENT || err == unix.ENOTDIR || err == unix.ELOOP {
		return w.s.refuseLink("", path) // else removed meanwhile, or not of this store
	}
	if err != nil {
		return fault("open", w.s.root+"/"+dir, err)
	}
	defer closeFD(fd)
	names, _, err := readNames(fd)
	if err != nil {
		return fault("list", w.s.root+"/"+dir, err)
	}
	from := len(w.todo)
	for _, name := range names {
		element, isKey := strings.CutSuffix(name, lifeSuffix)
		entry := dir + element
		if !isKey {
			entry += "/"
		}
		if store.CheckKey(element) == nil && w.wanted(entry) {
			w.todo = append(w.todo, entry)
		}
	}
	slices.Sort(w.todo[from:])
	w.todo = slices.Compact(w.todo)
	slices.Reverse(w.todo[from:])
	return nil
}

// wanted reports whether entry is, or may begin, a key that the caller wants.
func (w *walk) wanted(entry string) bool {
	if !strings.HasSuffix(entry, "/") {
		return strings.HasPrefix(entry, w.prefix) && entry > w.after
	}
	return (strings.HasPrefix(entry, w.prefix) || strings.HasPrefix(w.prefix, entry)) &&
		(entry > w.after || strings.HasPrefix(w.after, entry))
}

// residueAge is how old the remains of a deleted record must be before a
// listing clears them away: whoever deleted it is surely not at it any more.
const residueAge = time.Minute

// present reports whether key has a living record, be it damaged.
func (s *Store) present(key string) (bool, error) {
	l, err := s.openLife(key)
	if err != nil || l == nil {
		if s.isDamage(err) { // something else in the place of a directory
			return false, s.refuseLink(key, lifePath(key))
		}
		return false, err
	}
	defer l.close()
	st, err := s.head(l)
	if s.isDamage(err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	if st != nil {
		defer st.close()
		if st.kind == record {
			return true, nil
		}
	}
	if stat, err := statOf(l.fd); err == nil && time.Since(modTime(stat)) > residueAge {
		if st != nil {
			time.Sleep(s.grace.clear) // the wall clock may have been set
		}
		if s.bury(l) == nil {
			s.remove(l)
		}
	}
	return false, nil
}

// refuseLink is an error if a symbolic link stands at path below the root.
func (s *Store) refuseLink(key, path string) error {
	st, err := lstatAt(s.rootFD, path)
	if err != nil || st.Mode&unix.S_IFMT != unix.S_IFLNK {
		return nil
	}
	return store.Errorf(store.ErrCorrupt, s.identity, "list", key,
		"%s is a symbolic link, which a store never makes: put the directory back that it replaced, or remove the link", filepath.Join(s.root, path))
}

// isDamage reports whether err speaks of one record, and not of the disk.
func (s *Store) isDamage(err error) bool {
	kind := store.KindOf(s.explain("list", "", err))
	return kind == store.ErrCorrupt || kind == store.ErrNewer
}
