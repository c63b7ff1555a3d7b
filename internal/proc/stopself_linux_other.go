//go:build linux && !amd64 && !arm64

package proc

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// stopSelf stops this process and returns when it goes on.
func stopSelf(unix.Signal) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = unix.Tgkill(unix.Getpid(), unix.Gettid(), unix.SIGSTOP)
}
