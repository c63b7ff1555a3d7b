package authority

import (
	"context"
	"errors"
	"slices"

	tenure "github.com/tenure-project/tenure"
	core "github.com/tenure-project/tenure/internal/core/authority"
	"github.com/tenure-project/tenure/internal/settle"
	"github.com/tenure-project/tenure/store"
)

// StealOptions say what an operator wants to end, and why.
type StealOptions struct {
	// Token is the leadership's that is meant.
	Token uint64
	// Why is kept in the history; required.
	Why string
	// By is who did it; the client's label if empty.
	By string
	// Vouch says that you know the leader's process to be gone: the next candidate
	// leads at once. Otherwise everybody waits the superseded TTL first.
	Vouch bool
}

// Steal ends a leadership by force, whether or not its leader lives (LS11). A
// leadership other than of o.Token is store.ErrConflict, an authority that never was
// store.ErrNotFound.
func Steal(ctx context.Context, c *tenure.Client, name string, o StealOptions) (Snapshot, error) {
	r, err := Read(ctx, c, name)
	if err != nil {
		return Snapshot{}, err
	}
	if o.By == "" {
		o.By = r.c.Label
	}
	return r.change(ctx, func(h *core.Head, attempt string, doubted bool) (*core.Head, error) {
		if doubted && slices.ContainsFunc(h.Recent, func(l core.Leadership) bool {
			return l.Token == o.Token && l.SupersededTTLMS != 0 && l.Why == o.Why && l.By == o.By
		}) {
			return nil, nil // it was this one
		}
		return h.Steal(attempt, core.Theft{Token: o.Token, Why: o.Why, By: o.By, Vouch: o.Vouch, NowMS: r.c.NowMS()})
	})
}

// JumpTo are numbers that may have been seen before, of which all later ones must
// be above.
type JumpTo struct {
	// Token is the highest token that may have been given.
	Token uint64
	// Sequence is the highest sequence that may have been read.
	Sequence uint64
}

// Jump raises the authority's counter and sequence above what may have been seen
// before a restore (LS12). A leader whose token is below writes nothing any more and
// begins again. It gives nothing to anybody. An authority that never was is
// store.ErrNotFound: its first token is above the namespace's floor anyway.
func Jump(ctx context.Context, c *tenure.Client, name string, to JumpTo) (Snapshot, error) {
	r, err := Read(ctx, c, name)
	if err != nil {
		return Snapshot{}, err
	}
	return r.change(ctx, func(h *core.Head, attempt string, _ bool) (*core.Head, error) {
		return h.Jump(attempt, core.Above{Token: to.Token, Sequence: to.Sequence})
	})
}

// change applies f to the head until it sticks, within one TTL. f returns nil if
// nothing is to change. doubted says that one of f's writes may have happened before
// the state that f is shown. A counter that fell (tenure.ErrRegressed) is what a jump
// mends, and does not stop it.
func (r *Reader) change(ctx context.Context, f func(h *core.Head, attempt string, doubted bool) (*core.Head, error)) (Snapshot, error) {
	ctx, cancel := settle.Limit(ctx, r.c.Clock, r.c.Timing.TTL)
	defer cancel()
	for doubted := false; ; doubted = true {
		s, err := r.readOn(ctx)
		if err != nil && doubted {
			return Snapshot{}, store.Wrap(store.ErrUnknown, r.identity(), "change", r.headKey, err)
		}
		if err != nil {
			return Snapshot{}, err
		}
		next, err := f(s.head, r.c.NewID(), doubted)
		if err != nil || next == nil {
			return Snapshot{head: s.head, ver: s.ver, f: r.files}, err
		}
		w, err := r.prepare(next, s.ver)
		if err != nil {
			return Snapshot{}, err
		}
		res, err := settle.Do(ctx, r.c.Store, w, r.c.Pace(r.c.Timing))
		if err == nil {
			return Snapshot{head: next, ver: res.Version, f: r.files}, nil
		}
		if !errors.Is(err, store.ErrConflict) {
			return Snapshot{}, err
		}
	}
}

// readOn reads the head until the store answers, or ctx ends.
func (r *Reader) readOn(ctx context.Context) (state, error) {
	p := r.c.Pace(r.c.Timing)
	for wait := p.Backoff; ; wait = min(2*wait, 16*p.Backoff) {
		s, err := r.stands(ctx)
		if errors.Is(err, tenure.ErrRegressed) && s.head != nil {
			return s, nil
		}
		if err == nil || !retryable(err) || !r.pause(ctx, wait) {
			return s, err
		}
	}
}
