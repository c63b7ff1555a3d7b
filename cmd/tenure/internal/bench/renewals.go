package bench

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/store"
)

// renewals measures renewals: the library holds leases and renews them as often
// as the store allows, in place of a fifth of the TTL.
func (r *run) renewals(ctx context.Context) error {
	if ctx.Err() != nil {
		return nil
	}
	every, holders := time.Millisecond, r.o.Concurrency
	if r.gap > 0 {
		every = 2*r.gap + time.Millisecond
		holders *= r.sideBySide(every)
	}
	w := &renewalWatch{r: r, want: r.o.Rounds, end: make(chan error, 1)}
	c, err := r.client(ctx, tenure.WithRenewEvery(every), tenure.WithObserver(w))
	if err != nil {
		return err
	}
	err = r.hold(ctx, c, w, min(holders, r.o.Rounds), every)
	w.stop()
	if closed := c.Close(); err == nil && ctx.Err() == nil {
		err = closed
	}
	return err
}

// sideBySide is how many leases, renewed once in every, keep the store busy half
// of the time.
func (r *run) sideBySide(every time.Duration) int {
	return int(min(max(every/(2*max(r.fig.median(StepReplace), time.Millisecond)), 1), 32))
}

// hold holds n leases until enough renewals were seen, or ctx ends.
func (r *run) hold(ctx context.Context, c *tenure.Client, w *renewalWatch, n int, every time.Duration) error {
	for i := range n {
		tallied, _ := withTally(ctx) // these calls are not of a renewal
		if _, err := r.acquire(tallied, c, fmt.Sprintf("renewed-%d", i)); err != nil {
			return err
		}
		if r.gap > 0 {
			rest(ctx, every/time.Duration(n)) // so that they are not renewed in step
		}
	}
	select {
	case err := <-w.end:
		return err
	case <-ctx.Done():
		return nil
	}
}

// renewalWatch notes every renewal that the library tells of.
type renewalWatch struct {
	r   *run
	end chan error // nil when enough were seen, or why the run is given up

	mu   sync.Mutex
	want int // how many more
}

// stop ends the noting: what comes now is the release.
func (w *renewalWatch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.want = 0
}

// Observe is tenure.Observer's.
func (w *renewalWatch) Observe(e tenure.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.want <= 0 {
		return
	}
	var err error
	switch e.Kind {
	case tenure.EventRenewed:
		w.r.fig.succeeded(StepRenew, e.Took, w.r.fig.takeLoose(store.Key(namespace, "lease", e.Lease)))
		w.want--
	case tenure.EventRenewFailed:
		err = w.r.judge(StepRenew, e.Err)
	case tenure.EventLost:
		err = fmt.Errorf("%s: %w", StepRenew, e.Err)
	}
	if err != nil {
		w.want = 0
	}
	if w.want == 0 {
		w.end <- err // once, and there is room for it
	}
}
