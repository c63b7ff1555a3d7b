package proc

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ref names the group for another process of this boot: see [CgroupEmpty].
func (c *cage) ref() (string, error) {
	parent, err := statInode(filepath.Dir(c.path))
	if err != nil {
		return "", err
	}
	own, err := statInode(c.path)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("cgroup2 %s %d %d %d %s", bootID(), own.dev, parent.ino, own.ino, c.path), nil
}

type inode struct{ dev, ino uint64 }

func statInode(path string) (inode, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return inode{}, &os.PathError{Op: "lstat", Path: path, Err: err}
	}
	return inode{dev: uint64(st.Dev), ino: st.Ino}, nil
}

// groupOf takes the group that ref names into use; nil if there is none.
func groupOf(ref string) *cage {
	r, err := parseCgroupRef(ref)
	if err != nil {
		return nil
	}
	c, err := openCage(r.path)
	if err != nil {
		return nil
	}
	return c
}

// CgroupEmpty reports whether the control group that ref names certainly holds
// no process (LS14). ref is a [Supervisor.Contain] of any process of this
// machine. False with a nil error means that a process is in it. An error means
// that nothing can be said, for instance because this process sees another part
// of the cgroup file system.
//
// A group that does not exist counts as empty only where its parent is the very
// directory that it was made in: the kernel removes only empty groups. A
// reference of another boot is an error: it may be of another machine too.
func CgroupEmpty(ref string) (bool, error) {
	r, err := parseCgroupRef(ref)
	if err != nil {
		return false, err
	}
	if r.boot != bootID() {
		return false, fmt.Errorf("control group %s: of another boot or another machine", r.path)
	}
	parent, err := statInode(filepath.Dir(r.path))
	if err != nil {
		return false, err
	}
	if parent != (inode{r.dev, r.parent}) {
		return false, fmt.Errorf("control group %s: its parent here is another directory than where it was made", r.path)
	}
	own, err := statInode(r.path)
	if errors.Is(err, os.ErrNotExist) || err == nil && own != (inode{r.dev, r.own}) {
		return true, nil // removed, at most with another one made since
	}
	if err != nil {
		return false, err
	}
	busy, err := groupPopulated(r.path)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return true, nil // removed just now
	}
	return !busy && err == nil, err
}

type cgroupRef struct {
	boot             string
	dev, parent, own uint64
	path             string
}

func parseCgroupRef(s string) (cgroupRef, error) {
	f := strings.SplitN(s, " ", 6)
	if len(f) != 6 || f[0] != "cgroup2" || f[1] == "" || !filepath.IsAbs(f[5]) {
		return cgroupRef{}, fmt.Errorf("control group reference %q: malformed", s)
	}
	r := cgroupRef{boot: f[1], path: f[5]}
	var err [3]error
	r.dev, err[0] = strconv.ParseUint(f[2], 10, 64)
	r.parent, err[1] = strconv.ParseUint(f[3], 10, 64)
	r.own, err[2] = strconv.ParseUint(f[4], 10, 64)
	if e := errors.Join(err[:]...); e != nil {
		return cgroupRef{}, fmt.Errorf("control group reference %q: %w", s, e)
	}
	return r, nil
}
