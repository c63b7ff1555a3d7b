package ledger

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tenure-project/tenure/store"
)

// A log file that is compacted says the same in fewer lines, also of other agents and of
// open attempts, and the runs go on in it.
//
// SPEC EX7
func TestFileSiteIsCompacted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "log")
	f := site(t, path)
	if err := f.Compact(t.Context()); err != nil {
		t.Errorf("a log that is not there: %v", err)
	}
	other, err := OpenFile(path, "other", "lyon")
	if err != nil {
		t.Fatal(err)
	}
	for n := range 20 {
		want(t, f.once(t, at(n), nothing), Ran, 1)
	}
	foreign, err := Occurrence("other", DefaultTrigger, at(1).At)
	if err != nil {
		t.Fatal(err)
	}
	want(t, other.once(t, foreign, nothing), Ran, 1)
	_, _ = f.Once(t.Context(), at(20), func(context.Context, *Attempt) (Result, error) { return Result{}, ErrUnsettled })
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	before, epoch := size(t, path), reads(t, f).Epochs(job)["lyon"]
	link := filepath.Join(dir, "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := site(t, link).Compact(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if now := size(t, path); now > before/2 {
		t.Errorf("%d bytes became %d", before, now)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	for n := range 20 {
		want(t, f.once(t, at(n), nothing), Done, 1)
	}
	want(t, other.once(t, foreign, nothing), Done, 1)
	want(t, f.once(t, at(20), nothing), Held, 1)
	if out := f.once(t, at(21), nothing); out.Epoch <= epoch {
		t.Errorf("epoch %d follows %d", out.Epoch, epoch)
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) != 3 { // the log, its lock, the link
		t.Errorf("%v, %v", all, err)
	}
}

func size(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

func reads(t *testing.T, f *FileLedger) *Log {
	t.Helper()
	g, err := f.Read()
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// A lock on a file that is not the path's any more keeps nobody away: it is not taken for
// the lock.
//
// SPEC EX4 EX7
func TestFileSiteLockWasReplaced(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	f := site(t, path)
	had, err := f.tryLock()
	if had == nil || err != nil {
		t.Fatalf("%v, %v", had, err)
	}
	waits := make(chan Outcome, 1)
	go func() {
		out, err := f.Once(t.Context(), at(1), nothing, Wait(time.Minute)) // it has the file open, or will
		if err != nil {
			t.Error(err)
		}
		waits <- out
	}()
	if err := os.Rename(path+".lock", path+".old"); err != nil {
		t.Fatal(err)
	}
	want(t, <-waits, Ran, 1) // by the file that is there now
	if ok, err := stillAt(path+".lock", had); ok || err != nil {
		t.Errorf("a file that was moved away is taken for the lock: %v", err)
	}
	if err := had.Close(); err != nil {
		t.Fatal(err)
	}
}

// A log that is replaced while a run has it open: its outcome is in no log, and that is
// told.
//
// SPEC EX3
func TestFileSiteWasReplaced(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	f := site(t, path)
	out, err := f.Once(t.Context(), at(1), func(context.Context, *Attempt) (Result, error) {
		return Result{}, os.Rename(path, path+".old")
	})
	wantErr(t, err, ErrUnsettled, store.ErrUnknown)
	want(t, out, Unsettled, 1)
}
