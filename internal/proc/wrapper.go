//go:build linux || darwin

package proc

import (
	"fmt"
	"os"
	"os/signal"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// lenient is how long the wrapper waits for an answer when nothing depends on
// its being in time.
const lenient = 2 * time.Second

// wrapper is the process that the user started.
type wrapper struct {
	opt    Options
	times  timing
	link   *link
	sig    *signals
	before map[procID]bool // children that are none of ours
	kin    kin

	supervisor int
	command    int          // 0 before it is started
	inbox      chan message // closed when the supervisor's end of the link is
	reaper     *reaper
	left       atomic.Bool // the supervisor has been waited for

	group    *cage // nil where there is none
	backlog  []message
	starting *message      // the command was about to start
	deadline time.Duration // the hold's newest deadline
	ended    bool          // the tree is gone
	final    *message
	asking   bool // a ping is not answered yet
	watch    *bell
}

func wrap(o Options, inherited []int, ignored map[unix.Signal]bool) (Report, error) {
	w := &wrapper{
		opt: o, times: timing{o.Grace, o.Reserve}, before: ownChildren(),
		inbox: make(chan message, 64), watch: newBell(o.Clock),
	}
	if err := becomeSubreaper(); err != nil {
		return Report{}, err
	}
	w.reaper = newReaper(w.reap)
	died, resumed := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(died, unix.SIGCHLD)
	signal.Notify(resumed, unix.SIGCONT)
	w.sig = catchSignals(o.Clock, ignored)
	var err error
	if w.supervisor, w.link, err = startSupervisor(); err != nil {
		return Report{}, err
	}
	letGo(inherited)
	go func() {
		for range died {
			w.reaper.run()
		}
	}()
	go func() {
		for range resumed { // a supervisor that was stopped with the job goes on with it
			if !w.left.Load() {
				_ = unix.Kill(w.supervisor, unix.SIGCONT)
			}
		}
	}()
	go func() {
		w.link.receive(func(m message) { w.inbox <- m })
		close(w.inbox)
	}()
	return w.mirror(), nil
}

// mirror does what the job does until the supervisor's verdict is there.
func (w *wrapper) mirror() Report {
	defer w.watch.stop()
	for {
		select {
		case m, more := <-w.inbox:
			if !more {
				return w.supervisorEnded()
			}
			w.backlog = append(w.backlog, m)
		case a := <-w.sig.out:
			w.passOn(a)
		case <-w.watch.c:
			w.readAll()
			if len(w.backlog) == 0 && !w.isAwake() {
				return w.takeOver(false)
			}
		}
		for len(w.backlog) > 0 {
			m := w.backlog[0]
			w.backlog = w.backlog[1:]
			w.heed(m)
		}
	}
}

// passOn tells the supervisor of a signal. The terminal's stops reach the command
// by themselves.
func (w *wrapper) passOn(a arrival) {
	if a.kernel && slices.Contains(stopSignals, a.sig) {
		return
	}
	w.link.send(message{Kind: msgSignal, Signal: int(a.sig), Kernel: a.kernel, At: a.at})
}

// heed does what the supervisor says. Whatever it says shows that it is awake, or
// was not long ago.
func (w *wrapper) heed(m message) {
	w.asking = false
	switch m.Kind {
	case msgTimes:
		w.times = timing{m.Grace, m.Reserve}
	case msgGroup:
		w.group = groupOf(m.Group)
	case msgStarting:
		w.starting, w.deadline = &m, m.Deadline
		if mirrorsStops {
			w.sig.catch(stopSignals)
		}
		w.link.send(message{Kind: msgReady})
	case msgStarted:
		w.command = m.Pid
		w.kin.follow(m.Pid)
	case msgDeadline:
		w.deadline = m.Deadline
		if !orphansComeHome {
			_, _ = w.look() // remember whom we see
		}
	case msgStopped:
		w.stop(m)
	case msgEnded:
		w.ended = true
	case msgFinal:
		w.final = &m
	}
	if w.starting != nil {
		w.watchOver()
	}
}

// readAll takes in what the supervisor has said so far.
func (w *wrapper) readAll() {
	for {
		select {
		case m, ok := <-w.inbox:
			if !ok {
				return
			}
			w.backlog = append(w.backlog, m)
		default:
			return
		}
	}
}

// stop stops the wrapper as the command was stopped, unless that is past by now.
func (w *wrapper) stop(m message) {
	w.readAll()
	past := slices.ContainsFunc(w.backlog, func(m message) bool {
		return m.Kind == msgStopped || m.Kind == msgContinued || m.Kind == msgEnded || m.Kind == msgFinal
	})
	if !past && mirrorsStops {
		terminal := rememberTerminal(w.command)
		stopSelf(unix.Signal(m.Signal), func() bool {
			p, err := readProcess(w.command)
			return err == nil && p.stopped()
		})
		terminal.restore()
	}
	w.link.send(message{Kind: msgResumed, Stop: m.Stop})
}

// watchOver sets when to ask next whether the supervisor is awake: when the tree
// should have begun to end, or, once it is gone, now and then.
func (w *wrapper) watchOver() {
	now := w.opt.Clock.Boot()
	switch next := w.times.ask(w.deadline); {
	case w.ended || now >= w.deadline:
		w.watch.at(now + lenient)
	case now < next:
		w.watch.at(next)
	default:
		w.watch.at(now + max(w.times.reserve/4, time.Millisecond))
	}
}

// isAwake asks the supervisor for a sign of life, or reports that it gave none.
func (w *wrapper) isAwake() bool {
	if w.asking {
		return false
	}
	w.asking = true
	w.link.send(message{Kind: msgPing})
	now := w.opt.Clock.Boot()
	wait := max(w.times.takeover(w.deadline), now+w.times.reserve/4)
	if w.ended || now >= w.deadline {
		wait = now + lenient
	}
	w.watch.at(wait)
	return true
}

// supervisorEnded is reached when the link is closed: with a verdict the run is
// over, without one the supervisor died.
func (w *wrapper) supervisorEnded() Report {
	if w.final == nil {
		return w.takeOver(true)
	}
	w.awaitSupervisor(time.Second)
	w.leaveGroup()
	return w.say(Report{Role: RoleWrapper, Code: w.final.Code, Message: w.final.Text})
}

// leaveGroup removes the control group, if the tree that was in it is gone.
func (w *wrapper) leaveGroup() {
	if w.group != nil {
		w.group.leave()
		w.group.remove(w.opt.Clock)
	}
}

func (w *wrapper) say(r Report) Report {
	if r.Message != "" {
		fmt.Fprintln(w.opt.Stderr, r.Message)
	}
	return r
}
