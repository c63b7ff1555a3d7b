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
// process can leave it, or is taken out of it (a login session opened by su).
//
// It has two groups inside: the tree is in "run", the wrapper in "wrapper". So
// the whole is empty only once the wrapper, too, is gone, which ends by the
// process table what left the group.
//
// Whoever uses the group holds a flock on its directory, so that a later run
// can tell a group in use from one that a killed run left behind.
type cage struct {
	path string
	dir  *os.File // of the whole, for the lock
	tree *os.File // of the part in which the command is started
}

const (
	treePart    = "run"
	wrapperPart = "wrapper"
)

// newCage makes a group below this process's own one and moves the wrapper into
// it. It fails where there is no cgroup v2 file system, where we may not write to
// it, or where the kernel lacks cgroup.kill (before 5.14).
func newCage(wrapper int) (*cage, error) {
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
		if c, err = makeCage(parent, wrapper); err == nil {
			return c, nil
		}
	}
	return nil, err
}

func makeCage(parent string, wrapper int) (*cage, error) {
	var id [6]byte
	if _, err := io.ReadFull(rand.Reader, id[:]); err != nil {
		return nil, err
	}
	path := filepath.Join(parent, fmt.Sprintf("%s%d-%s", cagePrefix, os.Getpid(), hex.EncodeToString(id[:])))
	var c *cage
	err := os.Mkdir(path, 0o755)
	for _, part := range []string{treePart, wrapperPart} {
		if err == nil {
			err = os.Mkdir(filepath.Join(path, part), 0o755)
		}
	}
	if err == nil {
		c, err = openCage(path)
	}
	if err == nil {
		err = enterGroup(filepath.Join(path, wrapperPart), wrapper)
	}
	if err != nil {
		c.close()
		_ = removeGroups(path)
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
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != nil {
		c.close()
		return nil, err
	}
	for _, file := range []string{"cgroup.kill", "cgroup.procs"} {
		if err := unix.Access(filepath.Join(path, treePart, file), unix.W_OK); err != nil {
			c.close()
			return nil, err
		}
	}
	if c.tree, err = os.Open(filepath.Join(path, treePart)); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// close gives up the lock and the descriptors.
func (c *cage) close() {
	if c == nil {
		return
	}
	_ = c.dir.Close()
	_ = c.tree.Close() // closing nothing is an error that nobody needs
}

// fd is what a command is started in.
func (c *cage) fd() int { return int(c.tree.Fd()) }

// enterGroup moves a process, with all its threads, into a group.
func enterGroup(path string, pid int) error {
	return os.WriteFile(filepath.Join(path, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
}

// leave moves this process, the wrapper, back out to where the group was made.
func (c *cage) leave() { _ = enterGroup(filepath.Dir(c.path), os.Getpid()) }

// kill kills every process of the tree.
func (c *cage) kill() error {
	return os.WriteFile(filepath.Join(c.path, treePart, "cgroup.kill"), []byte("1"), 0)
}

// pids lists the processes of the tree.
func (c *cage) pids() map[int]bool {
	pids := map[int]bool{}
	_ = filepath.WalkDir(filepath.Join(c.path, treePart), func(path string, d os.DirEntry, err error) error {
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

// populated reports whether anything of the tree is alive.
func (c *cage) populated() (bool, error) { return groupPopulated(filepath.Join(c.path, treePart)) }

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

// remove deletes the group, or, while the wrapper is still in it, the empty part
// of the tree, and gives it up. The kernel can call a group busy for a moment
// after its last process has gone.
func (c *cage) remove(clk clock.Clock) {
	if c == nil {
		return
	}
	for range 50 {
		if removeGroups(c.path) == nil || removeGroups(filepath.Join(c.path, treePart)) == nil {
			break
		}
		clock.Sleep(clk, 2*time.Millisecond, nil)
	}
	c.close()
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
