//go:build linux || darwin

package filestore

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenure-project/tenure/store"
)

// Create stores body only if key is absent (ST1). It prepares the directory of
// a new life aside and renames it into place, which the file system does only
// if that place is empty or holds an empty directory.
func (s *Store) Create(ctx context.Context, key string, body []byte) (store.Version, error) {
	if err := s.checkWrite("create", key, body); err != nil {
		return "", err
	}
	body = cloneBody(body) // the caller may be gone before it is written
	return perform(ctx, s, "create", key, func(c *call) (store.Version, error) {
		b := &birth{s: s, c: c, header: firstHeader(key, body)}
		defer b.discard()
		for {
			if err := b.clear(); err != nil {
				return "", err
			}
			if err := b.prepare(body); err != nil {
				return "", err
			}
			done, err := b.place()
			if err != nil {
				return "", err
			}
			if done {
				return b.version(), nil
			}
		}
	})
}

// birth is a new life in the making.
type birth struct {
	header
	s    *Store
	c    *call
	dir  string // its name in the temporary directory; "" before prepare
	file file   // its identity
	// tomb is the tombstone that it found in the way, and since when.
	tomb  string
	since time.Time
}

// clear makes sure that the key is absent and that the remains of its last life
// are not in the way. A life that is over may still stand there because whoever
// ended it is slow, stopped or dead.
func (b *birth) clear() error {
	s := b.s
	if err := s.checkRoot(); err != nil {
		return err
	}
	l, err := s.openLife(b.key)
	if err != nil || l == nil {
		return err
	}
	defer l.close()
	st, err := s.head(l)
	if err != nil {
		return err
	}
	if st != nil {
		defer st.close()
		if st.kind == record {
			return s.fail(b.c, store.ErrExists, "")
		}
	}
	if b.dir == "" {
		return nil // prepare the new life first; then look again
	}
	if st != nil && b.yields(st) {
		return nil
	}
	return s.bury(l)
}

// yields gives whoever ended a life a moment (grace), from now on, to clear it away.
// It reports false when that time is over.
func (b *birth) yields(tomb *state) bool {
	if b.tomb != tomb.nonce {
		b.tomb, b.since = tomb.nonce, time.Now()
	}
	if time.Since(b.since) >= b.s.grace.clear {
		return false
	}
	time.Sleep(time.Millisecond)
	return true
}

// prepare makes the new life in the temporary directory, all of it durable.
func (b *birth) prepare(body []byte) error {
	if b.dir != "" {
		return nil
	}
	s := b.s
	tmp, fd, err := s.writeTemp(b.nonce, append(b.line(), body...))
	if err != nil {
		return err
	}
	defer closeFD(fd)
	dir := b.nonce + lifeSuffix
	if err := s.mkdir(s.tmpFD, dir, s.modes); err != nil {
		_ = s.unlink(s.tmpFD, tmp)
		return fault("mkdir", s.tmpPath(dir), err)
	}
	b.dir = dir
	life, err := openDir(s.tmpFD, dir)
	if err != nil {
		return fault("open", s.tmpPath(dir), err)
	}
	defer closeFD(life)
	stat, err := statOf(life)
	if err != nil {
		return fault("stat", s.tmpPath(dir), err)
	}
	b.file = fileOf(stat)
	// All names first: one commit of the file system's journal then holds them.
	if err := s.link(s.tmpFD, tmp, life, numberName(1)); err != nil {
		return fault("link", s.tmpPath(dir), err)
	}
	if err := s.lifeFile.link(life); err != nil {
		return fault("link", s.tmpPath(dir), err)
	}
	for _, fd := range []int{fd, life} {
		if err := s.sync(fd); err != nil {
			return fault("sync", s.tmpPath(dir), err)
		}
	}
	return nil
}

// lifeFile is the empty file whose links are the files "life" of the lives that
// this store creates: so they take no inode each.
type lifeFile struct {
	s    *Store
	mu   sync.Mutex
	name string // in the temporary directory; "" if there is none
}

// link gives the file another name in a new life. Its own name may have been
// swept away, or it may have as many as a file can have: then it gets a
// successor.
func (f *lifeFile) link(life int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for fresh := false; ; fresh = true {
		if f.name == "" {
			name, fd, err := f.s.writeTemp(randomID()+sourceSuffix, nil)
			if err != nil {
				return err
			}
			closeFD(fd)
			f.name = name
		}
		err := f.s.link(f.s.tmpFD, f.name, life, lifeName)
		if fresh || err != unix.ENOENT && err != unix.EMLINK {
			return err
		}
		f.drop()
	}
}

// drop removes the file's own name.
func (f *lifeFile) drop() {
	if f.name != "" {
		_ = f.s.unlink(f.s.tmpFD, f.name)
		f.name = ""
	}
}

// place renames the prepared life to where it belongs. It reports false if
// something was in the way that may be gone now.
func (b *birth) place() (bool, error) {
	s := b.s
	parent, name, err := s.parents.open(b.key)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer closeFD(parent)
	if !b.c.commit() {
		return false, errAbandoned
	}
	if err := s.rename(s.tmpFD, b.dir, parent, name); err != nil && !sameAt(parent, name, b.file) {
		if !certain(err) {
			b.dir = "" // it may be in place yet
			return false, s.unknown(b.c, "", fault("rename", s.lifeDir(b.key), err))
		}
		b.c.retract()
		return false, b.refused(err)
	}
	b.dir = ""
	if err := s.sync(parent); err != nil {
		return false, s.unknown(b.c, "the record is there, but may not outlive a power cut", fault("sync", filepath.Dir(s.lifeDir(b.key)), err))
	}
	_ = s.unlink(s.tmpFD, b.nonce)
	return true, nil
}

// refused is nil if the rename is worth another try.
func (b *birth) refused(err error) error {
	switch err {
	case unix.ENOTEMPTY, unix.EEXIST: // a rival's life, or a dead one
		return nil
	case unix.ENOENT:
		if sameAt(b.s.tmpFD, b.dir, b.file) {
			return nil // the parent was empty, and somebody removed it
		}
		return fault("rename", b.s.tmpPath(b.dir), err) // taken for stale and removed
	}
	return fault("rename", b.s.lifeDir(b.key), err)
}

// discard removes what was prepared and not used.
func (b *birth) discard() {
	if b.dir == "" {
		return
	}
	s := b.s
	for _, name := range []string{lifeName, numberName(1)} {
		_ = s.unlink(s.tmpFD, b.dir+"/"+name)
	}
	_ = s.rmdir(s.tmpFD, b.dir)
	_ = s.unlink(s.tmpFD, b.nonce)
}

func cloneBody(b []byte) []byte { return append([]byte(nil), b...) }
