package proc

import (
	"os"
	"sync/atomic"
	"time"

	"github.com/tenure-project/tenure/internal/clock"
	"golang.org/x/sys/unix"
)

// mirrorsStops says that a command that stops alone makes the job stop.
const mirrorsStops = true

// mirror keeps the wrapper's state like the command's, in the supervisor: a
// command that stops makes the wrapper stop, so that the shell sees the job
// stop, and either one that goes on takes the other along.
type mirror struct {
	s   *Supervisor
	pid int
	// stops counts the command's stops; over is the last one that is past.
	stops, past atomic.Int64
}

func newMirror(s *Supervisor, pid int) *mirror { return &mirror{s: s, pid: pid} }

// stopped: the command was stopped by sig.
func (m *mirror) stopped(sig unix.Signal) {
	n := m.stops.Add(1)
	m.s.link.send(message{Kind: msgStopped, Signal: int(sig), Stop: int(n)})
}

// continued: the command goes on.
func (m *mirror) continued() {
	m.s.link.send(message{Kind: msgContinued})
	m.over()
}

// over makes a wrapper that stopped for the command go on. The wrapper may be
// about to stop at this very moment, so it is looked at for a while.
func (m *mirror) over() {
	stops := m.stops.Load()
	if m.past.Swap(stops) == stops {
		return
	}
	go func() {
		for range 50 {
			if os.Getppid() != m.s.wrapper || m.stops.Load() != stops {
				return
			}
			if p, err := readProcess(m.s.wrapper); err == nil && p.stopped() {
				_ = unix.Kill(m.s.wrapper, unix.SIGCONT)
			}
			clock.Sleep(m.s.opt.Clock, 20*time.Millisecond, m.s.gone)
		}
	}()
}

// resumed: the wrapper was stopped for the command's stop n and goes on. If the
// command did not get the same SIGCONT, it gets one now.
func (m *mirror) resumed(n int, c *child) {
	if int64(n) != m.stops.Load() || int64(n) == m.past.Load() {
		return
	}
	if p, err := readProcess(m.pid); err == nil && p.stopped() {
		_ = c.signal(unix.SIGCONT)
	}
}
