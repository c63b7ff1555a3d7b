package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/clock"
	"github.com/tenure-project/tenure/internal/proc"
	"github.com/tenure-project/tenure/ledger"
)

// The environment variables that a command of a job finds.
const (
	envJob     = "TENURE_JOB"
	envRun     = "TENURE_RUN"
	envAttempt = "TENURE_ATTEMPT"
	envAt      = "TENURE_AT"
)

// hold does the run, if it is to be done now. It runs in the process that owns the
// command's tree.
func (o *doing) hold(s *proc.Supervisor) (proc.Outcome, runStatus) {
	run, err := o.when.run(o.job, wallTime(o.a.clk))
	var idle *notDueError
	switch {
	case errors.As(err, &idle):
		return o.idle(idle)
	case err != nil:
		return o.failed(s, err)
	}
	o.run = run
	ctx, cancel := o.waiting(s.Context())
	var client *tenure.Client
	if o.exists {
		o.t, err = o.a.existing(ctx, o.t)
	}
	if err == nil {
		client, err = o.open(ctx)
	}
	cause := context.Cause(ctx)
	cancel()
	if err != nil {
		if isA[*waitedError](cause) {
			err = &endedError{cause: cause, err: err}
		}
		return o.failed(s, err)
	}
	return o.once(s, client)
}

// idle is the verdict where nothing is due.
func (o *doing) idle(e *notDueError) (proc.Outcome, runStatus) {
	out := proc.Outcome{Message: describeQuietly(o.quiet, e)}
	return out, runStatus{End: string(proc.NotStarted), Reason: e.Error()}
}

func describeQuietly(quiet bool, what error) string {
	if quiet {
		return ""
	}
	return "tenure: " + errorText(what)
}

// ledgerFor is the job's ledger.
func (o *doing) ledgerFor(s *proc.Supervisor, c *tenure.Client) (*ledger.Ledger, error) {
	opts := []tenure.AcquireOption{tenure.Note(o.note), tenure.Stop(proc.StopTime(o.grace, o.reserve)), tenure.Guards(o.raisers...)}
	if group := s.Contain(); group != "" {
		opts = append(opts, tenure.ContainedIn(group))
	}
	led := []ledger.Option{ledger.LeaseOptions(opts...)}
	if o.site != "" {
		led = append(led, ledger.Site(o.site))
	}
	return ledger.Open(c, o.job, led...)
}

// once does the run, and gives everything up.
func (o *doing) once(s *proc.Supervisor, c *tenure.Client) (proc.Outcome, runStatus) {
	l, err := o.ledgerFor(s, c)
	if err == nil {
		err = o.lookFirst(s.Context(), c)
	}
	if err != nil {
		return o.failed(s, errors.Join(err, c.Close()))
	}
	w := newOnceWork(o, s)
	ended := make(chan onceEnd, 1)
	go func() {
		e := onceEnd{}
		if e.out, e.err = l.Once(w.ctx, o.run, w.do, o.options(w)...); e.out.State == ledger.GaveUp {
			e.out.Saved, _ = l.Result(w.ctx, e.out.Attempt) // if it can be had
		}
		if err := l.Flush(w.ctx); err != nil {
			o.a.warn("the ledger of job %s was not compacted, which a later run does: %v", showName(o.job), err)
		}
		_ = c.Close() // nothing is left in it that could fail
		ended <- e
	}()
	return o.settled(s, w, w.await(ended))
}

// onceEnd is how a call of the ledger ended. left says that it was not waited for.
type onceEnd struct {
	out  ledger.Outcome
	err  error
	left error
}

func (o *doing) options(w *onceWork) []ledger.OnceOption {
	wait := o.wait
	if wait == forever {
		wait = pastAll
	}
	opts := []ledger.OnceOption{ledger.Wait(wait), ledger.MaxFailed(o.attempts)}
	if o.unknown.policy == ledger.Probe {
		opts = append(opts, ledger.WithProbe(w.probe))
	} else {
		opts = append(opts, ledger.OnUnknown(o.unknown.policy))
	}
	if o.replay {
		opts = append(opts, ledger.Replay())
	}
	return opts
}

// onceWork is the command of a run, and what is known of it from outside the call that
// runs it.
type onceWork struct {
	o    *doing
	s    *proc.Supervisor
	ctx  context.Context // of the whole call; it ends with the wait only
	stop func() bool     // takes the wait off ctx

	mu       sync.Mutex
	gone     bool // nobody waits for the call any more: nothing may be started
	lease    *tenure.Lease
	res      proc.Result
	kept     []byte
	keptOf   int64
	over     chan struct{} // closed when the command's tree is gone
	survived chan struct{} // closed when it cannot be made to go
}

func newOnceWork(o *doing, s *proc.Supervisor) *onceWork {
	ctx, cancel := context.WithCancelCause(context.Background())
	wait := s.Context()
	stop := context.AfterFunc(wait, func() { cancel(context.Cause(wait)) })
	return &onceWork{o: o, s: s, ctx: ctx, stop: stop, over: make(chan struct{}), survived: make(chan struct{})}
}

// errNotWaited: the end was asked for again.
var errNotWaited = errors.New("the end was asked for again")

// await waits for the end of the call, and no longer than somebody who is in a hurry
// wants once the command is over.
func (w *onceWork) await(ended <-chan onceEnd) onceEnd {
	running := make(chan struct{})
	go func() {
		defer close(running)
		select {
		case <-w.over:
		case <-w.survived:
		case <-w.s.Hurried(): // before the command, or while its tree is ended
		}
	}()
	select {
	case e := <-ended:
		return e
	case <-running:
	}
	select {
	case e := <-ended:
		return e
	case <-w.survived:
		return onceEnd{left: errors.New("something in its process tree cannot be ended")}
	case <-w.s.Hurried():
	}
	if w.starting() { // its tree is being ended, which has a limit of its own
		select {
		case <-w.over:
		case <-w.survived:
			return onceEnd{left: errors.New("something in its process tree cannot be ended")}
		}
	}
	select {
	case e := <-ended:
		return e
	case <-w.o.after(hurriedRelease):
		return onceEnd{left: errNotWaited}
	}
}

// after is closed when d has passed.
func (o *doing) after(d time.Duration) <-chan struct{} {
	late := make(chan struct{})
	o.a.clk.AfterFunc(d, func() { close(late) })
	return late
}

// starting says whether the command was or is being started. If not, it will not be.
func (w *onceWork) starting() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gone = w.lease == nil
	return !w.gone
}

// begin takes the lease for the command, unless the wait was ended before.
func (w *onceWork) begin(l *tenure.Lease) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stop()
	if cause := context.Cause(w.s.Context()); cause != nil {
		return cause
	}
	if w.gone {
		return errNotWaited
	}
	w.lease = l
	return nil
}

// do is the effect of the run: the command, in the tree that this process owns.
func (w *onceWork) do(_ context.Context, a *ledger.Attempt) (ledger.Result, error) {
	o := w.o
	file, err := proc.NewDeadlineFile(a.Epoch())
	if err != nil {
		return notStarted(err)
	}
	if err := w.begin(a.Lease()); err != nil {
		return notStarted(err)
	}
	o.attempt = a.Key()
	k, err := w.keep()
	if err != nil {
		close(w.over)
		return notStarted(err)
	}
	pairs := slices.Concat(o.proves(a.Lease()), []string{envDeadlineFile, file.Path()}, o.way)
	told := o.bequest(a.Lease())
	told.left = "the run is unknown then, unless it was recorded: `tenure ledger show` tells"
	res := w.s.Run(proc.Command{Args: o.command, Env: o.a.env.with(pairs...), DeadlineFile: file, Left: told.left, Note: told.note}, a.Lease())
	hurried := w.s.Hurried()
	if len(res.Survivors) > 0 { // they may have the output open, and the lease must lapse
		hurried = o.after(keepLimit)
	}
	kept, n, whole := k.end(hurried)
	if !whole {
		o.a.warn("%s: nobody read the command's output to its end; the rest is lost", runText(o.run))
	}
	if err := k.trouble(); err != nil {
		o.a.warn("%s: the command's output is not whole where it went to: %v", runText(o.run), err)
	}
	w.mu.Lock()
	w.res, w.kept, w.keptOf = res, kept, n
	w.mu.Unlock()
	if len(res.Survivors) > 0 {
		// What is left of it may still act: the attempt stays open, and the lease must
		// lapse. This process ends with this function hanging.
		close(w.survived)
		select {}
	}
	close(w.over)
	return w.result(res)
}

// keep begins to keep the command's output, if that was asked for.
func (w *onceWork) keep() (*keeper, error) {
	if !w.o.keep {
		return nil, nil
	}
	return keepOutput()
}

// result is what the ledger is told of the command.
func (w *onceWork) result(res proc.Result) (ledger.Result, error) {
	r := ledger.Result{Exit: res.Code, Failed: res.Code != 0 || res.End != proc.Exited, Output: w.kept, OutputBytes: w.keptOf}
	switch {
	case res.End == proc.NotStarted:
		err := errors.Join(res.Err, res.Lost)
		if err == nil {
			err = errors.New("the command was not started")
		}
		r.NotStarted, r.Why = true, err.Error()
		return r, err
	case res.Lost != nil:
		// It may have ended by itself before that was seen, as beside processes of ours that
		// were stopped. With 0 that is a commit, which is a fact at any epoch: called failed,
		// it would be done again.
		r.Why = whatBecame(res.End) + ": " + res.Lost.Error()
	case res.End == proc.WrapperGone:
		r.Why = "the command was ended: " + proc.ErrWrapperGone.Error()
	case res.End == proc.Interrupted:
		r.Why = "the command was ended: a signal came again"
	case res.Signal != 0:
		r.Why = fmt.Sprintf("signal %d", res.Signal)
	}
	return r, nil
}

// jobPairs are what a command finds of its run, beside the lease.
func (o *doing) jobPairs(l holding) []string {
	at := ""
	if !o.run.At.IsZero() {
		at = instantText(o.run.At)
	}
	return append(o.leasePairs(l), envJob, o.job, envRun, o.run.ID.String(), envAttempt, fmt.Sprint(o.attempt.Attempt), envAt, at)
}

// notStarted is what the ledger is told of a command that certainly did not begin.
func notStarted(err error) (ledger.Result, error) {
	return ledger.Result{Failed: true, NotStarted: true, Why: err.Error()}, err
}

// mark says in the status file which run it was. In a wrapper that took over the run is
// known from the supervisor.
func (o *doing) mark(st *runStatus) {
	st.Job = o.job
	if o.run.Agent != "" {
		st.Run, st.Attempt, st.Outcome = o.run.ID.String(), o.attempt.Attempt, string(o.outcome)
	}
}

// wallTime is what the host's clock on the wall shows.
func wallTime(clk clock.Clock) time.Time { return time.Unix(0, int64(clk.Read().Wall)) }
