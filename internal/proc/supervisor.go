//go:build linux || darwin

package proc

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Supervisor is the process that takes the hold and owns the command's tree.
// Its methods are safe for concurrent use, but one command runs at a time.
type Supervisor struct {
	opt       Options
	times     timing
	link      *link
	wrapper   int
	inherited []int
	ignored   map[unix.Signal]bool
	noise     chan os.Signal // signals to this process; they belong to the wrapper

	ctx    context.Context
	cancel context.CancelCauseFunc
	gone   chan struct{} // closed when the wrapper is gone

	hurried   chan struct{} // closed when somebody asked twice
	hurryOnce sync.Once

	mu      sync.Mutex
	run     *run    // the command that is running
	ran     bool    // a command ran and is over
	mirror  *mirror // of the last command; nil if none was started
	asked   impatience
	group   *cage // nil where there is none, or none was asked for yet
	groupID string
	caged   bool // Contain has been called
}

// quietSignals are what the supervisor survives: whoever sends them to a process
// of the run means the command, and the wrapper passes them on.
var quietSignals = []unix.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2, unix.SIGPIPE}

// stopSignals are the terminal's.
var stopSignals = []unix.Signal{unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU}

func newSupervisor(o Options, l *link, wrapper int, inherited []int, ignored map[unix.Signal]bool) *Supervisor {
	s := &Supervisor{
		opt: o, times: timing{o.Grace, o.Reserve}, link: l, wrapper: wrapper, inherited: inherited, ignored: ignored,
		noise: make(chan os.Signal, 1), gone: make(chan struct{}), hurried: make(chan struct{}),
	}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.survive(quietSignals)
	go s.listen()
	return s
}

// survive catches signals without a use for them. A signal that was ignored at
// the start stays so: a handler of ours would give the command the default back.
func (s *Supervisor) survive(signals []unix.Signal) {
	for _, sig := range signals {
		if !s.ignored[sig] {
			signal.Notify(s.noise, sig)
		}
	}
}

// wakeWrapper makes a wrapper that is stopped for the command read the verdict.
func (s *Supervisor) wakeWrapper() {
	s.mu.Lock()
	m := s.mirror
	s.mu.Unlock()
	if m != nil {
		m.close()
	}
}

// close puts away what is left when the verdict is sent.
func (s *Supervisor) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.group != nil {
		s.group.remove(s.opt.Clock)
		s.group = nil
	}
}

// Context ends when the wait for the hold must end: a signal came before the
// command was started (a *[SignalError] is its cause), or the wrapper died
// ([ErrWrapperGone]).
func (s *Supervisor) Context() context.Context { return s.ctx }

// Hurried is closed once somebody asked for the end a second time, or at all
// after the command was over. Whoever gives up the hold should not wait long
// then.
func (s *Supervisor) Hurried() <-chan struct{} { return s.hurried }

// SetTimes replaces the grace (0 or more) and the reserve (above 0) of the options,
// here and in the wrapper, for a hold whose lifetime is not known before it is
// taken. Call it before Run, from the same goroutine.
func (s *Supervisor) SetTimes(grace, reserve time.Duration) {
	s.times = timing{grace, reserve}
	s.link.send(message{Kind: msgTimes, Grace: grace, Reserve: reserve})
}

// Contained says what holds the command's tree together: "cgroup", a control
// group that only a privileged process can leave, or "tree", the process table.
func (s *Supervisor) Contained() string {
	if s.Contain() != "" {
		return "cgroup"
	}
	return "tree"
}

// Contain makes the control group that the command will run in, and returns a
// reference by which another process can see that it is empty: [CgroupEmpty]. It
// is "" where no such group can be made. Called before the hold is taken, it lets
// the hold's record name the group (LS14); the command then never runs outside
// it.
func (s *Supervisor) Contain() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.caged || s.opt.TreeOnly {
		return s.groupID
	}
	s.caged = true
	group, err := newCage(s.wrapper)
	if err != nil {
		return ""
	}
	if s.groupID, err = group.ref(); err != nil {
		group.remove(s.opt.Clock)
		return ""
	}
	s.group = group
	s.link.send(message{Kind: msgGroup, Group: s.groupID})
	return s.groupID
}

// listen reads what the wrapper says until it is gone.
func (s *Supervisor) listen() {
	s.link.receive(func(m message) {
		if m.Kind == msgPing {
			s.link.send(message{Kind: msgPong})
			return
		}
		s.mu.Lock()
		r, last := s.run, s.mirror
		s.mu.Unlock()
		switch {
		case r != nil:
			r.tell(m)
		case m.Kind == msgResumed && last != nil:
			last.resumed(m.Stop, nil)
		case m.Kind == msgSignal:
			s.idleSignal(m)
		}
	})
	close(s.gone)
	s.cancel(ErrWrapperGone)
}

// idleSignal handles a signal while no command runs: before, it ends the wait;
// after, it asks for haste.
func (s *Supervisor) idleSignal(m message) {
	sig := unix.Signal(m.Signal)
	switch sig {
	case unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM:
	default:
		return
	}
	s.mu.Lock()
	ran, again := s.ran, s.asked.ask(m.Signal, m.At)
	s.mu.Unlock()
	if ran && again > 0 {
		s.hurry()
	}
	if !ran {
		s.cancel(&SignalError{Signal: m.Signal, Name: unix.SignalName(sig)})
	}
}

func (s *Supervisor) hurry() { s.hurryOnce.Do(func() { close(s.hurried) }) }

func (s *Supervisor) wrapperGone() bool {
	select {
	case <-s.gone:
		return true
	default:
		return false
	}
}
