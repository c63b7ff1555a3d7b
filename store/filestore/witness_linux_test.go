package filestore

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-project/tenure/store"
)

// mark is the mark that a process says it has.
func (p *process) mark() store.Mark {
	p.t.Helper()
	var m store.Mark
	if err := json.Unmarshal([]byte(p.line()), &m); err != nil {
		p.t.Fatal(err)
	}
	return m
}

// openedBy lists what a process has open.
func openedBy(t *testing.T, pid int) []string {
	t.Helper()
	dir := "/proc/" + strconv.Itoa(pid) + "/fd"
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, e := range list {
		if f, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil {
			files = append(files, f)
		}
	}
	return files
}

func isGone(t *testing.T, s *Store, m store.Mark) bool {
	t.Helper()
	gone, err := s.Gone(within(t), m)
	if err != nil {
		t.Fatal(err)
	}
	return gone
}

// A process that is killed is proven dead within moments, however it ends and
// whatever its process number was; one that lives or is only stopped is not.
//
// CASE B32
// SPEC LS14
func TestKilledProcessIsGone(t *testing.T) {
	t.Parallel()
	path := quick(t)
	s := opened(t, path)
	best := time.Hour
	for range 5 {
		p := start(t, part{Role: "witness", Path: path})
		m := p.mark()
		p.signal(syscall.SIGSTOP)
		p.stopped()
		if isGone(t, s, m) {
			t.Fatal("a stopped process is gone, says Gone")
		}
		told := make(chan time.Time, 1)
		go func() {
			if err := s.WatchGone(within(t), m); err != nil {
				t.Error(err)
			}
			told <- time.Now()
		}()
		eventually(t, "the watch", func() bool { return subscriptions(s) == 1 })
		killed := time.Now()
		p.signal(syscall.SIGKILL)
		best = min(best, (<-told).Sub(killed))
		if !isGone(t, s, m) {
			t.Error("WatchGone returned, but Gone says no")
		}
		p.wait()
		if !isGone(t, s, m) || !isGone(t, opened(t, path), m) {
			t.Error("the proof did not last")
		}
		if err := s.WatchGone(within(t), m); err != nil {
			t.Error(err)
		}
	}
	if atMost := 50 * time.Millisecond; best > atMost {
		t.Errorf("the quickest proof after a kill came after %v, want at most %v", best, atMost)
	}
	t.Logf("the quickest proof after a kill came after %v", best)
}

// What is not the very file, locked by nobody, proves nothing.
//
// SPEC LS14
func TestWhatProvesNothing(t *testing.T) {
	t.Parallel()
	path := quick(t)
	s := opened(t, path)
	s.fs.disk = true // as on a disk, so that only the marks decide
	w, err := s.NewWitness(within(t))
	if err != nil {
		t.Fatal(err)
	}
	m := w.Mark()
	file := filepath.Join(path, lockPath(m))
	with := func(change func(*store.Mark)) store.Mark {
		other := m
		change(&other)
		return other
	}
	marks := map[string]store.Mark{
		"itself, alive":              m,
		"nothing":                    {},
		"no boot":                    with(func(m *store.Mark) { m.Boot = "" }),
		"another device":             with(func(m *store.Mark) { m.Dev++ }),
		"another inode":              with(func(m *store.Mark) { m.Inode++ }),
		"no inode":                   with(func(m *store.Mark) { m.Inode = 0 }),
		"another boot, still locked": with(func(m *store.Mark) { m.Boot = "earlier" }),
	}
	refused := func(when string) {
		t.Helper()
		for what, mark := range marks {
			if isGone(t, s, mark) {
				t.Errorf("%s, the mark of %s proves a death", when, what)
			}
		}
	}
	refused("while the witness lives")
	must(t, os.Remove(file)) // by hand, while its maker lives
	refused("while the witness lives without its name")
	must(t, os.WriteFile(file, s.witnessLine(), 0o600)) // restored from a backup
	refused("while another file has its name")
	must(t, os.Remove(file))
	must(t, os.Mkdir(file, 0o700))
	refused("while a directory has its name")
	must(t, os.Remove(file))
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	refused("after the witness was closed")
	if err := w.Close(); err != nil {
		t.Errorf("a second Close: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	isKind(t, "WatchGone of what proves nothing", s.WatchGone(ctx, m), context.DeadlineExceeded)
}

// A witness of an earlier boot counts on a disk of this kernel only, and only
// if the file says that it was made then and by this machine.
//
// SPEC LS14
func TestEarlierBoot(t *testing.T) {
	t.Parallel()
	path := quick(t)
	s := opened(t, path)
	p := start(t, part{Role: "witness", Path: path})
	m := p.mark()
	p.signal(syscall.SIGKILL)
	p.wait()
	if !isGone(t, s, m) {
		t.Fatal("the killed process is not gone")
	}
	file := filepath.Join(path, lockPath(m))
	line := string(s.witnessLine())
	rewrite := func(old, new string) { // in place: it stays the same file
		t.Helper()
		f, err := os.OpenFile(file, os.O_WRONLY|os.O_TRUNC, 0)
		must(t, err)
		_, err = f.WriteString(strings.Replace(line, old, new, 1))
		must(t, err)
		must(t, f.Close())
	}
	const earlier = "0a1b2c3d-earlier"
	rewrite(s.boot, earlier)
	m.Boot, m.Dev = earlier, m.Dev+1 // devices are numbered anew at each boot
	for _, c := range []struct {
		what string
		disk bool
		set  func()
		gone bool
	}{
		{"on a disk", true, func() {}, machineID() != ""},
		{"in memory, or in layers", false, func() {}, false},
		{"by another machine", true, func() { rewrite(s.boot+" "+machineDigest(), earlier+" 00112233445566778899aabbccddeeff") }, false},
		{"by a machine without a name", true, func() { rewrite(s.boot+" "+machineDigest(), earlier+" -") }, false},
		{"on a third boot", true, func() { rewrite(s.boot, "another") }, false},
		{"and emptied", true, func() { must(t, os.Truncate(file, 0)) }, false},
	} {
		c.set()
		s.fs.disk = c.disk
		if got := isGone(t, s, m); got != c.gone {
			t.Errorf("a witness of an earlier boot %s: gone %v, want %v", c.what, got, c.gone)
		}
	}
}

// The witness of nobody goes a day after it was first found free, and that of a
// living process never.
//
// SPEC LS14
func TestOpenSweepsOldWitnesses(t *testing.T) {
	t.Parallel()
	path := quick(t)
	s := opened(t, path)
	w, err := s.NewWitness(within(t))
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, part{Role: "witness", Path: path})
	dead := p.mark()
	p.signal(syscall.SIGKILL)
	p.wait()
	mine, theirs := filepath.Join(path, lockPath(w.Mark())), filepath.Join(path, lockPath(dead))
	for range 2 {
		if !isGone(t, s, dead) {
			t.Error("the proof was swept away too early")
		}
		age(t, mine, 2*staleLock)
		age(t, theirs, 2*staleLock)
		opened(t, path)
	}
	if _, err := os.Stat(theirs); !os.IsNotExist(err) {
		t.Errorf("the witness of nobody is still there: %v", err)
	}
	if _, err := os.Stat(mine); err != nil {
		t.Errorf("the witness of a living process was swept away: %v", err)
	}
	if isGone(t, s, dead) {
		t.Error("a missing witness proves a death")
	}
}

// A child process holds neither the place in line nor the witness of its
// parent.
//
// CASE B29
// SPEC LS9 LS14
func TestChildrenInheritNothing(t *testing.T) {
	t.Parallel()
	path := quick(t)
	s := opened(t, path)
	p := start(t, part{Role: "witness", Path: path, Op: "child"})
	mark := p.mark()
	child := 0
	if _, err := fmt.Sscan(p.line(), &child); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(child, syscall.SIGKILL) })
	if open := openedBy(t, child); slices.ContainsFunc(open, func(f string) bool { return strings.HasPrefix(f, path) }) {
		t.Errorf("the child has open %q", open)
	}
	tk, err := s.Enqueue(within(t), "ns/lease/line")
	if err != nil {
		t.Fatal(err)
	}
	p.signal(syscall.SIGKILL)
	if err := tk.Wait(within(t), 0); err != nil {
		t.Errorf("the line behind a dead parent: %v", err)
	}
	tk.Leave()
	if err := s.WatchGone(within(t), mark); err != nil {
		t.Error(err)
	}
	if gone, err := s.Gone(within(t), mark); !gone || err != nil {
		t.Errorf("Gone of a dead parent: %v, %v", gone, err)
	}
	if err := syscall.Kill(child, 0); err != nil {
		t.Errorf("the child has ended before it was asked: %v", err)
	}
}
