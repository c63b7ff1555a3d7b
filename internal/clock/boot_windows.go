package clock

import (
	"time"

	"golang.org/x/sys/windows"
)

// bootNow counts sleep and hibernation.
func bootNow() time.Duration { return windows.DurationSinceBoot() }

func newAlarm(now func() time.Duration) alarm { return newPollAlarm(now) }
