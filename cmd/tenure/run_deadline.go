package main

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/tenure-project/tenure/internal/clock"
	"github.com/tenure-project/tenure/internal/proc"
	"github.com/tenure-project/tenure/store"
)

// checkDeadlineFile finds out before the lease is acquired whether the file that
// tells the command its deadline can be written, and clears away what runs that
// were killed left there.
func (r *running) checkDeadlineFile() error {
	_, _ = r.a.stateDirOrWhy() // the same folder or one beside it; trouble with it is told elsewhere
	f, err := proc.NewDeadlineFile(0)
	if err == nil {
		err = errors.Join(f.Set(r.a.clk, 0), f.Remove())
	}
	switch {
	case err == nil:
		removeStaleDeadlines(filepath.Dir(f.Path()), r.a.clk)
		return nil
	case errors.Is(err, store.ErrInvalid):
		return err
	}
	return invalid("%v: set XDG_RUNTIME_DIR or TMPDIR to a folder that this user can write to", err)
}

// removeStaleDeadlines removes the deadline files in dir whose process is gone
// and whose deadline is over. Both must be so: a process of another container is
// not seen from here, and a deadline that is over says nothing that an absent
// file does not say. What cannot be removed is left for the next run.
func removeStaleDeadlines(dir string, clk clock.Clock) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		pid, ok := deadlinePID(e.Name())
		if !ok || !e.Type().IsRegular() || !processGone(pid) {
			continue
		}
		path := filepath.Join(dir, e.Name())
		d, err := proc.ReadDeadline(path)
		if errors.Is(err, os.ErrNotExist) || err == nil && d.Boot <= clk.Boot() { // of an earlier boot, or over
			_ = os.Remove(path)
		}
	}
}

// deadlinePID is the process that a deadline file of that name belongs to.
func deadlinePID(name string) (int, bool) {
	rest, ok := strings.CutPrefix(name, "deadline-")
	text, _, found := strings.Cut(rest, "-")
	pid, err := strconv.Atoi(text)
	return pid, ok && found && err == nil && pid > 0
}

// processGone says whether there is certainly no such process.
func processGone(pid int) bool {
	p, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	defer func() { _ = p.Release() }()
	return errors.Is(p.Signal(syscall.Signal(0)), os.ErrProcessDone)
}
