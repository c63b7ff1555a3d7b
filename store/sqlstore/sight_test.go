//go:build unix

package sqlstore

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// One look at the folder stands for one at each file only while it tells of every
// change: not soon after a change, and not for long.
//
// SPEC ST16
func TestSightOfTheFolder(t *testing.T) {
	t.Parallel()
	for _, suffix := range append([]string{""}, companions...) {
		t.Run("database"+suffix, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "leases.db")
			for _, s := range append([]string{""}, companions...) {
				if err := os.WriteFile(path+s, nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			p, err := look(path)
			if err != nil {
				t.Fatal(err)
			}
			if e := p.moved(); e != nil || p.good.Load() != nil {
				t.Fatalf("in a folder that changed just now: %v, sight %v", e, p.good.Load())
			}
			p.age = 50 * time.Millisecond
			for p.good.Load() == nil {
				if e := p.moved(); e != nil || !pause(t.Context(), time.Millisecond) {
					t.Fatal(e)
				}
			}
			if p.good.Load().until.After(time.Now().Add(sightLife)) {
				t.Error("the sight is good for too long")
			}
			p.good.Load().until = time.Now().Add(time.Hour)
			if e := p.moved(); e != nil || p.good.Load() == nil {
				t.Fatalf("in a folder that did not change: %v, sight %v", e, p.good.Load())
			}
			if err := os.Rename(path+suffix, path+".away"); err != nil {
				t.Fatal(err)
			}
			if p.moved() == nil {
				t.Error("a file that was taken away was not missed")
			}
		})
	}
}
