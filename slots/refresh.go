package slots

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	tenure "github.com/tenure-project/tenure"
	core "github.com/tenure-project/tenure/internal/core/slots"
	"github.com/tenure-project/tenure/internal/deadline"
	"github.com/tenure-project/tenure/internal/settle"
	"github.com/tenure-project/tenure/store"
)

// Report says what one refresh did, each list in the configured order of the ranges (SL5).
type Report struct {
	// Claimed are the ranges that the host owns since, with their epochs.
	Claimed []Claimed
	// Renewed were confirmed to be the host's.
	Renewed []Range
	// Lost are somebody else's now, or were fenced while the call ran.
	Lost []Range
	// Waiting are those that somebody else has, or that everybody watches for a while. That
	// is no error.
	Waiting []Waiting
	// Failed are those whose call failed. Such a range is served as long as its grant lives.
	Failed []Failure
}

// Claimed is a range with the epoch that it was claimed under.
type Claimed struct {
	Range Range
	Epoch uint64
}

// Waiting is a range with what is in the way: a *HeldError.
type Waiting struct {
	Range Range
	Err   error
}

// Failure is a range with the error of its call.
type Failure struct {
	Range Range
	Err   error
}

// result says what a call did.
type result int

const (
	failed result = iota
	claimed
	renewed
	lost
	waiting
)

// outcome is what a call did about one part.
type outcome struct {
	part  *part
	did   result
	epoch uint64
	err   error
}

// Refresh claims the ranges that the host does not own and renews the others, all at the
// same time, and returns what came of it within about a sixth of the TTL. It is called
// before the host serves, and then as often as NextWake says; Run does so. A call that
// does not end in time, or that ran when a former Refresh was given up with its ctx, is
// a failure of its range, which makes no other call until that one has ended (SL5). What
// such a call does is told by OnClaim and OnLoss.
func (h *Host) Refresh(ctx context.Context) Report {
	now := h.boot()
	h.mu.Lock()
	h.begun = now
	h.early = 0
	if h.crowd {
		h.early = time.Duration(h.k.Rand() * float64(h.every/8))
	}
	units := append([]*unit(nil), h.units...)
	h.mu.Unlock()
	h.endVigils()
	return h.refresh(ctx, units, true)
}

// refresh lets the units' calls run, and waits for them.
func (h *Host) refresh(ctx context.Context, units []*unit, whole bool) Report {
	wait, cancel := settle.Limit(ctx, h.k.Clock, h.total+h.limit/8)
	defer cancel()
	answers := make([]chan []outcome, len(units))
	for i, u := range units {
		answers[i] = h.start(u, whole)
	}
	did := map[*part]outcome{}
	for i, u := range units {
		var out []outcome
		if answers[i] == nil { // its call runs
			out = h.all(u, h.busy())
		} else {
			select {
			case out = <-answers[i]:
			case <-wait.Done():
				select {
				case out = <-answers[i]:
				default:
					out = h.all(u, store.Errorf(store.ErrUnavailable, h.identity(), "refresh", h.tableKey, "the store call takes longer than %v", h.total))
				}
			}
		}
		for _, o := range out {
			did[o.part] = o
		}
	}
	return h.sum(did)
}

func (h *Host) busy() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.done {
		return fmt.Errorf("host %q: %w", h.me.Owner, cmp.Or(context.Cause(h.over), tenure.ErrReleased))
	}
	return store.Errorf(store.ErrUnavailable, h.identity(), "refresh", h.tableKey, "the last store call is still running")
}

// all is the same failure for every part of u.
func (h *Host) all(u *unit, err error) []outcome {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []outcome
	for _, p := range u.parts {
		if !p.leaving {
			out = append(out, outcome{part: p, err: err})
		}
	}
	return out
}

// pressing reports whether a part is to be looked at before the next refresh.
func (p *part) pressing(now time.Duration) bool {
	return !p.leaving && (p.due || p.ripe > 0 && p.ripe <= now || p.again > 0 && p.again <= now || p.lapsed())
}

// start lets the call of u run, unless one runs: then there is no answer. It goes on if
// nobody waits for it any more.
func (h *Host) start(u *unit, whole bool) chan []outcome {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.done {
		return nil
	}
	select {
	case u.turn <- struct{}{}:
	default:
		return nil
	}
	answer := make(chan []outcome, 1)
	var parts []*part
	now := h.boot()
	for _, p := range u.parts {
		// One decision renews all ranges of a host that renews; of a session only what is
		// pressing is looked at in between.
		if !p.leaving && (whole || h.session == nil || p.pressing(now)) {
			parts = append(parts, p)
		}
	}
	for _, p := range parts {
		p.due, p.ripe, p.again = false, 0, 0
		if p.grant != nil && p.grant.d.Cause() != nil {
			p.stale = p.grant
		}
	}
	h.calls.Go(func() {
		defer h.ring()
		out := h.call(u, parts)
		<-u.turn // before the answer: whoever has it may call again at once
		answer <- out
	})
	return answer
}

// call does what is to be done about the parts of u.
func (h *Host) call(u *unit, parts []*part) []outcome {
	ctx, cancel := settle.Limit(h.over, h.k.Clock, h.total)
	defer cancel()
	if !h.alone() {
		return h.workAll(ctx, u, parts)
	}
	p := parts[0]
	if g := h.heldBy(p); g != nil {
		return []outcome{h.renewRow(ctx, p, g)}
	}
	return []outcome{h.claimRow(ctx, p)}
}

// heldBy is the part's grant, which may have lapsed; nil if there is none.
func (h *Host) heldBy(p *part) *Grant {
	h.mu.Lock()
	defer h.mu.Unlock()
	return p.grant
}

// sum makes the report, and notes what is the last of each range.
func (h *Host) sum(did map[*part]outcome) Report {
	h.mu.Lock()
	defer h.mu.Unlock()
	var r Report
	news := 0
	now, spread := h.boot(), h.k.Rand()
	for _, p := range h.parts {
		o, ok := did[p]
		if !ok {
			continue
		}
		r.add(p.rng, o)
		if o.did == failed && (p.last.did != failed || p.last.err == nil) {
			news++
		}
		p.last = o
		h.retryLocked(p, now, spread)
	}
	if news > 0 && !h.done {
		h.log.Warn("slots: calls failed, trying again", "table", h.name, "host", h.me.Owner, "ranges", len(r.Failed), "anew", news, "first", r.Failed[0].Range, "error", r.Failed[0].Err)
	}
	return r
}

// retryLocked has a part whose call failed looked at soon, and later each time that it fails
// again (LS4). What failed together is tried together.
func (h *Host) retryLocked(p *part, now time.Duration, spread float64) {
	if p.last.did != failed || !passes(p.last.err) {
		p.again, p.fails = 0, 0
		return
	}
	wait := min(h.limit/8<<min(p.fails, 8), h.every)
	p.again = now + wait/2 + time.Duration(spread*float64(wait/2))
	p.fails++
}

// passes reports whether a call that failed with err is worth another soon.
func passes(err error) bool {
	return retryable(err) || settle.LostRace(err) && store.KindOf(err) != store.ErrNotFound || errors.Is(err, tenure.ErrExpired)
}

func (r *Report) add(rng Range, o outcome) {
	switch o.did {
	case claimed:
		r.Claimed = append(r.Claimed, Claimed{rng, o.epoch})
	case renewed:
		r.Renewed = append(r.Renewed, rng)
	case lost:
		r.Lost = append(r.Lost, rng)
	case waiting:
		r.Waiting = append(r.Waiting, Waiting{rng, o.err})
	default:
		r.Failed = append(r.Failed, Failure{rng, o.err})
	}
}

// confirmed publishes that the row of p is the host's since a write whose first send was
// at sent. Where the grant was taken away while the call ran, the range does not come
// back; where it lapsed, there is a new one, for whoever served saw the end (SL4).
func (h *Host) confirmed(p *part, g *Grant, sent deadline.Stamp) outcome {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.done || p.grant != g || g.epoch < p.floor {
		return outcome{part: p, did: lost, err: h.fencedLocked(p, g)}
	}
	if h.session != nil && g.d.Live() || g.d.Extend(sent, h.life) {
		return outcome{part: p, did: renewed, epoch: g.epoch}
	}
	next := h.giveLocked(p, g.epoch, sent)
	if next == nil {
		return outcome{part: p, err: h.late(g.rng)}
	}
	return outcome{part: p, did: renewed, epoch: g.epoch}
}

func (h *Host) fencedLocked(p *part, g *Grant) error {
	if err := g.Err(); err != nil {
		return err
	}
	err := lostTo(&NewerError{Epoch: g.epoch, Newer: p.floor})
	h.dropLocked(p, err)
	return err
}

func (h *Host) late(r Range) error {
	return fmt.Errorf("slots %v: %w: the answer came after the end of what it granted", r, tenure.ErrExpired)
}

// won publishes a claim that was confirmed.
func (h *Host) won(p *part, row *core.Row, sent deadline.Stamp) outcome {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.done || p.freeing:
		return outcome{part: p, did: lost, err: tenure.ErrReleased}
	case row.Epoch < p.floor:
		return outcome{part: p, did: lost, err: lostTo(&NewerError{Epoch: row.Epoch, Newer: p.floor})}
	case p.grant != nil:
		h.dropLocked(p, lostTo(&NewerError{Epoch: p.grant.epoch, Newer: row.Epoch}))
	}
	if h.giveLocked(p, row.Epoch, sent) == nil {
		return outcome{part: p, err: h.late(p.rng)}
	}
	p.ripe, p.rivals = 0, nil
	return outcome{part: p, did: claimed, epoch: row.Epoch}
}

// giveLocked makes a new grant of p's range; nil if it came too late. What was given before
// it is over.
func (h *Host) giveLocked(p *part, epoch uint64, sent deadline.Stamp) *Grant {
	g := h.newGrant(p.rng, epoch)
	if h.session == nil && !g.d.Extend(sent, h.life) || !g.d.Live() {
		return nil
	}
	p.grant = g
	h.place(g, g)
	h.publishLocked(g)
	return g
}

// gone drops a range that is somebody else's.
func (h *Host) gone(p *part, g *Grant, cause error) outcome {
	err := lostTo(cause)
	h.mu.Lock()
	defer h.mu.Unlock()
	if p.grant == g {
		h.dropLocked(p, err)
		h.log.Warn("slots: a range was lost", "table", h.name, "range", p.rng, "epoch", g.epoch, "error", cause)
	}
	return outcome{part: p, did: lost, err: err}
}

// NextWake is how long it is until Refresh is to be called again: until the renew interval,
// counted from the beginning of the last Refresh, is over, or the first grant lapses, or
// a rival's row may fall, or a call that failed is to be tried again; 0 if that is past (SL5).
func (h *Host) NextWake() time.Duration { return max(0, h.nextWake()-h.boot()) }

// never is an instant that does not come.
const never = time.Duration(1<<63 - 1)

// nextWake is that instant on the boot clock. What a call that runs is about is looked at
// when that has ended, which rings; a host that ends does nothing more.
func (h *Host) nextWake() time.Duration {
	now := h.boot()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.done {
		return never
	}
	next := h.begun + h.interval()
	for _, u := range h.units {
		for _, p := range u.parts {
			next = min(next, h.wakeLocked(u, p, now))
		}
	}
	return next
}

// wakeLocked is when p wants a look.
func (h *Host) wakeLocked(u *unit, p *part, now time.Duration) time.Duration {
	next := never
	if p.leaving {
		return next
	}
	if len(u.turn) == 0 {
		if p.pressing(now) {
			return now
		}
		if p.ripe > 0 {
			next = p.ripe
		}
		if p.again > 0 {
			next = min(next, p.again)
		}
	}
	if p.grant != nil && h.session == nil {
		if at, ok := p.grant.d.T(); ok && at > now {
			next = min(next, at)
		}
	}
	return next
}
