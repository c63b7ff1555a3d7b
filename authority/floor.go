package authority

import (
	"context"
	"errors"

	tenure "github.com/tenure-project/tenure"
	core "github.com/tenure-project/tenure/internal/core/authority"
	"github.com/tenure-project/tenure/store"
)

// Advance raises the floor of a chain, and for checkpoints the horizon, as p's
// leader (LA8): entries below are given up, but for the anchors and what the horizon
// keeps. The bounds never fall; the newest entry stays, and one marked entry at or
// above the horizon. check, if not nil, is called with the state of the chain before
// anything is given up; its error stops it; a horizon needs one (CK). A chain that changed while it checked is
// a store.ErrConflict. changed is false where both bounds were as high already.
func (a *Authority) Advance(ctx context.Context, p tenure.Proof, chain string, floor, horizon uint64, check func(ctx context.Context, s Snapshot) error) (changed bool, err error) {
	switch {
	case rulesOf()[chain] == nil:
		return false, store.Errorf(store.ErrInvalid, "", "advance the floor", a.name, "there is no chain %q", chain)
	case horizon > 0 && check == nil:
		return false, store.Errorf(store.ErrInvalid, "", "advance the floor", a.name, "a horizon needs a check of the commit that remains")
	}
	s, err := a.reader.Snapshot(ctx)
	if err != nil {
		return false, err
	}
	t, err := a.walkOn(ctx, a.walked.trail(s.head, chain), nil)
	if err != nil {
		return false, err
	}
	a.walked.keep(chain, t)
	if check != nil {
		if err := check(ctx, s); err != nil {
			return false, err
		}
	}
	_, err = a.change(ctx, p, func(h *core.Head, attempt string) (*core.Head, error) {
		next, err := t.Advance(h, core.Proof(p), attempt, floor, horizon)
		changed = next != nil
		return next, err
	})
	return changed && err == nil, err
}

// BeginRound begins a recovery round as p's leader: it freezes the inventory of
// faults (RF). plan describes what the round is to do: its digest is recorded, and
// the release repeats it. It replaces an unfinished round. ErrFenced if p does not
// lead.
func (a *Authority) BeginRound(ctx context.Context, p tenure.Proof, plan []byte) (Round, error) {
	digest, mine := core.DigestOf("plan", plan), map[string]bool{}
	s, err := a.change(ctx, p, func(h *core.Head, attempt string) (*core.Head, error) {
		if h.Round != nil && mine[h.Round.ID] {
			return nil, nil // it was begun, though the driver repeated the write and said otherwise
		}
		mine[attempt] = true
		return h.BeginRound(core.Proof(p), attempt, digest)
	})
	if err != nil {
		return Round{}, err
	}
	if r, ok := s.Round(); ok && r.Proof == p {
		return r, nil
	}
	return Round{}, errors.Join(store.Errorf(store.ErrConflict, a.identity(), "begin a round", a.headKey, "another round was begun at once"), ErrInventoryChanged)
}
