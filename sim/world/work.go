package world

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tenure-project/tenure"
)

// run is one run of a function under Do.
type run struct {
	h     *Handle
	ctx   context.Context
	stops int  // how often the process had been stopped when it began
	neat  bool // it returns within the lease's stop time once its context ends
}

// Work is how a function under Do behaves.
type Work struct {
	// Lasts is how long it works.
	Lasts time.Duration
	// Dawdle is how long it takes to return once its context has ended.
	Dawdle time.Duration
	// Stop and Limit are the lease's stop time and stop limit.
	Stop, Limit time.Duration
}

// Do runs work under the lease name and judges it (R8).
func (p *Proc) Do(ctx context.Context, name string, k Work, opts ...tenure.AcquireOption) error {
	return p.do(ctx, p.Client.Do, name, k, opts...)
}

// Do runs work under a lease of the session and judges it (R8).
func (s *Session) Do(ctx context.Context, name string, k Work, opts ...tenure.AcquireOption) error {
	return s.p.do(ctx, s.Session.Do, name, k, opts...)
}

// doer is Do of a client or a session.
type doer func(ctx context.Context, name string, fn func(ctx context.Context, l *tenure.Lease) error, opts ...tenure.AcquireOption) error

func (p *Proc) do(ctx context.Context, do doer, name string, k Work, opts ...tenure.AcquireOption) error {
	opts = append(opts, tenure.Stop(k.Stop), tenure.StopLimit(k.Limit))
	var began atomic.Pointer[run]
	err := do(ctx, name, func(ctx context.Context, l *tenure.Lease) error {
		r := &run{h: p.Handed(l), ctx: ctx, stops: p.gate.count(), neat: k.Stop > 0 && k.Dawdle < k.Stop}
		began.Store(r)
		p.w.oracle.begin(r)
		defer p.w.oracle.end(r)
		p.Sleep(ctx, k.Lasts/2)
		r.h.Write(ctx, k.Lasts/4, p.w.Plan.Latency)
		p.Sleep(ctx, k.Lasts/4)
		if ctx.Err() != nil {
			p.Sleep(context.Background(), k.Dawdle)
		}
		return nil
	}, opts...)
	p.w.trace.add(p.name, "%s: Do: %v", name, kind(err))
	p.w.oracle.did(p, name, began.Load(), err)
	return err
}

// begin judges that a function begins.
func (o *oracle) begin(r *run) {
	o.mu.Lock()
	defer o.mu.Unlock()
	ls := o.byName[r.h.Name()]
	o.stats["runs"]++
	ls.runs = append(ls.runs, r)
	for _, e := range ls.runs {
		if e.h.p == r.h.p && e != r {
			o.fail("R8", "%s: work under token %d begins in %s before that under %d returned", ls.name, r.h.Token(), r.h.p.name, e.h.Token())
		}
	}
	o.checkRuns(ls)
}

// checkRuns judges the functions that run at this instant. Under mu.
func (o *oracle) checkRuns(ls *leaseState) {
	if len(ls.runs) < 2 {
		return
	}
	newest := slices.MaxFunc(ls.runs, func(a, b *run) int { return int(a.h.Token()) - int(b.h.Token()) })
	for _, e := range ls.runs {
		p := e.h.p
		if e == newest || p.crashed.Load() || p.gate.unsettled() {
			continue
		}
		if e.ctx.Err() == nil {
			o.fail("R8", "%s: work under token %d runs in %s, not told to stop, beside that under %d", ls.name, e.h.Token(), p.name, newest.h.Token())
		}
		if e.neat && p.gate.count() == e.stops {
			o.fail("R8", "%s: work under token %d in %s stops in time and yet overlaps with that under %d", ls.name, e.h.Token(), p.name, newest.h.Token())
		}
		o.stats["overlaps"]++
	}
}

func (o *oracle) end(r *run) {
	o.mu.Lock()
	defer o.mu.Unlock()
	ls := o.byName[r.h.Name()]
	ls.runs = slices.DeleteFunc(ls.runs, func(e *run) bool { return e == r })
}

// did judges the answer of Do.
func (o *oracle) did(p *Proc, name string, r *run, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if p.crashed.Load() || r == nil {
		return
	}
	running := slices.Contains(o.byName[name].runs, r)
	if running && !errors.Is(err, tenure.ErrOverlap) {
		o.fail("R8", "%s: Do returned %v while its work under token %d still runs", name, err, r.h.Token())
	}
	if errors.Is(err, tenure.ErrOverlap) {
		o.stats["overruns"]++
	}
}

// String is a work for the trace.
func (k Work) String() string { return fmt.Sprintf("%v, dawdle %v", k.Lasts, k.Dawdle) }
