package membership

import (
	"context"

	"github.com/tenure-project/tenure/internal/core/identity"
)

// Force ends o's ownership whether or not it lives (LS11). An owner that is not
// exactly o is ErrConflict, and nothing happens.
func (i *Identities) Force(ctx context.Context, node string, o identity.Owner, by identity.Operator) error {
	return i.change(ctx, node, func(h Head, doubted bool) (*identity.Record, error) {
		if doubted && forcedBy(h.Record, o, by) {
			return nil, nil
		}
		next, err := h.Record.Force(i.cfg.NewID(), o, by)
		return next, err
	})
}

// forcedBy reports whether r tells that o fell to by's force: the answer was lost
// and others wrote since.
func forcedBy(r *identity.Record, o identity.Owner, by identity.Operator) bool {
	if e := r.Ended; e != nil && r.Last() == o {
		return e.SupersededTTLMS != 0 && e.Why == by.Why && e.By == by.By
	}
	c := r.Certificate
	return c != nil && c.Predecessor.Incarnation == o.Incarnation && c.SupersededTTLMS != 0 && c.Why == by.Why && c.By == by.By
}

// Jump raises node's counter to at least above and reports whether it had to
// (LS12). A node without a record is ErrNotFound: the namespace's floor covers it.
func (i *Identities) Jump(ctx context.Context, node string, above uint64) (raised bool, err error) {
	err = i.change(ctx, node, func(h Head, doubted bool) (*identity.Record, error) {
		next, err := h.Record.Jump(i.cfg.NewID(), above)
		raised = doubted || next != nil
		return next, err
	})
	return raised && err == nil, err
}

// Revoke makes durable in o's record that v was taken from its session (LS11). It
// is fine if it is there already; ErrConflict says that o is no owner any more.
func (i *Identities) Revoke(ctx context.Context, node string, o identity.Owner, v identity.Revocation) error {
	return i.change(ctx, node, func(h Head, _ bool) (*identity.Record, error) {
		return h.Record.Revoke(i.cfg.NewID(), o, v)
	})
}
