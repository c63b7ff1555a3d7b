//go:build unix

package main

import (
	"os"
)

// openToOthers reports whether anybody but this user may write to dir.
func openToOthers(dir string) (open bool, how string) {
	info, err := os.Stat(dir)
	if err != nil {
		return false, ""
	}
	return info.Mode().Perm()&0o022 != 0, "mode " + info.Mode().Perm().String()
}
