//go:build darwin || freebsd

package netfs

import "syscall"

// mountLocal is MNT_LOCAL: the file system is on this machine.
const mountLocal = 0x1000

func remoteFS(path string) (string, bool, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(path, &st); err != nil {
		return "", false, err
	}
	name := make([]byte, 0, len(st.Fstypename))
	for _, c := range st.Fstypename {
		if c == 0 {
			break
		}
		name = append(name, byte(c))
	}
	return string(name), uint64(st.Flags)&mountLocal == 0, nil
}
