package slots

import (
	"context"
	"errors"
	"slices"

	tenure "github.com/tenure-project/tenure"
	core "github.com/tenure-project/tenure/internal/core/slots"
	"github.com/tenure-project/tenure/internal/settle"
	"github.com/tenure-project/tenure/store"
)

// What a host does about a range whose row is kept by itself.

// mostTried bounds the attempts that a host knows its own writes by. Older ones than these
// cannot be on their way any more.
const mostTried = 64

// tries notes an attempt that is about to be made.
func (p *part) tries(attempt string) {
	if p.tried = append(p.tried, attempt); len(p.tried) > mostTried {
		p.tried = slices.Delete(p.tried, 1, 2) // the first is the one that was confirmed
	}
}

// settled notes the row that a write of attempt left.
func (p *part) settled(row core.Row, ver store.Version) {
	p.row, p.ver, p.tried, p.doubt = &row, ver, []string{row.Attempt}, false
}

// renewRow gives one more sign of life, with one request if nothing is in the way (SL4).
func (h *Host) renewRow(ctx context.Context, p *part, g *Grant) outcome {
	for {
		if p.ver == "" {
			if err, over := h.reread(ctx, p, g); err != nil {
				if over {
					return h.gone(p, g, err)
				}
				return outcome{part: p, err: err}
			}
		}
		attempt := h.k.NewID()
		next, err := p.row.Renew(h.me, core.Hold{Range: p.rng, Epoch: g.epoch, Renewal: p.row.Renewal}, attempt)
		if err != nil {
			return h.gone(p, g, err)
		}
		p.tries(attempt)
		res, err := h.replaceRow(ctx, p.ver, &next)
		switch {
		case err == nil && res.Found == nil:
			p.settled(next, res.Version)
			return h.confirmed(p, g, res.Sent)
		case err == nil || settle.LostRace(err): // look what stands there
			p.ver = ""
			if !h.pause(ctx, h.pace().Backoff/4) {
				return outcome{part: p, err: store.CtxErr(ctx, h.identity(), "renew", h.rowKey(p.rng.A))}
			}
		default:
			p.ver = ""
			return outcome{part: p, err: err}
		}
	}
}

// reread reads the host's own row. over says that the range is certainly lost: the row is
// not as the host itself left it (ST9).
func (h *Host) reread(ctx context.Context, p *part, g *Grant) (err error, over bool) {
	now, ver, err := h.readRow(ctx, p.rng.A)
	if err != nil {
		return err, false
	}
	if now == nil || !core.Adoptable(p.row, now, func(a string) bool { return slices.Contains(p.tried, a) }) {
		return &core.LostError{Range: p.rng, Epoch: g.epoch, Now: now}, true
	}
	// What was tried over this very state may land yet.
	pending := slices.DeleteFunc(p.tried, func(a string) bool { return a == now.Attempt })
	p.row, p.ver, p.tried, p.doubt = now, ver, append([]string{now.Attempt}, pending...), false
	return nil, false
}

// replaceRow writes a row over the version of the one before.
func (h *Host) replaceRow(ctx context.Context, over store.Version, next *core.Row) (settle.Result, error) {
	t := core.Table{V: 1, Name: h.name, Birth: h.birth}
	body, err := t.EncodeRow(next)
	if err != nil {
		return settle.Result{Outcome: settle.Rejected}, err
	}
	key := h.rowKey(next.Range.A)
	return settle.Do(ctx, h.k.Store, settle.Write{Key: key, Body: body, Over: over, Limit: core.MaxRow, Mine: func(b []byte) bool {
		now, err := h.decodeRow(key, next.Range.A, b)
		return err == nil && now.Attempt == next.Attempt
	}}, h.pace())
}

// claimRow claims the range (SL3). Whoever does not know whether a former claim took effect
// decides anew, finds the row to be his, and keeps it.
func (h *Host) claimRow(ctx context.Context, p *part) outcome {
	defer h.await(ctx)()
	for wait := h.pace().Backoff / 4; ; wait = min(2*wait, h.limit/8) {
		o, again := h.claimOnce(ctx, p)
		if !again {
			return o
		}
		if !h.pause(ctx, wait) {
			return outcome{part: p, err: store.CtxErr(ctx, h.identity(), "claim", h.rowKey(p.rng.A))}
		}
	}
}

// await lets the claims of one host come one after the other, for they all write the
// counter. One that hangs holds the others up for a moment only.
func (h *Host) await(ctx context.Context) (next func()) {
	late, cancel := settle.Limit(ctx, h.k.Clock, h.limit/16)
	defer cancel()
	select {
	case h.claims <- struct{}{}:
		return func() { <-h.claims }
	case <-late.Done():
		return func() {}
	}
}

// claimOnce reads, decides and writes once; again says that somebody was faster, or that
// there is more to be done.
func (h *Host) claimOnce(ctx context.Context, p *part) (o outcome, again bool) {
	l, err := h.readPart(ctx, p.rng)
	if err != nil {
		return outcome{part: p, err: err}, false
	}
	d := decision{before: l, attempt: h.k.NewID()}
	sights := h.sights(l, p)
	after, answers, err := l.table.Claim(core.Claim{Ranges: []Range{p.rng}, Host: h.me, Floor: h.floorOf(p), Sights: sights, Attempt: d.attempt, NowMS: h.k.NowMS()})
	if err != nil {
		return outcome{part: p, err: err}, false
	}
	if err := answers[0].Err; err != nil {
		return h.wait(p, err), false
	}
	if d.after = after; d.size() > store.MaxChanges {
		err := h.clear(ctx, l, p.rng, sights)
		return h.afterWrite(p, err)
	}
	p.doubt = true
	_, ok, res, err := h.write(ctx, d)
	switch {
	case err == nil && ok:
		p.settled(answers[0].Row, res.Version)
		return h.won(p, &answers[0].Row, res.Sent), false
	case err == nil:
		return outcome{}, true
	}
	return h.afterWrite(p, err)
}

// afterWrite is what is to be done after a write.
func (h *Host) afterWrite(p *part, err error) (o outcome, again bool) {
	if err == nil || settle.LostRace(err) {
		return outcome{}, true
	}
	return outcome{part: p, err: err}, false
}

// clear makes room for a claim over more rows than one commit changes, step by step: free
// rows go, and dead ones are taken over within their own bounds and freed at once.
func (h *Host) clear(ctx context.Context, l look, r Range, sights []core.Sight) error {
	d := decision{before: l, attempt: h.k.NewID()}
	var n int
	var err error
	if d.after, n, err = l.table.Clear(r, h.me.Owner, store.MaxChanges, d.attempt); err != nil {
		return err
	}
	if n == 0 {
		if err := h.bury(&d, sights); err != nil {
			return err
		}
	}
	if d.after == l.table {
		return store.Errorf(store.ErrConflict, h.identity(), "claim", h.tableKey, "the rows in slots %v changed", r)
	}
	_, _, _, err = h.write(ctx, d)
	return err
}

// bury frees as many dead rows as one commit takes.
func (h *Host) bury(d *decision, sights []core.Sight) error {
	var dead []Range
	for i := range sights {
		s := &sights[i].State
		if row := d.before.table.RowAt(s.Range); row != nil && row.Held() && row.State() == *s && len(dead) < store.MaxChanges-1 && d.before.table.Part.Holds(s.Range) {
			dead = append(dead, s.Range)
		}
	}
	t, taken, err := d.before.table.Claim(core.Claim{Ranges: dead, Host: h.me, Sights: sights, Attempt: d.attempt, NowMS: h.k.NowMS()})
	if err != nil {
		return err
	}
	rel := core.Release{Host: h.me, Attempt: d.attempt, NowMS: h.k.NowMS()}
	for _, a := range taken {
		if a.Err == nil {
			rel.Holds = append(rel.Holds, core.Hold{Range: a.Row.Range, Epoch: a.Row.Epoch})
		}
	}
	d.after, _, err = t.Release(rel)
	return err
}

// floorOf is below every epoch that the part may be given.
func (h *Host) floorOf(p *part) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return p.floor
}

// wait notes what is in the way of a claim.
func (h *Host) wait(p *part, err error) outcome {
	var held *core.HeldError
	if !errors.As(err, &held) {
		return outcome{part: p, err: err}
	}
	p.doubt = false // a claim of ours that is on its way rests on rows that are others by now
	h.mu.Lock()
	defer h.mu.Unlock()
	p.rivals = held.Rows
	return outcome{part: p, did: waiting, err: &told{kind: tenure.ErrHeld, err: held}}
}
