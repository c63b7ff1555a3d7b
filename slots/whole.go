package slots

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	core "github.com/tenure-project/tenure/internal/core/slots"
	"github.com/tenure-project/tenure/internal/deadline"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/internal/settle"
	"github.com/tenure-project/tenure/store"
)

// What a host does about all its ranges in one decision: where the table is one record,
// and where the rows live by a session.

// effort is one call about the parts of a unit: it goes on until each has an outcome.
type effort struct {
	h     *Host
	u     *unit
	parts []*part
	out   map[*part]outcome
	fail  error // what the parts that are left are told
}

func (h *Host) workAll(ctx context.Context, u *unit, parts []*part) []outcome {
	if len(parts) == 0 {
		return nil
	}
	e := &effort{h: h, u: u, parts: parts, out: make(map[*part]outcome, len(parts))}
	for wait := time.Duration(0); e.step(ctx); wait = min(max(2*wait, h.pace().Backoff/4), h.limit/8) {
		if !h.pause(ctx, wait) {
			e.fail = store.CtxErr(ctx, h.identity(), "refresh", h.tableKey)
			break
		}
	}
	all := make([]outcome, 0, len(parts))
	for _, p := range parts {
		o, ok := e.out[p]
		if !ok {
			o = outcome{part: p, err: e.fail}
		}
		all = append(all, o)
	}
	return all
}

// is is what became of a part.
func (e *effort) is(o outcome) { e.out[o.part] = o }

// left are the parts without an outcome: held, or to be claimed.
func (e *effort) left() (held []bid, want []*part) {
	e.h.mu.Lock()
	defer e.h.mu.Unlock()
	for _, p := range e.parts {
		if _, done := e.out[p]; done {
			continue
		}
		if p.grant != nil {
			held = append(held, bid{p: p, g: p.grant})
		} else {
			want = append(want, p)
		}
	}
	return held, want
}

// step reads the table if need be, and decides about as much as one write takes, until
// nothing is left or the table must be read again.
func (e *effort) step(ctx context.Context) (again bool) {
	l, read, err := e.look(ctx)
	if err != nil {
		e.fail = err
		return false
	}
	for len(e.out) < len(e.parts) {
		next, ok, err := e.decide(ctx, l)
		if err != nil || !ok {
			e.u.known = look{}
			e.fail = err
			lost := settle.LostRace(err)
			if lost {
				e.h.crowdIs(true)
			}
			return err == nil || lost
		}
		if read {
			e.h.measure(l)
			read = false
		}
		l, e.u.known = next, next
	}
	return false
}

// look is the table as the host itself left it, if it only renews and nobody else writes, or
// read anew: what is in the way of a claim is watched.
func (e *effort) look(ctx context.Context) (l look, read bool, err error) {
	held, want := e.left()
	known := e.u.known
	if known.ver != "" && e.h.session == nil && len(want) == 0 && !e.h.crowded() {
		return known, false, nil
	}
	for _, b := range held {
		want = append(want, b.p)
	}
	l, err = e.h.readPart(ctx, hullOf(want))
	if err == nil && known.ver != "" && l.ver == known.ver {
		e.h.crowdIs(false)
	}
	return l, true, err
}

// hullOf is the least range that has all parts.
func hullOf(parts []*part) Range {
	hull := parts[0].rng
	for _, p := range parts {
		hull.A, hull.B = min(hull.A, p.rng.A), max(hull.B, p.rng.B)
	}
	return hull
}

// errCleared: rows were written, so that the table must be read again.
var errCleared = errors.New("room was made for a claim")

// bid is one part in a decision.
type bid struct {
	p   *part
	g   *Grant // nil: the part is claimed
	row core.Row
}

// decide decides about the parts that are left and writes. ok is false if the table must be
// read again.
func (e *effort) decide(ctx context.Context, l look) (next look, ok bool, err error) {
	d := decision{before: l, after: l.table, attempt: e.h.k.NewID()}
	held, want := e.left()
	held, err = e.renew(&d, held)
	if err != nil {
		return look{}, false, err
	}
	claims, err := e.claim(ctx, &d, want)
	if errors.Is(err, errCleared) {
		return look{}, false, nil
	}
	if err != nil {
		return look{}, false, err
	}
	if d.after == l.table {
		e.settled(l, held, claims, deadline.Take(e.h.k.Clock))
		return l, true, nil
	}
	for _, b := range held {
		b.p.tries(d.attempt)
	}
	for _, b := range claims {
		b.p.doubt = true
	}
	next, ok, res, err := e.h.write(ctx, d)
	if err == nil && ok {
		e.settled(next, held, claims, res.Sent)
	}
	return next, ok, err
}

// settled publishes what a decision confirmed.
func (e *effort) settled(next look, held, claims []bid, sent deadline.Stamp) {
	for _, b := range held {
		b.p.settled(b.row, next.rows[b.row.Range.A])
		e.is(e.h.confirmed(b.p, b.g, sent))
	}
	for _, b := range claims {
		b.p.settled(b.row, next.rows[b.row.Range.A])
		e.is(e.h.won(b.p, &b.row, sent))
	}
}

// renew adds one more renewal of what is held to the decision, and returns what is still
// the host's.
func (e *effort) renew(d *decision, held []bid) ([]bid, error) {
	var holds []core.Hold
	mine := held[:0]
	for _, b := range held {
		now := d.before.table.RowAt(b.p.rng)
		if now == nil || !core.Adoptable(b.p.row, now, func(a string) bool { return slices.Contains(b.p.tried, a) }) {
			e.is(e.h.gone(b.p, b.g, &core.LostError{Range: b.p.rng, Epoch: b.g.epoch, Now: now}))
			continue
		}
		mine = append(mine, b)
		holds = append(holds, core.Hold{Range: b.p.rng, Epoch: b.g.epoch, Renewal: b.p.row.Renewal})
	}
	if len(holds) == 0 {
		return nil, nil
	}
	after, answers, err := d.after.Renew(core.Renewal{Host: e.h.me, Holds: holds, Attempt: d.attempt})
	if err != nil {
		return nil, err
	}
	d.after = after
	kept := mine[:0]
	for i, b := range mine {
		if err := answers[i].Err; err != nil {
			e.is(e.h.gone(b.p, b.g, err))
			continue
		}
		b.row = answers[i].Row
		kept = append(kept, b)
	}
	return kept, nil
}

// claim adds the claims to the decision, as many as one write takes.
func (e *effort) claim(ctx context.Context, d *decision, want []*part) ([]bid, error) {
	if len(want) == 0 {
		return nil, nil
	}
	if err := e.h.fits(d.before.table); err != nil {
		for _, p := range want {
			e.is(outcome{part: p, err: err})
		}
		return nil, nil
	}
	if want = e.possible(want); e.h.form == core.RowsForm {
		want = want[:min(len(want), store.MaxChanges-1)]
	}
	var sights []core.Sight
	for _, p := range want {
		sights = append(sights, e.h.sights(d.before, p)...)
	}
	for base := d.after; len(want) > 0; want = want[:len(want)/2] {
		d.after = base
		claims, waits, err := e.claimSome(d, want, sights)
		if err != nil {
			return nil, err
		}
		if e.h.form == core.RegisterForm || d.size() <= store.MaxChanges {
			for _, o := range waits {
				e.is(o)
			}
			return claims, nil
		}
		if len(want) == 1 { // this range alone lies over too many rows
			return nil, cmp.Or(e.h.clear(ctx, d.before, want[0].rng, sights), errCleared)
		}
	}
	return nil, nil
}

// possible are the parts that may be claimed at all: one that was fenced with a number that no
// table gives must not take the others with it.
func (e *effort) possible(want []*part) []*part {
	return slices.DeleteFunc(slices.Clone(want), func(p *part) bool {
		floor := e.h.floorOf(p)
		if floor > record.MaxJump {
			e.is(outcome{part: p, err: invalid("claim", p.rng.String(), "the epoch %d was seen, which leaves no room for later ones", floor)})
		}
		return floor > record.MaxJump
	})
}

// claimSome adds the claims of want, and returns those that were made and those that have
// something in their way.
func (e *effort) claimSome(d *decision, want []*part, sights []core.Sight) (claims []bid, waits []outcome, err error) {
	c := core.Claim{Host: e.h.me, Sights: sights, Attempt: d.attempt, NowMS: e.h.k.NowMS()}
	e.h.mu.Lock()
	for _, p := range want {
		c.Ranges = append(c.Ranges, p.rng)
		c.Floor = max(c.Floor, p.floor)
	}
	e.h.mu.Unlock()
	after, answers, err := d.after.Claim(c)
	if err != nil {
		return nil, nil, err
	}
	d.after = after
	for i, p := range want {
		if err := answers[i].Err; err != nil {
			waits = append(waits, e.h.wait(p, err))
			continue
		}
		claims = append(claims, bid{p: p, row: answers[i].Row})
	}
	return claims, waits, nil
}
