package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/store"
)

// chain is a row of steps on one fresh key. One worker at a time has it.
type chain struct {
	steps []step
	wrote time.Time // when its key was last written
	ready time.Time // when its next step may begin
}

// step is one measured step.
type step struct {
	name   string
	writes bool // it writes the chain's key
	do     func(ctx context.Context) error
}

// rounds makes every round: one chain of operations and one of a lease. Where
// the store limits writes per key, chains whose key must rest are put aside and
// others begun.
func (r *run) rounds(ctx context.Context) error {
	c, err := r.client(ctx)
	if err != nil {
		return err
	}
	group, stop := context.WithCancel(ctx)
	defer stop()
	errs := make([]error, r.o.Concurrency)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			if errs[i] = r.work(group, c); errs[i] != nil {
				stop()
			}
		})
	}
	wg.Wait()
	err = errors.Join(errs...)
	r.cut = ctx.Err() != nil
	if closed := c.Close(); err == nil && ctx.Err() == nil {
		err = closed
	}
	return err
}

// work advances chains until there are none left, or ctx ends.
func (r *run) work(ctx context.Context, c *tenure.Client) error {
	for ctx.Err() == nil {
		ch, wait := r.take(c)
		switch {
		case ch == nil && wait == 0:
			return nil
		case ch == nil:
			rest(ctx, wait)
		default:
			if err := r.advance(ctx, ch); err != nil {
				return err
			}
		}
	}
	return nil
}

// take is the chain that has waited longest and is ready, else a new one, else
// how long until one is ready. Chains that others have are theirs to finish.
func (r *run) take(c *tenure.Client) (*chain, time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if len(r.waiting) > 0 && !r.waiting[0].ready.After(now) {
		ch := r.waiting[0]
		r.waiting = r.waiting[1:]
		return ch, 0
	}
	if n := r.begun; n < 2*r.o.Rounds {
		r.begun++
		if n%2 == 0 {
			return r.operations(n / 2), 0
		}
		return r.lease(c, n/2), 0
	}
	if len(r.waiting) > 0 {
		return nil, max(time.Until(r.waiting[0].ready), time.Millisecond)
	}
	return nil, 0
}

// advance makes the steps of ch until it is done, failed or must rest.
func (r *run) advance(ctx context.Context, ch *chain) error {
	for len(ch.steps) > 0 {
		s := ch.steps[0]
		if s.writes && !ch.wrote.IsZero() {
			if ch.ready = ch.wrote.Add(r.gap); time.Now().Before(ch.ready) {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.waiting = append(r.waiting, ch) // every gap is as long, so these are in order of ready
				return nil
			}
		}
		ch.steps = ch.steps[1:]
		if err := r.step(ctx, s); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return r.judge(s.name, err) // what is left of the chain is not worth measuring
		}
		if s.writes {
			ch.wrote = time.Now()
		}
	}
	return nil
}

// step makes one step and notes what it took.
func (r *run) step(ctx context.Context, s step) error {
	ctx, calls := withTally(ctx)
	began := time.Now()
	err := s.do(ctx)
	if s.name == StepDelete && errors.Is(err, store.ErrDenied) {
		r.noDelete.Store(true)
		return nil
	}
	if err == nil {
		r.fig.succeeded(s.name, time.Since(began), calls.take())
	}
	return err
}

// operations is the chain of the store's own operations on one key.
func (r *run) operations(i int) *chain {
	key, first, second := fmt.Sprintf("op/%d", i), body(i), body(i) // made before anything is timed
	var at store.Version
	limited := func(do func(ctx context.Context) error) func(context.Context) error {
		return func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, lease.Timing{TTL: r.ttl}.Defaults().Attempt)
			defer cancel()
			return do(ctx)
		}
	}
	ch := &chain{steps: []step{
		{StepCreate, true, limited(func(ctx context.Context) (err error) {
			at, err = r.tap.Create(ctx, key, first)
			return err
		})},
		{StepGet, false, limited(func(ctx context.Context) error {
			_, err := r.tap.Get(ctx, key, lease.MaxBody)
			return err
		})},
		{StepReplace, true, limited(func(ctx context.Context) (err error) {
			at, err = r.tap.Replace(ctx, key, second, at)
			return err
		})},
		{StepList, false, limited(func(ctx context.Context) error {
			for _, err := range r.tap.List(ctx, "op/", "") {
				if err != nil {
					return err
				}
			}
			return nil
		})},
	}}
	if !r.noDelete.Load() {
		ch.steps = append(ch.steps, step{StepDelete, true, limited(func(ctx context.Context) error { return r.tap.Delete(ctx, key) })})
	}
	return ch
}

// body is as long as the record of a lease usually is, and never the same twice.
func body(i int) []byte {
	b := fmt.Appendf(nil, `{"bench":%d,"fill":"`, i)
	for len(b) < 400 {
		b = append(b, rand.Text()...)
	}
	return append(b, `"}`...)
}

// lease is the chain of what the library does with one name.
func (r *run) lease(c *tenure.Client, i int) *chain {
	name := fmt.Sprintf("lease-%d", i)
	var held *tenure.Lease
	acquire := func(ctx context.Context) (err error) {
		held, err = r.acquire(ctx, c, name)
		return err
	}
	release := func(ctx context.Context) error { return held.Release(ctx) }
	return &chain{steps: []step{
		{StepAcquireNew, true, acquire}, {StepRelease, true, release},
		{StepAcquireKnown, true, acquire}, {StepRelease, true, release},
	}}
}

// acquire takes a lease that is free. An acquisition waits for a store in
// trouble for ever; this one gives up after three calls' time.
func (r *run) acquire(ctx context.Context, c *tenure.Client, name string) (*tenure.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*lease.Timing{TTL: r.ttl}.Defaults().Attempt)
	defer cancel()
	return c.Acquire(ctx, name)
}
