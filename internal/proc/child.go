//go:build linux || darwin

package proc

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// childEvent is a change of the command's state.
type childEvent struct{ status syscall.WaitStatus }

// wait waits for the command: the channel yields its stops and continuations,
// then its status, and is closed.
func (c *child) wait() <-chan childEvent {
	events := make(chan childEvent, 16)
	go func() {
		defer close(events)
		for {
			var s syscall.WaitStatus
			_, err := syscall.Wait4(c.pid, &s, syscall.WUNTRACED|unix.WCONTINUED, nil)
			if errors.Is(err, syscall.EINTR) {
				continue
			}
			if err != nil {
				return
			}
			events <- childEvent{s}
			if s.Exited() || s.Signaled() {
				return
			}
		}
	}()
	return events
}
