//go:build linux || darwin

package proc

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// run is one command under one hold.
//
// Invariant: the command starts only after the wrapper was told the deadline,
// so that from then on either process can end the tree in time.
type run struct {
	s    *Supervisor
	cmd  Command
	hold Hold

	inbox  chan message // from the wrapper
	mirror *mirror
	child  *child
	over   bool // the command has been waited for
	status syscall.WaitStatus
	died   chan os.Signal // SIGCHLD
	reaper *reaper

	kin    kin
	others map[procID]bool // children that are none of the command's
	began  time.Duration   // when the command was certainly running

	deadline atomic.Int64 // the hold's newest deadline, on the boot clock
	limit    atomic.Int64 // when the grace of an end that is under way is over
	res      Result
	ending   chan []Survivor // what could not be ended; nil before the end begins
}

// Run runs cmd under hold until its whole tree is gone, and returns how that
// went. The tree is ended when the hold is done, by the hold's deadline; when
// the wrapper dies; when a signal is repeated; and once the command itself has
// ended, if it left anything behind (UI1, LS6, case B29). TERM comes first; KILL
// follows after the grace, and always early enough that the tree is gone by the
// deadline.
//
// The hold must go on being renewed until Run returns.
func (s *Supervisor) Run(cmd Command, hold Hold) Result {
	r := &run{s: s, cmd: cmd, hold: hold, inbox: make(chan message, 64), died: make(chan os.Signal, 1)}
	r.reaper = newReaper(r.reap)
	r.limit.Store(int64(forever))
	s.mu.Lock()
	s.run = r
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.run, s.ran, s.mirror = nil, true, r.mirror
	}()
	if err := r.start(); err != nil {
		r.tidy()
		return r.notStarted(err)
	}
	r.watch()
	return r.finish()
}

// tell hands the wrapper's message to the run; it may be dropped only when the
// run is over.
func (r *run) tell(m message) {
	select {
	case r.inbox <- m:
	case <-r.s.gone:
	}
}

func (r *run) notStarted(err error) Result {
	res := Result{End: NotStarted, Err: err}
	var start *StartError
	var sig *SignalError
	switch {
	case errors.As(err, &start):
		res.Code = start.Code
	case errors.As(err, &sig):
		res.Code = sig.Code()
	case errors.Is(err, ErrWrapperGone):
	default:
		res.Lost = err
	}
	return res
}

func (r *run) start() error {
	if len(r.cmd.Args) == 0 {
		return &StartError{Code: codeNotFound, Err: errors.New("no command was given")}
	}
	path, err := Resolve(r.cmd.Args[0], r.cmd.Env)
	if err != nil {
		return err
	}
	if err := becomeSubreaper(); err != nil {
		return &StartError{Name: r.cmd.Args[0], Code: codeCannotRun, Err: err}
	}
	r.s.Contain()
	if err := r.announce(); err != nil {
		return err
	}
	return r.fork(path)
}

// announce tells the wrapper what it must know to end the tree in our place, and
// waits until it mirrors stops. A wrapper that is stopped holds the start up: a
// stopped job stays held, and does not run.
func (r *run) announce() error {
	if err := r.live(); err != nil {
		return err
	}
	m := message{Kind: msgStarting, Deadline: r.newest(), Text: r.cmd.Left, Note: r.cmd.Note}
	if f := r.cmd.DeadlineFile; f != nil {
		if err := f.Set(r.s.opt.Clock, m.Deadline); err != nil {
			return &StartError{Name: r.cmd.Args[0], Code: codeCannotRun, Err: err}
		}
		m.File = f.Path()
	}
	r.s.link.send(m)
	early := []message{}
	for {
		select {
		case m := <-r.inbox:
			if m.Kind == msgReady {
				return r.early(early)
			}
			early = append(early, m)
		case <-r.s.ctx.Done():
			return context.Cause(r.s.ctx)
		case <-r.hold.Done():
			return r.live()
		}
	}
}

// early handles what came before the command was started: a signal then still
// ends the wait.
func (r *run) early(messages []message) error {
	for _, m := range messages {
		if m.Kind == msgSignal {
			r.s.idleSignal(m)
		}
	}
	if err := r.live(); err != nil {
		return err
	}
	r.publish()
	return nil
}

// live returns the hold's error unless a command may start under it now.
func (r *run) live() error {
	if err := context.Cause(r.s.ctx); err != nil {
		return err
	}
	select {
	case <-r.hold.Done():
		return errors.Join(errors.New("the hold ended before the command could start"), r.hold.Err())
	default:
	}
	if d := r.newest(); r.s.opt.Clock.Boot() >= r.s.times.term(d) {
		return errors.New("the hold is too near to its end for the command to start")
	}
	return nil
}

// newest reads the hold's deadline and keeps it; of a hold that is over the last
// one stands.
func (r *run) newest() time.Duration {
	if d, ok := r.hold.Deadline(); ok {
		r.deadline.Store(int64(d))
	}
	return time.Duration(r.deadline.Load())
}

// fork starts the command, and then leaves the job for a session of our own: no
// terminal and no signal to the job's process group reaches the supervisor any
// more, and the group counts as orphaned exactly when it would without us.
func (r *run) fork(path string) error {
	r.others = ownChildren()
	r.s.survive(stopSignals)
	signal.Notify(r.died, unix.SIGCHLD)
	c, err := startChild(path, r.cmd.Args, withoutMark(r.cmd.Env), r.s.group)
	if err != nil {
		return startError(r.cmd.Args[0], err)
	}
	r.began = r.s.opt.Clock.Boot()
	r.child = c
	r.kin.follow(c.pid)
	r.s.link.send(message{Kind: msgStarted, Pid: c.pid})
	if _, err := unix.Setsid(); err != nil {
		_ = unix.Setpgid(0, 0)
	}
	letGo(r.s.inherited)
	r.mirror = newMirror(r.s, c.pid)
	return nil
}
