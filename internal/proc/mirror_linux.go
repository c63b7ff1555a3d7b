package proc

import (
	"os"
	"sync"
	"time"

	"github.com/tenure-project/tenure/internal/clock"
	"golang.org/x/sys/unix"
)

// mirrorsStops says that a command that stops alone makes the job stop.
const mirrorsStops = true

// mirror keeps the wrapper's state like the command's, in the supervisor: a
// command that stops makes the wrapper stop, so that the shell sees the job
// stop, and either one that goes on takes the other along. Usually one SIGCONT
// to the process group reaches both.
type mirror struct {
	s   *Supervisor
	pid int

	mu sync.Mutex
	// stops counts the command's stops; past is the last one that it went on
	// from, acked the last one that the wrapper went on from, or skipped.
	stops, past, acked int
}

func newMirror(s *Supervisor, pid int) *mirror { return &mirror{s: s, pid: pid} }

// stopped: the command was stopped by sig.
func (m *mirror) stopped(sig unix.Signal) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stops++
	m.s.link.send(message{Kind: msgStopped, Signal: int(sig), Stop: m.stops})
}

// continued: the command goes on.
func (m *mirror) continued() {
	m.s.link.send(message{Kind: msgContinued})
	m.over()
}

// over makes a wrapper that stopped for the command go on. The wrapper may be
// about to stop at this very moment, so it is told until it says that it heard.
func (m *mirror) over() {
	m.mu.Lock()
	stop := m.stops
	m.past = stop
	m.mu.Unlock()
	if m.nudge(stop) {
		go m.settle(stop)
	}
}

// settle nudges the wrapper for a while.
func (m *mirror) settle(stop int) {
	for range 100 {
		clock.Sleep(m.s.opt.Clock, 10*time.Millisecond, m.s.gone)
		if !m.nudge(stop) {
			return
		}
	}
}

// close is called before the supervisor exits: a wrapper that is stopped could
// not read the verdict.
func (m *mirror) close() {
	m.mu.Lock()
	stop := m.stops
	m.mu.Unlock()
	if m.nudge(stop) {
		m.settle(stop)
	}
}

// nudge makes a wrapper go on that may be stopped for the command's stop, and
// reports whether that is still to be awaited. SIGCONT does nothing to a process
// that runs. A new stop of the command is told to the wrapper only after that.
func (m *mirror) nudge(stop int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stops != stop || m.acked >= stop || os.Getppid() != m.s.wrapper {
		return false
	}
	_ = unix.Kill(m.s.wrapper, unix.SIGCONT)
	return true
}

// resumed: the wrapper was stopped for the command's stop and goes on. A command
// that did not get the same SIGCONT gets one now. Every change of the command
// until now must have been told to us, so that a new stop is not taken for the
// old one.
func (m *mirror) resumed(stop int, c *child) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.acked = stop
	if c == nil || m.stops != stop || m.past == stop {
		return
	}
	if p, err := readProcess(m.pid); err == nil && p.stopped() {
		_ = c.signal(unix.SIGCONT)
	}
}
