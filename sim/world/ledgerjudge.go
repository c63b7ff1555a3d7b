package world

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	core "github.com/tenure-project/tenure/internal/core/ledger"
	"github.com/tenure-project/tenure/ledger"
)

// call is one call of Once.
type call struct {
	p    *Proc
	job  string
	at   time.Time
	run  ledger.Run
	plan jobWork

	began *attempt // its function did
}

func (c *call) state() *jobState { return c.p.w.oracle.jobs[c.job] }

// begins judges that a function begins (R38): its attempt is one that the head admitted
// for this process, no other function ran for it, and after the admission the process was
// shown a head where the run is not committed and its attempt stands, and then its lease.
func (c *call) begins(x *ledger.Attempt) *attempt {
	o, js := c.p.w.oracle, c.state()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stats["functions begun"]++
	a := js.attempts[x.Key()]
	o.w.trace.add(c.p.name, "%s: attempt %d of %s begins at epoch %d", c.job, x.Number(), c.at.UTC().Format("15:04:05.000"), x.Epoch())
	if a == nil {
		o.fail("R38", "%s: %s begins attempt %d, which was never admitted", c.job, c.p.name, x.Number())
		a = &attempt{Open: core.Open{Key: x.Key(), Epoch: x.Epoch()}, p: c.p}
		js.attempts[x.Key()] = a
	}
	f := js.facts[a.Run][a.Key]
	switch {
	case a.p != c.p || a.Epoch != x.Epoch() || a.Run != c.run.ID:
		o.fail("R38", "%s: %s begins attempt %d, which was admitted for %s", c.job, c.p.name, x.Number(), a.p.name)
	case a.began || c.began != nil:
		o.fail("R38", "%s: %s begins attempt %d twice", c.job, c.p.name, x.Number())
	case f != nil && f.NotBegun:
		o.fail("R38", "%s: %s begins attempt %d, of which the ledger says that it did not begin", c.job, c.p.name, x.Number())
	case !a.checked && !c.p.frozen.Load():
		o.fail("R38", "%s: %s begins attempt %d of a run, and the ledger had said nothing that lets it: committed %v", c.job, c.p.name, x.Number(), js.committed(a.Run))
	}
	if js.committed(a.Run) || f != nil {
		o.stats["begun after a last look that was true"]++
	}
	a.began, a.at, c.began = true, c.at, a
	return a
}

// ends notes what a function says at its end.
func (c *call) ends(a *attempt, as core.Status, err error) (ledger.Result, error) {
	o := c.p.w.oracle
	o.mu.Lock()
	defer o.mu.Unlock()
	a.ended = as
	o.w.trace.add(c.p.name, "%s: attempt %d of %s ended: %s", c.job, a.Attempt, c.at.UTC().Format("15:04:05.000"), as)
	return ledger.Result{Exit: int(a.Attempt % 3)}, err
}

// send sends the effect on its way.
func (c *call) send(a *attempt) {
	o := c.p.w.oracle
	o.mu.Lock()
	defer o.mu.Unlock()
	a.sent = true
	time.AfterFunc(c.plan.after, func() { o.land(c.state(), a) })
}

func (c *call) answered(a *attempt) bool {
	o := c.p.w.oracle
	o.mu.Lock()
	defer o.mu.Unlock()
	return a.landed
}

// land is an effect that arrives at the thing that it is on (R40).
func (o *oracle) land(js *jobState, a *attempt) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if a.landed = true; a.refused {
		return // already, for good
	}
	guard := o.w.Plan.Guard
	if o.w.mutation.openGuard {
		guard = Unguarded
	}
	if guard != Unguarded && a.Epoch < js.high {
		a.refused = true
		o.stats["effects refused"]++
		return
	}
	js.high = max(js.high, a.Epoch)
	if guard == Full && js.done[a.Run] {
		o.stats["effects that were there"]++
		return
	}
	js.done[a.Run] = true
	o.effect(js, a.at, a.Key)
}

// effect judges one effect (R40).
func (o *oracle) effect(js *jobState, at time.Time, k core.Key) {
	ms := at.UnixMilli()
	js.effects[ms] = append(js.effects[ms], k)
	o.stats["job effects"]++
	o.w.trace.add("thing", "%s: effect %d of %s by attempt %d at %s", js.name, len(js.effects[ms]), at.UTC().Format("15:04:05.000"), k.Attempt, k.Site)
	if n := len(js.effects[ms]); n > 1 && o.w.Plan.Guard == Full {
		o.fail("R40", "%s: %s has %d effects, and there is a guard", js.name, at.UTC().Format("15:04:05.000"), n)
	}
}

// merging notes that another site did a run, and that its log is about to be imported.
func (o *oracle) merging(p *Proc, job string, at time.Time, k core.Key) {
	o.mu.Lock()
	defer o.mu.Unlock()
	js := o.jobs[job]
	js.merges[p] = append(js.merges[p], k)
	if js.merged[k] {
		return
	}
	js.merged[k] = true
	if o.w.Plan.Guard == Full && js.done[k.Run] {
		return
	}
	js.done[k.Run] = true
	o.effect(js, at, k)
}

// finds is what a person can find out of an attempt, and says then; empty if nothing, or
// if it may still act. If rash, he says that nobody knows.
func (o *oracle) finds(job string, k core.Key, rash bool) ledger.Verdict {
	o.mu.Lock()
	defer o.mu.Unlock()
	js := o.jobs[job]
	a := js.attempts[k]
	v := ledger.Verdict("")
	switch {
	case a == nil:
	case a.landed && !a.refused:
		v = ledger.AsCommitted
	case rash:
		v = ledger.AsAbandoned
	case a.p.crashed.Load() && !a.sent, a.ended == core.Pending && !a.sent, a.refused:
		v = ledger.AsFailed
	}
	if v != "" {
		js.mayBe(k, core.Status(v))
	}
	return v
}

func (js *jobState) mayBe(k core.Key, s core.Status) {
	if js.verdicts[k] == nil {
		js.verdicts[k] = map[core.Status]bool{}
	}
	js.verdicts[k][s] = true
}

// probe says what is true of an attempt. Where nothing refuses it later, it cannot say
// that it will not act.
func (c *call) probe(ctx context.Context, p ledger.Pending) (ledger.Finding, error) {
	if !c.p.Sleep(ctx, time.Microsecond) {
		return 0, context.Cause(ctx)
	}
	o, js := c.p.w.oracle, c.state()
	o.mu.Lock()
	defer o.mu.Unlock()
	a := js.attempts[p.Key]
	switch {
	case a == nil:
		return ledger.CannotSay, nil
	case a.landed && !a.refused && !o.w.mutation.liar || o.w.Plan.Guard == Full && js.done[p.Run]:
		js.mayBe(p.Key, core.Committed)
		o.stats["probed happened"]++
		return ledger.Happened, nil
	case o.w.Plan.Guard == Unguarded && !o.w.mutation.liar:
		o.stats["probed cannot say"]++
		return ledger.CannotSay, nil
	}
	js.mayBe(p.Key, core.Failed)
	o.stats["probed did not happen"]++
	return ledger.DidNotHappen, nil
}

// judge judges what Once says (R39).
func (c *call) judge(out ledger.Outcome, err error) {
	o, js := c.p.w.oracle, c.state()
	o.mu.Lock()
	defer o.mu.Unlock()
	if c.p.crashed.Load() {
		return
	}
	o.stats["once "+string(out.State)]++
	f := js.facts[c.run.ID][out.Attempt]
	say := func(format string, args ...any) {
		if !c.p.frozen.Load() {
			o.fail("R39", "%s: %s was told %q of attempt %d: %s (%v)", c.job, c.p.name, out.State, out.Attempt.Attempt, fmt.Sprintf(format, args...), err)
		}
	}
	began := c.began != nil
	switch out.State {
	case ledger.Ran:
		if f == nil || !f.Committed || !began || c.began.Key != out.Attempt {
			say("it is not committed, or its function was not called: %+v, %v", f, began)
		}
	case ledger.Failed:
		// Of an attempt that was given up meanwhile it is not kept that it failed.
		if f == nil || !f.Failed && f.Abandoned == nil || !began || c.began.Key != out.Attempt {
			say("it did not fail, or its function was not called: %+v, %v", f, began)
		}
	case ledger.Done:
		if f == nil && !js.merged[out.Attempt] || f != nil && !f.Committed || began {
			say("it is not committed, or this call's function was called: %+v, %v", f, began)
		}
	case ledger.Unsettled:
		if !began {
			say("its function was not called")
		}
	default:
		if began {
			say("its function was called")
		}
	}
	probed := out.State == ledger.Held && o.w.Plan.Unknown == ledger.Probe // its error comes through
	if well := slices.Contains([]ledger.State{ledger.Done, ledger.Busy, ledger.GaveUp, ledger.Held, ledger.Ran}, out.State); well == (err != nil) && !probed {
		say("and that does not go with it")
	}
}

// did asks whether a run happened, and judges the answer: it was true at one instant of
// the call.
func (a *actor) did(ctx context.Context, l *ledger.Ledger, job string, run ledger.Run) error {
	o := a.w.oracle
	now := func() bool { o.mu.Lock(); defer o.mu.Unlock(); return o.jobs[job].committed(run.ID) }
	before := now()
	ans, err := l.Did(ctx, run)
	after := now()
	if err != nil || a.p.frozen.Load() || a.p.Crashed() {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stats["asked whether it happened"]++
	onItsWay := o.jobs[job].merged[core.Key{Run: run.ID, Site: foreign, Attempt: 1}]
	if ans.Committed && !after && !onItsWay || !ans.Committed && before {
		o.fail("R39", "%s: %s was told that a run happened: %v, and it is %v before and %v after", job, a.p.name, ans.Committed, before, after)
	}
	return nil
}

// finish lets a fresh process run what was ever asked for, and judges what is left (R41).
func (w *World) finish(p *Proc) {
	var wg sync.WaitGroup
	for _, job := range w.Plan.JobNames() {
		wg.Go(func() { w.finishJob(p, job) })
	}
	wg.Wait()
}

func (w *World) finishJob(p *Proc, job string) {
	l, err := p.Ledger(job)
	if err != nil {
		w.oracle.failNow("R41", "%v", err)
		return
	}
	w.oracle.mu.Lock()
	asked := slices.SortedFunc(slices.Values(w.oracle.jobs[job].asked), time.Time.Compare)
	w.oracle.mu.Unlock()
	for _, at := range asked {
		p.Sleep(p.ctx, time.Microsecond)
		w.finishRun(p, l, job, at)
	}
	if err := again(func() error { _, err := l.Compact(p.ctx); return err }); err != nil {
		w.oracle.failNow("R41", "%s: no compaction after the faults ended: %v", job, err)
	}
	err = again(func() error {
		x, err := l.Load(p.ctx)
		if err == nil {
			w.oracle.sum(job, x)
		}
		return err
	})
	if err != nil {
		w.oracle.failNow("R41", "%s: cannot be read after the faults ended: %v", job, err)
	}
}

// finishRun runs one occurrence until the ledger has an answer that stays.
func (w *World) finishRun(p *Proc, l *ledger.Ledger, job string, at time.Time) {
	run, err := ledger.Occurrence(job, ledger.DefaultTrigger, at)
	if err != nil {
		w.oracle.failNow("R41", "%v", err)
		return
	}
	var out ledger.Outcome
	for range 8 {
		c := &call{p: p, job: job, at: at, run: run, plan: jobWork{before: time.Microsecond, after: time.Microsecond}}
		opts := []ledger.OnceOption{ledger.OnUnknown(w.Plan.Unknown), ledger.Wait(w.patience())}
		if w.Plan.Unknown == ledger.Probe {
			opts[0] = ledger.WithProbe(c.probe)
		}
		out, err = l.Once(p.ctx, run, c.work, opts...)
		c.judge(out, err)
		if out.State == ledger.Done || out.State == ledger.Ran || out.State == ledger.Held {
			break
		}
	}
	w.oracle.stays(w, job, at, run, out, err)
}

// stays judges one occurrence when everything is over: it is done, or a person is asked;
// and if its effect came more than once, each of its attempts says so.
func (o *oracle) stays(w *World, job string, at time.Time, run ledger.Run, out ledger.Outcome, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	js, when := o.jobs[job], at.UTC().Format("15:04:05.000")
	effects, done := js.effects[at.UnixMilli()], js.committed(run.ID) || js.merged[core.Key{Run: run.ID, Site: foreign, Attempt: 1}]
	switch out.State {
	case ledger.Done, ledger.Ran:
		if len(effects) == 0 || !done {
			o.fail("R41", "%s: %s is %s, with %d effects, and it is committed: %v", job, when, out.State, len(effects), done)
		}
	case ledger.Held:
		o.stats["held at the end"]++
		if !w.Plan.mayStay() || len(out.Pending) == 0 || js.committed(run.ID) {
			o.fail("R41", "%s: %s is held, and the policy is %s; it is committed: %v", job, when, w.Plan.Unknown, done)
		}
	default:
		o.fail("R41", "%s: %s is %s after the faults ended: %v", job, when, out.State, err)
	}
	begun := 0
	for k, a := range js.attempts {
		if f := js.facts[k.Run][k]; k.Run == run.ID && a.began && (f == nil || !f.Failed) {
			begun++
		}
	}
	if w.Plan.Calm && (begun != 1 || len(effects) != 1) {
		o.fail("R41", "%s: %s began %d times, with %d effects, and nothing went wrong", job, when, begun, len(effects))
	}
	o.accounts(js, when, run.ID, effects)
}

// accounts judges that every effect is accounted for: the attempt that had it is
// committed, open or given up, and of one with more than one effect no reader is told
// that it happened once (R41).
func (o *oracle) accounts(js *jobState, when string, run core.RunID, effects []core.Key) {
	shown := map[string]int{}
	for _, k := range effects {
		f := js.facts[run][k]
		switch {
		case k.Run != run:
			o.fail("R41", "%s: an effect of %s is another run's", js.name, when)
		case f == nil && js.merged[k]:
			shown["on its way"]++
		case f == nil:
			shown["unknown"]++
		case f.Abandoned != nil:
			shown["given up"]++
		case f.Committed:
			shown["committed"]++
		default:
			o.fail("R41", "%s: attempt %d at %s of %s had its effect, and the ledger says %+v", js.name, k.Attempt, k.Site, when, *f)
		}
	}
	if len(effects) < 2 {
		return
	}
	o.stats["occurrences with two effects or more"]++
	for kind, n := range shown {
		o.stats["of these "+kind] += n
	}
	if o.w.Plan.Unknown != ledger.Retry && !o.w.Plan.Merges && shown["given up"] == 0 {
		o.fail("R41", "%s: %s has %d effects, and nobody gave one up: %v", js.name, when, len(effects), shown)
	}
	if shown["committed"] == 1 && len(shown) == 1 {
		o.fail("R41", "%s: %s has %d effects, and the ledger shows one: %v", js.name, when, len(effects), shown)
	}
}

// sum judges a listing of the whole ledger against everything that it ever said.
func (o *oracle) sum(job string, x *ledger.Listing) {
	o.mu.Lock()
	defer o.mu.Unlock()
	js := o.jobs[job]
	told := map[core.RunID]ledger.RunInfo{}
	for r := range x.Runs() {
		told[r.ID] = r
	}
	for _, run := range js.sortedRuns() {
		r := told[run]
		if r.Committed != js.committed(run) && !(r.Committed && js.merged[core.Key{Run: run, Site: foreign, Attempt: 1}]) {
			o.fail("R41", "%s: the listing says that run %v is committed: %v", job, run, r.Committed)
		}
	}
	for k, a := range js.attempts {
		if js.facts[k.Run][k] == nil && a.p != nil && !told[k.Run].Unknown && !told[k.Run].Running {
			o.fail("R41", "%s: attempt %d of a run is open, and the listing does not show it", job, k.Attempt)
		}
	}
}
