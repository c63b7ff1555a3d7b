//go:build linux || darwin

package filestore

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// nobody is a user and a group that own nothing here.
const nobody = 65534

// otherGroup is a group, if there is one, that is not the primary one and that
// this process may give files to.
func otherGroup(t *testing.T) int {
	t.Helper()
	if os.Geteuid() == 0 {
		return nobody
	}
	groups, err := os.Getgroups()
	must(t, err)
	for _, g := range groups {
		if g != os.Getegid() {
			return g
		}
	}
	return os.Getegid()
}

// shared is a directory that was given to a group as the manual says.
func shared(t *testing.T, group int) string {
	t.Helper()
	path := quick(t)
	parent := filepath.Dir(path) // the test's own, which others must be able to search
	must(t, os.Chmod(parent, 0o755))
	if above := filepath.Dir(parent); strings.HasPrefix(filepath.Base(above), t.Name()) {
		must(t, os.Chmod(above, 0o755))
	}
	must(t, os.Mkdir(path, 0o700))
	must(t, os.Chown(path, -1, group))
	must(t, os.Chmod(path, 0o770|fs.ModeSetgid))
	return path
}

// checkGroup finds everything below path that its group cannot use.
func checkGroup(t *testing.T, path string, group int) (seen map[string]bool) {
	t.Helper()
	seen = map[string]bool{}
	must(t, filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		want := fs.FileMode(0o660)
		if d.IsDir() {
			want = fs.ModeDir | 0o770
			if runtime.GOOS == "linux" { // elsewhere a directory hands its group on without the bit
				want |= fs.ModeSetgid
			}
		}
		rel, _ := filepath.Rel(path, p)
		seen[rel] = true
		have := info.Mode()
		if runtime.GOOS != "linux" {
			have &^= fs.ModeSetgid
		}
		if gid := int(info.Sys().(*syscall.Stat_t).Gid); have != want || gid != group {
			t.Errorf("%s has the mode %v and the group %d, want %v and %d", rel, have, gid, want, group)
		}
		return nil
	}))
	return seen
}

// A directory with the set-group-ID bit shares the store with its group, which
// need not be the primary group of anyone.
func TestSharedWithAGroup(t *testing.T) {
	t.Parallel()
	group := otherGroup(t)
	path := shared(t, group)
	s := opened(t, path)
	v := create(t, s, "ns/lease/deep/a", "x")
	replace(t, s, "ns/lease/deep/a", "y", v)
	ticket, err := s.Enqueue(within(t), sleeperKey)
	must(t, err)
	defer ticket.Leave()
	want := []string{markName, tmpName, queueName, "ns", "ns/lease/deep/a.d", "ns/lease/deep/a.d/" + lifeName, "ns/lease/deep/a.d/" + numberName(2)}
	if s.canProve() {
		w, err := s.NewWitness(within(t))
		must(t, err)
		defer w.Close()
		want = append(want, locksName)
	}
	seen := checkGroup(t, path, group)
	for _, name := range want {
		if !seen[name] {
			t.Errorf("%s was not looked at", name)
		}
	}
}
