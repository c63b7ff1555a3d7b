package store

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// ProbeOptions say how Probe works. The zero value of each field but Prefix is
// a sensible default.
type ProbeOptions struct {
	// Prefix is what the probe's keys start with, such as Prefix(ns, "probe").
	Prefix string
	// Limit bounds the validation; 0 is 30 seconds, or 2 minutes if Deep.
	Limit time.Duration
	// CleanUp bounds the removal of the probe's keys; 0 is 10 seconds. It runs
	// on even if the caller's context has ended.
	CleanUp time.Duration
	// Racers is how many callers race; 0 is 8. It is 2 to 64.
	Racers int
	// Deep adds 500 conditional writes that the store must refuse, so that one
	// which misbehaves now and then is found with known odds (see Report.Escape).
	Deep bool
}

// Deep probing makes this many writes that must be refused, half of them
// creates and half replaces.
const deepTrials = 500

// Probe finds out whether s keeps ST1 to ST6 well enough to keep leases in
// (ST10). It works on fresh keys of its own, within a time limit, and tries
// to remove them after every outcome.
//
// A store that breaks a property gives a [*ProbeError] that names it. A store
// that could not be probed (unavailable, rights missing, no answer within the
// limit) gives an error of that kind that wraps an [*Error]. If the clean-up fails too, errors.Join
// reports both; missing rights to delete are no failure, and Report says what
// they mean. Report is filled as far as the probe came. Report.Sound says that
// every property was shown, also where only the clean-up failed.
//
// A sound verdict excludes a store that never or always ignores a condition.
// One that does so rarely is found only by luck, or by Deep.
func Probe(ctx context.Context, s Store, o ProbeOptions) (Report, error) {
	if o.Racers == 0 {
		o.Racers = 8
	}
	if o.Limit == 0 {
		o.Limit = 30 * time.Second
		if o.Deep {
			o.Limit = 2 * time.Minute
		}
	}
	if o.CleanUp == 0 {
		o.CleanUp = 10 * time.Second
	}
	p := &prober{s: s, o: o, info: s.Info(), base: o.Prefix + strings.ToLower(rand.Text()), wrote: map[string]time.Time{}}
	p.report.Store = p.info
	if err := p.check(); err != nil {
		return p.report, err
	}
	started := time.Now()
	limited, cancel := context.WithTimeoutCause(ctx, o.Limit, errProbeLimit)
	err := p.validate(limited)
	cancel()
	p.report.Sound = err == nil
	err = errors.Join(err, p.cleanUp(ctx))
	p.report.Sound = p.report.Sound && !errors.As(err, new(*ProbeError))
	p.report.Took = time.Since(started)
	p.report.Latencies = p.latencies()
	return p.report, flat(err)
}

// flat unwraps a join of one.
func flat(err error) error {
	if j, ok := err.(interface{ Unwrap() []error }); ok && len(j.Unwrap()) == 1 {
		return j.Unwrap()[0]
	}
	return err
}

var errProbeLimit = errors.New("the time limit of the probe ended")

// prober is one run of Probe.
type prober struct {
	s    Store
	o    ProbeOptions
	info Info
	base string // what every key of this run starts with
	main record // the one that most steps are about

	mu     sync.Mutex
	report Report
	calls  []timing
	wrote  map[string]time.Time // by key: when it was last written, to pace writes
	bodies int
	made   bool // some key may be in the store
}

type timing struct {
	op   string
	took time.Duration
}

func (p *prober) check() error {
	bad := func(format string, args ...any) error {
		return Errorf(ErrInvalid, p.info.Identity, "probe", "", format, args...)
	}
	if err := CheckKey(p.base + "-create-0"); err != nil {
		return bad("the prefix %q makes no key: %v", p.o.Prefix, err)
	}
	if p.o.Racers < 2 || p.o.Racers > 64 {
		return bad("%d racers; give 2 to 64", p.o.Racers)
	}
	if p.o.Limit < 0 || p.o.CleanUp < 0 {
		return bad("a time limit is negative")
	}
	return nil
}

// key is a key of this run. It is remembered for the clean-up before it is
// written.
func (p *prober) key(name string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.base + "-" + name
	if !slices.Contains(p.report.Keys, k) {
		p.report.Keys = append(p.report.Keys, k)
	}
	return k
}

// body is never the same twice (ST4, ST9).
func (p *prober) body(what string) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bodies++
	return fmt.Appendf(nil, `{"probe":%q,"what":%q,"number":%d}`, p.base, what, p.bodies)
}

// timed runs one call and notes how long it took.
func (p *prober) timed(op string, call func()) {
	start := time.Now()
	call()
	took := time.Since(start)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, timing{op, took})
}

// pace waits until key may be written again without exceeding what the store
// declares.
func (p *prober) pace(ctx context.Context, key string) {
	if p.info.WritesPerSecond <= 0 {
		return
	}
	gap := time.Duration(float64(time.Second) / p.info.WritesPerSecond)
	p.mu.Lock()
	wait := gap - time.Since(p.wrote[key])
	p.wrote[key] = time.Now().Add(max(wait, 0))
	p.mu.Unlock()
	rest(ctx, wait)
}

// rest waits for d or until ctx ends.
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

// cleanUp removes the keys of this run, also those whose write seemed to fail.
func (p *prober) cleanUp(ctx context.Context) error {
	if !p.made {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), p.o.CleanUp, errors.New("the time limit of the clean-up ended"))
	defer cancel()
	var failed error
	for _, k := range p.report.Keys {
		err := p.patiently(ctx, func() (err error) {
			p.pace(ctx, k)
			p.timed("delete", func() { err = p.s.Delete(ctx, k) })
			return err
		})
		if err == nil {
			if failed == nil && k == p.main.key {
				failed = p.removed(ctx)
			}
			continue
		}
		p.report.Leftover = append(p.report.Leftover, k)
		if errors.Is(err, ErrDenied) {
			p.report.DeleteDenied = true
			continue
		}
		if failed == nil {
			failed = fmt.Errorf("the probe could not remove its keys, which start with %s: %w", p.base, err)
		}
	}
	return failed
}

// removed reads the main record after its deletion (ST5). A create that was on
// its way may have made the key again, but never with the body of its last
// state; a read that fails shows nothing.
func (p *prober) removed(ctx context.Context) error {
	if !p.report.Sound {
		return nil // its last state is not known
	}
	var o Object
	err := p.patiently(ctx, func() (err error) {
		o, err = p.get(ctx, p.main.key)
		return err
	})
	if err != nil || string(o.Body) != string(p.main.body) {
		return nil
	}
	p.report.Leftover = append(p.report.Leftover, p.main.key)
	return p.lacks(DeleteRemoves, "%s holds %s after its deletion", p.main.key, o.Body)
}

// patiently repeats a call that certainly had no effect, and a delete whose
// outcome is unknown, until ctx ends.
func (p *prober) patiently(ctx context.Context, call func() error) error {
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		err := call()
		if kind := KindOf(err); kind != ErrUnavailable && kind != ErrUnknown {
			return err
		}
		if rest(ctx, wait); ctx.Err() != nil {
			return err
		}
		p.mu.Lock()
		p.report.Repeated++
		p.mu.Unlock()
	}
}

func (p *prober) latencies() []Latency {
	by := map[string][]time.Duration{}
	for _, c := range p.calls {
		by[c.op] = append(by[c.op], c.took)
	}
	out := []Latency{}
	for op, all := range by {
		slices.Sort(all)
		out = append(out, Latency{Op: op, Calls: len(all), P50: all[len(all)/2], Max: all[len(all)-1]})
	}
	slices.SortFunc(out, func(a, b Latency) int { return cmp.Compare(a.Op, b.Op) })
	return out
}
