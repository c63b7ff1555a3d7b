package clock

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

func bootNow() time.Duration {
	var ts unix.Timespec
	// CLOCK_BOOTTIME exists on every kernel since 2.6.39; the call cannot fail.
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts)
	return time.Duration(ts.Nano())
}

// fdAlarm is a timerfd on the boot clock: the kernel makes it readable at the
// first chance after a resume past its instant.
type fdAlarm struct {
	f  *os.File
	fd int
}

func newAlarm(now func() time.Duration) alarm {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return newPollAlarm(now) // out of descriptors: poll rather than fail
	}
	return &fdAlarm{f: os.NewFile(uintptr(fd), "timerfd"), fd: fd}
}

func (a *fdAlarm) set(at time.Duration) {
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(max(int64(at), 1))}
	_ = unix.TimerfdSettime(a.fd, unix.TFD_TIMER_ABSTIME, &spec, nil)
}

func (a *fdAlarm) wait() {
	var ticks [8]byte
	_, _ = a.f.Read(ticks[:]) // an error can only mean "look now"
}

func (a *fdAlarm) close() { _ = a.f.Close() }
