//go:build unix

package proc

import (
	"os"
	"strconv"
	"syscall"
)

// userTag tells users apart in a shared temporary directory.
func userTag() string { return strconv.Itoa(os.Getuid()) }

// ownPrivate reports whether a folder is this user's and nobody else's.
func ownPrivate(info os.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Getuid() && info.Mode().Perm()&0o077 == 0
}
