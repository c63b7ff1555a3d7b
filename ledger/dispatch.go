package ledger

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	tenure "github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/core/lease"
	core "github.com/tenure-project/tenure/internal/core/ledger"
	"github.com/tenure-project/tenure/internal/settle"
	"github.com/tenure-project/tenure/store"
)

// checkRun refuses a run that no record could name.
func checkRun(r Run) error {
	if r.Trigger != "" {
		if err := store.CheckName("trigger", r.Trigger); err != nil {
			return err
		}
	}
	if !r.At.IsZero() && r.At.UnixMilli() < 0 {
		return invalid("once", "the occurrence %v is before 1970", r.At)
	}
	return nil
}

// errAgain: what the dispatch rests on changed, so begin again with a new look.
var errAgain = errors.New("look again")

// run is the dispatch under the lease, in the order of EX4. s is what was read before
// the lease was taken; the write that raises the epoch proves that it still stands. Who
// had to wait looks again first: the one before him has most likely done the run.
func (d *dispatch) run(ctx context.Context, s look) error {
	d.out.State = NotRun
	stale := d.l.k.Clock.Boot()-d.looked > d.l.k.Timing.Attempt/4
	for {
		if stale {
			if err := d.l.patiently(ctx, func() (err error) { s, err = d.l.look(ctx, d.out.Run.ID, false); return err }); err != nil {
				return err
			}
			if d.decided(ctx, &s) {
				return nil
			}
		}
		err := d.round(ctx, &s)
		if !errors.Is(err, errAgain) {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		stale = true
	}
}

// round goes from a look to the end, or to errAgain.
func (d *dispatch) round(ctx context.Context, s *look) error {
	if err := d.raise(ctx, s); err != nil {
		return err
	}
	next, dec, write, err := d.admission(ctx, s)
	if err != nil || next == nil {
		return err
	}
	in := func(h *core.Head) bool { return h.Has(d.out.Run.ID, write) }
	now, doubt, err := d.l.write(ctx, *s, next, in)
	switch {
	case doubt != nil:
		d.l.withdrawLater(*doubt, dec.Attempt, write)
		return err
	case settle.LostRace(err):
		d.l.pause(ctx)
		return errAgain
	case err != nil:
		return err
	}
	d.out.Attempt = dec.Attempt
	if now.head.Full() {
		d.full.Store(true)
	}
	d.at.Store(&Attempt{run: d.out.Run, key: dec.Attempt, epoch: d.lease.Token(), lease: d.lease})
	proceed, err := d.check(ctx, now.head, dec.Attempt)
	if !proceed || err != nil || !d.state.CompareAndSwap(begun, called) {
		d.notStarted(ctx, dec.Attempt, write)
		return err
	}
	return d.effect(ctx)
}

// raise brings the claim's epoch into the head, before anything is decided by it.
func (d *dispatch) raise(ctx context.Context, s *look) error {
	id := d.l.k.NewID()
	h := s.head
	if h == nil {
		var err error
		if h, err = core.NewHead(d.l.agent, d.l.siteName(), id); err != nil {
			return err
		}
	}
	next, dec, err := h.Raise(d.claim, id)
	switch {
	case errors.As(err, new(*core.FullError)):
		if err := d.l.makeRoom(ctx, err); err != nil {
			return err
		}
		return errAgain
	case err != nil:
		return err
	case dec.Answer != core.Proceed:
		return d.behind(ctx, h)
	}
	if next != nil {
		now, _, err := d.l.write(ctx, *s, next, func(h *core.Head) bool { return h.Epoch == d.claim.Epoch && h.Holder == d.claim.Holder })
		if settle.LostRace(err) {
			if d.passed { // the first look was made before the lease was had: it proves no rival
				d.l.pause(ctx)
			}
			d.passed = true
			return errAgain
		}
		if err != nil {
			return err
		}
		if now.over {
			return errAgain
		}
		*s = now
	}
	s.found, err = core.Look(s.head, s.block, d.out.Run.ID)
	return err
}

// behind is called if the head has a higher epoch: either somebody came later, and the
// lease is lost, or it lost its counter (EX2).
func (d *dispatch) behind(ctx context.Context, h *core.Head) error {
	if err := d.l.patiently(ctx, func() error { return d.lease.Check(ctx) }); err != nil {
		return err
	}
	return &counterLost{h.Seed()}
}

// admission is the head with a new attempt; nil where something stands in the way, and
// the outcome says what. write is the id of the write.
func (d *dispatch) admission(ctx context.Context, s *look) (next *core.Head, dec core.Decision, write string, err error) {
	write = d.l.k.NewID()
	detail := detail(d.out.Run, write, d.l.k.NowMS(), d.cfg.limit)
	next, dec, err = s.found.Admit(d.claim, detail)
	if err == nil && dec.Answer == core.Unknown {
		next, dec, err = d.unknown(ctx, s, dec, detail)
	}
	switch {
	case errors.As(err, new(*core.FullError)):
		if err = d.l.makeRoom(ctx, err); err == nil {
			err = errAgain
		}
	case err != nil:
	case dec.Answer == core.AlreadyCommitted:
		d.decided(ctx, s)
	case dec.Answer == core.StaleEpoch:
		err = d.behind(ctx, s.head)
	}
	return next, dec, write, err
}

// detail is what a record says of an attempt that is admitted by a write.
func detail(run Run, write string, now int64, limit time.Duration) core.Detail {
	d := core.Detail{Write: write, Trigger: run.Trigger, Since: now}
	if !run.At.IsZero() {
		d.At = run.At.UnixMilli()
	}
	if limit > 0 {
		d.Until = now + limit.Milliseconds()
	}
	return d
}

// failed is res with err in it.
func failed(res Result, err error) Result {
	if err != nil {
		res.Failed = true
		if res.Why == "" {
			res.Why = err.Error()
		}
		if res.Exit == 0 {
			res.Exit = 1
		}
	}
	return res
}

// unknown does what the policy says about an open attempt.
func (d *dispatch) unknown(ctx context.Context, s *look, dec core.Decision, detail core.Detail) (*core.Head, core.Decision, error) {
	over := core.Over(s.head, dec.Open, core.Lease(d.claim))
	finding := core.NotAsked
	for {
		step, o := d.cfg.policy.Next(dec, over, finding, clip("probe by "+d.l.k.Label))
		switch step {
		case core.StepRetry:
			next, dec, err := s.found.Retry(d.claim, detail)
			if err == nil && dec.Answer == core.Unknown { // another site's is open, too
				d.held(s, dec.Open)
			}
			return next, dec, err
		case core.StepProbe:
			var err error
			if finding, err = d.cfg.probe(ctx, dec.Open); err != nil {
				d.held(s, dec.Open)
				return nil, dec, fmt.Errorf("job %q: probe of attempt %d of run %v: %w", d.l.agent, dec.Open.Attempt, dec.Open.Run, err)
			}
			if finding == core.NotAsked {
				finding = core.CannotSay
			}
		case core.StepSettle:
			if _, err := d.l.change(ctx, *s, func(h *core.Head, id string) (*core.Head, error) { return h.Settle(o, id) }); err != nil {
				return nil, dec, err
			}
			return nil, dec, errAgain
		default: // StepHold, and StepWait: an attempt of this very lease that nobody speaks for
			d.held(s, dec.Open)
			return nil, dec, nil
		}
	}
}

func (d *dispatch) held(s *look, o Pending) {
	d.out.State, d.out.Attempt, d.out.Pending = Held, o.Key, s.pending()
}

// check is the last look, at the head and then at the lease: two requests (EX4).
func (d *dispatch) check(ctx context.Context, admitted *core.Head, k Key) (bool, error) {
	var dec core.Decision
	var now look
	err := d.l.patiently(ctx, func() (err error) {
		if now, err = d.l.readHead(ctx); err != nil {
			return err
		}
		if now.head == nil {
			return store.Errorf(store.ErrCorrupt, d.l.identity(), "check", d.l.headKey, "the ledger vanished")
		}
		held, err := d.l.holder(ctx)
		if err != nil {
			return err
		}
		dec = core.Check(admitted, now.head, held, d.claim, k)
		return nil
	})
	if err != nil {
		return false, err
	}
	d.seen = now
	switch dec.Answer {
	case core.Proceed:
		if err := context.Cause(ctx); err != nil || !d.lease.Live() {
			if err = errors.Join(err, d.lease.Err()); err == nil { // the clock tells before the context does
				err = fmt.Errorf("job %q: attempt %d of run %v: %w", d.l.agent, k.Attempt, k.Run, tenure.ErrExpired)
			}
			return false, err
		}
		return true, nil
	case core.AlreadyCommitted:
		d.out.State, d.out.Attempt, d.out.Repeated = Done, dec.Fact.Key, dec.Repeated
		return false, nil
	case core.LookAgain:
		return false, errAgain
	case core.Unknown:
		d.out.State, d.out.Attempt, d.out.Pending = Held, dec.Open.Key, []Pending{dec.Open}
		return false, nil
	}
	return false, fmt.Errorf("job %q: attempt %d of run %v: %w before it was started: %v", d.l.agent, k.Attempt, k.Run, tenure.ErrLost, dec.Answer)
}

// holder is who has the job's lease: one request (EX1).
func (l *Ledger) holder(ctx context.Context) (core.Lease, error) {
	st, err := l.c.Status(ctx, l.lease)
	if err != nil || st.State != tenure.Held {
		return core.Lease{}, err
	}
	return core.Lease{Holder: st.Owner, Epoch: st.Token}, nil
}

// effect calls the function and records what became of it.
func (d *dispatch) effect(ctx context.Context) error {
	a := d.at.Load()
	d.out.State = Unsettled // a panic leaves it so
	work, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if d.cfg.limit > 0 {
		t := d.l.k.Clock.AfterFunc(d.cfg.limit, func() {
			cancel(fmt.Errorf("%w: the time limit %v of the run", context.DeadlineExceeded, d.cfg.limit))
		})
		defer t.Stop()
	}
	began := d.l.k.NowMS()
	res, err := d.fn(work, a)
	d.state.Store(returned)
	d.out.Result = res
	if errors.Is(err, ErrUnsettled) || errors.Is(err, tenure.ErrOverlap) {
		return err
	}
	res = failed(res, err)
	d.out.Result = res
	state := Ran
	if res.Failed {
		state = Failed
	}
	if lost := d.record(ctx, a, res, began); lost != nil {
		return errors.Join(err, lost)
	}
	d.out.State = state
	return err
}

// record writes the result, and then the outcome, which is accepted at any epoch: a
// fact. Neither ends with the caller or the lease.
func (d *dispatch) record(ctx context.Context, a *Attempt, res Result, began int64) error {
	ctx, cancel := d.l.within(ctx, d.cfg.settle)
	defer cancel()
	o := core.Outcome{Key: a.key, Status: core.Committed}
	if res.Failed {
		o.Status, o.NotStarted = core.Failed, res.NotStarted
	}
	if err := d.keep(ctx, a, res, o.Status, began); err != nil {
		d.l.k.Log.Warn("ledger: the result is not kept", "job", d.l.agent, "run", a.key.Run, "attempt", a.key.Attempt, "error", err)
	}
	err := d.l.settle(ctx, d.seen, o)
	if err != nil {
		d.l.k.Log.Error("ledger: the outcome is not recorded, the run is unknown", "job", d.l.agent, "run", a.key.Run, "attempt", a.key.Attempt, "outcome", o.Status, "error", err)
		d.l.settleLater(o)
		return fmt.Errorf("job %q: %w: the function ended as %s, but the store did not take that: %w", d.l.agent, ErrUnsettled, o.Status, err)
	}
	return nil
}

// keep writes the result, if there is anything to say (EX6): a job that does its work
// in silence leaves no object per run.
func (d *dispatch) keep(ctx context.Context, a *Attempt, res Result, status core.Status, began int64) error {
	if !res.Failed && res.Exit == 0 && res.Why == "" && len(res.Output) == 0 && res.OutputBytes == 0 {
		return nil
	}
	ctx, cancel := settle.Limit(ctx, d.l.k.Clock, d.cfg.settle/2) // the fact is worth more
	defer cancel()
	r := &core.Result{
		V: 1, Agent: d.l.agent, Key: a.key, Holder: d.claim.Holder, Epoch: d.claim.Epoch, Status: status, Exit: min(max(res.Exit, 0), 255),
		Why: clip(res.Why), Trigger: a.run.Trigger, Started: began, Ended: max(began, d.l.k.NowMS()),
	}
	if !a.run.At.IsZero() {
		r.At = a.run.At.UnixMilli()
	}
	r.KeepOutput(res.Output, max(res.OutputBytes, int64(len(res.Output))))
	return d.l.putResult(ctx, r, false)
}

func (l *Ledger) putResult(ctx context.Context, r *core.Result, any bool) error {
	body, err := r.Encode()
	if err != nil {
		return err
	}
	return l.put(ctx, l.resultKey(r.Key), body, any)
}

// settle writes an outcome into the head.
func (l *Ledger) settle(ctx context.Context, seen look, o core.Outcome) error {
	h, err := l.change(ctx, seen, func(h *core.Head, id string) (*core.Head, error) { return h.Settle(o, id) })
	if err == nil && h.Full() {
		l.tidy(true)
	}
	return err
}

// settleLater goes on with settle for as long as the client lives.
func (l *Ledger) settleLater(o core.Outcome) {
	l.k.Background(func(ctx context.Context) { _ = l.patiently(ctx, func() error { return l.settle(ctx, look{}, o) }) })
}

// notStarted records that the own attempt's effect did not begin, at whatever epoch, and
// leaves it to the background if the store is in trouble (EX4).
func (d *dispatch) notStarted(ctx context.Context, k Key, write string) {
	limited, cancel := d.l.within(ctx, 3*d.l.k.Timing.Attempt)
	defer cancel()
	if err := d.l.withdraw(limited, k, write); err != nil {
		d.l.k.Log.Warn("ledger: an attempt that was not started stays open", "job", d.l.agent, "run", k.Run, "attempt", k.Attempt, "error", err)
		d.l.k.Background(func(ctx context.Context) {
			_ = d.l.patiently(ctx, func() error { return d.l.withdraw(ctx, k, write) })
		})
	}
}

// withdraw settles the attempt that the write admitted as not started. Another attempt
// of that number is not touched.
func (l *Ledger) withdraw(ctx context.Context, k Key, write string) error {
	_, err := l.change(ctx, look{}, func(h *core.Head, id string) (*core.Head, error) {
		if !h.Has(k.Run, write) {
			return nil, nil
		}
		return h.Settle(core.Outcome{Key: k, Status: core.Failed, NotStarted: true}, id)
	})
	return err
}

// withdrawLater settles an admission whose outcome is not known, and takes it back if
// it happened: nothing was started.
func (l *Ledger) withdrawLater(w doubt, k Key, write string) {
	l.k.Background(func(ctx context.Context) {
		_ = l.patiently(ctx, func() error {
			_, err := settle.Again(ctx, l.k.Store, w.w, l.k.Pace(l.k.Timing), w.sent)
			if err != nil {
				return err // refused: it did not happen
			}
			return l.withdraw(ctx, k, write)
		})
	})
}

// clip is as much of s as a record takes.
func clip(s string) string {
	s = strings.ToValidUTF8(s, "?")
	for s != "" && lease.CheckWhy("text", s) != nil {
		_, last := utf8.DecodeLastRuneInString(s)
		s = s[:min(len(s)-last, lease.MaxWhy)]
		s = strings.ToValidUTF8(s, "")
	}
	return s
}
