package slots

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	tenure "github.com/tenure-project/tenure"
	core "github.com/tenure-project/tenure/internal/core/slots"
	"github.com/tenure-project/tenure/internal/settle"
	"github.com/tenure-project/tenure/store"
)

// slow is how often a session's rows are looked at that are all there: nobody takes them
// while the session lives.
const slow = 30 * time.Second

// interval is the pause between two refreshes.
func (h *Host) interval() time.Duration {
	if h.session == nil {
		return h.every - h.early
	}
	for _, p := range h.parts {
		if p.grant == nil && !p.leaving {
			return h.every
		}
	}
	return max(slow, 2*h.ttl)
}

// Run refreshes until ctx ends, and then gives everything up as Release does (SL5, SL7). It
// returns the release's error, or why the host is over if that came first: it was
// released, closed, or its session ended.
func (h *Host) Run(ctx context.Context) error {
	out := &lookout{h: h, watched: map[*part]context.CancelFunc{}}
	defer out.end()
	settled := func() {}
	if h.cfg.Balanced {
		settled = h.balance(ctx)
		defer settled()
	}
	h.Refresh(ctx)
	for ctx.Err() == nil && h.over.Err() == nil {
		out.post(ctx)
		whole := h.rest(ctx)
		switch {
		case ctx.Err() != nil || h.over.Err() != nil:
		case whole:
			h.Refresh(ctx)
		default:
			h.refresh(ctx, h.pressing(), false)
		}
	}
	if h.over.Err() != nil {
		return context.Cause(h.over)
	}
	out.end()
	settled()
	release, cancel := settle.Limit(context.WithoutCancel(ctx), h.k.Clock, 2*h.ttl)
	defer cancel()
	if h.cfg.Balanced {
		h.goodbye(release)
	}
	return h.Release(release)
}

// rest waits until something is to be done: whole says that it is everything's turn.
func (h *Host) rest(ctx context.Context) (whole bool) {
	for {
		h.mu.Lock()
		turn := h.begun + h.interval()
		h.mu.Unlock()
		next := h.nextWake()
		now := h.boot() // after it: what is due is due now
		switch {
		case now >= turn && next != never:
			return true
		case next <= now:
			return false
		}
		wake := make(chan struct{})
		t := h.k.Clock.AfterBoot(min(next, now+h.ttl), func() { close(wake) })
		select {
		case <-wake:
		case <-h.bell:
		case <-h.over.Done():
			t.Stop()
			return false
		case <-ctx.Done():
			t.Stop()
			return false
		}
		t.Stop()
	}
}

// pressing are the units without a call that have something to be done before the next
// refresh: a look that is due, a rival's row that may fall, a grant that lapsed.
func (h *Host) pressing() []*unit {
	now := h.boot()
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []*unit
	for _, u := range h.units {
		if len(u.turn) > 0 {
			continue // its end rings
		}
		for _, p := range u.parts {
			if p.pressing(now) {
				all = append(all, u)
				break
			}
		}
	}
	return all
}

// lapsed reports whether the part's grant is over and that was not looked at since.
func (p *part) lapsed() bool { return p.grant != nil && p.grant.d.Cause() != nil && p.stale != p.grant }

// Release gives up everything and ends the host for good (SL7). The grants end first; then
// a call that runs has one renew interval to end; then all ranges are released at the
// same time, each within a sixth of the TTL. A range whose call does not end is left to
// lapse, as one whose release the store does not confirm: the error is a
// tenure.ErrUnconfirmed then.
func (h *Host) Release(ctx context.Context) error { return h.release(ctx, tenure.ErrReleased) }

func (h *Host) release(ctx context.Context, cause error) error {
	done := h.tenant.settling()
	h.stop(cause)
	h.mu.Lock()
	units := append([]*unit(nil), h.units...)
	h.mu.Unlock()
	errs := make([]error, len(units))
	var all sync.WaitGroup
	for i, u := range units {
		all.Go(func() { errs[i] = h.releaseUnit(ctx, u) })
	}
	all.Wait()
	h.finishAs(cause)
	done()
	h.tenant.over()
	return errors.Join(errs...)
}

// stop ends all grants, and lets nothing be granted any more.
func (h *Host) stop(cause error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.done = true
	for _, p := range h.parts {
		h.dropLocked(p, cause)
	}
}

// Close ends the host for good and lets its ranges lapse: their rows stay, so that a restart
// with the same Volume goes on with them. Under a session that lives on nothing lapses:
// there they are released in the background. It may be called again.
func (h *Host) Close() {
	if h.closeFor(tenure.ErrShutdown) && h.session != nil && h.session.Deadline.Live() {
		for _, u := range h.units {
			h.settleUnit(u)
		}
	}
	h.tenant.over()
}

// closeFor ends the host, and reports whether this call did.
func (h *Host) closeFor(cause error) bool {
	h.stop(cause)
	return h.finishAs(cause)
}

// finishAs ends what the host has going on, once, and reports whether it did.
func (h *Host) finishAs(cause error) bool {
	h.mu.Lock()
	ended := h.ended
	h.ended = true
	h.mu.Unlock()
	if ended {
		return false
	}
	h.finish(cause)
	h.detach()
	if h.under != nil {
		h.under.End(cause)
	}
	if v := h.cfg.Volume; v != nil {
		go func() { // what runs yet may still write in the volume's name
			h.calls.Wait()
			h.tenant.wait()
			v.free()
		}()
	}
	return true
}

// releaseUnit releases what the host has in u. Under a session that lives on nothing would
// lapse: what is not confirmed is settled until it is (LS8).
func (h *Host) releaseUnit(ctx context.Context, u *unit) error {
	err := h.freeUnit(ctx, u)
	if err != nil && h.session != nil {
		h.settleUnit(u)
	}
	return err
}

// settleUnit goes on releasing in the background while the session lives.
func (h *Host) settleUnit(u *unit) {
	done := h.tenant.settling()
	h.session.Deadline.OnEnd(h.tenant.leave)
	h.session.Settle("slots "+h.name, func(ctx context.Context) error {
		err := h.freeUnit(ctx, u)
		if err == nil || settle.LostRace(err) || errors.Is(err, tenure.ErrLost) {
			done() // it is not called again
		}
		return err
	})
}

func (h *Host) freeUnit(ctx context.Context, u *unit) error {
	wait, cancel := settle.Limit(ctx, h.k.Clock, h.every)
	defer cancel()
	select {
	case u.turn <- struct{}{}:
	case <-wait.Done():
		return fmt.Errorf("%w: a call of %d ranges has not ended, they lapse", tenure.ErrUnconfirmed, len(u.parts))
	}
	defer func() { <-u.turn }()
	limited, stop := settle.Limit(ctx, h.k.Clock, h.limit)
	defer stop()
	h.mu.Lock()
	parts := slices.Clone(u.parts)
	h.mu.Unlock()
	if len(parts) == 0 {
		return nil
	}
	return h.handOver(limited, u, parts, "", 0)
}

// handOver frees the rows that the host has of parts, for a successor if one is named. The
// caller has the unit's turn, and has ended the grants.
func (h *Host) handOver(ctx context.Context, u *unit, parts []*part, successor string, hold time.Duration) error {
	u.known = look{}
	if err := h.undoubt(ctx, u, parts); err != nil {
		return err
	}
	for wait := h.pace().Backoff / 4; ; wait = min(2*wait, h.limit/8) {
		again, err := h.handOverOnce(ctx, parts, successor, hold)
		if !again {
			return err
		}
		if !h.pause(ctx, wait) {
			return fmt.Errorf("%w: %w", tenure.ErrUnconfirmed, store.CtxErr(ctx, h.identity(), "release", h.tableKey))
		}
	}
}

// undoubt makes claims certain that may have taken effect, or may yet: nothing would ever
// free what such a write takes under a session that lives on (LS8). The claim is made
// again, and then no former one can land.
func (h *Host) undoubt(ctx context.Context, u *unit, parts []*part) error {
	if h.session == nil {
		return nil // it lapses
	}
	var doubtful []*part
	for _, p := range parts {
		if p.doubt {
			doubtful = append(doubtful, p)
		}
	}
	for _, o := range h.workAll(ctx, u, doubtful) {
		if o.part.doubt {
			return fmt.Errorf("%w: %w", tenure.ErrUnconfirmed, o.err)
		}
	}
	u.known = look{}
	return nil
}

func (h *Host) handOverOnce(ctx context.Context, parts []*part, successor string, hold time.Duration) (again bool, err error) {
	if h.form == core.RowsForm && len(parts) == 1 {
		return h.freeRow(ctx, parts[0], successor, hold)
	}
	return h.freeAll(ctx, parts, successor, hold)
}

// freeRow frees the one row of p.
func (h *Host) freeRow(ctx context.Context, p *part, successor string, hold time.Duration) (again bool, err error) {
	if p.row == nil && !p.doubt {
		return false, nil
	}
	if p.ver == "" {
		now, ver, err := h.readRow(ctx, p.rng.A)
		if err != nil {
			return h.unfreed(err)
		}
		if now == nil || now.Range != p.rng || !now.Host.Is(h.me) {
			p.row, p.doubt = nil, false
			return false, nil
		}
		p.settled(*now, ver)
	}
	l := core.Release{Host: h.me, Holds: []core.Hold{{Range: p.rng, Epoch: p.row.Epoch}}, Successor: successor, HoldMS: hold.Milliseconds(), Attempt: h.k.NewID(), NowMS: h.k.NowMS()}
	next, err := p.row.Release(l)
	if err != nil {
		return false, err
	}
	h.gives(p, p.row.Epoch)
	_, err = h.replaceRow(ctx, p.ver, &next)
	p.ver = ""
	if err == nil {
		p.row, p.doubt = nil, false
		return false, nil
	}
	return h.unfreed(err)
}

// gives notes that a release of that epoch is about to be sent. Whatever comes of it, and
// whatever a read shows later, the host serves the range again only under a newer one,
// whose write leaves the release nothing to free.
func (h *Host) gives(p *part, epoch uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p.floor = max(p.floor, epoch)
	h.gave[p.rng] = max(h.gave[p.rng], epoch)
}

// unfreed says whether to try again after a release failed.
func (h *Host) unfreed(err error) (again bool, _ error) {
	if settle.LostRace(err) {
		return true, err
	}
	return false, fmt.Errorf("%w: %w", tenure.ErrUnconfirmed, err)
}

// freeAll frees the rows of parts in as few writes as that takes.
func (h *Host) freeAll(ctx context.Context, parts []*part, successor string, hold time.Duration) (again bool, err error) {
	l, err := h.readPart(ctx, hullOf(parts))
	if err != nil {
		return h.unfreed(err)
	}
	for rest := parts; ; {
		d := decision{before: l, attempt: h.k.NewID()}
		rel := core.Release{Host: h.me, Successor: successor, HoldMS: hold.Milliseconds(), Attempt: d.attempt, NowMS: h.k.NowMS()}
		for ; len(rest) > 0 && (h.form == core.RegisterForm || len(rel.Holds) < store.MaxChanges); rest = rest[1:] {
			if r := l.table.RowAt(rest[0].rng); r != nil && r.Host.Is(h.me) {
				rel.Holds = append(rel.Holds, core.Hold{Range: r.Range, Epoch: r.Epoch})
				h.gives(rest[0], r.Epoch)
			}
		}
		if len(rel.Holds) == 0 {
			for _, p := range parts {
				p.row, p.doubt = nil, false
			}
			return false, nil
		}
		if d.after, _, err = l.table.Release(rel); err != nil {
			return false, err
		}
		next, ok, _, err := h.write(ctx, d)
		if err != nil {
			return h.unfreed(err)
		}
		if !ok {
			return true, nil
		}
		l = next
	}
}
