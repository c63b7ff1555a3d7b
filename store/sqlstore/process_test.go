//go:build linux

package sqlstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-project/tenure/store"
)

func init() { children["full"] = childFull }

// signal sends a signal; a stopped child is known to have stopped on return.
func (c *child) signal(s syscall.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(s); err != nil {
		c.t.Fatal(err)
	}
	if s == syscall.SIGSTOP {
		eventually(c.t, "the child to be stopped", func() bool {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.cmd.Process.Pid))
			_, after, _ := strings.Cut(string(stat), ") ")
			return err == nil && strings.HasPrefix(after, "T")
		})
	}
}

// A writer that is killed at any moment leaves the old or the new record, and
// never loses an acknowledged one.
//
// SPEC ST2 ST16
func TestKilledWriterLeavesOldOrNewRecord(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "leases.db")
	s := open(t, path)
	const key = "suite/lease/count"
	if _, err := s.Create(t.Context(), key, countBody(0)); err != nil {
		t.Fatal(err)
	}
	for round := range 40 {
		c := start(t, "count", path, key)
		acked, err := strconv.Atoi(c.line()) // it is at work
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(rand.N(8*time.Millisecond), func() { _ = c.cmd.Process.Kill() })
		for line := c.line(); line != ""; line = c.line() {
			if n, err := strconv.Atoi(line); err == nil { // the last line may be cut off
				acked = max(acked, n)
			}
		}
		c.kill()
		reader := s
		if round%2 == 0 { // every other time nobody else has the database open
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			reader = open(t, path)
			s = reader
		}
		o, err := reader.Get(t.Context(), key, 10000)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		found, err := strconv.Atoi(strings.TrimRight(string(o.Body), " "))
		if err != nil || len(o.Body) != 9000 {
			t.Fatalf("round %d: the record is neither old nor new: %.40q, %d bytes", round, o.Body, len(o.Body))
		}
		if found != acked && found != acked+1 {
			t.Fatalf("round %d: %d was acknowledged, found %d", round, acked, found)
		}
	}
	integrity(t, path)
}

// integrity fails the test if SQLite finds the database damaged.
func integrity(t *testing.T, path string) {
	t.Helper()
	withConn(t, path, func(c *conn) {
		var result string
		if err := c.row("PRAGMA integrity_check", nil, &result); err != nil || result != "ok" {
			t.Errorf("integrity_check: %q, %v", result, err)
		}
	})
}

// A process that was stopped inside its write transaction makes other writers
// wait, but no longer than their contexts live, and no reader at all. The
// page on SQLite says so.
//
// SPEC ST13
// CASE B83
func TestStoppedWriterBlocksWritersWithinTheirContextsOnly(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "leases.db")
	s := open(t, path)
	v, err := s.Create(t.Context(), key, []byte("old"))
	if err != nil {
		t.Fatal(err)
	}
	c := start(t, "hold", path)
	c.says("holding")
	c.signal(syscall.SIGSTOP)

	for range 20 {
		o, err := s.Get(t.Context(), key, 100)
		if err != nil || o.Version != v {
			t.Fatalf("Get beside a stopped writer: %+v, %v", o, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	begun := time.Now()
	_, err = s.Replace(ctx, key, []byte("new"), v)
	kindIs(t, err, store.ErrUnavailable, "Replace beside a stopped writer")
	if d := time.Since(begun); d > 2*time.Second {
		t.Errorf("Replace with 100 ms to live returned after %v", d)
	}
	other, err := OpenSQLite(t.Context(), path)
	if err != nil {
		t.Fatalf("opening the store beside a stopped writer: %v", err)
	}
	if err := other.Close(); err != nil {
		t.Error(err)
	}

	c.kill() // its lock goes with it, and what it had not committed
	if _, err := s.Replace(t.Context(), key, []byte("new"), v); err != nil {
		t.Fatalf("Replace after the stopped writer was killed: %v", err)
	}
}

// A process that writes without a pause does not keep others out.
//
// SPEC ST13 LS9
func TestBusyProcessDoesNotStarveOthers(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "leases.db")
	s := open(t, path)
	v, err := s.Create(t.Context(), "suite/lease/k", []byte("0"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		start(t, "writes", path, fmt.Sprintf("suite/lease/hog-%d", i)).says("writing")
	}
	var took []time.Duration
	for range 30 {
		begun := time.Now()
		if v, err = s.Replace(t.Context(), "suite/lease/k", []byte("0"), v); err != nil {
			t.Fatal(err)
		}
		took = append(took, time.Since(begun))
		pause(t.Context(), 5*time.Millisecond)
	}
	slices.Sort(took)
	t.Logf("writes beside two busy processes: median %v, worst %v", took[len(took)/2], took[len(took)-1])
	if took[len(took)-1] > 3*time.Second {
		t.Errorf("a write beside two busy processes took %v", took[len(took)-1])
	}
}

// Any number of processes may open and create the store at once.
//
// SPEC ST1
func TestOpenRace(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "leases.db")
	var racers []*child
	for i := range 6 {
		c := start(t, "open", path, fmt.Sprintf("suite/lease/k%d", i))
		c.says("ready")
		racers = append(racers, c)
	}
	for _, c := range racers {
		if err := c.stdin.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range racers {
		c.says("done")
	}
	s := open(t, path)
	n := 0
	for _, err := range s.List(t.Context(), "suite/lease/", "") {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != len(racers) {
		t.Errorf("%d processes created a key each; %d keys are there", len(racers), n)
	}
}

// Other processes in line: one that is killed and one that is stopped hold the
// others up for a few seconds only, and not at all once they may be impatient.
//
// SPEC LS9 ST13
func TestDeadAndStoppedProcessesInLine(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "leases.db")
	s := open(t, path)
	killed := start(t, "queue", path, key)
	killed.says("joined")
	stopped := start(t, "queue", path, key)
	stopped.says("joined")
	ticket := enqueue(t, s, key)
	killed.kill()
	stopped.signal(syscall.SIGSTOP)

	begun := time.Now()
	if err := ticket.Wait(t.Context(), 20*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(begun); d < 40*time.Millisecond {
		t.Errorf("the impatient one passed two others after %v", d)
	}
	if err := ticket.Wait(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(begun); d > 3*deadAfter {
		t.Errorf("the dead and the stopped one held the others up for %v", d)
	}
	eventually(t, "their rows to be removed", func() bool {
		tickets, members := lineRows(t, path)
		return tickets == 1 && members == 1
	})

	stopped.signal(syscall.SIGCONT) // it joins again, behind
	eventually(t, "the stopped one to be back in line", func() bool {
		tickets, _ := lineRows(t, path)
		return tickets == 2
	})
	if err := stopped.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it to leave", func() bool {
		tickets, members := lineRows(t, path)
		return tickets == 1 && members == 1
	})
}

// childFull lets the disk fill up, as far as this process is concerned, between
// two writes to a key, says what the write and the reads on both sides of it
// gave, and writes again once there is room.
func childFull(path string, args []string) error {
	signal.Ignore(syscall.SIGXFSZ)
	ctx := context.Background()
	s, err := OpenSQLite(ctx, path)
	if err != nil {
		return err
	}
	v, err := s.Create(ctx, args[0], []byte("old"))
	if err != nil {
		return err
	}
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
		return err
	}
	info, err := os.Stat(path + "-wal")
	if err != nil {
		return err
	}
	// Room for a part of the commit only.
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: uint64(info.Size()) + 5000, Max: was.Max}); err != nil {
		return err
	}
	_, full := s.Replace(ctx, args[0], countBody(1), v)
	o, err := s.Get(ctx, args[0], 10000)
	fmt.Printf("write %v, then %.3q at the old version %v, %v\n", store.KindOf(full), o.Body, o.Version == v, err)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
		return err
	}
	_, err = s.Replace(ctx, args[0], []byte("new"), v)
	fmt.Println("write with room", err)
	return s.Close()
}

// A commit for which the disk has no room has an unknown outcome, harms nothing,
// and the store works again once there is room.
//
// SPEC ST8 ST9
func TestFullDiskInTheMiddleOfACommit(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "leases.db")
	c := start(t, "full", path, "suite/lease/k")
	c.says(`write outcome unknown, then "old" at the old version true, <nil>`)
	c.says("write with room <nil>")
	c.says("")
	o, err := open(t, path).Get(t.Context(), "suite/lease/k", 100)
	if err != nil || string(o.Body) != "new" {
		t.Errorf("afterwards: %q, %v", o.Body, err)
	}
	integrity(t, path)
}

// A process that lacks a right is told which, whatever it lacks.
//
// SPEC ST8
func TestWithoutRightsIsDenied(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "program") // where another user can run it
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	copyFile(t, self, program)
	for _, name := range []string{program, filepath.Dir(program), filepath.Dir(filepath.Dir(program))} {
		if err := os.Chmod(name, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name         string
		folder, file os.FileMode
	}{
		{"no file in a folder that is not ours", 0o555, 0},
		{"neither file nor folder", 0o555, 0o444},
		{"a file but not its folder", 0o555, 0o666},
		{"a folder but not its file", 0o777, 0o444},
		{"an unreadable file", 0o777, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(filepath.Dir(program), strings.ReplaceAll(c.name, " ", "-"))
			path := filepath.Join(dir, "leases.db")
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if c.name != "no file in a folder that is not ours" {
				if err := open(t, path).Close(); err != nil {
					t.Fatal(err)
				}
				if err := os.Chmod(path, c.file); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Chmod(dir, c.folder); err != nil {
				t.Fatal(err)
			}
			var said strings.Builder
			cmd := exec.Command(program, path, key)
			cmd.Stderr = &said
			if os.Geteuid() == 0 {
				cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534, NoSetGroups: true}}
			}
			o := startCommand(t, cmd, "open")
			o.says("ready")
			if err := o.stdin.Close(); err != nil {
				t.Fatal(err)
			}
			o.says("")
			_ = cmd.Wait()
			if !strings.Contains(said.String(), store.ErrDenied.Error()+": write access to "+path) {
				t.Errorf("it said %q", said.String())
			}
			if err := os.Chmod(dir, 0o755); err != nil { // so that it can be removed
				t.Error(err)
			}
		})
	}
}
