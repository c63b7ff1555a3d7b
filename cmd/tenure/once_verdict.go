package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/proc"
	"github.com/tenure-project/tenure/ledger"
)

// unknownRunError says that an earlier attempt of a run may have done its work.
type unknownRunError struct {
	run     ledger.Run
	pending []ledger.Pending
	attempt ledger.Key
	err     error // why a probe did not help
}

func (e *unknownRunError) Error() string {
	text := fmt.Sprintf("%s: an earlier attempt vanished and may have done its work: ", runText(e.run))
	var each []string
	for _, p := range e.pending {
		each = append(each, pendingText(p))
	}
	if len(each) == 0 {
		each = append(each, fmt.Sprintf("attempt %d", e.attempt.Attempt))
	}
	text += strings.Join(each, "; ")
	if e.err != nil {
		text += ": " + e.err.Error()
	}
	return text
}

func (e *unknownRunError) Unwrap() error { return e.err }

// next is what to do about it.
func (e *unknownRunError) next() string {
	return fmt.Sprintf("find out whether it happened, then `tenure ledger settle %s %v --attempt %d --as committed|failed --reason TEXT`",
		showName(e.run.Agent), e.run.ID, e.attempt.Attempt)
}

// pendingText tells of an open attempt.
func pendingText(p ledger.Pending) string {
	text := fmt.Sprintf("attempt %d (holder %s, epoch %d", p.Attempt, printable(p.Holder), p.Epoch)
	if p.Since > 0 {
		text += ", since " + stamp(time.UnixMilli(p.Since))
	}
	return text + ")"
}

// settled is the verdict on a call of the ledger, and on the command if it ran.
func (o *doing) settled(s *proc.Supervisor, w *onceWork, e onceEnd) (proc.Outcome, runStatus) {
	o.outcome = e.out.State
	w.mu.Lock()
	lease, res := w.lease, w.res
	w.mu.Unlock()
	if lease != nil {
		if e.left != nil {
			o.outcome = ledger.Unsettled
		}
		return o.ran(lease, res, e)
	}
	var out proc.Outcome
	var err error
	switch {
	case e.left != nil:
		err = e.left
	case e.out.State == ledger.Done || e.out.State == ledger.GaveUp:
		if out, err = o.before(e.out); err == nil {
			return out, runStatus{End: string(proc.NotStarted), Reason: doneText(e.out)}
		}
	case e.out.State == ledger.Held:
		err = &unknownRunError{e.out.Run, e.out.Pending, e.out.Attempt, e.err}
	case e.out.State == ledger.Busy:
		err = o.busy(e.out)
	case e.err != nil:
		err = e.err
	default:
		err = fmt.Errorf("%s: %w before the command was started", runText(o.run), tenure.ErrLost)
	}
	return o.failed(s, err)
}

// ran is the verdict on a command that was at it.
func (o *doing) ran(l *tenure.Lease, res proc.Result, e onceEnd) (proc.Outcome, runStatus) {
	out, st := o.verdict(l, res, e.out.LeaseErr)
	why := e.left
	if why == nil && o.outcome == ledger.Unsettled {
		why = e.err
	}
	if why == nil {
		return out, st
	}
	text := fmt.Sprintf("%s: what became of attempt %d is not recorded, so the run is unknown: %v", runText(o.run), o.attempt.Attempt, why)
	out.Message = joinLines(out.Message, "tenure: "+printable(text))
	out.Message = joinLines(out.Message, "tenure: next: "+(&unknownRunError{run: o.run, attempt: o.attempt}).next())
	if st.Reason == "" {
		st.Reason = text
	}
	if out.Code == 0 {
		out.Code = exitUnconfirmed
	}
	return out, st
}

// before is the verdict on a run that was over before this call.
func (o *doing) before(d ledger.Outcome) (proc.Outcome, error) {
	out := proc.Outcome{Code: int(o.doneCode), Message: describeQuietly(o.quiet, errors.New(doneText(d)))}
	if !o.replay {
		return out, nil
	}
	if d.Saved == nil {
		if !o.quiet {
			out.Message = joinLines(out.Message, "tenure: no output of it is kept")
		}
		return out, nil
	}
	_, _ = o.a.out.Write(d.Saved.Output)
	if err := o.a.out.flush(); err != nil {
		return out, err
	}
	if d.Saved.Cut() {
		out.Message = joinLines(out.Message, fmt.Sprintf("tenure: only the first %d bytes of its output were kept, of %d", len(d.Saved.Output), d.Saved.OutputBytes))
	}
	out.Code = d.Saved.Exit
	return out, nil
}

// doneText tells of a run that was over before this call.
func doneText(d ledger.Outcome) string {
	what := "done already"
	if d.State == ledger.GaveUp {
		what = "tried already, and it failed"
		if d.Saved != nil {
			what += fmt.Sprintf(" with exit code %d", d.Saved.Exit)
		}
	}
	text := fmt.Sprintf("%s: %s (attempt %d", runText(d.Run), what, d.Attempt.Attempt)
	if d.Saved != nil {
		text += fmt.Sprintf(", holder %s, ended %s", printable(d.Saved.Holder), stamp(d.Saved.Ended))
	}
	text += ")"
	if d.Repeated {
		text += ", and perhaps more than once"
	}
	return text
}

// busy is an ErrHeld that says who is at it.
func (o *doing) busy(d ledger.Outcome) error {
	waited := ""
	if o.wait > 0 {
		waited = fmt.Sprintf("waited for %v: ", o.wait)
	}
	if d.HeldBy == nil {
		return fmt.Errorf("%s: %w: %sothers were faster", runText(d.Run), tenure.ErrHeld, waited)
	}
	return fmt.Errorf("%s: %s%w", runText(d.Run), waited, d.HeldBy)
}
