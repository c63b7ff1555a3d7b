package netfs

import (
	"errors"
	"io/fs"
	"path/filepath"
	"testing"
)

func TestLocalFolderIsNotRemote(t *testing.T) {
	t.Parallel()
	name, remote, err := Remote(t.TempDir())
	if err != nil || remote {
		t.Fatalf("Remote of a temporary folder = %q, %v, %v; want a local file system", name, remote, err)
	}
}

func TestAbsentPathIsAnError(t *testing.T) {
	t.Parallel()
	_, _, err := Remote(filepath.Join(t.TempDir(), "absent"))
	if !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("Remote of an absent path gave %v, want %v", err, fs.ErrNotExist)
	}
}
