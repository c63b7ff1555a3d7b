//go:build linux || darwin

package numbered

import (
	"os"
	"testing"
	"time"

	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/filestore"
	"github.com/tenure-project/tenure/store/storetest"
)

// folder is a fresh directory, in memory where there is such a thing: a state is
// a directory and two files, and the suite makes thousands.
func folder(t testing.TB) string {
	t.Helper()
	memory := "/dev/shm"
	if info, err := os.Stat(memory); err != nil || !info.IsDir() {
		memory = ""
	}
	d, err := os.MkdirTemp(memory, "numbered-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(d) })
	return d
}

// filed is the harness of registers in a directory.
func filed() storetest.Harness {
	open := func(t testing.TB, path string) store.Store {
		t.Helper()
		s, err := filestore.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		return fileHandle{New(createOnly{s}).(*Store), path}
	}
	return storetest.Harness{
		Slow: true, Limit: 10 * time.Second,
		Open: func(t testing.TB) store.Store { return open(t, folder(t)) },
		Peer: func(t testing.TB, s store.Store) store.Store { return open(t, s.(fileHandle).path) },
	}
}

type fileHandle struct {
	*Store
	path string
}

// SPEC ST17
func TestSuiteOverFiles(t *testing.T) {
	t.Parallel()
	storetest.Run(t, filed())
}
