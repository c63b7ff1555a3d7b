package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/guard"
	"github.com/tenure-project/tenure/internal/clock"
	"github.com/tenure-project/tenure/internal/proc"
	"github.com/tenure-project/tenure/store"
)

// hurriedRelease is how long a release is still waited for once somebody asked
// for the end twice (case B72).
const hurriedRelease = 500 * time.Millisecond

// conclude writes the status file of a run that is over.
func (r *running) conclude(out proc.Outcome, st runStatus) proc.Outcome {
	st.Code = out.Code
	if err := r.writeStatus(st); err != nil {
		out.Message = joinLines(out.Message, describe(err))
	}
	return out
}

// hold takes the lease, runs the command under it, and gives it up. It runs in
// the process that owns the command's tree.
func (r *running) hold(s *proc.Supervisor) (proc.Outcome, runStatus) {
	ctx, cancel := r.waiting(s.Context())
	defer cancel()
	client, err := r.open(ctx)
	if err != nil {
		if cause := context.Cause(ctx); isA[*waitedError](cause) {
			err = &endedError{cause: cause, err: err}
		}
		return r.failed(s, err)
	}
	l, client, err := r.take(ctx, s, client)
	if err != nil {
		if err := client.Close(); err != nil {
			r.a.warn("%v", err)
		}
		return r.failed(s, err)
	}
	return r.runUnder(s, client, l)
}

// waiting is a context that lasts as long as the command may have to wait.
func (r *running) waiting(ctx context.Context) (context.Context, context.CancelFunc) {
	if r.wait <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, r.wait, &waitedError{r.wait})
}

// waitedError is the cause of a context whose --wait is over.
type waitedError struct{ limit time.Duration }

func (e *waitedError) Error() string { return fmt.Sprintf("waited for %v", e.limit) }

func (r *running) open(ctx context.Context) (*tenure.Client, error) {
	if err := r.t.prepare(); err != nil {
		return nil, err
	}
	opts := append(r.a.options(r.t), tenure.WithTreeProof(proc.CgroupEmpty))
	if host, err := os.Hostname(); err == nil {
		opts = append(opts, tenure.WithLabel(fmt.Sprintf("%.100s/%d", host, jobPID())))
	}
	if r.ttl > 0 {
		opts = append(opts, tenure.WithTTL(r.ttl))
	}
	return tenure.Open(ctx, r.t.url, opts...)
}

// acquire waits for a lease of our own until ctx ends, and raises the guards.
func (r *running) acquire(ctx context.Context, s *proc.Supervisor, c *tenure.Client) (*tenure.Lease, error) {
	opts := []tenure.AcquireOption{tenure.Note(r.note), tenure.Stop(proc.StopTime(r.grace, r.reserve)), tenure.Guards(r.raisers...)}
	if group := s.Contain(); group != "" {
		opts = append(opts, tenure.ContainedIn(group))
	}
	acquire := c.Acquire
	if r.wait == 0 {
		acquire = c.TryAcquire
	}
	l, err := acquire(ctx, r.lease, opts...)
	switch {
	case err == nil:
		return l, nil
	case errors.Is(err, guard.ErrFenced):
		return nil, &guardAheadError{err}
	case isA[*waitedError](err) && s.Context().Err() == nil:
		return nil, r.notHad(s.Context(), c, err)
	}
	return nil, err
}

// guardAheadError says that a guard has seen a higher token than the store gave
// to a new holder.
type guardAheadError struct{ err error }

func (e *guardAheadError) Error() string { return e.err.Error() }

func (e *guardAheadError) Unwrap() error { return e.err }

// lookFirst refuses to wait for the very tenure that this process runs under,
// which would never end, and tells a person at a terminal who is waited for.
// Somebody who does not wait learns all that from the attempt itself.
func (r *running) lookFirst(ctx context.Context, c *tenure.Client) error {
	under, err := r.a.underLease(r.lease)
	above := strings.Contains(r.a.env.get(envHeld), " "+r.lease+"\t") // perhaps: the store will tell
	tell := r.a.flags.verbose || isTerminal(r.a.stderr)
	if err != nil || r.wait == 0 || !under && !above && !tell {
		return err
	}
	st, err := c.Status(ctx, r.lease)
	if err != nil || st.State != tenure.Held && st.FreeAfter == 0 {
		return nil // whatever is wrong, the attempt will show it
	}
	if under && st.Owner == r.a.env.get(envOwner) && fmt.Sprint(st.Token) == r.a.env.get(envToken) || r.a.runsUnder(st) {
		return fmt.Errorf("this process runs under that very lease, and would wait for itself: %w", heldError(st))
	}
	if tell {
		fmt.Fprintf(r.a.stderr, "tenure: waiting: %s\n", errorText(heldError(st)))
	}
	return nil
}

// isTerminal says whether a person may read w now.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// notHad says why the lease was not acquired before the wait for it was over:
// who holds it, or the store's last trouble. last is what the wait ended with.
func (r *running) notHad(ctx context.Context, c *tenure.Client, last error) error {
	st, err := c.Status(ctx, r.lease)
	if err != nil {
		return fmt.Errorf("waited for %v, and the store does not say who holds the lease: %w", r.wait, err)
	}
	trouble := storeTrouble(last)
	free := st.State != tenure.Held && st.FreeAfter == 0
	if trouble != nil && (free || !isA[*waitedError](trouble)) { // else the wait cut a call short, which is no trouble
		return fmt.Errorf("waited for %v, and the store does not take the lease: %w", r.wait, trouble)
	}
	return fmt.Errorf("waited for %v: %w", r.wait, heldError(st))
}

// storeTrouble is the store's part of err, if that says that the store could
// not do its work, else nil.
func storeTrouble(err error) error {
	var e *store.Error
	if errors.As(err, &e) && (e.Kind == store.ErrUnavailable || e.Kind == store.ErrUnknown) {
		return e
	}
	return nil
}

func heldError(st tenure.Status) *tenure.HeldError {
	held := &tenure.HeldError{Name: st.Name, Owner: st.Owner, Label: st.Label, Token: st.Token, Since: st.Since, Note: st.Note}
	switch {
	case st.State == tenure.Held:
	case st.FreeAfter > 0:
		held.Free = fmt.Sprintf("its last tenure ended (%s) in a way that makes everyone watch it for %v first", endedLine(st), st.FreeAfter)
	default:
		held.Free = "others were faster, or stand before this process in line"
	}
	return held
}

// runUnder runs the command under l and gives l up once the whole tree is gone. c is
// nil under an agent.
func (r *running) runUnder(s *proc.Supervisor, c *tenure.Client, l holding) (proc.Outcome, runStatus) {
	file, err := proc.NewDeadlineFile(l.Token())
	if err != nil {
		return r.failed(s, errors.Join(err, l.Release(context.Background())))
	}
	pairs := slices.Concat(r.proves(l), []string{envDeadlineFile, file.Path()}, r.way)
	told := r.bequest(l)
	res := s.Run(proc.Command{Args: r.command, Env: r.a.env.with(pairs...), DeadlineFile: file, Left: told.left, Note: told.note}, l)
	return r.verdict(l, res, r.giveUp(c, l, res, s.Hurried()))
}

// what is held.
func (r *running) what() string {
	switch {
	case r.authority != "":
		return "leadership"
	case r.owns:
		return "ownership of the slots"
	}
	return "lease"
}

// leasePairs name the lease, and that no authority is led beside it.
func (r *running) leasePairs(l holding) []string {
	pairs := []string{envLease, l.Name(), envToken, fmt.Sprint(l.Token()), envOwner, l.Owner()}
	if r.a.env.get(envLeader) != "" { // its proof is not this one
		pairs = append(pairs, envLeader, "")
	}
	return slices.Concat(pairs, r.sessionPairs(l.Proof()), r.heldPairs(l))
}

// giveUp releases l, within its limit, or soon once somebody is in a hurry. A
// lease whose tree is not gone must not be released, and not by closing the
// client either: it lapses when this process has ended (UI1).
func (r *running) giveUp(c *tenure.Client, l holding, res proc.Result, hurried <-chan struct{}) error {
	if len(res.Survivors) > 0 {
		return nil
	}
	released := make(chan error, 1)
	go func() {
		err := l.Release(context.Background())
		if err == nil && c != nil {
			_ = c.Close() // nothing is left in it that could fail
		}
		released <- err
	}()
	select {
	case err := <-released:
		return err
	case <-hurried:
	}
	late := make(chan struct{})
	go func() {
		defer close(late)
		clock.Sleep(r.a.clk, hurriedRelease, nil)
	}()
	select {
	case err := <-released:
		return err
	case <-late:
		return fmt.Errorf("%s %q: %w: the end was asked for again", r.what(), l.Name(), tenure.ErrUnconfirmed)
	}
}

// verdict is what the wrapper prints and returns, and what the status file says.
func (r *running) verdict(l holding, res proc.Result, released error) (proc.Outcome, runStatus) {
	out := proc.Outcome{Code: res.Code}
	p := l.Proof()
	st := runStatus{Token: p.Token, Owner: l.Owner(), Node: p.Node, Term: p.Term, End: string(res.End), Signal: res.Signal, Survivors: texts(res.Survivors)}
	if res.End != proc.NotStarted {
		st.CommandCode = &res.Code
	}
	err := errors.Join(res.Err, released)
	switch {
	case res.Lost != nil:
		err = &commandEndedError{whatBecame(res.End), res.Lost}
		out.Code, st.End = exitNotCurrent, string(proc.Lost) // also where it merely could not be renewed
	case errors.Is(released, tenure.ErrLost):
		err = &commandEndedError{whatBecame(proc.Exited), released}
		out.Code, st.End = exitNotCurrent, string(proc.Lost)
	case res.End == proc.WrapperGone:
		err = &commandEndedError{whatBecame(res.End), errors.Join(proc.ErrWrapperGone, released)}
	case out.Code == 0 && (released != nil || len(res.Survivors) > 0):
		out.Code = exitUnconfirmed
	}
	if err != nil {
		out.Message, st.Reason = describe(err), plain(err.Error())
	}
	for _, s := range st.Survivors {
		out.Message = joinLines(out.Message, "tenure: still running, so the "+r.what()+" is left to lapse: "+printable(s))
	}
	return out, st
}

func whatBecame(e proc.End) string {
	switch e {
	case proc.NotStarted:
		return "the command was not started"
	case proc.Exited:
		return "the command had ended by itself"
	}
	return "the command was ended"
}

// failed is the verdict on a run that did not come to its command.
func (r *running) failed(s *proc.Supervisor, err error) (proc.Outcome, runStatus) {
	var sig *proc.SignalError
	switch cause := context.Cause(s.Context()); {
	case errors.As(cause, &sig):
		err = fmt.Errorf("%w, before the command was started", sig)
	case cause != nil:
		err = &commandEndedError{"the command was not started", cause}
	}
	out := outcomeOf(err)
	return out, runStatus{End: string(proc.NotStarted), Reason: plain(err.Error())}
}
