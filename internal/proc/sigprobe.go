//go:build linux && (amd64 || arm64)

package proc

import (
	"os"
	"runtime"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A signal that the terminal sends to the whole process group reaches the
// command by itself; one that a process sent to the wrapper alone does not, and
// must be passed on. The kernel tells the two apart (si_code), but os/signal
// does not hand that down, and Go's runtime keeps HUP, INT, QUIT and TERM
// unblocked in every thread, so signalfd cannot have them. So a handler of a few
// instructions stands before Go's own: it counts by origin.

// siginfo says that signals are told apart by their true origin here.
const siginfo = true

// maxSignal is above every signal number.
const maxSignal = 65

var (
	fromKernel  [maxSignal]uint32
	fromProcess [maxSignal]uint32
	nextHandler uintptr
)

func probeAddress() uintptr
func probe()

// sigaction is the kernel's struct.
type sigaction struct {
	handler  uintptr
	flags    uint64
	restorer uintptr
	mask     uint64
}

func changeAction(sig unix.Signal, to, from *sigaction) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig),
		uintptr(unsafe.Pointer(to)), uintptr(unsafe.Pointer(from)), unsafe.Sizeof(to.mask), 0, 0)
	if errno != 0 {
		return os.NewSyscallError("rt_sigaction", errno)
	}
	return nil
}

// probeSignal puts the probe before Go's handler of sig, which os/signal must
// have installed. It is called from one goroutine only.
func probeSignal(sig unix.Signal) error {
	var a sigaction
	if err := changeAction(sig, nil, &a); err != nil {
		return err
	}
	if a.handler == probeAddress() {
		return nil
	}
	nextHandler = a.handler // the same for every signal
	a.handler = probeAddress()
	return changeAction(sig, &a, nil)
}

// arrivals returns how many signals of a kind came since the last call.
func arrivals(sig unix.Signal) (kernel, process int) {
	return int(atomic.SwapUint32(&fromKernel[sig], 0)), int(atomic.SwapUint32(&fromProcess[sig], 0))
}

// stopSelf stops this process as sig would by default, and returns when it goes
// on. The kernel does not stop an orphaned process group for a terminal signal,
// as nobody could make it go on; then stopSelf returns at once.
func stopSelf(sig unix.Signal) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if sig == unix.SIGSTOP {
		_ = unix.Tgkill(unix.Getpid(), unix.Gettid(), sig)
		return
	}
	var kept sigaction
	if changeAction(sig, &sigaction{}, &kept) != nil {
		return
	}
	_ = unix.Tgkill(unix.Getpid(), unix.Gettid(), sig)
	_ = changeAction(sig, &kept, nil)
}
