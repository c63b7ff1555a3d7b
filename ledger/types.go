package ledger

import (
	"errors"
	"fmt"
	"time"

	tenure "github.com/tenure-project/tenure"
	core "github.com/tenure-project/tenure/internal/core/ledger"
	"github.com/tenure-project/tenure/store"
)

// RunID names one run of one agent for ever: 64 hex digits as text (EX5).
type RunID = core.RunID

// ParseRunID reads a run id; anything else is ErrInvalid.
func ParseRunID(s string) (RunID, error) { return core.ParseRunID(s) }

// Key names one attempt: runs count their attempts per site.
type Key = core.Key

// Fact is what is known of one settled attempt.
type Fact = core.Fact

// Pending is an attempt whose outcome nobody recorded: who, at which epoch, since when.
type Pending = core.Open

// AttemptInfo is one attempt as a reader sees it.
type AttemptInfo = core.Attempt

// Abandonment says who gave an attempt up.
type Abandonment = core.Abandonment

// Policy says what is done about an unknown run (EX4).
type Policy = core.Policy

// The policies.
const (
	// Hold leaves it to a person; the run is not repeated. It is the default.
	Hold = core.Hold
	// Probe asks a function whether the effect happened: see WithProbe.
	Probe = core.Probe
	// Retry abandons the attempt and starts the next one: the effect may come twice.
	Retry = core.Retry
)

// ParsePolicy reads a policy; anything else is ErrInvalid.
func ParsePolicy(s string) (Policy, error) { return core.ParsePolicy(s) }

// Finding is what a probe says of an attempt.
type Finding = core.Finding

// The findings.
const (
	// Happened: the effect is there. The attempt is settled as committed.
	Happened = core.Happened
	// DidNotHappen: it is not there and will not come. The attempt is settled as failed,
	// and the run is tried again.
	DidNotHappen = core.DidNotHappen
	// CannotSay: the run is held.
	CannotSay = core.CannotSay
)

// Schedule has occurrences, which are instants (EX5): see At, NewEvery, and module
// schedule for cron expressions.
type Schedule = core.Schedule

// At is the schedule of one instant.
type At = core.At

// Every is the schedule of an interval.
type Every = core.Every

// NewEvery is the schedule of an interval and an offset: whole multiples since
// 1970-01-01T00:00Z, whenever a host began. Both are whole milliseconds, the interval
// at least 100 ms; others are ErrInvalid.
func NewEvery(interval, offset time.Duration) (Every, error) { return core.NewEvery(interval, offset) }

// Latest is the last occurrence at or before t and less than horizon before it; ok is
// false if there is none.
func Latest(s Schedule, t time.Time, horizon time.Duration) (time.Time, bool) {
	return core.Latest(s, t, horizon)
}

// DefaultTrigger is the trigger of an agent that has one schedule. A trigger is a name,
// not an expression: whoever writes the schedule anew does not run an instant twice.
const DefaultTrigger = "schedule"

// Run is one occurrence of an agent, to be done once. Make it with Occurrence, Named
// or Manual.
type Run struct {
	// Agent is the job's name.
	Agent string
	// ID is what the ledger knows it by.
	ID RunID
	// Trigger and At say which occurrence it is; At is zero for a named or manual run,
	// whose Trigger is its name. They inform people.
	Trigger string
	At      time.Time
}

// Occurrence is the run of agent for one instant of a trigger (EX5): the same one on
// every host. at has whole milliseconds from 1970 on.
func Occurrence(agent, trigger string, at time.Time) (Run, error) {
	id, err := core.Occurrence(agent, trigger, at)
	return Run{Agent: agent, ID: id, Trigger: trigger, At: at.UTC()}, err
}

// Named is the run of agent that a user named (EX5).
func Named(agent, name string) (Run, error) {
	id, err := core.Named(agent, name)
	return Run{Agent: agent, ID: id, Trigger: name}, err
}

// Manual is a run of agent by hand, like no other (EX5). c makes its fresh id.
func Manual(c *tenure.Client, agent string) (Run, error) {
	fresh := c.Kit().NewID()
	id, err := core.Manual(agent, fresh)
	return Run{Agent: agent, ID: id, Trigger: fresh}, err
}

// ByID is a run of which only the id is known, from a listing.
func ByID(agent string, id RunID) Run { return Run{Agent: agent, ID: id} }

// Result is what an attempt's function leaves for a late caller (EX6). One that says
// nothing, with exit code 0 and no output, takes no place in the store; the others stay
// until a Sweep.
type Result struct {
	// Exit is the exit code, 0 to 255: of a command its own, 128 + signal if one ended
	// it.
	Exit int
	// Failed says that the attempt is over without having done what the run is for: the
	// run may be tried again. Without it the run is committed, whatever Exit is. An error
	// of the function says the same.
	Failed bool
	// NotStarted says, with Failed, that the effect certainly did not begin.
	NotStarted bool
	// Why is an error's text, at most 256 bytes; what is longer is cut.
	Why string
	// Output is the beginning of the output, at most 64 KiB; what is longer is cut.
	Output []byte
	// OutputBytes is how much output there was, if that is more than Output has.
	OutputBytes int64
}

// Saved is a result as it was kept.
type Saved struct {
	// Key is the attempt, Holder and Epoch who was at it, or who settled it.
	Key    Key
	Holder string
	Epoch  uint64
	// Failed, Exit, Why, Output and OutputBytes are the Result's. Why of an attempt that
	// was settled by an operator is the reason.
	Failed      bool
	Exit        int
	Why         string
	Output      []byte
	OutputBytes int64
	// Started and Ended are by the writer's wall clock.
	Started, Ended time.Time
	// Trigger and At are the run's.
	Trigger string
	At      time.Time
}

// Cut reports whether the output is not complete.
func (s *Saved) Cut() bool { return s.OutputBytes > int64(len(s.Output)) }

// State is what Once found or did.
type State string

// The states of an Outcome.
const (
	// Done: the run had been committed before; nothing was started.
	Done State = "done"
	// Ran: this call ran it, and it is committed.
	Ran State = "ran"
	// Failed: this call ran it, and recorded it as failed.
	Failed State = "failed"
	// GaveUp: the run failed as often as MaxFailed allows; nothing was started.
	GaveUp State = "gave up"
	// Held: an earlier attempt is unknown, and the policy leaves it to a person; nothing
	// was started.
	Held State = "held"
	// Busy: somebody else has the job's lease, with this run or another; nothing was
	// started.
	Busy State = "busy"
	// NotRun: the lease was lost, or the run was settled by somebody else, after the
	// admission and before the function; it was not called.
	NotRun State = "not run"
	// Unsettled: the function ran or may still run, and no outcome is recorded: the run
	// is unknown to everybody else. The error says why.
	Unsettled State = "unsettled"
)

// Outcome is what Once found or did.
type Outcome struct {
	// Run is the run.
	Run Run
	// State says what became of the call.
	State State
	// Attempt is the attempt that State speaks of: the committed one if Done (the first,
	// if several are), the last that failed if GaveUp, this call's own if Ran, Failed, NotRun
	// or Unsettled, the open one if Held. Its zero value says that there is none.
	Attempt Key
	// Epoch is this call's, 0 if it never had the lease.
	Epoch uint64
	// Repeated: the run may have happened more than once.
	Repeated bool
	// Pending are the attempts that are open, if Held or Busy.
	Pending []Pending
	// Saved is Attempt's result, if Done or GaveUp and Replay was asked for; nil if it had
	// nothing to say (exit code 0, no output), or was removed.
	Saved *Saved
	// Result is what the function returned, if it did.
	Result Result
	// LeaseErr says how the lease ended otherwise than by a confirmed release: an ErrLost,
	// ErrUnconfirmed or ErrOverlap of package tenure. What State says stands all the same.
	LeaseErr error
	// HeldBy says who has the lease, if Busy.
	HeldBy *tenure.HeldError
}

// What a ledger can say, beside the errors of package tenure. Test with errors.Is.
var (
	// ErrUnsettled: a function that returns it says that it does not know what became of
	// its effect. The attempt is left open, and the run is unknown.
	ErrUnsettled = errors.New("the outcome is not known")
	// ErrRunning: the attempt's holder still has the lease, so nobody else may settle it.
	ErrRunning = errors.New("the attempt is running")
	// ErrCommitted: the run happened; there is nothing to try again.
	ErrCommitted = errors.New("the run is committed")
)

// GoneError: this host has seen the job's ledger, and the store has none. It is a
// tenure.ErrRegressed.
type GoneError struct {
	// Agent is the job's name, Store the identity of the store.
	Agent, Store string
	err          error // a *tenure.RegressedError
}

// Error says what to do.
func (e *GoneError) Error() string {
	return fmt.Sprintf("job %q: its ledger is gone: this host has seen it, and there is none in %s. Is that the right store, is its volume mounted? Nothing is started, since what was done would be done again", e.Agent, e.Store)
}

// Unwrap is the tenure.RegressedError, whose Seen is the sequence that was seen.
func (e *GoneError) Unwrap() error { return e.err }

// RunningError names the attempt that is running. It is an ErrRunning.
type RunningError struct {
	// Agent is the job's name.
	Agent string
	// Pending is the attempt.
	Pending Pending
	// Foreign: it belongs to another site, whose lease cannot be judged here.
	Foreign bool
}

// Error says what to do.
func (e *RunningError) Error() string {
	if e.Foreign {
		return fmt.Sprintf("job %q: attempt %d of run %v belongs to site %q, and whether that site is still at it cannot be seen here: settle it there, or vouch that it is over",
			e.Agent, e.Pending.Attempt, e.Pending.Run, e.Pending.Site)
	}
	return fmt.Sprintf("job %q: attempt %d of run %v is running: holder %s still has the lease with epoch %d; wait for its end, steal the lease %q, or vouch that it is over",
		e.Agent, e.Pending.Attempt, e.Pending.Run, e.Pending.Holder, e.Pending.Epoch, LeaseName(e.Agent))
}

// Is reports whether target is ErrRunning.
func (e *RunningError) Is(target error) bool { return target == ErrRunning }

func invalid(op, format string, args ...any) error {
	return store.Errorf(store.ErrInvalid, "", op, "", format, args...)
}
