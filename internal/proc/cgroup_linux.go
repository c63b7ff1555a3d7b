package proc

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/tenure-project/tenure/internal/clock"
	"golang.org/x/sys/unix"
)

const cagePrefix = "tenure-run-"

// cage is a control group of our own around a command's tree. The kernel puts
// every descendant into it and kills all of them in one step; only a privileged
// process can leave it.
//
// Whoever uses the group holds a flock on its directory, so that a later run
// can tell a group in use from one that a killed run left behind.
type cage struct {
	path string
	dir  *os.File
}

// newCage makes a group below this process's own one. It fails where there is
// no cgroup v2 file system, where we may not write to it, or where the kernel
// lacks cgroup.kill (before 5.14).
func newCage() (*cage, error) {
	parent, err := ownGroup()
	if err != nil {
		return nil, err
	}
	if err := unix.Access(filepath.Join(parent, "cgroup.procs"), unix.W_OK); err != nil {
		return nil, err
	}
	sweepCages(parent)
	var c *cage
	for range 3 { // another run's sweep can catch a group before it is locked
		if c, err = makeCage(parent); err == nil {
			return c, nil
		}
	}
	return nil, err
}

func makeCage(parent string) (*cage, error) {
	var id [6]byte
	if _, err := io.ReadFull(rand.Reader, id[:]); err != nil {
		return nil, err
	}
	path := filepath.Join(parent, fmt.Sprintf("%s%d-%s", cagePrefix, os.Getpid(), hex.EncodeToString(id[:])))
	if err := os.Mkdir(path, 0o755); err != nil {
		return nil, err
	}
	c, err := openCage(path)
	if err != nil {
		_ = os.Remove(path)
		return nil, err
	}
	return c, nil
}

// openCage takes an existing group into use.
func openCage(path string) (*cage, error) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	c := &cage{path: path, dir: dir}
	err = unix.Flock(c.fd(), unix.LOCK_SH|unix.LOCK_NB)
	for _, file := range []string{"cgroup.kill", "cgroup.procs"} {
		if err == nil {
			err = unix.Access(filepath.Join(path, file), unix.W_OK)
		}
	}
	if err != nil {
		_ = dir.Close()
		return nil, err
	}
	return c, nil
}

func (c *cage) fd() int { return int(c.dir.Fd()) }

// kill kills every process in the group and in groups below it.
func (c *cage) kill() error {
	return os.WriteFile(filepath.Join(c.path, "cgroup.kill"), []byte("1"), 0)
}

// pids lists the processes in the group and below it.
func (c *cage) pids() map[int]bool {
	pids := map[int]bool{}
	_ = filepath.WalkDir(c.path, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil
		}
		raw, _ := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		for line := range strings.Lines(string(raw)) {
			if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil && pid > 0 {
				pids[pid] = true
			}
		}
		return nil
	})
	return pids
}

// populated reports whether a living process is in the group or below it.
func (c *cage) populated() (bool, error) { return groupPopulated(c.path) }

func groupPopulated(path string) (bool, error) {
	raw, err := os.ReadFile(filepath.Join(path, "cgroup.events"))
	if err != nil {
		return true, err
	}
	for line := range strings.Lines(string(raw)) {
		if v, ok := strings.CutPrefix(line, "populated "); ok {
			return strings.TrimSpace(v) != "0", nil
		}
	}
	return true, fmt.Errorf("%s/cgroup.events: no line \"populated\"", path)
}

// remove deletes the empty group. The kernel can call it busy for a moment after
// its last process has gone.
func (c *cage) remove(clk clock.Clock) {
	for range 50 {
		if removeGroups(c.path) == nil {
			break
		}
		clock.Sleep(clk, 2*time.Millisecond, nil)
	}
	_ = c.dir.Close()
}

// removeGroups removes a group and those below it, inner ones first.
func removeGroups(path string) error {
	entries, err := os.ReadDir(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if e.IsDir() {
			_ = removeGroups(filepath.Join(path, e.Name()))
		}
	}
	return unix.Rmdir(path)
}

// sweepCages removes groups that killed runs left behind. The kernel refuses to
// remove one that has a process in it.
func sweepCages(parent string) {
	left, _ := filepath.Glob(filepath.Join(parent, cagePrefix+"*"))
	for _, path := range left {
		dir, err := os.Open(path)
		if err != nil {
			continue
		}
		if unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			_ = removeGroups(path)
		}
		_ = dir.Close()
	}
}

// ownGroup is the directory of this process's own group in the cgroup v2 tree.
func ownGroup() (string, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	root, point, err := cgroupMount(string(mounts))
	if err != nil {
		return "", err
	}
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(groups)) {
		own, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::")
		if !ok {
			continue
		}
		rel, err := filepath.Rel(root, own)
		if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
			return "", fmt.Errorf("control group %q is outside the mounted tree %q", own, root)
		}
		return filepath.Join(point, rel), nil
	}
	return "", errors.New("this process is in no cgroup v2 group")
}

// cgroupMount finds the cgroup v2 file system in a mountinfo table: which part
// of it is mounted, and where.
func cgroupMount(table string) (root, point string, err error) {
	for line := range strings.Lines(table) {
		before, after, ok := strings.Cut(line, " - ")
		f := strings.Fields(before)
		if ok && len(f) >= 5 && strings.HasPrefix(after, "cgroup2 ") {
			return unescapeMount(f[3]), unescapeMount(f[4]), nil
		}
	}
	return "", "", errors.New("no cgroup v2 file system is mounted")
}

// unescapeMount undoes the octal escapes of mountinfo.
func unescapeMount(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

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
