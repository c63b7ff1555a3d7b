package fileguard

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/tenure-project/tenure/guard"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

// What is appended to the guarded path.
const (
	markSuffix = ".guard"
	newSuffix  = ".guard.new"
	dataSuffix = ".guard.data"
	gateSuffix = ".guard.lock"
	holdSuffix = ".guard.hold"
)

// maxMark is more than a mark with the longest names takes.
const maxMark = 4096

// The waits between two tries of a lock. The kernel's own wait for a lock could
// not be ended with a context.
const (
	tryFirst = time.Millisecond
	tryMost  = 25 * time.Millisecond
)

// mark is the record of the highest token seen.
type mark struct {
	V         int    `json:"v"`
	Namespace string `json:"namespace"`
	Resource  string `json:"resource"`
	Token     uint64 `json:"token"`
}

// Valid checks the mark's invariants.
func (m *mark) Valid() error {
	return errors.Join(guard.CheckNames(m.Namespace, m.Resource), guard.CheckToken(m.Token))
}

func (g *Guard) file(suffix string) string { return g.path + suffix }

// read reads the mark; the zero mark if there is none yet. The rename that put
// it there makes it whole without a lock.
func (g *Guard) read(op string) (mark, error) {
	name := g.file(markSuffix)
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return mark{}, nil
	}
	if err != nil {
		return mark{}, failed(op, g.path, store.ErrUnavailable, "", err)
	}
	defer leave(f)
	body, err := io.ReadAll(io.LimitReader(f, maxMark+1))
	if err != nil {
		return mark{}, failed(op, g.path, store.ErrUnavailable, "", err)
	}
	var m mark
	if err := record.Decode(name, body, &m); err != nil {
		return mark{}, err
	}
	if err := guard.CheckBinding(g.path, g.namespace, g.resource, m.Namespace, m.Resource); err != nil {
		return mark{}, err
	}
	return m, nil
}

// mode is the mode of the guarded file, which a write keeps.
func (g *Guard) mode(op string) (fs.FileMode, error) {
	info, err := os.Stat(g.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0o644, nil
	case err != nil:
		return 0, failed(op, g.path, store.ErrUnavailable, "", err)
	case !info.Mode().IsRegular():
		return 0, store.Errorf(guard.ErrInvalid, scheme, op, g.path, "it is not a regular file and cannot be replaced; use Hold")
	}
	return info.Mode().Perm(), nil
}

// stage writes data durably to name, which nobody reads yet.
func (g *Guard) stage(op, name string, data []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return failed(op, g.path, store.ErrUnavailable, "", err)
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(mode) // whatever the umask, or an older file of that name, had made it
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return failed(op, g.path, store.ErrUnavailable, "", err)
	}
	return nil
}

// swap makes what was staged visible at once, and durable.
func (g *Guard) swap(op, staged, name string) error {
	if err := os.Rename(staged, name); err != nil {
		return failed(op, g.path, store.ErrUnavailable, "", err)
	}
	dir, err := os.Open(filepath.Dir(name))
	if err == nil {
		err = errors.Join(dir.Sync(), dir.Close())
	}
	if err != nil {
		return failed(op, g.path, store.ErrUnknown, name+" was replaced, but perhaps not durably", err)
	}
	return nil
}

// lockGate takes the lock under which the mark and the data change.
func (g *Guard) lockGate(ctx context.Context, op string) (*os.File, error) {
	f, ended, err := g.lock(ctx, op, gateSuffix, func() bool { return false })
	if ended {
		return nil, failed(op, g.path, store.ErrUnavailable,
			"another process is in the middle of a write; if it was stopped, continue or end it", context.Cause(ctx))
	}
	return f, err
}

// lockHold takes the lock of whoever is inside. The file is nil if give said to
// give up; the error is a BusyError if ctx ended first.
func (g *Guard) lockHold(ctx context.Context, op string, give func() bool) (*os.File, error) {
	f, ended, err := g.lock(ctx, op, holdSuffix, give)
	if ended {
		h, _ := g.holder()
		return nil, &BusyError{Path: g.path, Op: op, Holder: h, Cause: context.Cause(ctx)}
	}
	return f, err
}

// lock tries to lock a file of the guard until it succeeds, give says to give
// up (a nil file), or ctx ended.
func (g *Guard) lock(ctx context.Context, op, suffix string, give func() bool) (f *os.File, ended bool, err error) {
	for wait := tryFirst; ctx.Err() == nil; wait = min(2*wait, tryMost) {
		f, err := tryLock(g.file(suffix))
		if err != nil {
			return nil, false, failed(op, g.path, store.ErrUnavailable, "", err)
		}
		if f != nil || give() {
			return f, false, nil
		}
		t := time.NewTimer(wait/2 + rand.N(wait))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
		}
	}
	return nil, true, nil
}

// tryLock locks the file name, which it makes if it is absent; nil if somebody
// else has the lock. A file that was removed or replaced while it was being
// locked is no lock.
func tryLock(name string) (*os.File, error) {
	for {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			return nil, err
		}
		locked, err := flock(f)
		if err != nil || !locked {
			leave(f)
			return nil, err
		}
		mine, err := f.Stat()
		if err != nil {
			leave(f)
			return nil, err
		}
		if there, err := os.Stat(name); err == nil && os.SameFile(mine, there) {
			return f, nil
		}
		leave(f)
	}
}

// leave closes a file that was read or locked only. The lock goes with the last
// copy of the descriptor.
func leave(f *os.File) { _ = f.Close() }

// failed makes an error. A lack of rights is ErrDenied whatever kind says.
func failed(op, path string, kind error, detail string, cause error) error {
	if kind != store.ErrUnknown && errors.Is(cause, fs.ErrPermission) {
		kind = store.ErrDenied
		if detail == "" {
			detail = "the right to write the file, its guard and its folder is needed"
		}
	}
	e := store.Wrap(kind, scheme, op, path, cause)
	e.Detail = detail
	return e
}
