// Package bench measures a store for leases: how long its operations and the
// library's steps take, and how many store calls each step makes.
//
// Everything happens on fresh keys under one prefix of a namespace's probe keys,
// with the real library on top; no other key is read or written. The keys are
// removed afterwards, whatever happened.
package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/store"
)

// Options say what to measure and for how long.
type Options struct {
	// Namespace is the one under whose probe keys everything happens.
	Namespace string
	// Rounds is how often each step is measured at most.
	Rounds int
	// Concurrency is how many steps are under way at once.
	Concurrency int
	// Limit bounds the measuring, CleanUp the removal of the keys after it, which
	// runs on even if the caller's context has ended.
	Limit, CleanUp time.Duration
	// Client are options for the library's clients, such as clock and logger.
	Client []tenure.Option
}

// Why a run ended.
const (
	EndedRounds = "rounds" // every round was made
	EndedLimit  = "limit"  // the time limit came first
	EndedCaller = "caller" // the caller's context ended
)

// Report is what was measured, as far as the run came.
type Report struct {
	// Steps are in the order of a report: the store's operations, then those of
	// leases.
	Steps []Step
	// Ended says why the run ended.
	Ended string
	// Took is how long it all took, clean-up included.
	Took time.Duration
	// Prefix is what every key of the run starts with.
	Prefix string
	// Left is how many keys may be left behind, and LeftWhy is why.
	Left    int
	LeftWhy error
}

// namespace is the name of the namespace that the library sees; it lies under
// the prefix of the run.
const namespace = "bench"

// badRow is how many steps may fail in a row before the run is given up.
const badRow = 5

// Run measures st. An error says that it could not be measured: its kind is the
// store's. The report tells of the clean-up in every case.
func Run(ctx context.Context, st store.Store, o Options) (Report, error) {
	began := time.Now()
	info := st.Info()
	r := &run{o: o, st: st, fig: newFigures(), prefix: store.Prefix(o.Namespace, "probe") + "bench-" + strings.ToLower(rand.Text()) + "-"}
	if info.WritesPerSecond > 0 {
		r.gap = time.Duration(float64(time.Second) / info.WritesPerSecond)
	}
	r.ttl = leaseTTL(info)
	r.tap = NewTap(st, r.prefix, r.fig.seen)
	r.tap.gap = r.gap // also for what the library writes by itself, such as the releases at the end
	limited, cancel := context.WithTimeoutCause(ctx, o.Limit, errLimit)
	err := r.measure(limited)
	rep := Report{Prefix: r.prefix, Ended: EndedRounds}
	switch {
	case ctx.Err() != nil:
		rep.Ended = EndedCaller
	case r.cut || limited.Err() != nil:
		rep.Ended = EndedLimit
	}
	cancel()
	rep.Left, rep.LeftWhy = r.cleanUp(ctx)
	rep.Steps, rep.Took = r.fig.report(), time.Since(began)
	if err == nil && ctx.Err() == nil && !r.fig.any() {
		err = store.Errorf(store.ErrUnavailable, info.Identity, "bench", "", "no step was finished within %v", o.Limit)
	}
	return rep, err
}

var errLimit = errors.New("the time limit of the measuring ended")

// leaseTTL is the TTL of the measured leases: the default, or the shortest that
// the store takes if that is longer.
func leaseTTL(i store.Info) time.Duration {
	ttl := lease.Timing{}.Defaults().TTL
	if i.WritesPerSecond > 0 {
		ttl = max(ttl, time.Duration(11/i.WritesPerSecond*float64(time.Second)).Round(time.Second))
	}
	return ttl
}

// run is one run of the benchmark.
type run struct {
	o      Options
	st     store.Store
	tap    *Tap
	fig    *figures
	prefix string
	gap    time.Duration // between two writes of one key
	ttl    time.Duration

	cut      bool        // the time ended before the rounds did
	noDelete atomic.Bool // the rights to delete are missing

	mu      sync.Mutex
	begun   int      // chains that were begun
	waiting []*chain // whose key must rest
}

// measure makes the rounds of operations and leases within three fifths of the
// time, and the renewals in what is left. The end of the time is no error.
func (r *run) measure(ctx context.Context) error {
	part, cancel := context.WithTimeoutCause(ctx, r.o.Limit*3/5, errLimit)
	defer cancel()
	if err := r.rounds(part); err != nil {
		return r.unless(ctx, err)
	}
	return r.unless(ctx, r.renewals(ctx))
}

// unless drops an error that the end of the time explains, if there are figures.
func (r *run) unless(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil && r.fig.any() {
		return nil
	}
	return err
}

// client opens the library on the tapped store.
func (r *run) client(ctx context.Context, opts ...tenure.Option) (*tenure.Client, error) {
	opts = append([]tenure.Option{tenure.WithNamespace(namespace), tenure.WithoutProbe(), tenure.WithTTL(r.ttl)}, opts...)
	return tenure.New(ctx, r.tap, append(opts, r.o.Client...)...)
}

// judge decides about a step that failed: an error ends the run.
func (r *run) judge(name string, err error) error {
	kind := store.KindOf(err)
	if kind != store.ErrUnavailable && kind != store.ErrUnknown {
		return fmt.Errorf("%s: %w", name, err)
	}
	if r.fig.failed(name) >= badRow {
		return fmt.Errorf("%d steps failed in a row; %s: %w", badRow, name, err)
	}
	return nil
}

// rest waits for d, or until ctx ends.
func rest(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
