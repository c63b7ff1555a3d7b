//go:build !linux && !darwin && !windows

package clock

import "time"

var processStart = time.Now()

// bootNow falls back to the wall clock's distance from process start: it counts
// a suspend and is only wrong while the wall clock is stepped.
func bootNow() time.Duration {
	now := time.Now()
	return max(now.Sub(processStart), time.Duration(now.UnixNano()-processStart.UnixNano()))
}

func newAlarm(now func() time.Duration) alarm { return newPollAlarm(now) }
