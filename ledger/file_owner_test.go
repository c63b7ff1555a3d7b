//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package ledger

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A log that root compacts, or one of several users of a group, stays its owner's: else
// his runs find no log that they can open any more.
//
// SPEC EX7
func TestFileSiteKeepsItsOwner(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	f := site(t, path)
	for n := range 2 {
		want(t, f.once(t, at(n), nothing), Ran, 1)
	}
	uid, gid := os.Getuid(), os.Getgid()
	if uid == 0 {
		uid, gid = 12345, 12346
	} else if all, err := os.Getgroups(); err == nil && len(all) > 0 {
		gid = all[len(all)-1]
	}
	if err := os.Chown(path, uid, gid); err != nil {
		t.Fatal(err)
	}
	before := size(t, path)
	if err := f.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if st := info.Sys().(*syscall.Stat_t); int(st.Uid) != uid || int(st.Gid) != gid || info.Size() >= before {
		t.Errorf("the log has %d bytes of %d, and is of %d:%d, not of %d:%d", info.Size(), before, st.Uid, st.Gid, uid, gid)
	}
}
