//go:build linux || darwin

package filestore

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/tenure-project/tenure/store"
)

// names are the entries of a directory; none if there is no directory.
func names(t *testing.T, dir string) []string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) && !errors.Is(err, syscall.ENOTDIR) {
		t.Fatal(err)
	}
	var all []string
	for _, e := range list {
		all = append(all, e.Name())
	}
	return all
}

// fails opens a store that must be refused with all of words, and checks that
// nothing was written.
func fails(t *testing.T, path string, kind error, opts []Option, words ...string) {
	t.Helper()
	before := names(t, path)
	s, err := Open(path, opts...)
	if err == nil {
		_ = s.Close()
	}
	isKind(t, "Open of "+path, err, kind)
	for _, w := range words {
		if err != nil && !strings.Contains(err.Error(), w) {
			t.Errorf("the error %q does not say %q", err, w)
		}
	}
	if after := names(t, path); !slices.Equal(before, after) {
		t.Errorf("a refused Open of %s left %q, before there was %q", path, after, before)
	}
}

// With MustExist a path that is no store is refused and nothing is written.
//
// SPEC UI4
func TestMustExist(t *testing.T) {
	t.Parallel()
	must1 := []Option{MustExist()}
	path := quick(t)
	fails(t, path, store.ErrInvalid, must1, "there is no store at "+path, "does not exist")
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("the refused directory is there: %v", err)
	}
	fails(t, filepath.Join(path, "no", "parent"), store.ErrInvalid, must1, "there is no store at")
	must(t, os.Mkdir(path, 0o700))
	fails(t, path, store.ErrInvalid, must1, "there is no store at "+path, markName)
	must(t, os.Mkdir(filepath.Join(path, tmpName), 0o700)) // of a maker that was killed
	fails(t, path, store.ErrInvalid, must1, "there is no store at "+path)
	must(t, os.WriteFile(filepath.Join(path, "letter.txt"), nil, 0o600))
	fails(t, path, store.ErrInvalid, must1, "there is no store at "+path)
	fails(t, filepath.Join(path, "letter.txt"), store.ErrInvalid, must1, "is not a directory")
	fails(t, filepath.Join(path, "letter.txt", "x"), store.ErrInvalid, must1, "is not a directory")
	must(t, os.Remove(filepath.Join(path, "letter.txt")))
	create(t, opened(t, path), sleeperKey, "0")
	holds(t, opened(t, path, MustExist()), sleeperKey, "0")
}

// SPEC UI4
func TestCreateParameter(t *testing.T) {
	t.Parallel()
	path := quick(t)
	for _, try := range []struct {
		create string
		want   error
	}{{"no", store.ErrInvalid}, {"maybe", store.ErrInvalid}, {"yes", nil}, {"no", nil}} {
		u := &url.URL{Scheme: scheme, Path: path, RawQuery: "create=" + try.create}
		s, err := Driver().Open(within(t), u)
		if err == nil {
			_ = s.Close()
		}
		if store.KindOf(err) != try.want {
			t.Errorf("create=%s: %v, want the kind %v", try.create, err, try.want)
		}
		if _, err := os.Lstat(path); try.want != nil && !os.IsNotExist(err) {
			t.Errorf("create=%s left a directory: %v", try.create, err)
		}
	}
}

// A store that lost its mark is not taken for a foreign directory, for whoever
// then went on in another one would give the old tokens out again.
//
// SPEC ST3 ST8
func TestLostMark(t *testing.T) {
	t.Parallel()
	for _, only := range []string{"", "ns", locksName, queueName} {
		path := quick(t)
		s := opened(t, path)
		create(t, s, sleeperKey, "0")
		mark := filepath.Join(path, markName)
		line, err := os.ReadFile(mark)
		must(t, err)
		must(t, os.Remove(mark))
		if only != "" {
			must(t, os.RemoveAll(filepath.Join(path, tmpName)))
		}
		if only != "" && only != "ns" {
			must(t, os.RemoveAll(filepath.Join(path, "ns")))
			must(t, os.Mkdir(filepath.Join(path, only), 0o700))
		}
		for _, opts := range [][]Option{nil, {MustExist()}} {
			fails(t, path, store.ErrCorrupt, opts, "it is a store whose mark, the file "+markName+", is gone", "tokens would start again", storeMark)
		}
		if _, err := Open(path); err != nil && strings.Contains(err.Error(), "name an empty") {
			t.Errorf("the error %q sends the user to another directory", err)
		}
		must(t, os.WriteFile(mark, line, 0o600))
		if only == "" || only == "ns" {
			holds(t, opened(t, path, MustExist()), sleeperKey, "0")
		}
	}
}
