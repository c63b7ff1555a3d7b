// Package clock is the only place that reads the machine's clocks.
//
// Three clocks matter. The wall clock jumps. The monotonic clock of Go does
// not jump, but stands still while the machine is suspended. The boot clock
// counts suspend too; reading it costs a system call, so hot paths ask it only
// when the other two disagree (DL2, DL3).
package clock

import "time"

// Reading is one look at the cheap clocks, taken together.
type Reading struct {
	// Wall is the time since the Unix epoch by the wall clock.
	Wall time.Duration
	// Mono is the time since an origin of the Clock's own by the monotonic
	// clock, which may stand still during a suspend.
	Mono time.Duration
}

// Clock is everything that Tenure knows of time. Implementations are safe for
// concurrent use.
type Clock interface {
	// Read reads wall and monotonic clock together. It must not allocate.
	Read() Reading
	// Boot is the time since an origin fixed for this boot of the machine,
	// counting suspend. Two processes on one kernel (and in one time namespace)
	// see the same origin.
	Boot() time.Duration
	// AfterFunc calls f in its own goroutine after d of running time.
	AfterFunc(d time.Duration, f func()) Timer
	// AfterBoot calls f in its own goroutine once Boot reaches at; after a
	// resume from suspend past at, within 50 ms of running time.
	AfterBoot(at time.Duration, f func()) Timer
}

// Timer is a pending call.
type Timer interface {
	// Stop prevents the call and reports whether it did; false means that the
	// call has begun, is done, or was stopped before.
	Stop() bool
}

// Sleep waits for d of running time on c, or until done is closed, and reports
// whether the whole time passed.
func Sleep(c Clock, d time.Duration, done <-chan struct{}) bool {
	if d <= 0 {
		select {
		case <-done:
			return false
		default:
			return true
		}
	}
	fired := make(chan struct{})
	t := c.AfterFunc(d, func() { close(fired) })
	defer t.Stop()
	select {
	case <-fired:
		return true
	case <-done:
		return false
	}
}
