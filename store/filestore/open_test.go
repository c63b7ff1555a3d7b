//go:build linux || darwin

package filestore

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tenure-project/tenure/store"
)

// A directory that is not ours is refused and left alone.
//
// SPEC ST8
func TestOpenRefusesWhatIsNotAStore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	file := write("file", "x")
	used := filepath.Dir(write("used/letter.txt", "x"))
	broken := filepath.Dir(write("broken/"+markName, "hello"))
	empty := filepath.Dir(write("emptied/"+markName, ""))
	newer := filepath.Dir(write("newer/"+markName, "tenure-store/2 "+randomID()+"\n"))
	for path, want := range map[string]error{
		file: store.ErrInvalid, used: store.ErrInvalid, filepath.Join(dir, "no", "parent"): store.ErrInvalid,
		"": store.ErrInvalid, "~/x": store.ErrInvalid, "a\x00b": store.ErrInvalid,
		broken: store.ErrCorrupt, empty: store.ErrCorrupt, newer: store.ErrNewer,
		filepath.Join(file, "x"): store.ErrInvalid,
	} {
		s, err := Open(path)
		if err == nil {
			_ = s.Close()
		}
		isKind(t, "Open of "+path, err, want)
	}
	for path, n := range map[string]int{used: 1, broken: 1, newer: 1} {
		if list, err := os.ReadDir(path); err != nil || len(list) != n {
			t.Errorf("a refused directory %s was changed: %v, %v", path, list, err)
		}
	}
}

func TestOpenAcceptsWhatIsFit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fresh := filepath.Join(dir, "mount")
	if err := os.MkdirAll(filepath.Join(fresh, "lost+found"), 0o700); err != nil {
		t.Fatal(err)
	}
	s := opened(t, fresh)
	v := create(t, s, sleeperKey, "0")
	link := filepath.Join(dir, "link")
	if err := os.Symlink(fresh, link); err != nil {
		t.Fatal(err)
	}
	other := opened(t, link)
	if a, b := s.Info().Identity, other.Info().Identity; a != b || !strings.HasPrefix(a, "file:/") {
		t.Errorf("one place has the identities %q and %q", a, b)
	}
	replace(t, other, sleeperKey, "1", v)
	holds(t, s, sleeperKey, "1")
	if s.FileSystem() == "" {
		t.Error("the file system has no name")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("a second Close: %v", err)
	}
}

// Many processes may make one store at the same time.
func TestOpenRaces(t *testing.T) {
	t.Parallel()
	path := quick(t)
	stores := make([]*Store, 12)
	var wg sync.WaitGroup
	for i := range stores {
		wg.Go(func() {
			s, err := Open(path)
			if err != nil {
				t.Error(err)
				return
			}
			stores[i] = s
		})
	}
	wg.Wait()
	for i, s := range stores {
		if s == nil {
			continue
		}
		defer s.Close()
		if i == 0 {
			create(t, s, sleeperKey, "0")
		}
		holds(t, s, sleeperKey, "0")
	}
}

// Permissions follow the root directory: nothing by default for others.
func TestPermissions(t *testing.T) {
	t.Parallel()
	for mode, want := range map[os.FileMode][2]os.FileMode{0o755: {0o750, 0o640}, 0o700: {0o700, 0o600}, 0o770: {0o770, 0o660}} {
		path := quick(t)
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		s := opened(t, path)
		create(t, s, "ns/lease/a", "x")
		err := filepath.WalkDir(path, func(p string, d os.DirEntry, err error) error {
			if err != nil || p == path {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			expect := want[1]
			if d.IsDir() {
				expect = want[0]
			}
			if info.Mode().Perm() != expect {
				t.Errorf("in a directory of mode %o, %s has the mode %o, want %o", mode, p, info.Mode().Perm(), expect)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// remote is an option that makes every file system a network file system.
func remote(c *config) {
	c.remote = func(string) (string, bool, error) { return "nfs", true, nil }
}

// SPEC ST8 ST14
func TestNetworkFileSystems(t *testing.T) {
	t.Parallel()
	path := quick(t)
	_, err := Open(path, remote)
	isKind(t, "Open on a network file system", err, store.ErrInvalid)
	if err != nil && (!strings.Contains(err.Error(), "nfs") || !strings.Contains(err.Error(), "network=allow")) {
		t.Errorf("the error %q names neither the file system nor the way out", err)
	}
	s := opened(t, path, remote, WithNetworkFS())
	if can := s.Info().Can; can.Has(store.CanQueue) || can.Has(store.CanProve) || !can.Has(store.CanWatch) {
		t.Errorf("on a network file system the powers are %b", can)
	}
	_, err = s.Enqueue(within(t), sleeperKey)
	isKind(t, "Enqueue on a network file system", err, store.ErrInvalid)
	_, err = s.NewWitness(within(t))
	isKind(t, "NewWitness on a network file system", err, store.ErrInvalid)
	holds(t, s, sleeperKey, "-")
}

func TestDriverOpensURLs(t *testing.T) {
	t.Parallel()
	d := Driver()
	if d.Scheme != "file" {
		t.Errorf("the scheme is %q", d.Scheme)
	}
	path := quick(t)
	s, err := d.Open(within(t), &url.URL{Scheme: "file", Path: path})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = d.Open(ended, &url.URL{Scheme: "file", Path: path})
	isKind(t, "Open with an ended context", err, store.ErrUnavailable)
	_, err = d.Open(within(t), &url.URL{Scheme: "file", Path: filepath.Join(path, "no", "parent")})
	isKind(t, "Open of a bad path", err, store.ErrInvalid)
}

// A store whose directory was replaced under it, by a restore or a mount, does
// not go on in either of the two.
//
// SPEC ST3
func TestReplacedRoot(t *testing.T) {
	t.Parallel()
	path := quick(t)
	s := opened(t, path)
	v := create(t, s, sleeperKey, "0")
	if err := os.Rename(path, path+"-old"); err != nil {
		t.Fatal(err)
	}
	try := func(what string) {
		t.Helper()
		_, err := s.Get(within(t), sleeperKey, MaxBody)
		isKind(t, "Get "+what, err, store.ErrUnavailable)
		_, err = s.Create(within(t), "ns/lease/new", nil)
		isKind(t, "Create "+what, err, store.ErrUnavailable)
		_, err = s.Replace(within(t), sleeperKey, nil, v)
		isKind(t, "Replace "+what, err, store.ErrUnavailable)
		isKind(t, "Watch "+what, s.Watch(within(t), sleeperKey, v), store.ErrUnavailable)
		for _, err := range s.List(within(t), "", "") {
			isKind(t, "List "+what, err, store.ErrUnavailable)
		}
	}
	try("without the root")
	opened(t, path)
	try("with another root")
	if err := errors.Join(os.RemoveAll(path), os.Rename(path+"-old", path)); err != nil {
		t.Fatal(err)
	}
	holds(t, s, sleeperKey, "0")
}

// What killed processes left behind goes with a later Open, and nothing else.
func TestOpenSweeps(t *testing.T) {
	t.Parallel()
	path := quick(t)
	s := opened(t, path)
	v := create(t, s, sleeperKey, "0")
	tmp := func(name string) string { return filepath.Join(path, tmpName, name) }
	old := []string{tmp("file"), tmp("dir" + lifeSuffix), tmp("stale-x")}
	for _, p := range old[1:] {
		if err := os.MkdirAll(p, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(p, lifeName), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	young := tmp("young")
	for _, p := range []string{old[0], young} {
		if err := os.WriteFile(p, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// A state that its killed writer did not sync keeps its second name a while.
	if err := os.Link(filepath.Join(path, lifePath(sleeperKey), numberName(1)), tmp("second-name")); err != nil {
		t.Fatal(err)
	}
	for _, p := range append(old, tmp("second-name")) {
		age(t, p, 2*staleTemp)
	}
	opened(t, path)
	left := slices.DeleteFunc(entries(t, s), func(name string) bool { return filepath.Dir(name) != tmpName })
	if !slices.Equal(left, []string{filepath.Join(tmpName, "young")}) {
		t.Errorf("after an Open the temporary directory holds %q", left)
	}
	replace(t, s, sleeperKey, "1", v)
}

// A creator that was stopped for so long that its work was swept away has done
// nothing, and leaves nothing.
//
// SPEC ST1
func TestSweptCreate(t *testing.T) {
	t.Parallel()
	g := &gate{}
	path := quick(t)
	s := opened(t, path, traced(g))
	for _, want := range []func(step) bool{of(stepRename), of(stepLink), of(stepSync)} {
		wake := asleep(t, g, want, func() error {
			_, err := s.Create(within(t), sleeperKey, []byte("late"))
			return err
		})
		left, err := os.ReadDir(filepath.Join(path, tmpName))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range left {
			age(t, filepath.Join(path, tmpName, e.Name()), 2*staleTemp)
		}
		opened(t, path)
		isKind(t, "a create that was swept away", wake(), store.ErrUnavailable)
		holds(t, s, sleeperKey, "-")
	}
	create(t, s, sleeperKey, "on")
}

// SPEC ST2
func TestSweptReplace(t *testing.T) {
	t.Parallel()
	g := &gate{}
	path := quick(t)
	s := opened(t, path, traced(g))
	v := create(t, s, sleeperKey, "0")
	wake := asleep(t, g, of(stepLink), func() error {
		_, err := s.Replace(within(t), sleeperKey, []byte("late"), v)
		return err
	})
	left, err := os.ReadDir(filepath.Join(path, tmpName))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range left {
		age(t, filepath.Join(path, tmpName, e.Name()), 2*staleTemp)
	}
	opened(t, path)
	isKind(t, "a replace that was swept away", wake(), store.ErrUnavailable)
	holds(t, s, sleeperKey, "0")
}

// A path with an element too few names the parent of a store. That is a mistake
// in the path and no damage, and the message says which path was meant.
//
// SPEC ST8
func TestOpenOfAParent(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	s, err := Open(filepath.Join(parent, "child"))
	if err != nil {
		t.Fatal(err)
	}
	create(t, s, store.Key("ns", "lease", "x"), "x")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, opts := range [][]Option{nil, {MustExist()}} {
		s, err := Open(parent, opts...)
		if err == nil {
			_ = s.Close()
		}
		isKind(t, "Open of the parent", err, store.ErrInvalid)
		if err != nil && !strings.Contains(err.Error(), "but child in it is one") {
			t.Errorf("%v", err)
		}
	}
}
