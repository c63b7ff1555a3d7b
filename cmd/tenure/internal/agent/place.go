package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/store"
)

// SocketPath is where in dir the agent of a namespace listens. identity is that of
// the store ([store.Info]).
func SocketPath(dir, identity, namespace string) string {
	sum := sha256.Sum256([]byte(identity + "\x00" + namespace))
	return filepath.Join(dir, "agent-"+hex.EncodeToString(sum[:8])+".sock")
}

// CheckPath refuses a socket that cannot be: on a system without agents, or with a
// path that is not absolute or longer than the system allows.
func CheckPath(path string) error {
	switch {
	case !Supported:
		return invalid(path, "this system has no agents: they need Linux or macOS")
	case !filepath.IsAbs(path):
		return invalid(path, "give an absolute path")
	case len(path) > maxPath:
		return invalid(path, "the path has %d bytes, and this system allows %d for a socket: give --socket a shorter one, or set XDG_RUNTIME_DIR to a folder with a shorter name", len(path), maxPath)
	}
	return nil
}

func invalid(path, format string, args ...any) error {
	return store.Errorf(store.ErrInvalid, "", "agent socket", path, format, args...)
}

// checkFolder wants a folder that nobody else can change.
func checkFolder(path string) error {
	dir := filepath.Dir(path)
	info, err := os.Stat(dir)
	if err != nil {
		return store.Wrap(store.ErrInvalid, "", "agent socket", path, err)
	}
	if !info.IsDir() || !private(info) {
		return invalid(path, "%s is not a folder of this user alone: chmod 700 it, or choose another", dir)
	}
	return nil
}

// Place is the right to listen on a socket, which one process has at a time.
type Place struct {
	path string
	lock *os.File
}

// Claim takes the right to listen on path, and removes what a dead agent left
// there. A live agent is a tenure.ErrHeld, and is not disturbed.
func Claim(path string) (*Place, error) {
	if err := errors.Join(CheckPath(path)); err != nil {
		return nil, err
	}
	if err := checkFolder(path); err != nil {
		return nil, err
	}
	lock, err := openLock(path + ".lock")
	if err != nil {
		return nil, err
	}
	p := &Place{path: path, lock: lock}
	if err := p.clear(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	if err := p.sign(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return p, nil
}

// openLock opens and locks the file beside the socket. It is never removed: two
// processes would hold two files of one name then.
func openLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|noFollow, 0o600)
	if err != nil {
		return nil, store.Wrap(store.ErrInvalid, "", "agent socket", path, err)
	}
	switch err := tryLock(f); {
	case errors.Is(err, errLocked):
		who, _ := io.ReadAll(io.LimitReader(f, 32))
		_ = f.Close()
		return nil, runningError(strings.TrimSuffix(path, ".lock"), strings.TrimSpace(string(who)))
	case err != nil:
		_ = f.Close()
		return nil, store.Wrap(store.ErrInvalid, "", "agent socket", path, err)
	}
	return f, nil
}

func runningError(path, pid string) error {
	who := "another agent"
	if pid != "" {
		who = "another agent (process " + pid + ")"
	}
	return fmt.Errorf("%s: %w: %s listens there; ask it with `tenure agent status`, or end it first", path, tenure.ErrHeld, who)
}

// clear removes a stale socket. One that still answers belongs to an agent that
// lives without its lock file: somebody removed that.
func (p *Place) clear() error {
	info, err := os.Lstat(p.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return store.Wrap(store.ErrInvalid, "", "agent socket", p.path, err)
	case info.Mode().Type() != fs.ModeSocket:
		return invalid(p.path, "something that is no socket is in the way: remove it, or give another --socket")
	}
	c, err := net.DialTimeout("unix", p.path, time.Second)
	switch {
	case err == nil:
		_ = c.Close()
		return runningError(p.path, "")
	case !refused(err):
		return store.Wrap(store.ErrInvalid, "", "agent socket", p.path, err)
	}
	return os.Remove(p.path)
}

// sign writes into the lock file who holds it, for people.
func (p *Place) sign() error {
	if err := p.lock.Truncate(0); err != nil {
		return err
	}
	_, err := p.lock.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
	return err
}

// Listen makes the socket, for this user only. Closing the listener removes it.
func (p *Place) Listen() (*net.UnixListener, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: p.path, Net: "unix"})
	if err != nil {
		return nil, store.Wrap(store.ErrInvalid, "", "agent socket", p.path, err)
	}
	if err := os.Chmod(p.path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// Path is the socket's path.
func (p *Place) Path() string { return p.path }

// Close gives the place up.
func (p *Place) Close() error { return p.lock.Close() }

// trusted refuses a peer that is neither this user nor root.
func trusted(uid, self int) error {
	if uid != self && uid != 0 {
		return store.Errorf(store.ErrDenied, "", "agent socket", "", "the process at the other end belongs to user %d, this one to user %d: an agent and its commands must have one user", uid, self)
	}
	return nil
}
