//go:build linux || darwin

package filestore

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// disk is a model of what a power cut may leave of a directory tree: every
// change of a directory since its last sync may or may not be there, in any
// combination, and a file that was not synced is empty. That is more than any
// file system in use loses.
type disk struct {
	mu    sync.Mutex
	t     testing.TB
	nodes map[file]*node // by present identity
	root  *node
	// crash is called before every step, with nothing locked.
	crash func(before step)
	// dying makes every step fail once it returns true: a killed process.
	dying func(before step) bool
	dead  bool
}

// node is a file or directory.
type node struct {
	name    string // where it was made; for messages
	dir     bool
	data    []byte
	synced  bool             // file: data is durable
	now     map[string]*node // dir: as running processes see it
	durable map[string]*node // dir: what certainly outlives a power cut
	pending []change         // dir: what may
}

// change makes name be what, or be absent.
type change struct {
	name string
	what *node
}

var errDead = errors.New("the process was killed")

// newDisk models the tree at path, which is taken for durable as it is.
func newDisk(t testing.TB, path string) *disk {
	d := &disk{t: t, nodes: map[file]*node{}}
	d.root = d.load(path)
	return d
}

func (d *disk) load(path string) *node {
	info, err := os.Lstat(path)
	if err != nil {
		d.t.Fatal(err)
	}
	n := &node{name: path, dir: info.IsDir(), synced: true}
	d.nodes[fileOfInfo(info)] = n
	if !n.dir {
		if n.data, err = os.ReadFile(path); err != nil {
			d.t.Fatal(err)
		}
		return n
	}
	n.now = map[string]*node{}
	list, err := os.ReadDir(path)
	if err != nil {
		d.t.Fatal(err)
	}
	for _, e := range list {
		n.now[e.Name()] = d.load(filepath.Join(path, e.Name()))
	}
	n.durable = maps.Clone(n.now)
	return n
}

// at is the node behind an open descriptor.
func (d *disk) at(fd int) *node {
	st, err := statOf(fd)
	if err != nil {
		d.t.Fatal(err)
	}
	n := d.nodes[fileOf(st)]
	if n == nil {
		d.t.Fatal("the model missed how a file came to be")
	}
	return n
}

// find is the node with a relative path below a directory.
func (d *disk) find(dir int, path string) (parent *node, name string) {
	parent = d.at(dir)
	for {
		first, rest, more := strings.Cut(path, "/")
		if !more {
			return parent, first
		}
		parent, path = parent.now[first], rest
	}
}

func (n *node) set(name string, what *node) {
	if what == nil {
		delete(n.now, name)
	} else {
		n.now[name] = what
	}
	n.pending = append(n.pending, change{name, what})
}

func (d *disk) before(st step) error {
	d.mu.Lock()
	crash := d.crash
	if d.dying != nil && d.dying(st) {
		d.dead = true
	}
	dead := d.dead
	d.mu.Unlock()
	if dead {
		return errDead
	}
	if crash != nil {
		crash(st)
	}
	return nil
}

func (d *disk) after(st step, err error) {
	if err != nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch st.kind {
	case stepMkdir, stepCreate:
		parent, name := d.find(st.dir, st.name)
		made, err := lstatAt(st.dir, st.name)
		if err != nil {
			d.t.Fatal(err)
		}
		n := &node{name: st.name, dir: st.kind == stepMkdir}
		if n.dir {
			n.now, n.durable = map[string]*node{}, map[string]*node{}
		}
		d.nodes[fileOf(made)] = n
		parent.set(name, n)
	case stepWrite:
		n := d.at(st.fd)
		n.data, n.synced = slices.Clone(st.data), false
	case stepSync:
		n := d.at(st.fd)
		n.synced = true
		for _, c := range n.pending {
			apply(n.durable, c)
		}
		n.pending = nil
	case stepLink, stepRename:
		from, old := d.find(st.from, st.old)
		to, name := d.find(st.dir, st.name)
		what := from.now[old]
		if st.kind == stepRename {
			from.set(old, nil)
		}
		to.set(name, what)
	case stepUnlink, stepRmdir:
		parent, name := d.find(st.dir, st.name)
		parent.set(name, nil)
	}
}

func apply(entries map[string]*node, c change) {
	if c.what == nil {
		delete(entries, c.name)
	} else {
		entries[c.name] = c.what
	}
}

// choice says for every directory which of its pending changes survive.
type choice map[*node]int

// each calls f with every choice of what may survive. Temporary files matter to
// no reader, so their directory survives as it is.
func (d *disk) each(f func(choice)) {
	var dirs []*node
	total := 0
	var visit func(n *node)
	visit = func(n *node) {
		if !n.dir || slices.Contains(dirs, n) || n == d.root.now[tmpName] {
			return
		}
		if len(n.pending) > 0 {
			dirs = append(dirs, n)
			total += len(n.pending)
		}
		for _, entries := range []map[string]*node{n.durable, n.now} {
			for _, name := range slices.Sorted(maps.Keys(entries)) {
				visit(entries[name])
			}
		}
		for _, c := range n.pending {
			if c.what != nil {
				visit(c.what)
			}
		}
	}
	visit(d.root)
	if total > 14 {
		d.t.Fatalf("%d changes are pending, too many to try every combination", total)
	}
	for bits := range 1 << total {
		c := choice{}
		for _, n := range dirs {
			c[n] = bits & (1<<len(n.pending) - 1)
			bits >>= len(n.pending)
		}
		f(c)
	}
}

// survives is what a directory holds after the power cut.
func (c choice) survives(n *node) map[string]*node {
	entries := maps.Clone(n.durable)
	for i, ch := range n.pending {
		if c[n]&(1<<i) != 0 {
			apply(entries, ch)
		}
	}
	return entries
}

// text describes what survives, so that equal outcomes are tried once.
func (c choice) text(n *node) string {
	if !n.dir {
		return fmt.Sprintf("%p %v", n, n.synced)
	}
	var b strings.Builder
	entries := c.survives(n)
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		fmt.Fprintf(&b, "%s(%s)", name, c.text(entries[name]))
	}
	return b.String()
}

// write makes what survives at path.
func (c choice) write(t testing.TB, root, n *node, path string) {
	t.Helper()
	if !n.dir {
		var data []byte
		if n.synced {
			data = n.data
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if n == root.now[tmpName] {
		return
	}
	for name, child := range c.survives(n) {
		c.write(t, root, child, filepath.Join(path, name))
	}
}
