package membership

import (
	"context"
	"fmt"

	"github.com/tenure-project/tenure/internal/core/identity"
	"github.com/tenure-project/tenure/store"
)

// Judge says whether o is over (LS8, PL5), with the head that it read. An answer
// that rests on an absence (Missing, Behind) is looked up twice; a head that stays
// behind is ErrBehind. What the head alone answers costs one request.
func (i *Identities) Judge(ctx context.Context, node string, o identity.Owner) (identity.Verdict, Head, error) {
	return i.twice(ctx, node, func(h Head) (identity.Verdict, error) { return i.judgeBy(ctx, h, o) })
}

// twice judges a head, and once more a newer one where the first answer may only
// come from what was read too early.
func (i *Identities) twice(ctx context.Context, node string, judge func(Head) (identity.Verdict, error)) (identity.Verdict, Head, error) {
	for again := false; ; again = true {
		h, err := i.Read(ctx, node)
		if err != nil {
			return identity.Verdict{}, h, err
		}
		v, err := judge(h)
		switch {
		case err != nil || v.State == identity.Current || v.State == identity.Over:
			return v, h, err
		case again && v.State == identity.Behind:
			return v, h, fmt.Errorf("%w: %w", ErrBehind, store.Errorf(store.ErrCorrupt, i.identityOfStore(), "judge", node,
				"the record stays at term %d though term %d is sealed: the store went back", termOf(h.Record), v.Certificate.Successor.Term))
		case again:
			return v, h, nil
		}
	}
}

func termOf(r *identity.Record) uint64 {
	if r == nil {
		return 0
	}
	return r.Term
}

// judgeBy judges o by h, which must be read before what is sealed: so a
// certificate that is missing there was dropped from no head before h.
func (i *Identities) judgeBy(ctx context.Context, h Head, o identity.Owner) (identity.Verdict, error) {
	v, err := identity.Judge(o, h.Record, nil)
	if err != nil || h.Record == nil || v.State == identity.Current || v.State == identity.Over && !v.Folded {
		return v, err
	}
	c, err := i.Certificate(ctx, h.Node, identity.PredecessorName(o.Incarnation))
	if err != nil {
		return identity.Verdict{}, err
	}
	return identity.Judge(o, h.Record, c)
}

// VerifyCurrent reports whether o is node's owner right now (PL7); o.Term 0 is
// any. The head is read again after the evidence of its term.
func (i *Identities) VerifyCurrent(ctx context.Context, node string, o identity.Owner) (bool, error) {
	h, err := i.Read(ctx, node)
	if err != nil {
		return false, err
	}
	r := h.Record
	if ok, err := identity.VerifyCurrent(o, r, nil, r); !ok && err == nil {
		return false, nil // the head says no, whatever is sealed
	}
	var evidence *identity.Certificate
	if r.Term != r.FirstTerm {
		if evidence, err = i.Certificate(ctx, node, identity.SuccessorName(r.Last())); err != nil {
			return false, err
		}
	}
	again, err := i.Read(ctx, node)
	if err != nil {
		return false, err
	}
	if again.Record != nil && !again.Record.OwnedBy(r.Last()) {
		return false, nil // and its evidence may be folded by now
	}
	return identity.VerifyCurrent(o, r, evidence, again.Record)
}

// VerifyCertificate judges a certificate that somebody cites (PL7): Over where it
// is true, Missing where nothing tells of it.
func (i *Identities) VerifyCertificate(ctx context.Context, c *identity.Certificate) (identity.Verdict, error) {
	if err := c.Valid(); err != nil {
		return identity.Verdict{}, store.Wrap(store.ErrCorrupt, "", "verify", c.Node, err)
	}
	v, _, err := i.twice(ctx, c.Node, func(h Head) (identity.Verdict, error) {
		stored, err := i.Certificate(ctx, c.Node, identity.PredecessorName(c.Predecessor.Incarnation))
		if err != nil {
			return identity.Verdict{}, err
		}
		return identity.VerifyCertificate(c, stored, h.Record)
	})
	return v, err
}
