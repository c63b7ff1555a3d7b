//go:build linux || darwin

package filestore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tenure-project/tenure/store"
)

// damaged makes a store with one record and lets f damage its directory.
func damaged(t *testing.T, f func(dir, state string)) (*Store, store.Version) {
	t.Helper()
	s := opened(t, quick(t), hasty)
	v := replace(t, s, sleeperKey, "some body", create(t, s, sleeperKey, "0"))
	create(t, s, "ns/lease/b", "neighbour")
	dir := filepath.Join(s.root, lifePath(sleeperKey))
	f(dir, filepath.Join(dir, numberName(2)))
	return s, v
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A damaged record stops whoever touches it, hides no other, and does not pass
// for an absent one.
//
// SPEC ST7 ST8
func TestDamagedRecords(t *testing.T) {
	t.Parallel()
	edit := func(f func(text []byte) []byte) func(t *testing.T, dir, state string) {
		return func(t *testing.T, _, state string) {
			text, err := os.ReadFile(state)
			must(t, err)
			must(t, os.WriteFile(state, f(text), 0o600))
		}
	}
	for name, damage := range map[string]func(t *testing.T, dir, state string){
		"body-changed":   edit(func(b []byte) []byte { b[len(b)-1]++; return b }),
		"header-changed": edit(func(b []byte) []byte { b[30]++; return b }),
		"cut-off":        edit(func(b []byte) []byte { return b[:len(b)-1] }),
		"grown":          edit(func(b []byte) []byte { return append(b, 'x') }),
		"emptied":        edit(func([]byte) []byte { return nil }),
		"of-another-key": func(t *testing.T, dir, state string) {
			must(t, os.Remove(state))
			must(t, os.Link(filepath.Join(filepath.Dir(dir), "b.d", numberName(1)), state))
		},
		"a-directory": func(t *testing.T, _, state string) {
			must(t, os.Remove(state))
			must(t, os.Mkdir(state, 0o700))
		},
		"a-pipe": func(t *testing.T, _, state string) {
			must(t, os.Remove(state))
			must(t, unix.Mkfifo(state, 0o600))
		},
		"a-link": func(t *testing.T, dir, state string) {
			must(t, os.Rename(state, filepath.Join(dir, "elsewhere")))
			must(t, os.Symlink("elsewhere", state))
		},
		"no-states": func(t *testing.T, dir, state string) {
			must(t, errors.Join(os.Remove(state), os.Remove(filepath.Join(dir, numberName(1)))))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, v := damaged(t, func(dir, state string) { damage(t, dir, state) })
			_, err := s.Get(within(t), sleeperKey, MaxBody)
			isKind(t, "Get", err, store.ErrCorrupt)
			if err != nil && !strings.Contains(err.Error(), sleeperKey) {
				t.Errorf("the error %q does not name the key", err)
			}
			if name != "body-changed" { // which a writer that knows the version does not read
				_, err = s.Create(within(t), sleeperKey, nil)
				isKind(t, "Create", err, store.ErrCorrupt)
				_, err = s.Replace(within(t), sleeperKey, nil, v)
				isKind(t, "Replace", err, store.ErrCorrupt)
				isKind(t, "DeleteIf", s.DeleteIf(within(t), sleeperKey, v), store.ErrCorrupt)
				isKind(t, "Delete", s.Delete(within(t), sleeperKey), store.ErrCorrupt)
			}
			if got := listed(t, s); !slices.Equal(got, []string{sleeperKey, "ns/lease/b"}) {
				t.Errorf("the listing is %q", got)
			}
			holds(t, s, "ns/lease/b", "neighbour")
		})
	}
}

// SPEC ST15
func TestNewerRecord(t *testing.T) {
	t.Parallel()
	s, v := damaged(t, func(_, state string) {
		text, err := os.ReadFile(state)
		must(t, err)
		must(t, os.WriteFile(state, []byte(strings.Replace(string(text), stateMark, "tenure-state/7", 1)), 0o600))
	})
	_, err := s.Get(within(t), sleeperKey, MaxBody)
	isKind(t, "Get of a record of a later level", err, store.ErrNewer)
	_, err = s.Replace(within(t), sleeperKey, nil, v)
	isKind(t, "Replace of a record of a later level", err, store.ErrNewer)
}

func listed(t *testing.T, s *Store) []string {
	t.Helper()
	var keys []string
	for k, err := range s.List(within(t), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, k)
	}
	return keys
}

// Files that are not of the store are no keys and do no harm.
//
// SPEC ST6
func TestForeignFiles(t *testing.T) {
	t.Parallel()
	s := opened(t, quick(t), hasty)
	v := create(t, s, sleeperKey, "0")
	for _, name := range []string{
		"README", "ns/Notes.d", "ns/x.d", "ns/lease/file", "ns/lease/b.d", ".DS_Store", "ns/lease/a.d/.DS_Store", "ns/lease/a.d/12",
	} {
		must(t, os.WriteFile(filepath.Join(s.root, name), []byte("x"), 0o600))
	}
	for _, name := range []string{"ns/Dir.d", "ns/lease/empty.d", "ns/lost+found", "ns/lease/deep/er"} {
		must(t, os.MkdirAll(filepath.Join(s.root, name), 0o700))
	}
	if got := listed(t, s); !slices.Equal(got, []string{sleeperKey}) {
		t.Errorf("the listing is %q", got)
	}
	holds(t, s, "ns/lease/empty", "-")
	create(t, s, "ns/lease/empty", "x") // in the place of an empty directory
	_, err := s.Get(within(t), "ns/lease/b", MaxBody)
	isKind(t, "Get of a key in whose place a file stands", err, store.ErrCorrupt)
	_, err = s.Create(within(t), "ns/lease/file/x", nil)
	isKind(t, "Create below a file", err, store.ErrCorrupt)
	v = replace(t, s, sleeperKey, "1", v)
	remove(t, s, sleeperKey, v) // foreign files in it go too
	create(t, s, sleeperKey, "2")
}

// A symbolic link in the place of a directory is nothing that a listing passes
// over: what it replaced would look deleted.
//
// SPEC ST6 ST7
func TestListRefusesLinks(t *testing.T) {
	t.Parallel()
	for _, name := range []string{lifePath(sleeperKey), "ns/lease", "ns"} {
		s := opened(t, quick(t), hasty)
		create(t, s, sleeperKey, "0")
		create(t, s, "ns/lease/b", "neighbour")
		path := filepath.Join(s.root, name)
		elsewhere := filepath.Join(filepath.Dir(s.root), "elsewhere")
		for _, target := range []string{elsewhere, "nowhere"} {
			must(t, os.Rename(path, elsewhere))
			must(t, os.Symlink(target, path))
			for _, prefix := range []string{"", "ns/lease/"} {
				var last error
				for _, err := range s.List(within(t), prefix, "") {
					last = err
				}
				isKind(t, "List of a store in which "+name+" is a link", last, store.ErrCorrupt)
				if last != nil && !strings.Contains(last.Error(), path+" is a symbolic link") {
					t.Errorf("the error %q does not name the link", last)
				}
			}
			if name == lifePath(sleeperKey) {
				_, err := s.Get(within(t), sleeperKey, MaxBody)
				isKind(t, "Get", err, store.ErrCorrupt)
			}
			must(t, errors.Join(os.Remove(path), os.Rename(elsewhere, path)))
			if got := listed(t, s); !slices.Equal(got, []string{sleeperKey, "ns/lease/b"}) {
				t.Errorf("after the repair the listing is %q", got)
			}
		}
	}
}

// A directory in a record's own directory cannot be cleared away: a person must.
func TestForeignDirectoryInADeletedRecord(t *testing.T) {
	t.Parallel()
	s := opened(t, quick(t), hasty)
	v := create(t, s, sleeperKey, "0")
	alien := filepath.Join(s.root, lifePath(sleeperKey), "alien")
	must(t, os.Mkdir(alien, 0o700))
	remove(t, s, sleeperKey, v)
	holds(t, s, sleeperKey, "-")
	_, err := s.Create(within(t), sleeperKey, nil)
	isKind(t, "Create", err, store.ErrCorrupt)
	if err != nil && !strings.Contains(err.Error(), "alien") {
		t.Errorf("the error %q does not name what is in the way", err)
	}
	must(t, os.Remove(alien))
	create(t, s, sleeperKey, "1")
}

// One-off names take nothing once they are deleted.
//
// CASE B64
// SPEC ST5
func TestDeletedNamesGiveTheirInodesBack(t *testing.T) {
	t.Parallel()
	names := 5000
	if raceEnabled {
		names = 1000
	}
	s := opened(t, quick(t), hasty)
	create(t, s, "ns/lease/stays", "x")
	create(t, s, "ns/history/stays/1", "x")
	before := entries(t, s)
	for i := range names {
		key := fmt.Sprintf("ns/lease/job-%d", i)
		if i%4 == 0 {
			key = fmt.Sprintf("ns/history/job-%d/1", i)
		}
		v := create(t, s, key, "x")
		if i%2 == 0 {
			v = replace(t, s, key, "y", v)
		}
		remove(t, s, key, v)
	}
	if after := entries(t, s); !slices.Equal(before, after) {
		t.Errorf("%d names that came and went left %d entries more", names, len(after)-len(before))
	}
}

// What deletes that were killed half-way left goes when the key is listed.
//
// CASE B64
func TestListClearsOldRemains(t *testing.T) {
	t.Parallel()
	for _, name := range []string{lifeName, numberName(1)} {
		s := opened(t, quick(t), hasty)
		create(t, s, "ns/lease/stays", "x")
		before := entries(t, s)
		v := create(t, s, sleeperKey, "0")
		dying := false
		s.tracer = failing(func(st step) error {
			dying = dying || st.kind == stepUnlink && st.name == name
			if dying {
				return errors.New("killed")
			}
			return nil
		})
		_ = s.DeleteIf(within(t), sleeperKey, v)
		s.tracer = nil
		holds(t, s, sleeperKey, "-")
		dir := filepath.Join(s.root, lifePath(sleeperKey))
		if _, err := os.Stat(dir); err != nil {
			t.Fatalf("the killed delete left nothing: %v", err)
		}
		age(t, dir, 2*residueAge)
		if got := listed(t, s); !slices.Equal(got, []string{"ns/lease/stays"}) {
			t.Errorf("the listing is %q", got)
		}
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the remains are still there: %v", err)
		}
		must(t, os.RemoveAll(filepath.Join(s.root, tmpName)))
		must(t, os.Mkdir(filepath.Join(s.root, tmpName), 0o700))
		if after := entries(t, s); !slices.Equal(before, after) {
			t.Errorf("there are %q, want %q", after, before)
		}
	}
}

// Names that some file system or reader takes for the same are different here.
//
// CASE B52
// SPEC ST11
func TestLookalikeNames(t *testing.T) {
	t.Parallel()
	s := opened(t, quick(t))
	pairs := [][2]string{{"Job", "job"}, {"a", "a "}, {"é", "e\u0301"}, {"a\u200bb", "ab"}, {"🔒", "🔓"}, {"\u202eabc", "abc"}, {"con", "CON"}}
	for _, p := range pairs {
		for _, name := range p {
			create(t, s, store.Key("ns", "lease", name), name)
		}
		for _, name := range p {
			holds(t, s, store.Key("ns", "lease", name), name)
		}
	}
	if got := listed(t, s); len(got) != 2*len(pairs) {
		t.Errorf("%d names are listed as %d keys", 2*len(pairs), len(got))
	}
}
