//go:build linux && (amd64 || arm64)

package proc

import (
	"errors"
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

// maxSignal is above every signal number.
const maxSignal = 65

var (
	fromKernel  [maxSignal]uint32
	fromProcess [maxSignal]uint32
	nextHandler uintptr
)

// probeAddress is where the handler in the assembly file is.
func probeAddress() uintptr

const (
	defaultAction = 0
	ignoreAction  = 1
)

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

// probeSignal puts the probe before Go's handler of sig. It fails where there is
// none yet; then os/signal must be asked for the signal first. It is called from
// one goroutine only.
func probeSignal(sig unix.Signal) error {
	var a sigaction
	if err := changeAction(sig, nil, &a); err != nil {
		return err
	}
	if a.handler == probeAddress() {
		return nil
	}
	if a.handler == defaultAction || a.handler == ignoreAction {
		return errors.New("the runtime does not handle this signal")
	}
	if nextHandler == 0 {
		nextHandler = a.handler
	}
	if nextHandler != a.handler {
		return errors.New("the runtime has more than one signal handler")
	}
	a.handler = probeAddress()
	return changeAction(sig, &a, nil)
}

// arrivals returns how many signals of a kind came since the last call.
func arrivals(sig unix.Signal) (kernel, process int) {
	return int(atomic.SwapUint32(&fromKernel[sig], 0)), int(atomic.SwapUint32(&fromProcess[sig], 0))
}

// stopSelf stops this process as sig would by default, if still says that it
// should, and returns when it goes on. A SIGCONT that comes at any time after
// still was asked prevents the stop or ends it. The kernel does not stop an
// orphaned process group for a terminal signal, as nobody could make it go on;
// then stopSelf returns at once.
func stopSelf(sig unix.Signal, still func() bool) {
	if !still() {
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if sig == unix.SIGSTOP {
		if orphanedGroup() { // SIGSTOP stops these too, but cannot be held back
			_ = unix.Tgkill(unix.Getpid(), unix.Gettid(), sig)
			return
		}
		sig = unix.SIGTSTP
	}
	var only unix.Sigset_t
	only.Val[0] = 1 << (sig - 1)
	if unix.PthreadSigmask(unix.SIG_BLOCK, &only, nil) != nil {
		return
	}
	// It is pending now; a SIGCONT takes it back.
	_ = unix.Tgkill(unix.Getpid(), unix.Gettid(), sig)
	var kept sigaction
	if !still() || changeAction(sig, &sigaction{}, &kept) != nil {
		discardPending(&only)
		_ = unix.PthreadSigmask(unix.SIG_UNBLOCK, &only, nil)
		return
	}
	_ = unix.PthreadSigmask(unix.SIG_UNBLOCK, &only, nil) // here we stop
	_ = changeAction(sig, &kept, nil)
}

// discardPending takes back what was sent to this thread, which blocks it.
func discardPending(set *unix.Sigset_t) {
	var now unix.Timespec
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGTIMEDWAIT, uintptr(unsafe.Pointer(set)), 0, uintptr(unsafe.Pointer(&now)), 8, 0, 0)
}

// orphanedGroup reports whether nobody could make this process's group go on: no
// process in it has a parent in the same session, but in another group.
func orphanedGroup() bool {
	table, err := processTable()
	if err != nil {
		return false
	}
	rows := make(map[int]process, len(table))
	for _, p := range table {
		rows[p.pid] = p
	}
	session, err := unix.Getsid(0)
	if err != nil {
		return false
	}
	for _, p := range table {
		parent, ok := rows[p.ppid]
		if p.pgrp != unix.Getpgrp() || !ok || parent.pgrp == p.pgrp {
			continue
		}
		if theirs, err := unix.Getsid(parent.pid); err == nil && theirs == session {
			return false
		}
	}
	return true
}
