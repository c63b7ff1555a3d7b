// Package fileguard guards a local file, or a longer action on one, among the
// processes of one machine (GD2).
//
// The mark, which is the highest token seen, is kept durably beside the guarded
// path and outlives every process (GD3). The folder PATH.guard belongs to the
// guard of PATH:
//
//	mark-TOKEN        {"v":1,"namespace":"...","resource":"...","token":N}; the
//	                  highest one counts (TOKEN has 20 digits)
//	bound             there was a mark once: none at all is damage
//	data-TOKEN-ID     data on their way in
//	new-ID            a mark on its way in
//	hold              locked while somebody is inside; says who
//
// None of them may be removed while the guard is in use, and the mark never as
// long as an old token may still be about.
//
// [Guard.Write] replaces the whole file under a token, as one durable step, and
// takes no lock: it puts the data beside the file, looks at the mark, and
// renames the data into place. [Guard.Raise] makes the mark durable and then
// removes the data that lower tokens have on their way in. Whoever of the two
// came second sees the other: the writer sees the mark, or its data are gone and
// the rename fails. So a process that is stopped anywhere in a write keeps
// nobody out, and its write does not happen once a higher token was raised.
//
// For a longer action, such as a command that works on the file, [Guard.Hold]
// holds the resource from the check to the end of the action: a higher token
// makes the mark durable first, so that no lower one gets in any more, then tells
// the lower one to end through [Held.Context], and waits for it.
//
// # What is not promised
//
// A guard may block, the lease never does: a process that was stopped while it
// holds keeps all others out until it goes on or is ended, and they get
// store.ErrUnavailable, with a [BusyError] that names it, when their contexts
// end. The guard protects against those who ask it; a program that writes PATH
// without it is not held up. It works on one kernel, so a network file system is
// refused. Two hard links to one file are two paths with a guard each; a symbolic
// link is followed to the one. A backup that puts PATH.guard back to an older
// state puts back what the guard knows, too.
package fileguard

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/tenure-project/tenure/guard"
	"github.com/tenure-project/tenure/internal/netfs"
	"github.com/tenure-project/tenure/store"
)

// scheme names the guard in errors.
const scheme = "fileguard"

// Guard guards one path for the tokens of one lease. It keeps nothing open, so
// it needs no Close; any number of them, in any number of processes, guard the
// same path together. It is safe for concurrent use.
type Guard struct {
	path, namespace, resource string

	durable atomic.Uint64 // a mark that is certainly durable

	// Tests stop the process here: admitted but not yet inside, before the check
	// of a write, and after that check.
	beforeHold, beforeCheck, afterCheck func()
}

// Open returns the guard of path for the tokens of resource in namespace. The
// folder of path must exist and be on a local disk; path need not. A guard that
// is bound to another lease already is guard.ErrInvalid (GD1). Nothing is
// written before the first token is seen.
func Open(path, namespace, resource string) (*Guard, error) {
	if err := guard.CheckNames(namespace, resource); err != nil {
		return nil, err
	}
	real, err := resolve(path)
	if err != nil {
		return nil, err
	}
	nothing := func() {}
	g := &Guard{path: real, namespace: namespace, resource: resource, beforeHold: nothing, beforeCheck: nothing, afterCheck: nothing}
	if _, err := g.Highest(); err != nil {
		return nil, err
	}
	return g, nil
}

// resolve gives path the one name under which all its guards meet.
func resolve(path string) (string, error) {
	const op = "open"
	if path == "" || path[len(path)-1] == filepath.Separator {
		return "", store.Errorf(guard.ErrInvalid, scheme, op, path, "%q names no file", path)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", store.Wrap(guard.ErrInvalid, scheme, op, path, err)
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(abs))
	if err != nil {
		return "", failed(op, path, guard.ErrInvalid, "its folder cannot be used: make it first", err)
	}
	name, remote, err := netfs.Remote(dir)
	if err != nil {
		return "", failed(op, path, guard.ErrInvalid, "its folder cannot be examined", err)
	}
	if remote {
		return "", store.Errorf(guard.ErrInvalid, scheme, op, path, "it is on a network file system (%s), where a guard does not hold between machines", name)
	}
	abs = filepath.Join(dir, filepath.Base(abs))
	real, err := filepath.EvalSymlinks(abs)
	switch {
	case err == nil:
		return real, nil
	case errors.Is(err, fs.ErrNotExist):
		if _, linkErr := os.Lstat(abs); linkErr == nil {
			return "", failed(op, path, guard.ErrInvalid, "it is a link that leads nowhere", err)
		}
		return abs, nil
	}
	return "", failed(op, path, guard.ErrInvalid, "", err)
}

// Raise lifts the mark to token without a write, and returns when no write of a
// lower token can happen any more and no holder of one is inside (GD1). A new
// holder raises before its first read. If a lower one that holds does not end
// before ctx does, the error is a [BusyError]; lower tokens are refused from the
// start all the same. A token that is too low itself is a *guard.FencedError.
func (g *Guard) Raise(ctx context.Context, token uint64) error {
	const op = "raise"
	if err := g.lift(ctx, op, token); err != nil {
		return err
	}
	return g.awaitOutside(ctx, op, func() bool {
		h, known := g.holder()
		return known && h.Token >= token // whoever is inside is not lower
	})
}

// Write replaces the guarded file by data, durably and as one step, if no
// higher token was seen; else it is a *guard.FencedError and the file is as it
// was. store.ErrUnknown means that the write may have happened: it may be
// repeated under the same token. A holder of the same token that is inside
// makes it wait; use [Held.Write] there.
func (g *Guard) Write(ctx context.Context, token uint64, data []byte) error {
	const op = "write"
	if err := g.lift(ctx, op, token); err != nil {
		return err
	}
	if err := g.awaitOutside(ctx, op, func() bool { return g.stillAdmits(token) != nil }); err != nil {
		return err
	}
	return g.replace(ctx, op, token, data)
}

// Highest returns the highest token seen, 0 if there was none yet.
func (g *Guard) Highest() (uint64, error) {
	m, err := g.read("read mark")
	return m.Token, err
}

// lift admits token: it refuses a lower one than the mark, makes a higher one
// durable, and sees to it that no lower one that is on its way in arrives.
func (g *Guard) lift(ctx context.Context, op string, token uint64) error {
	if err := guard.CheckToken(token); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return failed(op, g.path, store.ErrUnavailable, "", context.Cause(ctx))
	}
	m, err := g.read(op)
	if err != nil {
		return err
	}
	if m.Token > token {
		return g.fenced(token, m.Token)
	}
	if m.Token < token {
		if err := g.writeMark(op, token); err != nil {
			return err
		}
	}
	if err := g.syncMark(op, token); err != nil {
		return err
	}
	// Everybody does this, not only the one who made the mark: that one may have
	// been stopped before it came to it.
	if err := g.evict(op, token); err != nil {
		return err
	}
	err = g.stillAdmits(token)
	if errors.Is(err, guard.ErrFenced) {
		_ = os.Remove(g.file(markName(token))) // it came too late to count
	}
	return err
}

func (g *Guard) fenced(token, highest uint64) error {
	return &guard.FencedError{Namespace: g.namespace, Resource: g.resource, Token: token, Highest: highest}
}

// stillAdmits is an error once the mark is above token, or tells nothing.
func (g *Guard) stillAdmits(token uint64) error {
	m, err := g.read("check")
	switch {
	case err != nil:
		return err
	case m.Token == 0:
		return store.Errorf(store.ErrCorrupt, scheme, "check", g.path, "the marks in %s were removed", g.dir())
	case m.Token > token:
		return g.fenced(token, m.Token)
	}
	return nil
}

// enter gets inside under token: nobody else is inside then, and no higher
// token had been seen when that became so. The caller closes the file to leave.
func (g *Guard) enter(ctx context.Context, op string, token uint64) (*os.File, error) {
	if err := g.lift(ctx, op, token); err != nil {
		return nil, err
	}
	g.beforeHold()
	hold, err := g.lockHold(ctx, op, true, func() bool { return g.stillAdmits(token) != nil })
	if err != nil {
		return nil, err
	}
	if hold == nil {
		return nil, g.stillAdmits(token)
	}
	// First say who is inside, then look at the mark again: a higher token lifts
	// the mark first and then looks who is inside, so one of the two sees the
	// other.
	err = g.sayHolder(op, hold, token)
	if err == nil {
		err = g.lift(ctx, op, token)
	}
	if err != nil {
		leave(hold)
		return nil, err
	}
	return hold, nil
}

// replace puts data in place of the guarded file for one who was admitted. The
// rename is the only step that anybody sees, and it fails if the data were
// removed by a higher token before it.
func (g *Guard) replace(ctx context.Context, op string, token uint64, data []byte) error {
	mode, err := g.mode(op)
	if err != nil {
		return err
	}
	staged := g.file(dataName(token))
	defer func() { _ = os.Remove(staged) }() // of a write that was refused
	if err := g.stage(op, staged, data, mode); err != nil {
		return err
	}
	g.beforeCheck()
	if err := g.stillAdmits(token); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return failed(op, g.path, store.ErrUnavailable, "", context.Cause(ctx))
	}
	g.afterCheck()
	err = os.Rename(staged, g.path)
	if errors.Is(err, fs.ErrNotExist) {
		if fenced := g.stillAdmits(token); fenced != nil {
			return fenced
		}
	}
	if err != nil {
		return failed(op, g.path, store.ErrUnavailable, "", err)
	}
	return g.syncFolder(op, filepath.Dir(g.path), g.path+" was replaced, but perhaps not durably")
}
