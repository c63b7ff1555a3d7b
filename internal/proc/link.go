//go:build linux || darwin

package proc

import (
	"encoding/json"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/tenure-project/tenure/internal/clock"
	"golang.org/x/sys/unix"
)

// The kinds of message between wrapper and supervisor.
const (
	// From the wrapper.
	msgSignal  = "signal"  // Signal arrived at the wrapper at At
	msgReady   = "ready"   // the wrapper now mirrors stops
	msgResumed = "resumed" // the wrapper was stopped for Stop and goes on
	msgPing    = "ping"
	// From the supervisor.
	msgTimes     = "times"     // Grace and Reserve are other ones from now on
	msgGroup     = "group"     // Group is the control group of this run
	msgStarting  = "starting"  // the command is about to start
	msgStarted   = "started"   // the command is process Pid
	msgDeadline  = "deadline"  // the hold's deadline moved
	msgStopped   = "stopped"   // the command was stopped by Signal; Stop counts
	msgContinued = "continued" // it goes on
	msgEnded     = "ended"     // the whole tree is gone
	msgFinal     = "final"     // Code and Text are the verdict
	msgPong      = "pong"
)

// message is one line on the link.
type message struct {
	Kind     string        `json:"kind"`
	Signal   int           `json:"signal,omitempty"`
	Kernel   bool          `json:"kernel,omitempty"`
	At       time.Duration `json:"at,omitempty"`
	Deadline time.Duration `json:"deadline,omitempty"`
	Stop     int           `json:"stop,omitempty"`
	Pid      int           `json:"pid,omitempty"`
	Grace    time.Duration `json:"grace,omitempty"`
	Reserve  time.Duration `json:"reserve,omitempty"`
	Group    string        `json:"group,omitempty"`
	File     string        `json:"file,omitempty"`
	Code     int           `json:"code,omitempty"`
	Text     string        `json:"text,omitempty"`
	Note     string        `json:"note,omitempty"`
}

// link is one end of the socket pair between wrapper and supervisor. Sending
// never blocks: a peer that is stopped must not stop us. Of deadlines that wait
// to be sent only the newest is kept.
type link struct {
	f    *os.File
	wake chan struct{}
	done chan struct{} // closed when the writer has ended

	mu      sync.Mutex
	queue   []message
	closing bool
}

// newSocketPair returns two connected descriptors, closed on exec.
func newSocketPair() (ours, theirs int, err error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return 0, 0, os.NewSyscallError("socketpair", err)
	}
	unix.CloseOnExec(fds[0])
	unix.CloseOnExec(fds[1])
	return fds[0], fds[1], nil
}

// newLink takes over fd, which no child inherits from then on.
func newLink(fd int) (*link, error) {
	unix.CloseOnExec(fd)
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	l := &link{f: os.NewFile(uintptr(fd), "link"), wake: make(chan struct{}, 1), done: make(chan struct{})}
	go l.write()
	return l, nil
}

func (l *link) send(m message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.queue); n > 0 && m.Kind == msgDeadline && l.queue[n-1].Kind == msgDeadline {
		l.queue[n-1] = m
	} else {
		l.queue = append(l.queue, m)
	}
	l.poke()
}

func (l *link) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// write sends what is queued until the link is closed or the peer is gone.
func (l *link) write() {
	defer close(l.done)
	out := json.NewEncoder(l.f)
	for range l.wake {
		for {
			m, ok, closing := l.next()
			if !ok && closing {
				return
			}
			if !ok {
				break
			}
			if out.Encode(m) != nil {
				return
			}
		}
	}
}

func (l *link) next() (m message, ok, closing bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) == 0 {
		return message{}, false, l.closing
	}
	m = l.queue[0]
	l.queue = l.queue[1:]
	return m, true, l.closing
}

// receive calls f for every message until the peer has closed its end, by
// exiting or otherwise.
func (l *link) receive(f func(message)) {
	in := json.NewDecoder(l.f)
	for {
		var m message
		if in.Decode(&m) != nil {
			return
		}
		f(m)
	}
}

// finish sends what is queued, for at most limit, and closes the link.
func (l *link) finish(c clock.Clock, limit time.Duration) {
	l.mu.Lock()
	l.closing = true
	l.poke()
	l.mu.Unlock()
	clock.Sleep(c, limit, l.done)
	_ = l.f.Close()
}
