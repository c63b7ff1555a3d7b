package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/tenure-project/tenure/internal/clock"
	"github.com/tenure-project/tenure/internal/proc"
)

// A run clears away the deadline files of runs that are gone, once they are
// over, and nothing else.
//
// SPEC UI1
func TestStaleDeadlinesAreRemoved(t *testing.T) {
	t.Parallel()
	child := exec.Command("true")
	if err := child.Run(); err != nil {
		t.Fatal(err)
	}
	gone, clk, dir := child.Process.Pid, clock.NewSystem(), t.TempDir()
	write := func(name string, boot time.Duration) {
		if err := proc.WriteDeadline(filepath.Join(dir, name), proc.Deadline{Boot: boot, Wall: time.Unix(1, 0), Token: 1}); err != nil {
			t.Fatal(err)
		}
	}
	over, later := clk.Boot(), clk.Boot()+time.Hour
	write(fmt.Sprintf("deadline-%d-aa", gone), over)
	kept := []string{fmt.Sprintf("deadline-%d-bb", gone), fmt.Sprintf("deadline-%d-cc", os.Getpid()), "deadline-x-dd", fmt.Sprintf("other-%d-ee", gone)}
	write(kept[0], later)
	for _, name := range kept[1:] {
		write(name, over)
	}
	removeStaleDeadlines(dir, clk)
	if _, err := os.Stat(filepath.Join(dir, fmt.Sprintf("deadline-%d-aa", gone))); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the stale file is still there (%v)", err)
	}
	for _, name := range kept {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Errorf("%s should be left alone: %v", name, err)
		}
	}
}
