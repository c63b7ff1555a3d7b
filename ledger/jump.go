package ledger

import (
	"context"
	"errors"

	tenure "github.com/tenure-project/tenure"
	core "github.com/tenure-project/tenure/internal/core/ledger"
	"github.com/tenure-project/tenure/internal/settle"
	"github.com/tenure-project/tenure/store"
)

// siteName is the site of a ledger that is begun.
func (f *files) siteName() string {
	if f.site == "" {
		return DefaultSite
	}
	return f.site
}

// jump raises the sequence of the head, or begins one if anew.
func (l *Ledger) jump(ctx context.Context, above uint64, anew bool) error {
	for {
		var s look
		if err := l.patiently(ctx, func() (err error) { s, err = l.anyHead(ctx); return err }); err != nil {
			return err
		}
		var fell *tenure.RegressedError
		if errors.As(s.fell, &fell) && above < fell.Seen {
			return store.Errorf(store.ErrInvalid, l.identity(), "jump", l.headKey, "this host has seen sequence %d of the ledger of job %q: give at least that, not %d", fell.Seen, l.agent, above)
		}
		next, err := l.raised(&s, above, anew)
		if err != nil || next == nil {
			return err
		}
		if _, _, err = l.write(ctx, s, next, func(*core.Head) bool { return false }); !settle.LostRace(err) {
			return err
		}
		l.pause(ctx)
		if err := store.CtxErr(ctx, l.identity(), "jump", l.headKey); err != nil {
			return err
		}
	}
}

// raised is the head after a jump; nil if it has that sequence.
func (l *Ledger) raised(s *look, above uint64, anew bool) (*core.Head, error) {
	id := l.k.NewID()
	if s.head != nil {
		return s.head.Jump(above, id)
	}
	if !anew {
		return nil, store.Errorf(store.ErrNotFound, l.identity(), "jump", l.headKey, "job %q has no ledger", l.agent)
	}
	first, err := core.NewHead(l.agent, l.siteName(), id)
	if err != nil {
		return nil, err
	}
	next, err := first.Jump(above, id)
	if next == nil {
		next = first
	}
	return next, err
}
