package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"

	tenure "github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/core/lease"
	core "github.com/tenure-project/tenure/internal/core/ledger"
	"github.com/tenure-project/tenure/internal/settle"
	"github.com/tenure-project/tenure/store"
)

func (o SettleOptions) check() error {
	if o.Reason == "" {
		return invalid("settle", "a reason is required: it is kept")
	}
	if n := len(o.By) + len(o.Reason); n > 200 {
		return invalid("settle", "operator and reason have %d bytes, at most 200 are allowed", n)
	}
	if o.Wait < 0 {
		return invalid("settle", "the wait %v is negative", o.Wait)
	}
	return errors.Join(lease.CheckWhy("reason", o.why()))
}

// why is what is kept: who, and the reason.
func (o SettleOptions) why() string {
	if o.By == "" {
		return o.Reason
	}
	return o.By + ": " + o.Reason
}

// settleBy settles an attempt for an operator.
func (l *Ledger) settleBy(ctx context.Context, k Key, v Verdict, o SettleOptions) error {
	out, err := outcome(k, v, o)
	if err = errors.Join(err, o.check()); err != nil {
		return err
	}
	var open look // the attempt while nobody had settled it
	forestalled := false
	err = l.judged(ctx, k.Run, o, func(s *look) ([]core.Outcome, error) {
		at, err := find(s, k, l.agent)
		if at.Open != nil {
			open = *s
		}
		switch {
		case err != nil:
			return nil, err
		case v == AsCommitted && at.Committed, v == AsFailed && (at.Failed || at.NotBegun), v == AsAbandoned && at.Abandoned != nil:
			forestalled = open.head != nil
			return nil, nil
		case at.Open == nil && v != AsCommitted:
			return nil, store.Errorf(store.ErrConflict, l.identity(), "settle", l.headKey, "attempt %d of run %v at site %q is settled already: %s", k.Attempt, k.Run, k.Site, fate(at.Fact))
		}
		return []core.Outcome{out}, nil
	})
	if err != nil || v == AsAbandoned || forestalled { // it says why by itself, or another did
		return err
	}
	return l.keepReason(ctx, &open, out, o)
}

// outcome is what a verdict writes.
func outcome(k Key, v Verdict, o SettleOptions) (core.Outcome, error) {
	out := core.Outcome{Key: k}
	switch v {
	case AsCommitted:
		out.Status = core.Committed
	case AsFailed:
		out.Status, out.NotStarted = core.Failed, true
	case AsAbandoned:
		out.Status, out.By = core.Abandoned, o.why()
	default:
		return out, invalid("settle", "%q: a verdict is committed, failed or abandoned", v)
	}
	return out, nil
}

func find(s *look, k Key, agent string) (AttemptInfo, error) {
	all := s.found.Attempts()
	i := slices.IndexFunc(all, func(at AttemptInfo) bool { return at.Fact.Key == k })
	if i < 0 {
		return AttemptInfo{}, store.Errorf(store.ErrNotFound, "", "settle", "", "job %q: run %v has no attempt %d at site %q", agent, k.Run, k.Attempt, k.Site)
	}
	return all[i], nil
}

func fate(f Fact) string {
	switch {
	case f.Committed:
		return "committed"
	case f.Failed || f.NotBegun:
		return "failed"
	}
	return "abandoned by " + f.Abandoned.By
}

// retry gives up the open attempts of a run.
func (l *Ledger) retry(ctx context.Context, run Run, o SettleOptions) ([]Key, error) {
	if err := errors.Join(l.mine("retry", run), o.check()); err != nil {
		return nil, err
	}
	var gone []Key
	err := l.judged(ctx, run.ID, o, func(s *look) ([]core.Outcome, error) {
		if yes, _ := s.found.Committed(); yes {
			return nil, fmt.Errorf("job %q: run %v: %w", l.agent, run.ID, ErrCommitted)
		}
		var all []core.Outcome
		gone = nil
		for _, k := range stopped(s) {
			all = append(all, core.Outcome{Key: k, Status: core.Abandoned, By: o.why(), Epoch: s.head.Epoch})
			gone = append(gone, k)
		}
		return all, nil
	})
	if err != nil {
		return nil, err
	}
	return gone, nil
}

// stopped are the attempts that keep a run from being tried again: the open ones,
// and the newest of each site if it failed. That others failed before it goes on
// counting.
func stopped(s *look) []Key {
	var open, failed []Key
	all := s.found.Attempts()
	for i, at := range all {
		newest := i+1 == len(all) || all[i+1].Site != at.Site
		switch {
		case at.Open != nil:
			open = append(open, at.Fact.Key)
		case newest && at.Failed && at.Abandoned == nil:
			failed = append(failed, at.Fact.Key)
		}
	}
	return slices.Concat(open, failed)
}

// judged writes what judge says of a run, once the attempts in question are over. The
// write replaces the very head that was judged, with the block that was read after it:
// whatever another writes meanwhile, a late commit above all, is judged first.
func (l *Ledger) judged(ctx context.Context, run RunID, o SettleOptions, judge func(s *look) ([]core.Outcome, error)) error {
	for {
		again, err := l.judgeOnce(ctx, run, o, judge)
		if !again || err != nil {
			return err
		}
		l.pause(ctx)
		if err := store.CtxErr(ctx, l.identity(), "settle", l.headKey); err != nil {
			return err
		}
	}
}

// judgeOnce is one round of judged; again is true if the head is not the one any more
// that was judged.
func (l *Ledger) judgeOnce(ctx context.Context, run RunID, o SettleOptions, judge func(s *look) ([]core.Outcome, error)) (again bool, err error) {
	var s look
	if err := l.patiently(ctx, func() (err error) { s, err = l.look(ctx, run, false); return err }); err != nil {
		return false, err
	}
	if s.head == nil {
		return false, store.Errorf(store.ErrNotFound, l.identity(), "settle", l.headKey, "job %q never ran", l.agent)
	}
	outs, err := judge(&s)
	if err != nil || len(outs) == 0 {
		return false, err
	}
	if !o.Vouch {
		if fenced, err := l.mayJudge(ctx, &s, outs, o); fenced || err != nil {
			return fenced, err
		}
	}
	next, err := s.head.SettleAll(outs, l.k.NewID())
	if full := (*core.FullError)(nil); errors.As(err, &full) && full.Facts > 0 {
		return true, l.makeRoom(ctx, err)
	}
	if err != nil || next == nil {
		return false, err
	}
	now, _, err := l.write(ctx, s, next, func(*core.Head) bool { return false })
	if settle.LostRace(err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	l.tidy(now.head.Full())
	return false, nil
}

// mayJudge returns without error once the holders of the attempts in question have no
// right to be at them any more. fenced is true if they had until now: the head moved on.
func (l *Ledger) mayJudge(ctx context.Context, s *look, outs []core.Outcome, o SettleOptions) (fenced bool, err error) {
	held, err := l.holder(ctx)
	if err != nil {
		return false, err
	}
	running := (*Pending)(nil)
	for _, p := range s.pending() {
		if !slices.ContainsFunc(outs, func(out core.Outcome) bool { return out.Key == p.Key }) {
			continue
		}
		if p.Site != s.head.Site {
			return false, &RunningError{Agent: l.agent, Pending: p, Foreign: true}
		}
		if !core.Over(s.head, p, held) {
			running = &p
		}
	}
	if running == nil {
		return false, nil
	}
	if err := l.fence(ctx, o); errors.Is(err, tenure.ErrHeld) {
		return false, &RunningError{Agent: l.agent, Pending: *running}
	} else if err != nil {
		return false, err
	}
	return true, nil
}

// fence takes the job's lease over and raises the epoch, so that whoever had it before
// can be at nothing any more.
func (l *Ledger) fence(ctx context.Context, o SettleOptions) error {
	d := &dispatch{l: l, cfg: onceConfig{wait: o.Wait, lease: l.opts}}
	err := d.acquire(ctx, func(ctx context.Context, held *tenure.Lease) error {
		d.lease, d.claim = held, core.Claim{Holder: held.Owner(), Epoch: held.Token()}
		if !d.state.CompareAndSwap(waiting, begun) {
			return errTooLate
		}
		for {
			var s look
			if err := l.patiently(ctx, func() (err error) { s, err = l.readHead(ctx); return err }); err != nil {
				return err
			}
			next, dec, err := s.head.Raise(d.claim, l.k.NewID())
			if err != nil || next == nil && dec.Answer == core.Proceed {
				return err
			}
			if dec.Answer != core.Proceed {
				return d.behind(ctx, s.head)
			}
			if _, _, err = l.write(ctx, s, next, func(h *core.Head) bool { return h.Epoch == d.claim.Epoch && h.Holder == d.claim.Holder }); !settle.LostRace(err) {
				return err
			}
		}
	})
	if errors.Is(err, errTooLate) {
		_, err = d.notGranted(ctx, err)
		return errors.Join(err, d.heldErr())
	}
	return err
}

// heldErr is the error for who may not take the lease.
func (d *dispatch) heldErr() error {
	if d.out.HeldBy != nil {
		return d.out.HeldBy
	}
	return fmt.Errorf("lease %q: %w", d.l.lease, tenure.ErrHeld)
}

// keepReason writes why an attempt was settled, where it left no result of its own. It
// comes after the verdict, which another may forestall. Where the verdict stood already
// it comes, too: whoever was stopped between the two says it again.
func (l *Ledger) keepReason(ctx context.Context, s *look, out core.Outcome, o SettleOptions) error {
	now := l.k.NowMS()
	r := &core.Result{V: 1, Agent: l.agent, Key: out.Key, Status: out.Status, Holder: clip("operator " + o.By), Why: o.why(), Started: now, Ended: now}
	if out.Status == core.Failed {
		r.Exit = 1
	}
	if s.head != nil {
		for _, p := range s.pending() {
			if p.Key == out.Key {
				r.Trigger, r.At, r.Epoch = p.Trigger, p.At, p.Epoch
			}
		}
	}
	r.KeepOutput(nil, 0)
	if err := l.patiently(ctx, func() error { return l.putResult(ctx, r, true) }); err != nil {
		return fmt.Errorf("job %q: attempt %d of run %v is settled as %s, but the reason is not kept yet: say it again: %w", l.agent, out.Attempt, out.Run, out.Status, err)
	}
	return nil
}
