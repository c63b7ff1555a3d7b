//go:build linux && !amd64 && !arm64

package proc

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// stopSelf stops this process, if still says that it should, and returns when it
// goes on.
func stopSelf(_ unix.Signal, still func() bool) {
	if !still() {
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = unix.Tgkill(unix.Getpid(), unix.Gettid(), unix.SIGSTOP)
}
