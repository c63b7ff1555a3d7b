package ledger

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	tenure "github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/clock"
	core "github.com/tenure-project/tenure/internal/core/ledger"
	"github.com/tenure-project/tenure/internal/settle"
	"github.com/tenure-project/tenure/store"
)

// Func does what a run is for. Its context ends before anybody else can have the job's
// lease, less the lease's Stop; when Once's context ends; and after TimeLimit. It
// reports what became of its effect whatever ended it: nil commits the run, an error or
// Result.Failed records the attempt as failed, and ErrUnsettled, or a panic, leaves it
// unknown. An error that is a tenure.ErrOverlap says that something may still act for it:
// the attempt is left unknown, and the lease is not released, but lapses after this
// process, or its client, has ended.
type Func func(ctx context.Context, a *Attempt) (Result, error)

// Once starts fn if the run did not happen yet and nobody else is at it (EX4): it looks,
// takes the job's lease, admits an attempt by a conditional write, checks once more,
// calls fn, and records the outcome. Any number of processes may call it for the same
// run. A run that is done costs two requests and no lease (EX6).
//
// The error is fn's, or says why a call went no further than its State: trouble of the
// store, the loss of the lease, bad input. With Done, GaveUp, Held and Busy it is nil.
// A run that fn failed may be tried again by the next call, as the next attempt: commit
// it with its exit code if it must not be.
//
// If ctx ends while fn runs, fn is asked to stop, and its outcome is recorded. If fn does
// not stop within the lease's StopLimit, Once returns a tenure.ErrOverlap with Unsettled
// and records the outcome when fn returns after all, if the client still lives.
func (l *Ledger) Once(ctx context.Context, run Run, fn Func, opts ...OnceOption) (Outcome, error) {
	cfg, err := l.check(run, fn, onceConfig{policy: Hold, settle: max(2*l.k.Timing.TTL, time.Minute), lease: l.opts}, opts)
	if err != nil {
		return Outcome{Run: run, State: NotRun}, err
	}
	for jumps := 0; ; jumps++ {
		d := &dispatch{l: l, cfg: cfg, fn: fn, out: Outcome{Run: run}}
		out, err := d.once(ctx)
		var lost *counterLost
		if !errors.As(err, &lost) || jumps == 3 {
			l.tidy(d.full.Load())
			return out, err
		}
		l.k.Log.Warn("ledger: the job's lease lost its counter; it is jumped above the ledger's epoch", "job", l.agent, "epoch", lost.seed)
		if err := l.c.Jump(ctx, l.lease, lost.seed); err != nil {
			return out, err
		}
	}
}

// check is cfg with the options, if they and the run can be.
func (f *files) check(run Run, fn Func, cfg onceConfig, opts []OnceOption) (onceConfig, error) {
	cfg.lease = slices.Clip(cfg.lease)
	for _, o := range opts {
		o(&cfg)
	}
	if err := f.mine("once", run); err != nil {
		return cfg, err
	}
	if _, err := core.ParsePolicy(string(cfg.policy)); err != nil {
		return cfg, err
	}
	switch {
	case fn == nil:
		return cfg, invalid("once", "job %q: there is no function", f.agent)
	case (cfg.policy == Probe) != (cfg.probe != nil):
		return cfg, invalid("once", "job %q: the policy %q and a probe go together: use WithProbe", f.agent, cfg.policy)
	case cfg.maxFailed < 0:
		return cfg, invalid("once", "job %q: %d failed attempts", f.agent, cfg.maxFailed)
	case cfg.wait < 0 || cfg.limit < 0 || cfg.settle <= 0:
		return cfg, invalid("once", "job %q: wait %v, time limit %v or settle limit %v is negative", f.agent, cfg.wait, cfg.limit, cfg.settle)
	}
	return cfg, checkRun(run)
}

// counterLost: the lease's token is below the ledger's epoch, though nobody came after
// its holder (EX2).
type counterLost struct{ seed uint64 }

// Error says what is wrong.
func (e *counterLost) Error() string {
	return fmt.Sprintf("the job's lease has a token below the ledger's epoch %d", e.seed)
}

// dispatch is one call of Once. Its methods are for one goroutine at a time.
type dispatch struct {
	l       *Ledger
	cfg     onceConfig
	fn      Func
	lease   *tenure.Lease
	claim   core.Claim
	out     Outcome
	version store.Version // of the head at the first look
	found   *Outcome      // what was found while waiting for the lease
	seen    look          // the head at the check
	looked  time.Duration // boot clock after the first look
	passed  bool          // the head moved on after a look
	full    atomic.Bool   // the head is due for a compaction
	state   atomic.Int32
	at      atomic.Pointer[Attempt] // set before the function is called
}

// How far the part under the lease has come.
const (
	waiting int32 = iota
	tooLate
	begun
	gone     // its caller does not wait for it any more: the function is not called
	called   // the function was
	returned // and came back
)

// ended is how the part of a call under the lease ended.
type ended struct {
	out Outcome
	err error
}

func (d *dispatch) once(ctx context.Context) (Outcome, error) {
	s, err := d.first(ctx)
	if err != nil {
		d.out.State = NotRun
		return d.out, err
	}
	if d.decided(ctx, &s) || s.head != nil && d.stuck(&s) {
		return d.out, nil
	}
	return d.under(ctx, s)
}

// first looks before anything is taken. A store in trouble gets a few tries.
func (d *dispatch) first(ctx context.Context) (s look, err error) {
	limit, cancel := settle.Limit(ctx, d.l.k.Clock, max(d.cfg.wait, 3*d.l.k.Timing.Attempt))
	defer cancel()
	err = d.l.patiently(limit, func() error { s, err = d.l.look(limit, d.out.Run.ID, true); return err })
	d.looked = d.l.k.Clock.Boot()
	return s, err
}

// decided reports whether the run is done or given up, and answers if it is.
func (d *dispatch) decided(ctx context.Context, s *look) bool {
	if s.head == nil {
		return false
	}
	yes, twice, k := s.committed()
	switch {
	case yes:
		d.out.State, d.out.Attempt, d.out.Repeated = Done, k, twice
	case d.gaveUp(s):
		d.out.State = GaveUp
	default:
		return false
	}
	if d.cfg.replay {
		saved, err := d.l.Result(ctx, d.out.Attempt)
		if err != nil {
			d.l.k.Log.Warn("ledger: the result cannot be read", "job", d.l.agent, "run", k.Run, "error", err)
		}
		d.out.Saved = saved
	}
	return true
}

// gaveUp reports whether as many attempts failed as may.
func (d *dispatch) gaveUp(s *look) bool {
	if s.found == nil {
		return false
	}
	last, over := tooManyFailed(s.found.Attempts(), d.cfg.maxFailed)
	if over {
		d.out.Attempt = last
	}
	return over
}

// tooManyFailed reports whether at least most of a run's attempts failed, the newest of
// some site among them, and which that is; most 0 is any number. A policy decides about
// open ones first.
func tooManyFailed(all []AttemptInfo, most int) (last Key, over bool) {
	failed, older, forgotten := 0, 0, 0
	for i, at := range all {
		if at.Open != nil {
			return Key{}, false
		}
		newest := i+1 == len(all) || all[i+1].Site != at.Site
		counts := at.Failed && at.Abandoned == nil
		if counts {
			failed++
		}
		if counts && newest {
			last = at.Fact.Key
		}
		if at.Failed && !newest {
			older++
		}
		if newest {
			forgotten += int(at.Attempt)
		}
		forgotten-- // this one is known
	}
	if older >= core.MaxFailures { // then there may have been more
		failed += forgotten
	}
	return last, most > 0 && failed >= most && last != Key{} // what did not even begin ends nothing
}

// stuck reports whether the head alone tells that the policy will leave the run to a
// person, and answers if so.
func (d *dispatch) stuck(s *look) bool {
	open := s.pending()
	for _, o := range open {
		if o.Site != s.head.Site || d.cfg.policy == Hold && o.Epoch < s.head.Epoch {
			d.out.State, d.out.Attempt, d.out.Pending = Held, o.Key, open
			return true
		}
	}
	return false
}

// under goes on under the job's lease.
func (d *dispatch) under(ctx context.Context, s look) (Outcome, error) {
	run, done, over := d.out.Run, make(chan ended, 1), make(chan freed, 1)
	d.version = s.ver
	go d.leased(ctx, over, func(ctx context.Context, lease *tenure.Lease) error {
		if !d.state.CompareAndSwap(waiting, begun) {
			return errTooLate
		}
		d.lease, d.claim = lease, core.Claim{Holder: lease.Owner(), Epoch: lease.Token()}
		d.out.Epoch = lease.Token()
		err := d.run(ctx, s)
		done <- ended{d.out, err}
		if errors.Is(err, tenure.ErrOverlap) {
			d.l.outlive(lease)
		}
		return err
	})
	select {
	case e := <-done:
		if errors.Is(e.err, tenure.ErrOverlap) { // the lease is not given up
			e.out.LeaseErr = e.err
			return e.out, e.err
		}
		return d.concluded(e, (<-over).rethrow())
	case f := <-over:
		err := f.rethrow()
		if d.state.Load() == returned { // its outcome is being recorded, which has a limit of its own
			return d.concluded(<-done, err)
		}
		select {
		case e := <-done:
			return d.concluded(e, err)
		default:
		}
		out := Outcome{Run: run, State: NotRun, LeaseErr: err}
		if d.state.CompareAndSwap(begun, gone) {
			return out, err
		}
		if a := d.at.Load(); a != nil {
			out.State, out.Attempt, out.Epoch = Unsettled, a.key, a.Epoch()
			return out, err
		}
		return d.notGranted(ctx, err)
	}
}

// freed is how the lease ended, and whether the function panicked, or ended its
// goroutine.
type freed struct {
	err      error
	panicked any
	exited   bool
}

func (f freed) rethrow() error {
	if f.panicked != nil {
		panic(f.panicked)
	}
	if f.exited {
		runtime.Goexit()
	}
	return f.err
}

// leased runs work under the lease, in a goroutine of its own, since the lease may go on
// for longer than the call.
func (d *dispatch) leased(ctx context.Context, over chan<- freed, work func(context.Context, *tenure.Lease) error) {
	f := freed{exited: true}
	defer func() {
		if p := recover(); p != nil {
			f.panicked, f.exited = p, false
		}
		over <- f
	}()
	f.err = d.acquire(ctx, work)
	f.exited = false
}

// outlive returns when the lease is over. Nobody may have it while something acts for
// it.
func (l *Ledger) outlive(lease *tenure.Lease) {
	for lease.Live() {
		clock.Sleep(l.k.Clock, max(lease.Remaining(), time.Millisecond), nil)
	}
}

// errTooLate: the lease came after the wait was over.
var errTooLate = errors.New("the wait for the lease is over")

// acquire runs work under the lease, waiting for it as long as may be.
func (d *dispatch) acquire(ctx context.Context, work func(context.Context, *tenure.Lease) error) error {
	if d.cfg.wait == 0 {
		return d.l.from.TryDo(ctx, d.l.lease, work, d.cfg.lease...)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	t := d.l.k.Clock.AfterFunc(d.cfg.wait, func() {
		if d.state.CompareAndSwap(waiting, tooLate) {
			cancel(errTooLate)
		}
	})
	defer t.Stop()
	return d.watched(ctx, cancel, func(had func()) error {
		return d.l.from.Do(ctx, d.l.lease, func(ctx context.Context, lease *tenure.Lease) error {
			had()
			return work(ctx, lease)
		}, d.cfg.lease...)
	})
}

// concluded is the call's end once the part under the lease has ended; err is the
// lease's.
func (d *dispatch) concluded(e ended, err error) (Outcome, error) {
	for _, kind := range []error{tenure.ErrLost, tenure.ErrUnconfirmed, tenure.ErrOverlap} {
		if errors.Is(err, kind) {
			e.out.LeaseErr = err
		}
	}
	return e.out, e.err
}

// notGranted is the answer of who did not get the lease.
func (d *dispatch) notGranted(ctx context.Context, err error) (Outcome, error) {
	if d.found != nil {
		return d.concluded(ended{out: *d.found}, err)
	}
	var held *tenure.HeldError
	switch {
	case errors.As(err, &held):
		d.out.HeldBy = held
	case errors.Is(err, errTooLate):
		if st, err := d.l.c.Status(ctx, d.l.lease); err == nil && st.State == tenure.Held {
			d.out.HeldBy = &tenure.HeldError{Name: d.l.lease, Token: st.Token, Owner: st.Owner, Label: st.Label, Since: st.Since, Note: st.Note}
		}
	default:
		d.out.State = NotRun
		return d.out, err
	}
	d.out.State = Busy
	return d.out, nil
}
