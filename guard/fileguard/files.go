package fileguard

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tenure-project/tenure/guard"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

// folderSuffix makes the guard's folder of the guarded path.
const folderSuffix = ".guard"

// What is in the folder.
const (
	markPrefix = "mark-"
	dataPrefix = "data-"
	newPrefix  = "new-"
	boundName  = "bound"
	holdName   = "hold"
)

// digits of a token in a name; enough for every uint64.
const digits = 20

// maxMark is more than a mark with the longest names takes.
const maxMark = 4096

// staleAfter is the age at which a mark that never arrived is cleared away. Its
// writer, if it only slept, fails cleanly then.
const staleAfter = time.Hour

// The waits between two tries of a lock. The kernel's own wait for a lock could
// not be ended with a context.
const (
	tryFirst = time.Millisecond
	tryMost  = 25 * time.Millisecond
)

// mark is the record of one token that was seen.
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

func (g *Guard) dir() string { return g.path + folderSuffix }

func (g *Guard) file(name string) string { return filepath.Join(g.dir(), name) }

func markName(token uint64) string { return fmt.Sprintf("%s%0*d", markPrefix, digits, token) }

// dataName is fresh: two writes under one token do not meet.
func dataName(token uint64) string {
	return fmt.Sprintf("%s%0*d-%s", dataPrefix, digits, token, freshID())
}

func freshID() string {
	var b [8]byte
	if _, err := io.ReadFull(rand.Reader, b[:]); err != nil {
		panic("fileguard: the system gives no random numbers: " + err.Error())
	}
	return hex.EncodeToString(b[:])
}

// tokenIn is the token in a name of the folder, 0 if it has none.
func tokenIn(name, prefix string) uint64 {
	rest, ok := strings.CutPrefix(name, prefix)
	if !ok || len(rest) < digits {
		return 0
	}
	token, err := strconv.ParseUint(rest[:digits], 10, 64)
	if err != nil {
		return 0
	}
	return token
}

// names lists the folder; none if there is no folder yet. What was there before
// the call began, and was not removed, is in the list.
func (g *Guard) names(op string) ([]string, error) {
	d, err := os.Open(g.dir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, failed(op, g.path, store.ErrUnavailable, "", err)
	}
	defer leave(d)
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, failed(op, g.path, store.ErrUnavailable, "", err)
	}
	slices.Sort(names)
	return names, nil
}

// read reads the highest mark; the zero mark if there was none yet.
func (g *Guard) read(op string) (mark, error) {
	before := []string(nil)
	for {
		names, err := g.names(op)
		if err != nil {
			return mark{}, err
		}
		highest := highestMark(names)
		switch {
		case highest != "":
			m, err := g.readMark(op, highest)
			if !errors.Is(err, fs.ErrNotExist) {
				return m, err
			} // else a higher one came meanwhile
		case !slices.Contains(names, boundName):
			return mark{}, nil
		case slices.Equal(names, before):
			return mark{}, store.Errorf(store.ErrCorrupt, scheme, op, g.path,
				"the marks in %s were removed: put them back, or, if no old token is about, remove the whole folder", g.dir())
		}
		// A listing is no snapshot: it can miss a mark that was made after it
		// passed its place, and the lower one that went before it came there. Only
		// two that agree say that there is none.
		before = names
	}
}

func highestMark(names []string) string {
	highest := ""
	for _, name := range names {
		if strings.HasPrefix(name, markPrefix) && name > highest {
			highest = name
		}
	}
	return highest
}

func (g *Guard) readMark(op, name string) (mark, error) {
	path := g.file(name)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return mark{}, err
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
	if err := record.Decode(path, body, &m); err != nil {
		return mark{}, err
	}
	if err := guard.CheckBinding(g.path, g.namespace, g.resource, m.Namespace, m.Resource); err != nil {
		return mark{}, err
	}
	if name != markName(m.Token) {
		return mark{}, store.Errorf(store.ErrCorrupt, scheme, op, path, "it says token %d", m.Token)
	}
	return m, nil
}

// writeMark puts the mark of token in place, if it is not there. It is a file of
// its own and replaces none, so however late it comes it lowers nothing.
func (g *Guard) writeMark(op string, token uint64) error {
	m := mark{V: record.Level, Namespace: g.namespace, Resource: g.resource, Token: token}
	body, err := record.Encode(&m, maxMark)
	if err != nil {
		return failed(op, g.path, guard.ErrInvalid, "", err)
	}
	if err := g.makeFolder(op); err != nil {
		return err
	}
	fresh := g.file(newPrefix + freshID())
	defer func() { _ = os.Remove(fresh) }()
	if err := g.stage(op, fresh, body, 0o644); err != nil {
		return err
	}
	if err := os.Link(fresh, g.file(markName(token))); err != nil && !errors.Is(err, fs.ErrExist) {
		return failed(op, g.path, store.ErrUnavailable, "", err)
	}
	return nil
}

func (g *Guard) makeFolder(op string) error {
	err := os.Mkdir(g.dir(), 0o755)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return failed(op, g.path, store.ErrUnavailable, "", err)
	}
	return g.syncFolder(op, filepath.Dir(g.dir()), g.dir()+" was made, but perhaps not durably")
}

// syncMark makes the mark of token, whoever put it there, durable, and then
// notes that there is one, so that marks that were removed are not taken for
// marks that never were.
func (g *Guard) syncMark(op string, token uint64) error {
	if g.durable.Load() >= token {
		return nil
	}
	bound, err := os.OpenFile(g.file(boundName), os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return failed(op, g.path, store.ErrUnavailable, "", err)
	}
	leave(bound)
	if err := g.syncFolder(op, g.dir(), "the mark is there, but perhaps not durably"); err != nil {
		return err
	}
	for known := g.durable.Load(); known < token && !g.durable.CompareAndSwap(known, token); known = g.durable.Load() {
	}
	return nil
}

// evict removes what lower tokens have on their way in, and what is left of
// those who are gone.
func (g *Guard) evict(op string, token uint64) error {
	names, err := g.names(op)
	if err != nil {
		return err
	}
	for _, name := range names {
		var err error
		switch t := max(tokenIn(name, dataPrefix), tokenIn(name, markPrefix)); {
		case t > 0 && t < token:
			err = os.Remove(g.file(name))
		case strings.HasPrefix(name, newPrefix):
			if info, statErr := os.Stat(g.file(name)); statErr == nil && time.Since(info.ModTime()) > staleAfter {
				err = os.Remove(g.file(name))
			}
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return failed(op, g.path, store.ErrUnavailable, "a lower token has data on its way in that cannot be removed", err)
		}
	}
	return nil
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

// stage writes data durably to name, which is fresh.
func (g *Guard) stage(op, name string, data []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return failed(op, g.path, store.ErrUnavailable, "", err)
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(mode) // whatever the umask had made it
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return failed(op, g.path, store.ErrUnavailable, "", err)
	}
	return nil
}

// syncFolder makes the names in a folder durable. What was done is visible
// already, so a failure is ErrUnknown.
func (g *Guard) syncFolder(op, folder, done string) error {
	dir, err := os.Open(folder)
	if err == nil {
		err = errors.Join(dir.Sync(), dir.Close())
	}
	if err != nil {
		return failed(op, g.path, store.ErrUnknown, done, err)
	}
	return nil
}

// awaitOutside returns once nobody is inside, or give says not to wait. It keeps
// nobody out who does the same.
func (g *Guard) awaitOutside(ctx context.Context, op string, give func() bool) error {
	if _, err := os.Stat(g.file(holdName)); errors.Is(err, fs.ErrNotExist) {
		return nil // nobody ever was
	}
	f, err := g.lockHold(ctx, op, false, give)
	if f != nil {
		leave(f)
	}
	return err
}

// lockHold takes the lock of whoever is inside, alone or together with others
// who only look. The file is nil if give said to give up; the error is a
// BusyError if ctx ended first.
func (g *Guard) lockHold(ctx context.Context, op string, alone bool, give func() bool) (*os.File, error) {
	for wait := tryFirst; ctx.Err() == nil; wait = min(2*wait, tryMost) {
		f, err := tryLock(g.file(holdName), alone)
		if err != nil {
			return nil, failed(op, g.path, store.ErrUnavailable, "", err)
		}
		if f != nil || give() {
			return f, nil
		}
		t := time.NewTimer(wait/2 + mathrand.N(wait))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
		}
	}
	h, _ := g.holder()
	return nil, &BusyError{Path: g.path, Op: op, Holder: h, Cause: context.Cause(ctx)}
}

// tryLock locks the file name, which it makes if it is absent; nil if somebody
// else has the lock. A file that was removed or replaced while it was being
// locked is no lock.
func tryLock(name string, alone bool) (*os.File, error) {
	for {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			return nil, err
		}
		locked, err := flock(f, alone)
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
