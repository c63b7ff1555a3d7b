package proc

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/tenure-project/tenure/internal/clock"
	"github.com/tenure-project/tenure/store"
)

// Hold is the right to run, as a lease gives it. Its methods are safe for
// concurrent use.
type Hold interface {
	// Deadline is the instant on the boot clock by which the whole tree must have
	// ended. It moves on with every renewal; ok is false once the hold is over.
	Deadline() (at time.Duration, ok bool)
	// Done is closed when the command must begin to end: the hold is lost, or its
	// Deadline is nearer than [StopTime].
	Done() <-chan struct{}
	// Err says why Done was closed; nil before that.
	Err() error
}

// Options are the same in both processes of a run, since both read the same
// command line.
type Options struct {
	// Clock is the machine's clock; nil is a new clock.System.
	Clock clock.Clock
	// Grace is how long the tree may take from TERM to KILL.
	Grace time.Duration
	// Reserve is how long the tree may take to be gone after KILL; see
	// [DefaultReserve].
	Reserve time.Duration
	// Stderr receives the wrapper's messages; nil is os.Stderr.
	Stderr io.Writer
	// LostCode is the exit code of a wrapper that had to end the tree itself.
	LostCode int
	// FailCode is the exit code of a wrapper whose supervisor ended without a
	// verdict before the command was started.
	FailCode int
	// TreeOnly forgoes a control group even where one could be made.
	TreeOnly bool
}

func (o *Options) complete() error {
	if o.Grace < 0 {
		return store.Errorf(store.ErrInvalid, "", "run", "", "grace %v is negative: give 0 or more", o.Grace)
	}
	if o.Reserve <= 0 {
		return store.Errorf(store.ErrInvalid, "", "run", "", "reserve %v: the time to be gone after KILL must be above 0", o.Reserve)
	}
	if o.Clock == nil {
		o.Clock = clock.NewSystem()
	}
	if o.Stderr == nil {
		o.Stderr = os.Stderr
	}
	return nil
}

// Command is what to run.
type Command struct {
	// Args is the command's argument vector, passed on byte for byte; no shell
	// reads it. Args[0] without a slash is looked up in Env's PATH.
	Args []string
	// Env is the command's whole environment.
	Env []string
	// DeadlineFile, if not nil, is kept at the hold's deadline while the command
	// runs, and removed once the tree is gone.
	DeadlineFile *DeadlineFile
	// Left says what becomes of the hold if the wrapper has to end the command
	// because the supervisor died or does not answer; "" is that it lapses. Note is
	// what the wrapper then finds in [Report.Note].
	Left, Note string
}

// End says why a command's run ended.
type End string

// The ends of a run.
const (
	// NotStarted: the command never ran; Result.Err says why.
	NotStarted End = "not-started"
	// Exited: the command ended by itself, or by a signal passed on to it.
	Exited End = "exited"
	// Lost: the hold ended, and the tree was ended for it.
	Lost End = "lost"
	// Interrupted: a repeated signal asked for a faster end than the command's
	// own.
	Interrupted End = "interrupted"
	// WrapperGone: the wrapper died, and the tree was ended for it.
	WrapperGone End = "wrapper-gone"
)

// Result is how a run ended.
type Result struct {
	// End says why the run ended.
	End End
	// Code is the command's exit status, or 128 plus the signal that ended it. Of
	// a command that was not started it is 127 (not found) or 126 (found, but
	// cannot be run), or 0 if the hold or the wrapper ended first.
	Code int
	// Signal is the number of the signal that ended the command; 0 if it exited.
	Signal int
	// Err says why the command was not started: a *[StartError], a
	// *[SignalError], [ErrWrapperGone] or the hold's own error.
	Err error
	// Lost is the hold's error if the hold was over before the tree was gone.
	Lost error
	// Survivors are the processes that could not be ended. While there are any,
	// the hold must not be given up: it has to lapse, and the work may overlap
	// with the next holder's.
	Survivors []Survivor
}

// Survivor is a process that could not be ended.
type Survivor struct {
	// Pid is the process; 0 for one that this process may not see.
	Pid int
	// Why says what stood in the way.
	Why string
}

// String names the process and what stood in the way.
func (s Survivor) String() string { return fmt.Sprintf("process %d: %s", s.Pid, s.Why) }

// Outcome is the supervisor's verdict, which the wrapper prints and returns.
type Outcome struct {
	// Code is the wrapper's exit code.
	Code int
	// Message is printed to the wrapper's standard error; "" prints nothing.
	Message string
}

// Role is the part of this process in a run.
type Role string

// The parts.
const (
	// RoleWrapper is the process that the user started.
	RoleWrapper Role = "wrapper"
	// RoleSupervisor is the process that takes the hold.
	RoleSupervisor Role = "supervisor"
)

// Report is what [Main] returns.
type Report struct {
	// Role is this process's part.
	Role Role
	// Code is what this process should exit with.
	Code int
	// TookOver is true in a wrapper that had to end the run itself, because the
	// supervisor died or did not answer. Nobody released the hold then.
	TookOver bool
	// Message is what the wrapper printed.
	Message string
	// Survivors are the processes that a wrapper that took over could not end.
	Survivors []Survivor
	// Note is that of the [Command], in a wrapper that took over; "" if it was not
	// about to start.
	Note string
}

// ErrWrapperGone is the cause of a supervisor's context once the wrapper died.
var ErrWrapperGone = errors.New("the wrapper is gone")

// SignalError is the cause of a supervisor's context once a signal ended the
// wait for the hold.
type SignalError struct {
	// Signal is the signal's number.
	Signal int
	// Name is its name.
	Name string
}

// Error names the signal.
func (e *SignalError) Error() string { return "stopped by signal: " + e.Name }

// Code is the exit code that says so: 128 plus the signal's number.
func (e *SignalError) Code() int { return 128 + e.Signal }

// StartError says why a command could not be run, in the way of the shells.
type StartError struct {
	// Name is the command as it was given.
	Name string
	// Code is 127 for a command that was not found, 126 for one that cannot be
	// run.
	Code int
	// Err is the cause.
	Err error
}

// Error names the command and the cause.
func (e *StartError) Error() string { return fmt.Sprintf("cannot run %q: %v", e.Name, e.Err) }

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.Err }
