package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootNow reads CLOCK_MONOTONIC, which on this system goes on during sleep.
func bootNow() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return time.Duration(ts.Nano())
}

func newAlarm(now func() time.Duration) alarm { return newPollAlarm(now) }
