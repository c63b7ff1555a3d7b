//go:build linux

package proc

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-project/tenure/internal/clock"
	"github.com/tenure-project/tenure/store"
	"golang.org/x/sys/unix"
)

// SPEC DL5 UI1
func TestTimingFits(t *testing.T) {
	t.Parallel()
	for _, ttl := range []time.Duration{100 * time.Millisecond, time.Second, 15 * time.Second, time.Hour} {
		grace, reserve := min(5*time.Second, ttl/3), DefaultReserve(ttl)
		// The defaults of DL5: renew TTL/5, attempt 2·TTL/15, margin TTL/10.
		if busy := ttl/5 + 2*(2*ttl/15); busy >= ttl-ttl/10-StopTime(grace, reserve) {
			t.Errorf("TTL %v: grace %v and reserve %v leave no room for renewals", ttl, grace, reserve)
		}
		x, d := timing{grace, reserve}, time.Hour
		order := []time.Duration{x.term(d), x.ask(d), x.takeover(d), d}
		if !slices.IsSorted(order) || x.term(d) > x.kill(d) || x.kill(d) >= d || x.takeover(d) >= d {
			t.Errorf("TTL %v: %v, kill %v", ttl, order, x.kill(d))
		}
		for left := -time.Hour; left < time.Hour; left += 7 * time.Minute {
			if look := x.look(d-left, d); look < 5*time.Millisecond || look > 250*time.Millisecond {
				t.Errorf("with %v left the next look is after %v", left, look)
			}
		}
	}
}

// CASE B72
func TestImpatience(t *testing.T) {
	t.Parallel()
	var i impatience
	at := time.Hour
	for n, step := range []struct {
		sig   int
		after time.Duration
		want  int
	}{
		{15, 0, 1},
		{15, time.Millisecond, 0}, // an echo
		{2, 0, 1},                 // another kind
		{15, tooClose, 2},
		{15, time.Second, 3},
		{2, 0, 2},
		{15, tooFar + time.Second, 1}, // an independent one
	} {
		at += step.after
		if got := i.ask(step.sig, at); got != step.want {
			t.Errorf("step %d: %d, want %d", n, got, step.want)
		}
	}
}

func TestParseStat(t *testing.T) {
	t.Parallel()
	tail := " S 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 2 20 777 22 23\n"
	for _, name := range []string{"sh", "a b", ") S 9 9 9", "(((", "new\nline", ""} {
		p, err := parseStat(42, []byte("42 ("+name+")"+tail))
		if want := (process{pid: 42, ppid: 3, pgrp: 4, state: 'S', threads: 2, start: 777}); err != nil || p != want {
			t.Errorf("%q: %+v, %v", name, p, err)
		}
	}
	for _, bad := range []string{"", "42 (sh", "42 (sh) S 3", "42 (sh) S x 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 2 20 777"} {
		if _, err := parseStat(42, []byte(bad)); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestDescendants(t *testing.T) {
	t.Parallel()
	rows := []process{{pid: 5, ppid: 4}, {pid: 4, ppid: 2}, {pid: 2, ppid: 1}, {pid: 3, ppid: 1}, {pid: 6, ppid: 3}, {pid: 9, ppid: 0}, {pid: 0, ppid: 0}}
	pids := func(skip func(process) bool) string {
		var s []string
		for _, p := range descendants(rows, 1, skip) {
			s = append(s, fmt.Sprint(p.pid))
		}
		return strings.Join(s, " ")
	}
	if got := pids(nil); got != "2 3 4 6 5" {
		t.Errorf("below 1: %s", got)
	}
	if got := pids(func(p process) bool { return p.pid == 2 }); got != "3 6" {
		t.Errorf("without what is below 2: %s", got)
	}
	if got := descendants(rows, 0, nil); len(got) != 1 {
		t.Errorf("a process that is its own parent: %v", got)
	}
}

// A process whose first thread ended looks like a zombie and can still act.
func TestAlive(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		p    process
		want bool
	}{
		{process{state: 'S', threads: 1}, true}, {process{state: 'D', threads: 1}, true}, {process{state: 'T', threads: 1}, true},
		{process{state: 'Z', threads: 1}, false}, {process{state: 'Z', threads: 2}, true}, {process{state: 'X'}, false},
	} {
		if got := c.p.alive(); got != c.want {
			t.Errorf("%+v: %v", c.p, got)
		}
	}
}

// SPEC UI1
func TestDeadlineFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "deadline")
	want := Deadline{Boot: 123456789 * time.Microsecond, Wall: time.UnixMilli(1767225600123), Token: 1 << 60}
	if err := WriteDeadline(path, want); err != nil {
		t.Fatal(err)
	}
	got, err := ReadDeadline(path)
	if err != nil || got.Boot != want.Boot || !got.Wall.Equal(want.Wall) || got.Token != want.Token {
		t.Fatalf("read %+v, %v", got, err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	other := strings.Replace(string(good), bootID(), "another", 1)
	for text, kind := range map[string]error{
		other: os.ErrNotExist, "": store.ErrCorrupt, string(good[:len(good)-1]): store.ErrCorrupt, string(good) + "more=1\n": store.ErrCorrupt,
		strings.Replace(string(good), "token=", "token=-", 1): store.ErrCorrupt, strings.Replace(string(good), "boot_ns=", "boot_ns=-", 1): store.ErrCorrupt,
		strings.Replace(string(good), "unix_ms", "unix_s", 1): store.ErrCorrupt, strings.Repeat("x", 5000): store.ErrCorrupt,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadDeadline(path); !errors.Is(err, kind) {
			t.Errorf("%.60q: %v, want %v", text, err, kind)
		}
	}
}

// A reader sees the old or the new deadline, never half of one.
func TestDeadlineFileIsReplacedWhole(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "deadline")
	f := &DeadlineFile{path: path, token: 7}
	done := make(chan error, 1)
	go func() {
		var err error
		for n := range 300 {
			err = errors.Join(err, f.Set(testClock, time.Duration(n)*time.Hour))
		}
		done <- err
	}()
	for last := time.Duration(0); ; {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			if err := f.Remove(); err != nil {
				t.Fatal(err)
			}
			if err := f.Set(testClock, time.Hour); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(path); !os.IsNotExist(err) {
				t.Errorf("a removed file came back: %v", err)
			}
			return
		default:
		}
		d, err := ReadDeadline(path)
		if os.IsNotExist(err) {
			continue
		}
		if err != nil || d.Boot < last || d.Token != 7 {
			t.Fatalf("read %+v after %v: %v", d, last, err)
		}
		last = d.Boot
	}
}

func TestDeadlineFolderIsPrivate(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", dir)
	f, err := NewDeadlineFile(1)
	if err != nil || filepath.Dir(f.Path()) != filepath.Join(dir, "tenure") {
		t.Fatalf("%v, %v", f, err)
	}
	if info, err := os.Stat(filepath.Dir(f.Path())); err != nil || info.Mode().Perm() != 0o700 {
		t.Fatalf("%v, %v", info, err)
	}
	if err := os.Chmod(filepath.Dir(f.Path()), 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := NewDeadlineFile(1); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("a folder open to all: %v", err)
	}
	if err := errors.Join(os.Remove(filepath.Dir(f.Path())), os.Symlink(t.TempDir(), filepath.Dir(f.Path()))); err != nil {
		t.Fatal(err)
	}
	if _, err := NewDeadlineFile(1); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("a symbolic link: %v", err)
	}
}

// A peer that does not read never blocks the sender, and gets the newest
// deadline in the end.
func TestLinkNeverBlocks(t *testing.T) {
	t.Parallel()
	a, b, err := newSocketPair()
	if err != nil {
		t.Fatal(err)
	}
	ours, err := newLink(a)
	if err != nil {
		t.Fatal(err)
	}
	const many = 200_000 // far more than a socket takes
	ours.send(message{Kind: msgStarting})
	for n := range many {
		ours.send(message{Kind: msgDeadline, Deadline: time.Duration(n + 1)})
	}
	ours.send(message{Kind: msgFinal, Code: 3, Text: strings.Repeat("x", 1<<20)})
	theirs, err := newLink(b)
	if err != nil {
		t.Fatal(err)
	}
	go ours.finish(testClock, patience)
	var last, final message
	theirs.receive(func(m message) {
		if m.Kind == msgDeadline {
			last = m
		}
		final = m
	})
	if last.Deadline != many || final.Kind != msgFinal || final.Code != 3 || len(final.Text) != 1<<20 {
		t.Errorf("last deadline %d, final %s %d", last.Deadline, final.Kind, final.Code)
	}
	theirs.finish(testClock, time.Second)
}

func TestResolveLikeAShell(t *testing.T) {
	t.Parallel()
	one, two := t.TempDir(), t.TempDir()
	for path, mode := range map[string]os.FileMode{one + "/denied": 0o600, one + "/both": 0o600, two + "/both": 0o700, two + "/second": 0o700} {
		if err := os.WriteFile(path, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(one+"/folder", 0o700); err != nil {
		t.Fatal(err)
	}
	env := []string{"PATH=" + one + ":" + two, "PATH=/nowhere"}
	for name, want := range map[string]string{
		"second": two + "/second", "both": two + "/both", two + "/second": two + "/second",
		"denied": "126", "folder": "127", "none": "127", one + "/folder": "126", one + "/none": "127", "": "127",
	} {
		got, err := Resolve(name, env)
		var start *StartError
		if errors.As(err, &start) {
			got = fmt.Sprint(start.Code)
		}
		if got != want {
			t.Errorf("%q: %q, want %q (%v)", name, got, want, err)
		}
	}
}

func TestCgroupMount(t *testing.T) {
	t.Parallel()
	const hybrid = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n41 31 0:38 /a\\040b /sys/fs/cgroup/uni\\040fied rw,relatime shared:4 master:5 - cgroup2 cgroup2 rw\n"
	if root, point, err := cgroupMount(hybrid); err != nil || root != "/a b" || point != "/sys/fs/cgroup/uni fied" {
		t.Errorf("%q, %q, %v", root, point, err)
	}
	if _, _, err := cgroupMount("31 23 0:28 / /sys/fs/cgroup rw - cgroup cgroup rw\n"); err == nil {
		t.Error("a version 1 hierarchy was taken")
	}
}

// SPEC LS14
func TestCgroupEmpty(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	path := filepath.Join(parent, "group")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	ref, err := (&cage{path: path}).ref()
	if err != nil {
		t.Fatal(err)
	}
	populated := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(path, "cgroup.events"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	check := func(what, ref string, want, fails bool) {
		t.Helper()
		if got, err := CgroupEmpty(ref); got != want || (err != nil) != fails {
			t.Errorf("%s: %v, %v", what, got, err)
		}
	}
	populated("populated 1\nfrozen 0\n")
	check("a process in it", ref, false, false)
	populated("populated 0\nfrozen 0\n")
	check("nothing in it", ref, true, false)
	populated("frozen 0\n")
	check("no word on it", ref, false, true)
	check("another boot", strings.Replace(ref, bootID(), "another", 1), false, true)
	for _, bad := range []string{"", "cgroup2", strings.Replace(ref, path, "relative", 1), strings.Replace(ref, "cgroup2", "cgroup3", 1), strings.Replace(ref, " ", " x", 3)} {
		check("malformed "+bad, bad, false, true)
	}
	elsewhere := filepath.Join(t.TempDir(), "group")
	check("seen from elsewhere", strings.Replace(ref, path, elsewhere, 1), false, true)
	// Another directory under the same name: the first was removed.
	if err := errors.Join(os.Rename(path, path+"2"), os.Mkdir(path, 0o700)); err != nil {
		t.Fatal(err)
	}
	check("another group", ref, true, false)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	check("removed", ref, true, false)
	if err := os.RemoveAll(parent); err != nil {
		t.Fatal(err)
	}
	check("parent gone", ref, false, true)
}

// A group that a killed run left behind is swept away; one in use is not.
func TestSweepCages(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	for _, name := range []string{"used", "left"} {
		if err := os.Mkdir(filepath.Join(parent, cagePrefix+name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	used, err := os.Open(filepath.Join(parent, cagePrefix+"used"))
	if err != nil {
		t.Fatal(err)
	}
	defer used.Close()
	if err := unix.Flock(int(used.Fd()), unix.LOCK_SH); err != nil {
		t.Fatal(err)
	}
	sweepCages(parent)
	left, err := os.ReadDir(parent)
	if err != nil || len(left) != 1 || left[0].Name() != cagePrefix+"used" {
		t.Errorf("left %v, %v", left, err)
	}
}

func TestBell(t *testing.T) {
	t.Parallel()
	b := newBell(clock.NewSystem())
	defer b.stop()
	b.at(0)
	select {
	case <-b.c:
	case <-time.After(patience):
		t.Error("a bell in the past did not ring")
	}
}
