package main

import (
	"errors"
	"fmt"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/authority"
	"github.com/tenure-project/tenure/cmd/tenure/internal/agent"
	"github.com/tenure-project/tenure/guard"
	"github.com/tenure-project/tenure/guard/fileguard"

	"github.com/tenure-project/tenure/internal/proc"
	"github.com/tenure-project/tenure/ledger"
	"github.com/tenure-project/tenure/store"
)

// Exit codes (UI1). They are stable; docs/cli.md has the same table.
const (
	exitOK          = 0
	exitUsage       = 64
	exitCorrupt     = 65
	exitUnavailable = 69
	exitUnconfirmed = 73
	exitHeld        = 75
	exitNotCurrent  = 76
	exitDenied      = 77
	exitProbe       = 78
	exitFenced      = 79
	exitDone        = 80
	exitUnknownRun  = 81
	exitRegressed   = 82
	exitNewer       = 83
)

// verdict is one row of the table of exit codes.
type verdict struct {
	code    int
	meaning string               // as in docs/cli.md
	is      func(err error) bool // whether it is the verdict on err
	next    string               // what to do, printed after the error
}

// verdicts are in the order in which they are tried: an error that is several
// things at once exits with what matters most to whoever reads only the code.
var verdicts = []verdict{
	{exitUsage, "usage, bad name, bad configuration, no such lease, node or table, or too little time (node fence, node retire)", isUsage,
		""},
	{exitProbe, "the store failed its probe: which property", isA[*store.ProbeError],
		"do not keep leases in this store; see its page in docs/stores, or use another"},
	{exitFenced, "refused by a guard: both tokens", is(guard.ErrFenced),
		"this holder was superseded: stop what it does, and acquire the lease again"},
	{exitRegressed, "the store shows less than was seen before", is(tenure.ErrRegressed),
		""},
	{exitNewer, "records of a newer format", is(tenure.ErrNewer),
		"upgrade this program; nothing was changed"},
	{exitCorrupt, "corrupt record: which, and what to do", is(tenure.ErrCorrupt),
		"nothing was changed; restore that record from a backup, then `tenure jump` above the highest token seen (docs/GUARANTEES.md, lost state)"},
	{exitNotCurrent, "the lease, the leadership or a range of slots was lost (run, leader elect, slots claim); this token (check, release, steal, leader step-down), this epoch (slots release) or this process of a node (node verify, node force) is not the current one; its node was silent (node status --observe); or the store does not tell of it (node fence, node check-certificate)", is(tenure.ErrLost, tenure.ErrNotCurrent, tenure.ErrMissingEvidence),
		""},
	{exitUnknownRun, "an earlier attempt of the run vanished, and must be settled (once)", isA[*unknownRunError],
		""},
	{exitDone, "done already (ledger retry; once with --done-code 80), or settled otherwise already (ledger settle)", isDone,
		""},
	{exitUnconfirmed, "the command returned 0 but the release, or the record of the run (once), is unconfirmed", is(tenure.ErrUnconfirmed),
		"the lease lapses by itself after its TTL"},
	{exitHeld, "held by another: who, since when; or the process is alive (node fence, node retire), or the attempt is running (ledger settle, ledger retry)", isHeld,
		""},
	{exitDenied, "rights missing: which action", is(tenure.ErrDenied),
		"mend these credentials, or grant them the missing right; `tenure doctor` checks all of them"},
	{exitUsage, "", is(tenure.ErrInvalid, tenure.ErrNotFound, tenure.ErrTooShort),
		""},
	{exitUnavailable, "store unavailable, outcome unknown, time limit ended, nobody balances (slots rebalance), or output not written", func(error) bool { return true },
		"try again; `tenure doctor` says more about the store"},
}

// is tests for any of the kinds.
func is(kinds ...error) func(error) bool {
	return func(err error) bool {
		for _, k := range kinds {
			if errors.Is(err, k) {
				return true
			}
		}
		return false
	}
}

func isA[T error](err error) bool {
	var t T
	return errors.As(err, &t)
}

// usageError is a command line that could not be understood.
type usageError struct {
	err  error
	path string // of the command, such as "tenure steal"
}

func (e *usageError) Error() string { return e.err.Error() }

func (e *usageError) Unwrap() error { return e.err }

func isHeld(err error) bool {
	return isA[*fileguard.BusyError](err) || is(tenure.ErrHeld, tenure.ErrAlive, ledger.ErrRunning, store.ErrConflict, store.ErrExists)(err)
}

func isDone(err error) bool { return isA[*settledError](err) || errors.Is(err, ledger.ErrCommitted) }

func isUsage(err error) bool { return isA[*usageError](err) }

// verdictOn returns the row for err.
func verdictOn(err error) verdict {
	for _, v := range verdicts {
		if v.is(err) {
			return v
		}
	}
	return verdicts[len(verdicts)-1]
}

// exitCode is what the program exits with on err.
func exitCode(err error) int {
	if err == nil {
		return exitOK
	}
	var s *signalError
	if errors.As(err, &s) {
		return s.code()
	}
	return verdictOn(err).code
}

// describe is err and what to do next, as they are printed.
func describe(err error) string {
	text := "tenure: " + errorText(err)
	if next := nextStep(err); next != "" {
		text += "\ntenure: next: " + next
	}
	return text
}

// report prints err and returns the exit code.
func (a *app) report(err error) int {
	fmt.Fprintln(a.stderr, describe(err))
	return exitCode(err)
}

// nextStep is what to do about err, "" if its message says so already.
func nextStep(err error) string {
	var u *usageError
	var gone *tenure.RegressedError
	var vanished *unknownRunError
	var other *notLeadingError
	var unbalanced *unbalancedError
	v := verdictOn(err)
	switch {
	case isA[*doctorError](err): // what to do stands beside every finding
		return ""
	case isA[*signalError](err), isA[*proc.SignalError](err), isA[*timeLimitError](err), isA[*outputError](err), isA[*proc.StartError](err), isA[*logFileError](err):
		return ""
	case errors.As(err, &vanished):
		return vanished.next()
	case errors.As(err, &u):
		return fmt.Sprintf("see `%s --help`", u.path)
	case errors.As(err, &other):
		return other.next
	case errors.As(err, &unbalanced):
		return unbalanced.next
	case isA[*guardAheadError](err):
		return "the store knows less than the guard: was it restored, or is it another one? `tenure jump` above the token seen (docs/GUARANTEES.md, lost state)"
	case isA[*citedError](err) && (v.code == exitCorrupt || v.code == exitNotCurrent):
		return "do not act on it; see that store and namespace are the right ones, `tenure node history` shows what is kept there"
	case isAgent(err) && v.code != exitUsage:
		return agentStep(err)
	case isRevoke(err):
		return "it acknowledges them by its next renewal; if it is dead, which `tenure node status --observe` shows, end it with all its leases: `tenure node fence`, else `tenure node force`"
	case errors.Is(err, tenure.ErrAlive):
		return "leave it alone, or end it whether or not it lives: `tenure node force`"
	case errors.Is(err, tenure.ErrMissingEvidence):
		return "take it for alive; compare the incarnation with `tenure node status` and `tenure node history`"
	case errors.Is(err, tenure.ErrTooShort):
		return "give --within at least that"
	case v.code == exitCorrupt && isA[*authority.BrokenError](err):
		return "nothing was changed; restore that object with its very bytes from a backup: nobody acts on what is behind a broken link (docs/cli.md, Authorities, has what to do without one)"
	case v.code == exitCorrupt && guardMarks(err):
		return "put the guard's folder back as it was; no command runs on that path without its marks"
	case v.code == exitRegressed && errors.As(err, &gone) && gone.Kind == "ledger":
		return ledgerFell(err, gone)
	case v.code == exitRegressed && errors.As(err, &gone) && gone.Kind == "slots":
		return fmt.Sprintf("stop every client for the largest TTL, then `tenure jump --all --above %d` or higher; if the table is gone, `tenure slots init` makes it anew after that (docs/GUARANTEES.md, lost state)", gone.Seen)
	case v.code == exitRegressed && errors.As(err, &gone):
		return fmt.Sprintf("stop every client for the largest TTL, then `tenure jump --all --above %d` or higher (docs/GUARANTEES.md, lost state)", gone.Seen)
	case v.code == exitUnavailable && isA[*commandEndedError](err):
		return "" // the store is not what the user waits for any more
	}
	return v.next
}

// isAgent says whether err is about an agent, or the way to one.
func isAgent(err error) bool {
	return isA[*noAgentError](err) || is(agent.ErrNone, agent.ErrSilent, agent.ErrEnding)(err) || agent.IsPlace(err)
}

// agentStep is what to do about an agent that is not to be had.
func agentStep(err error) string {
	insists := isA[*noAgentError](err) // a run with --session does
	switch {
	case errors.Is(err, agent.ErrNone) && insists:
		return "start `tenure agent`, or leave --session away"
	case errors.Is(err, agent.ErrNone):
		return "start `tenure agent` for this store and namespace, or name its socket: --socket"
	case errors.Is(err, agent.ErrSilent):
		return "its process is stopped or hangs: let it go on, or end it and start another one; a run without --session takes a lease of its own"
	case errors.Is(err, agent.ErrEnding):
		return "start another agent when this one has ended; a run without --session takes a lease of its own"
	case agent.IsPlace(err) && errors.Is(err, tenure.ErrDenied):
		return "run both as one user, with a socket in a folder of its own (mode 0700): --socket, " + envAgentSocket
	}
	return verdictOn(err).next
}

// isRevoke says whether a steal was refused because its session has not acknowledged
// earlier ones.
func isRevoke(err error) bool {
	var e *store.Error
	return errors.As(err, &e) && e.Op == "revoke" && e.Kind == store.ErrUnavailable
}

// commandEndedError says that a command was ended, or was not started, and why.
type commandEndedError struct {
	what string
	err  error
}

func (e *commandEndedError) Error() string { return e.what + ": " + e.err.Error() }

func (e *commandEndedError) Unwrap() error { return e.err }

// guardMarks says whether err is of the marks of a guard: they are no record of
// the store, and no jump mends them.
func guardMarks(err error) bool {
	var e *store.Error
	return errors.As(err, &e) && e.Store == "fileguard"
}
