package world

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tenure-project/tenure"
	core "github.com/tenure-project/tenure/internal/core/ledger"
	"github.com/tenure-project/tenure/ledger"
	"github.com/tenure-project/tenure/store"
)

// keep runs one job by its schedule, as every other process does: what its own wall clock
// says is due, and now and then what was due before.
func (a *actor) keep(ctx context.Context, job string) {
	l, err := a.p.Ledger(job)
	if err != nil {
		a.w.oracle.failNow("R12", "%s: %v", a.p.name, err)
		return
	}
	every := a.w.Plan.schedule()
	for {
		now := a.p.wall()
		next, _ := every.Next(now)
		if !a.p.Sleep(ctx, next.Sub(now)+about(a.r, a.ttl()/50)) {
			return
		}
		at, ok := ledger.Latest(every, a.p.wall(), time.Hour)
		if !ok {
			continue
		}
		if old := a.w.oracle.someAsked(job, a.r.IntN(6)); !old.IsZero() && chance(a.r, 0.3) {
			at = old
		}
		err := a.once(ctx, l, job, at)
		if err == nil && chance(a.r, 0.3) {
			err = a.tends(ctx, l, job, at)
		}
		if errors.Is(err, tenure.ErrClosed) {
			return
		}
		a.blame(err)
	}
}

// schedule is the one schedule of a world.
func (p Plan) schedule() ledger.Every {
	every, err := ledger.NewEvery(p.Interval, 0)
	if err != nil {
		panic(err)
	}
	return every
}

// wall is what the process's wall clock shows.
func (p *Proc) wall() time.Time { return time.Unix(0, int64(p.clk.Read().Wall)) }

// Ledger is the ledger of a job as the process has it. Where there is a guard, whoever
// takes the job's lease raises it first.
func (p *Proc) Ledger(job string) (*ledger.Ledger, error) {
	var opts []ledger.Option
	if p.w.Plan.Guard != Unguarded {
		opts = append(opts, ledger.LeaseOptions(tenure.Guards(jobRaiser{p, job})))
	}
	return ledger.Open(p.Client, job, opts...)
}

// jobRaiser lifts the guard of one job's thing.
type jobRaiser struct {
	p   *Proc
	job string
}

// Raise lifts the guard.
func (r jobRaiser) Raise(ctx context.Context, token uint64) error {
	if !r.p.Sleep(ctx, time.Microsecond) {
		return context.Cause(ctx)
	}
	o := r.p.w.oracle
	o.mu.Lock()
	defer o.mu.Unlock()
	js := o.jobs[r.job]
	js.high = max(js.high, token)
	return nil
}

// once runs one occurrence and judges the answer (R39).
func (a *actor) once(ctx context.Context, l *ledger.Ledger, job string, at time.Time) error {
	run, err := ledger.Occurrence(job, ledger.DefaultTrigger, a.w.mutation.instantAt(a.p, at))
	if err != nil {
		return err
	}
	a.w.oracle.ask(job, at)
	k := a.workload()
	c := &call{p: a.p, job: job, at: at, run: run, plan: a.jobWork(k)}
	opts := []ledger.OnceOption{ledger.SettleLimit(2 * a.ttl()), ledger.WithLease(tenure.Stop(k.Stop), tenure.StopLimit(k.Limit))}
	if a.w.Plan.Unknown == ledger.Probe {
		opts = append(opts, ledger.WithProbe(c.probe))
	} else {
		opts = append(opts, ledger.OnUnknown(a.w.Plan.Unknown))
	}
	if chance(a.r, 0.5) {
		opts = append(opts, ledger.Wait(time.Microsecond+about(a.r, 2*a.ttl())))
	}
	if chance(a.r, 0.2) {
		opts = append(opts, ledger.TimeLimit(time.Millisecond+about(a.r, a.ttl())))
	}
	if chance(a.r, 0.2) {
		opts = append(opts, ledger.Replay())
	}
	out, err := l.Once(ctx, run, c.work, opts...)
	a.w.trace.add(a.p.name, "%s: once %s: %s, attempt %d, epoch %d: %s", job, at.UTC().Format("15:04:05.000"), out.State, out.Attempt.Attempt, out.Epoch, kind(err))
	c.judge(out, err)
	if out.State == ledger.Failed || errors.Is(err, ledger.ErrUnsettled) {
		return nil // it is the function's own
	}
	return err
}

// jobWork is how a function behaves.
type jobWork struct {
	before, after time.Duration // until the effect is sent, and until it arrives
	end           int
	heedless      bool // it does not look at its context before it sends
}

// The ends of a function.
const (
	tells    = iota // what became of its effect
	fails           // before there is an effect
	wonders         // it says that it does not know, though the effect is sent
	forsakes        // it says so, and there is none
)

func (a *actor) jobWork(k Work) jobWork {
	w := jobWork{before: min(k.Lasts/2, a.ttl()), after: time.Microsecond + about(a.r, a.ttl()/20), heedless: chance(a.r, 0.3)}
	if chance(a.r, 0.3) {
		w.before = time.Microsecond
	}
	if !a.w.Plan.Calm && chance(a.r, 0.1) { // an effect that outlasts its lease
		w.after = about(a.r, a.ttl()/2)
	}
	switch n := a.r.IntN(30); {
	case n < 3:
		w.end = fails
	case n < 5 && !a.w.Plan.Calm:
		w.end = wonders
	case n == 5 && !a.w.Plan.Calm:
		w.end = forsakes
	}
	return w
}

// errStale is the guard's refusal, errNoEffect a function's that did not come to it.
var (
	errStale    = errors.New("the guard is at a later epoch")
	errNoEffect = errors.New("it failed without an effect")
)

// work is the function: it works, sends its effect, and waits for the answer. What was
// sent arrives whatever becomes of the process.
func (c *call) work(ctx context.Context, x *ledger.Attempt) (ledger.Result, error) {
	p := c.p
	t := c.begins(x)
	h := p.Handed(x.Lease())
	r := &run{h: h, ctx: ctx, stops: p.gate.count()}
	p.w.oracle.begin(r)
	defer p.w.oracle.end(r)
	p.Sleep(ctx, c.plan.before)
	switch {
	case c.plan.end == fails, ctx.Err() != nil && !c.plan.heedless:
		return c.ends(t, core.Failed, errNoEffect)
	case c.plan.end == forsakes:
		return c.ends(t, core.Pending, ledger.ErrUnsettled)
	}
	p.Sleep(context.Background(), time.Microsecond) // it may be stopped here, and goes on all the same
	c.send(t)
	if c.plan.end == wonders {
		return c.ends(t, core.Pending, ledger.ErrUnsettled)
	}
	for !c.answered(t) {
		p.Sleep(context.Background(), p.w.Plan.Latency+time.Microsecond)
	}
	if t.refused {
		return c.ends(t, core.Failed, errStale)
	}
	return c.ends(t, core.Committed, nil)
}

// tends does what else a host does with a ledger: it asks, lists, compacts.
func (a *actor) tends(ctx context.Context, l *ledger.Ledger, job string, at time.Time) error {
	switch a.r.IntN(4) {
	case 0:
		ctx, cancel := a.p.Within(ctx, a.ttl())
		defer cancel()
		_, err := l.Compact(ctx)
		return err
	case 1:
		_, err := l.Unsettled(ctx)
		return err
	case 2:
		_, err := l.Sweep(ctx, 0)
		return err
	}
	run, err := ledger.Occurrence(job, ledger.DefaultTrigger, at)
	if err != nil {
		return err
	}
	return a.did(ctx, l, job, run)
}

// settleRuns acts as a person would who looks after the jobs: what is unknown he settles
// by what he can find out, and of some he says that nobody knows.
func (a *actor) settleRuns(ctx context.Context) {
	for a.p.Sleep(ctx, about(a.r, 2*a.ttl())) {
		job := a.w.Plan.JobNames()[a.r.IntN(a.w.Plan.Jobs)]
		l, err := a.p.Ledger(job)
		var all []ledger.RunInfo
		if err == nil {
			all, err = l.Unsettled(ctx)
		}
		for _, r := range all {
			for _, at := range r.Attempts {
				if at.Open != nil && err == nil && ctx.Err() == nil {
					err = a.settleOne(ctx, l, job, *at.Open)
				}
			}
		}
		if errors.Is(err, tenure.ErrClosed) {
			return
		}
		if !errors.Is(err, ledger.ErrRunning) && !errors.Is(err, store.ErrConflict) && !errors.Is(err, ledger.ErrCommitted) {
			a.blame(err)
		}
	}
}

func (a *actor) settleOne(ctx context.Context, l *ledger.Ledger, job string, p ledger.Pending) error {
	o := ledger.SettleOptions{By: "ann", Reason: "it was looked into", Wait: about(a.r, a.ttl())}
	verdict := a.w.oracle.finds(job, p.Key, chance(a.r, 0.3))
	if verdict == "" {
		return nil
	}
	err := l.Settle(ctx, p.Key, verdict, o)
	a.w.trace.add(a.p.name, "%s: settle attempt %d of epoch %d as %s: %s", job, p.Attempt, p.Epoch, verdict, kind(err))
	a.w.oracle.count("settled by a person")
	return err
}

// merge brings in what another site did of what is due, now and then. Its effect came
// before its commit, and its guard is the same.
func (a *actor) merge(ctx context.Context) {
	for a.p.Sleep(ctx, a.mergesAfter()) {
		job := a.w.Plan.JobNames()[a.r.IntN(a.w.Plan.Jobs)]
		at := a.w.oracle.someAsked(job, a.r.IntN(3))
		if a.w.mutation.meddles {
			at = a.w.oracle.aboutToBegin(job)
		}
		if at.IsZero() {
			continue
		}
		l, err := a.p.Ledger(job)
		if err == nil {
			err = a.mergeRun(ctx, l, job, at)
		}
		if errors.Is(err, tenure.ErrClosed) {
			return
		}
		a.blame(err)
	}
}

// mergesAfter is how long the next merge is away.
func (a *actor) mergesAfter() time.Duration {
	if a.w.mutation.meddles {
		return a.ttl() / 100
	}
	return about(a.r, 2*a.ttl())
}

// aboutToBegin is an occurrence with an attempt whose function did not begin; zero if
// there is none.
func (o *oracle) aboutToBegin(job string) (at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for k, a := range o.jobs[job].attempts {
		if o.jobs[job].facts[k.Run][k] == nil && !a.began && !a.p.crashed.Load() && a.At > at.UnixMilli() {
			at = time.UnixMilli(a.At)
		}
	}
	return at
}

func (a *actor) mergeRun(ctx context.Context, l *ledger.Ledger, job string, at time.Time) error {
	run, err := ledger.Occurrence(job, ledger.DefaultTrigger, at)
	if err != nil {
		return err
	}
	k := core.Key{Run: run.ID, Site: foreign, Attempt: 1}
	lines, err := core.AppendLine(nil, &core.Intent{V: 1, Agent: job, Key: k, Status: core.Committed, Epoch: 1})
	if err != nil {
		return err
	}
	g := ledger.NewLog()
	if err := g.ReadFrom(foreign, bytes.NewReader(lines)); err != nil {
		return err
	}
	a.w.oracle.merging(a.p, job, at, k)
	ctx, cancel := a.p.Within(ctx, 2*a.ttl())
	defer cancel()
	_, err = l.Import(ctx, g)
	a.w.trace.add(a.p.name, "%s: merge of %s: %s", job, at.UTC().Format("15:04:05.000"), kind(err))
	return err
}

// someAsked is an occurrence that was asked for, the n-th from the end; zero if there is
// none.
func (o *oracle) someAsked(job string, n int) time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := o.jobs[job].asked
	if len(all) == 0 {
		return time.Time{}
	}
	return all[max(len(all)-1-n, 0)]
}

// ask notes that somebody asks for an occurrence.
func (o *oracle) ask(job string, at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	js := o.jobs[job]
	if !slices.ContainsFunc(js.asked, at.Equal) {
		js.asked = append(js.asked, at)
		o.stats["occurrences"]++
	}
}

// String is a guard for the plan.
func (g Guarded) String() string {
	if s, known := map[Guarded]string{Unguarded: "no guard", Fenced: "a fence", Full: "a guard"}[g]; known {
		return s
	}
	return fmt.Sprintf("guard %d", int(g))
}
