package ledger

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
)

// Compact replaces the log file by the fewest lines that say the same, of all its agents
// (EX7). Who is at it, is waited for as long as ctx lasts. The file is there at every
// instant, as the old one or as the new one.
func (f *FileLedger) Compact(ctx context.Context) error {
	lock, err := f.lock(ctx, always)
	if err != nil {
		return err
	}
	defer lock.Close()
	old, err := os.ReadFile(f.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return f.broken("read", err)
	}
	g := NewLog()
	if err := g.ReadFrom(f.path, bytes.NewReader(old)); err != nil {
		return err
	}
	var lines bytes.Buffer
	if _, err := g.WriteTo(&lines); err != nil {
		return err
	}
	if bytes.Equal(lines.Bytes(), old) {
		return nil
	}
	if err := f.replace(&lines); err != nil {
		return f.broken("compact", err)
	}
	return nil
}

// replace puts a file of these lines in the log's place, durably. Owner and mode stay: the
// log would be lost to its users otherwise.
func (f *FileLedger) replace(lines io.Reader) error {
	path, err := filepath.EvalSymlinks(f.path)
	if err != nil {
		return err
	}
	was, err := os.Stat(path)
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".new-*")
	if err != nil {
		return err
	}
	if _, err = io.Copy(tmp, lines); err == nil {
		err = errors.Join(keepOwner(tmp, was), tmp.Chmod(was.Mode().Perm()), tmp.Sync())
	}
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return syncFolder(filepath.Dir(path))
}
