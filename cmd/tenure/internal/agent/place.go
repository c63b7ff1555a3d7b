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

// AliasPath is where in dir the same agent is found by what its user calls the store:
// its URL, without secrets. The identity of a store is known only to the store.
func AliasPath(dir, url, namespace string) string {
	sum := sha256.Sum256([]byte(url + "\x00" + namespace))
	return filepath.Join(dir, "url-"+hex.EncodeToString(sum[:8])+".sock")
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

// socketOp is the operation of every error about a socket and its folder.
const socketOp = "agent socket"

func invalid(path, format string, args ...any) error {
	return store.Errorf(store.ErrInvalid, "", socketOp, path, format, args...)
}

// unusable is err of a file or folder that cannot be used: for want of a right, or
// for another reason that only the user can mend.
func unusable(path string, err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return store.Wrap(store.ErrDenied, "", socketOp, path, err)
	}
	return store.Wrap(store.ErrInvalid, "", socketOp, path, err)
}

// IsPlace reports whether err is about the socket or its folder.
func IsPlace(err error) bool {
	var e *store.Error
	return errors.As(err, &e) && e.Op == socketOp
}

// checkFolder wants a folder that nobody else can change.
func checkFolder(path string) error {
	dir := filepath.Dir(path)
	info, err := os.Stat(dir)
	if err != nil {
		return unusable(path, err)
	}
	if !info.IsDir() || !private(info) {
		return invalid(path, "%s is not a folder of this user alone: choose a folder of your own (mode 0700)", dir)
	}
	return nil
}

// Place is the right to listen on a socket, which one process has at a time. It is
// for one goroutine.
type Place struct {
	path     string
	lock     *os.File
	listener *net.UnixListener // nil before Listen
	made     fs.FileInfo       // the socket as Listen made it
	alias    string            // another name of the socket; "" for none
}

// Claim takes the right to listen on path, and removes what a dead agent left
// there. A live agent is a tenure.ErrHeld, and is not disturbed.
func Claim(path string) (*Place, error) {
	if err := CheckPath(path); err != nil {
		return nil, err
	}
	if err := checkFolder(path); err != nil {
		return nil, err
	}
	p := &Place{path: path}
	if err := p.take(); err != nil {
		return nil, err
	}
	return p, nil
}

// take locks the file beside the socket, and removes what a dead agent left.
func (p *Place) take() error {
	lock, err := openLock(p.path)
	if err != nil {
		return err
	}
	old := p.lock
	p.lock = lock
	if old != nil {
		_ = old.Close() // of a file that has no name any more
	}
	if err = p.clear(); err == nil {
		err = p.sign()
	}
	if err != nil {
		err = errors.Join(err, lock.Close())
	}
	return err
}

// openLock opens and locks the file beside the socket. It is never removed: two
// processes would hold two files of one name then.
func openLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path+lockSuffix, os.O_RDWR|os.O_CREATE|noFollow, 0o600)
	if err != nil {
		return nil, unusable(path, err)
	}
	if err = tryLock(f); err == nil {
		return f, nil
	}
	_ = f.Close()
	if errors.Is(err, errLocked) {
		return nil, runningError(path, signature(path))
	}
	return nil, unusable(path, err)
}

// lockSuffix is what the file beside the socket is called in addition.
const lockSuffix = ".lock"

// signature is the process that last claimed the socket at path, as it wrote it
// down; "" if that cannot be read.
func signature(path string) string {
	f, err := os.Open(path + lockSuffix)
	if err != nil {
		return ""
	}
	defer f.Close()
	text, _ := io.ReadAll(io.LimitReader(f, 32))
	return strings.TrimSpace(string(text))
}

// runningError says that another agent has the place. One whose socket somebody
// removed makes it anew by itself.
func runningError(path, pid string) error {
	who := "another agent"
	if pid != "" {
		who = "another agent (process " + pid + ")"
	}
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w: %s runs, but its socket is gone: it makes it anew, or end it first", path, tenure.ErrHeld, who)
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
		return unusable(p.path, err)
	case info.Mode().Type() != fs.ModeSocket:
		return invalid(p.path, "something that is no socket is in the way: remove it, or give another --socket")
	}
	c, err := net.DialTimeout("unix", p.path, time.Second)
	switch {
	case err == nil:
		_ = c.Close()
		return runningError(p.path, "")
	case !refused(err):
		return unusable(p.path, err)
	}
	if err := os.Remove(p.path); err != nil {
		return unusable(p.path, err)
	}
	return nil
}

// sign writes into the lock file who holds it, for people.
func (p *Place) sign() error {
	err := p.lock.Truncate(0)
	if err == nil {
		_, err = p.lock.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
	}
	if err != nil {
		return unusable(p.path, err)
	}
	return nil
}

// Listen makes the socket, for this user only. Closing the listener removes it.
func (p *Place) Listen() (*net.UnixListener, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: p.path, Net: "unix"})
	if err != nil {
		return nil, unusable(p.path, err)
	}
	info, err := os.Lstat(p.path)
	if err == nil {
		err = os.Chmod(p.path, 0o600)
	}
	if err != nil {
		return nil, errors.Join(unusable(p.path, err), l.Close())
	}
	p.listener, p.made = l, info
	return l, nil
}

// Mend looks whether the socket is still there, and its alias, and makes them anew
// if somebody removed them. The listener is nil if nothing was to be done; else it
// takes the place of the one before, which is closed. Another agent that took the
// place meanwhile, which takes the loss of the lock file as well, is a
// tenure.ErrHeld, and is not disturbed.
func (p *Place) Mend() (*net.UnixListener, error) {
	if info, err := os.Lstat(p.path); err == nil && os.SameFile(info, p.made) {
		return nil, p.nameAgain()
	}
	p.listener.SetUnlinkOnClose(false) // what has that name now is not its own
	dir := filepath.Dir(p.path)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, unusable(p.path, err)
	}
	if err := checkFolder(p.path); err != nil {
		return nil, err
	}
	if err := p.lockAgain(); err != nil {
		return nil, err
	}
	old := p.listener
	l, err := p.Listen()
	if err != nil {
		return nil, err
	}
	_ = old.Close()
	return l, p.nameAgain()
}

// lockAgain takes the place, unless this process has it yet.
func (p *Place) lockAgain() error {
	ours, err := p.lock.Stat()
	if err == nil {
		if there, err := os.Lstat(p.path + lockSuffix); err == nil && os.SameFile(ours, there) {
			return p.clear()
		}
	}
	return p.take()
}

// Alias gives the socket another name in its folder, by which it is found without
// its store: see [AliasPath].
func (p *Place) Alias(path string) error {
	p.alias = path
	return p.nameAgain()
}

func (p *Place) nameAgain() error {
	if to, err := os.Readlink(p.alias); p.alias == "" || err == nil && to == p.path {
		return nil
	}
	fresh := fmt.Sprintf("%s.%d", p.alias, os.Getpid())
	_ = os.Remove(fresh)
	err := os.Symlink(p.path, fresh)
	if err == nil {
		err = os.Rename(fresh, p.alias)
	}
	if err != nil {
		return unusable(p.alias, err)
	}
	return nil
}

// Path is the socket's path.
func (p *Place) Path() string { return p.path }

// Close gives the place up. Close the listener first.
func (p *Place) Close() error {
	if to, err := os.Readlink(p.alias); p.alias != "" && err == nil && to == p.path {
		_ = os.Remove(p.alias)
	}
	return p.lock.Close()
}

// trusted refuses a peer of the agent that is neither its user nor root.
func trusted(uid, self int) error {
	if uid != self && uid != 0 {
		return otherUser(uid, self, "only the same user and root are answered")
	}
	return nil
}

// mayAsk refuses an agent that is not this user's, unless root asks.
func mayAsk(uid, self int) error {
	if uid != self && self != 0 {
		return otherUser(uid, self, "only the same user and root are answered")
	}
	return nil
}

// mayBorrow refuses a lease to or from anybody but the same user.
func mayBorrow(uid, self int) error {
	if uid != self {
		return otherUser(uid, self, "an agent and its commands must have one user; root may only ask how it fares")
	}
	return nil
}

func otherUser(uid, self int, rule string) error {
	return store.Errorf(store.ErrDenied, "", socketOp, "", "the process at the other end belongs to user %d, this one to user %d: %s", uid, self, rule)
}
