//go:build linux || darwin

package filestore

import (
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// maxPinned is how many directories a store keeps open to remember that their
// own entries are durable.
const maxPinned = 64

// parents opens and makes the directories above the lives, and sees to it that
// their entries are durable: one that another process just made may not be.
// It remembers a directory by holding it open, because the number of a removed
// directory may be given to another one.
type parents struct {
	s *Store

	mu     sync.Mutex
	pinned map[file]int // known durable, by open descriptor
	order  []file       // oldest first
}

func newParents(s *Store) *parents {
	return &parents{s: s, pinned: map[file]int{}}
}

// open opens the directory that holds the life of key, made if need be and
// durable, and gives the life's name in it. ENOENT inside means that somebody
// removed an empty directory in between: try again.
func (p *parents) open(key string) (fd int, name string, err error) {
	dir, name := "", lifePath(key)
	if i := strings.LastIndexByte(key, '/'); i >= 0 {
		dir, name = key[:i], name[i+1:]
	}
	fd, err = p.walk(dir, true)
	return fd, name, err
}

// settle makes the entries of the directories above key durable.
func (p *parents) settle(key string) error {
	dir := ""
	if i := strings.LastIndexByte(key, '/'); i >= 0 {
		dir = key[:i]
	}
	fd, err := p.walk(dir, false)
	if err == unix.ENOENT {
		return nil // then the key has gone meanwhile
	}
	if err != nil {
		return err
	}
	defer closeFD(fd)
	// The life's own entry, which its creator may not have synced yet.
	if err := p.s.sync(fd); err != nil {
		return fault("sync", filepath.Join(p.s.root, dir), err)
	}
	return nil
}

// walk opens dir, a path below the root, element by element.
func (p *parents) walk(dir string, create bool) (int, error) {
	if fd, err := openDir(p.s.rootFD, "./"+dir); err == nil {
		if dir == "" || p.known(fd) {
			return fd, nil
		}
		closeFD(fd)
	}
	cur, err := openDir(p.s.rootFD, ".")
	if err != nil {
		return -1, fault("open", p.s.root, err)
	}
	path := p.s.root
	for element := range strings.SplitSeq(dir, "/") {
		path = filepath.Join(path, element)
		next, err := p.enter(cur, element, path, create)
		closeFD(cur)
		if err != nil {
			return -1, err
		}
		cur = next
	}
	return cur, nil
}

// enter opens one directory in another and makes its entry there durable.
func (p *parents) enter(dir int, name, path string, create bool) (int, error) {
	fd, err := openDir(dir, name)
	if err == unix.ENOENT && create {
		if err = p.s.mkdir(dir, name, p.s.modes); err == nil || err == unix.EEXIST {
			fd, err = openDir(dir, name)
		}
	}
	switch {
	case err == unix.ENOENT:
		return -1, err
	case err != nil:
		return -1, fault("open", path, err)
	case p.known(fd):
		return fd, nil
	}
	if err := p.s.sync(dir); err != nil {
		closeFD(fd)
		return -1, fault("sync", filepath.Dir(path), err)
	}
	p.remember(fd)
	return fd, nil
}

// known reports whether the entry of the open directory fd is durable.
func (p *parents) known(fd int) bool {
	st, err := statOf(fd)
	if err != nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.pinned[fileOf(st)]
	return ok
}

func (p *parents) remember(fd int) {
	st, err := statOf(fd)
	if err != nil {
		return
	}
	pin, err := openDir(fd, ".")
	if err != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	f := fileOf(st)
	if _, ok := p.pinned[f]; ok {
		closeFD(pin)
		return
	}
	if len(p.order) == maxPinned {
		closeFD(p.pinned[p.order[0]])
		delete(p.pinned, p.order[0])
		p.order = p.order[1:]
	}
	p.pinned[f] = pin
	p.order = append(p.order, f)
}

func (p *parents) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, fd := range p.pinned {
		closeFD(fd)
	}
	p.pinned, p.order = map[file]int{}, nil
}
