package ledger

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/tenure-project/tenure/internal/clock"
	core "github.com/tenure-project/tenure/internal/core/ledger"
	"github.com/tenure-project/tenure/internal/settle"
	"github.com/tenure-project/tenure/store"
)

// errDecided: while the call waited for the lease the run was done, given up or held.
var errDecided = errors.New("the run is decided")

// lookout looks at the head whenever it changes while the call waits for the lease, and
// ends the wait by end once there is nothing to wait for: of a thousand hosts that wait
// for one run none takes the lease only to find it done. seen is the head at the first
// look. It returns when ctx ends, which is when the lease is had.
func (d *dispatch) lookout(ctx context.Context, seen store.Version, run Run, end context.CancelCauseFunc) {
	k := d.l.k
	// Who gets the lease at once watches nothing.
	if !clock.Sleep(k.Clock, k.Pace(k.Timing).Backoff, ctx.Done()) {
		return
	}
	for ctx.Err() == nil {
		settle.Change(ctx, k.Store, d.l.headKey, seen, settle.Waiting{Clock: k.Clock, Most: 2 * k.Timing.TTL, Poll: k.Poll, Rand: k.Rand, Log: k.Log})
		if ctx.Err() != nil {
			return
		}
		s, err := d.l.glance(ctx, run.ID)
		if err != nil { // whoever takes the lease will tell
			if !clock.Sleep(k.Clock, k.Poll, ctx.Done()) {
				return
			}
			continue
		}
		seen = s.ver
		p := &dispatch{l: d.l, cfg: d.cfg, out: Outcome{Run: run}}
		if s.head == nil || !p.decided(ctx, &s) && !p.stuck(&s) {
			continue
		}
		if d.state.CompareAndSwap(waiting, tooLate) {
			d.found = &p.out
			end(errDecided)
		}
		return
	}
}

// watched runs wait, which ends with ctx or calls had once the lease is had, under the
// lookout.
func (d *dispatch) watched(ctx context.Context, end context.CancelCauseFunc, wait func(had func()) error) error {
	looking, had := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer had()
	if run, seen := d.out.Run, d.version; run.ID != (RunID{}) { // an operator waits for no run
		wg.Go(func() { d.lookout(looking, seen, run, end) })
	}
	return wait(had)
}

// glance is look in one request where the head alone can tell that the run is committed,
// or still open.
func (f *files) glance(ctx context.Context, run RunID) (look, error) {
	s, err := f.readHead(ctx)
	s.run = run
	if err != nil || s.head == nil || s.head.Committed(run) || slices.ContainsFunc(s.head.Open, func(o Pending) bool { return o.Run == run }) {
		return s, err
	}
	if leaf, ok := s.head.BlockOf(run); ok {
		if err := f.readBlock(ctx, leaf, &s); err != nil {
			return s, err
		}
	}
	s.found, err = core.Look(s.head, s.block, run)
	return s, err
}
