package ledger

import (
	"context"
	"os"
	"path/filepath"
	"testing"
)

// A log file that has two names, one of them a symbolic link, has one lock: who comes by
// either name is kept away by who came by the other, also before the file is there.
//
// SPEC EX4 EX7
func TestFileSiteHasOneLock(t *testing.T) {
	t.Parallel()
	for name, there := range map[string]bool{"a new log": false, "a log": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.MkdirAll(filepath.Join(dir, "disk", "logs"), 0o700); err != nil {
				t.Fatal(err)
			}
			for from, to := range map[string]string{"link": "middle", "middle": "way/../log", "way": "disk/logs"} {
				if err := os.Symlink(to, filepath.Join(dir, from)); err != nil {
					t.Fatal(err)
				}
			}
			real := site(t, filepath.Join(dir, "disk", "log"))
			linked := site(t, filepath.Join(dir, "link"))
			if there {
				want(t, real.once(t, at(0), nothing), Ran, 1)
			}
			out, err := linked.Once(t.Context(), at(1), func(context.Context, *Attempt) (Result, error) {
				want(t, real.once(t, at(1), nothing), Busy, 0)
				return Result{}, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			want(t, out, Ran, 1)
			want(t, real.once(t, at(1), nothing), Done, 1)
		})
	}
}
