//go:build linux

package fileguard

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-project/tenure/guard"
	"github.com/tenure-project/tenure/store"
)

const fencedSeven = "fenced: token 7 of prod/report is refused, 8 was seen: this holder was superseded"

// keptOut tries to get in under a token, waits until the mark is at least seen,
// and gives up then: the error says who was inside.
func keptOut(t *testing.T, g *Guard, token, seen uint64, try func(ctx context.Context) error) error {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	tried := make(chan error, 1)
	go func() { tried <- try(ctx) }()
	eventually(t, "the mark to be lifted", func() bool {
		h, err := g.Highest()
		return err == nil && h >= seen
	})
	select {
	case err := <-tried:
		t.Fatalf("token %d was not kept out: %v", token, err)
	case <-time.After(100 * time.Millisecond):
	}
	cancel()
	return <-tried
}

// A guard that was killed and starts again still refuses.
//
// SPEC GD1 GD3
// CASE B37
func TestRestartStillRefuses(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "report.txt")
	nine := start(t, "write", path, 9)
	nine.says("done")
	nine.kill()
	start(t, "write", path, 8).says("fenced: token 8 of prod/report is refused, 9 was seen: this holder was superseded")
	wantData(t, path, 9)
	start(t, "write", path, 9).says("done")
}

// A zombie that was stopped anywhere in a write, also between its check and the
// step that makes the write visible, keeps nobody out, and its write does not
// happen once a higher token was raised: nothing changes between the new
// holder's first read and its write.
//
// SPEC GD1 GD2
// CASE B16 B40
func TestZombieStoppedInAWrite(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"pause-before", "pause-between"} {
		for _, higher := range []string{"raise", "write", "hold"} {
			t.Run(where+"/"+higher, func(t *testing.T) {
				t.Parallel()
				path, g := newGuard(t)
				if err := g.Write(t.Context(), 6, dataOf(6)); err != nil {
					t.Fatal(err)
				}
				seven := start(t, where, path, 7)
				seven.says("inside")
				seven.stop()
				want := uint64(6)
				switch higher { // each returns while 7 is stopped
				case "raise":
					if err := g.Raise(t.Context(), 8); err != nil {
						t.Fatal(err)
					}
				case "write":
					want = 8
					if err := g.Write(t.Context(), 8, dataOf(8)); err != nil {
						t.Fatal(err)
					}
				case "hold":
					h, err := g.Hold(t.Context(), 8)
					if err != nil {
						t.Fatal(err)
					}
					defer h.Release()
				}
				wantData(t, path, want) // the first read of the new holder
				seven.resume()
				seven.next()
				seven.says(fencedSeven)
				wantData(t, path, want)
				seven.next()
				seven.says(fencedSeven)
				wantData(t, path, want)
				wantOnlyGuardFiles(t, path)
			})
		}
	}
}

// A process that is killed at any moment leaves the old or the new data, whole,
// and a mark that is not below them.
//
// SPEC GD1 GD3
func TestKilledWriterLeavesAConsistentState(t *testing.T) {
	t.Parallel()
	path, g := newGuard(t)
	token := uint64(1)
	for round := range 30 {
		c := start(t, "count", path, token)
		acked, err := strconv.ParseUint(c.line(), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(rand.N(6*time.Millisecond), func() { _ = c.cmd.Process.Kill() })
		for line := c.line(); line != ""; line = c.line() {
			if n, err := strconv.ParseUint(line, 10, 64); err == nil {
				acked = max(acked, n)
			}
		}
		c.kill()
		highest, err := g.Highest()
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		found, err := strconv.ParseUint(strings.TrimRight(string(data), " ."), 10, 64)
		if err != nil || string(data) != string(dataOf(found)) {
			t.Fatalf("round %d: the data are neither old nor new: %.30q, %d bytes", round, data, len(data))
		}
		if found != acked && found != acked+1 || highest < found || highest > found+1 {
			t.Fatalf("round %d: %d was acknowledged; the data are of %d, the mark is %d", round, acked, found, highest)
		}
		if err := g.Raise(t.Context(), highest); err != nil {
			t.Fatalf("round %d: the guard does not work after the kill: %v", round, err)
		}
		token = highest + 1
	}
}

// A higher token makes the one inside end its action, and waits for it.
//
// SPEC GD1 GD2
func TestHigherTokenEndsALowerHold(t *testing.T) {
	t.Parallel()
	path, g := newGuard(t)
	seven := start(t, "hold", path, 7)
	seven.says("done")
	if err := g.Raise(t.Context(), 8); err != nil {
		t.Fatal(err)
	}
	wantData(t, path, 7)
	seven.says(fencedSeven) // the cause of its context
	seven.says(fencedSeven) // its last write
	wantData(t, path, 7)
}

// One inside that does not end is named, and can be ended by whoever may.
//
// SPEC GD2
func TestStubbornHolderIsNamed(t *testing.T) {
	t.Parallel()
	path, g := newGuard(t)
	seven := start(t, "stubborn", path, 7)
	seven.says("holding")
	err := keptOut(t, g, 8, 8, func(ctx context.Context) error {
		_, err := g.Hold(ctx, 8)
		return err
	})
	var busy *BusyError
	if !errors.As(err, &busy) || store.KindOf(err) != store.ErrUnavailable || !errors.Is(err, context.Canceled) {
		t.Fatalf("Hold beside a stubborn holder: %v", err)
	}
	if busy.Holder.PID != seven.cmd.Process.Pid || busy.Holder.Token != 7 || !busy.Holder.Running() {
		t.Errorf("the holder is described as %+v", busy.Holder)
	}
	if err := syscall.Kill(busy.Holder.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	h, err := g.Hold(t.Context(), 8)
	if err != nil {
		t.Fatal(err)
	}
	h.Release()
	_ = seven.cmd.Wait()
	if busy.Holder.Running() {
		t.Error("a process that is gone is said to be running")
	}
}

// A command that inherited the lock keeps the resource held when the process
// that started it is killed.
//
// SPEC GD2
func TestInheritedLockOutlivesItsHolder(t *testing.T) {
	t.Parallel()
	path, g := newGuard(t)
	seven := start(t, "inherit", path, 7)
	if _, err := strconv.Atoi(seven.line()); err != nil {
		t.Fatal(err)
	}
	_ = seven.cmd.Process.Kill() // its own child lives on until the input ends
	_, err := seven.cmd.Process.Wait()
	if err != nil {
		t.Fatal(err)
	}
	var busy *BusyError
	err = keptOut(t, g, 8, 8, func(ctx context.Context) error { return g.Raise(ctx, 8) })
	if !errors.As(err, &busy) || busy.Holder.Token != 7 || busy.Holder.Running() {
		t.Fatalf("Raise while a command of 7 lives on: %v", err)
	}
	if err := g.Write(t.Context(), 7, nil); !errors.Is(err, guard.ErrFenced) {
		t.Errorf("Write under 7 after the raise to 8: %v", err)
	}
	if err := seven.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	if err := g.Raise(t.Context(), 8); err != nil {
		t.Errorf("Raise after the command has ended: %v", err)
	}
}
