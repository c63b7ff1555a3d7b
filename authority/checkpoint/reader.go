package checkpoint

import (
	"context"

	tenure "github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/authority"
	"github.com/tenure-project/tenure/authority/internal/chains"
	core "github.com/tenure-project/tenure/internal/core/authority/checkpoint"
	"github.com/tenure-project/tenure/store"
)

// Reader reads the outcomes of one authority. All methods are safe for concurrent
// use.
type Reader struct {
	r    *authority.Reader
	walk *chains.Walker
}

// Read returns a reader for processes that only look.
func Read(r *authority.Reader) *Reader {
	return &Reader{r: r, walk: &chains.Walker{Reader: r, Chain: authority.Checkpoint}}
}

// History reads the head and walks the outcomes that it reaches, each verified (CK).
// All answers of the History are of that one state. An authority that never was is
// store.ErrNotFound; one without outcomes has an empty history.
func (r *Reader) History(ctx context.Context) (*History, error) {
	s, t, err := r.walk.Walk(ctx)
	if err != nil {
		return nil, err
	}
	h, err := core.Read(s.Kit(), t)
	if err != nil {
		return nil, err
	}
	return &History{Snapshot: s, h: h}, nil
}

// Newest reads the newest outcome and the newest commit that stands, without a walk:
// one read of the head, and one of each. Both are nil before the first (CK).
func (r *Reader) Newest(ctx context.Context) (terminal, commit *Outcome, err error) {
	err = chains.Reread(ctx, r.r, authority.Checkpoint, func(s authority.Snapshot) error {
		terminal, commit, err = r.newest(ctx, s)
		return err
	})
	return terminal, commit, err
}

func (r *Reader) newest(ctx context.Context, s authority.Snapshot) (terminal, commit *Outcome, err error) {
	c, ok := s.Chain(authority.Checkpoint)
	if !ok {
		return nil, nil, nil
	}
	top, err := r.stands(ctx, c.Head)
	if err != nil {
		return nil, nil, err
	}
	terminal = newOutcome(top)
	switch {
	case c.Mark == nil:
		return terminal, nil, nil
	case *c.Mark == c.Head:
		return terminal, terminal, nil
	}
	mark, err := r.stands(ctx, *c.Mark)
	if err != nil {
		return nil, nil, err
	}
	return terminal, newOutcome(mark), nil
}

// Capsule reads the capsule of a commit, and verifies that its bytes are the ones
// that were committed, of the same attempt, deployment and assignment (CK). Anything
// else is store.ErrCorrupt; an abort is store.ErrInvalid. One below the horizon may be
// gone: store.ErrNotFound.
func (r *Reader) Capsule(ctx context.Context, o *Outcome) (*Capsule, error) {
	if o.stands == nil || o.stands.Outcome.Capsule == nil {
		return nil, store.Errorf(store.ErrInvalid, "", "read a capsule", r.r.Name(), "epoch %d was not committed", o.Epoch)
	}
	body, key, err := r.capsuleBody(ctx, o.stands)
	if err != nil {
		return nil, err
	}
	c, err := o.stands.Load(key, body)
	if err != nil {
		return nil, err
	}
	return newCapsule(c), nil
}

func (r *Reader) capsuleBody(ctx context.Context, s *core.Stands) (body []byte, key string, err error) {
	name, _ := s.CapsuleName()
	key = r.r.Key(string(core.KindCapsule), name.Element())
	body, err = r.r.Object(ctx, string(core.KindCapsule), name.Element(), MaxCapsule)
	if err == nil && body == nil {
		err = store.Errorf(store.ErrNotFound, "", "read a capsule", key, "the capsule of epoch %d is not there", s.Outcome.Epoch)
	}
	return body, key, err
}

// History is the outcomes that one state of the head reaches. It does not change.
type History struct {
	// Snapshot is that state: validate it just before acting.
	Snapshot authority.Snapshot

	h *core.History
}

// Boundary is what a history was cut to.
type Boundary struct {
	// Horizon: commits and artifacts of lower epochs may be gone.
	Horizon uint64
	// Floor: aborts of lower epochs are not known any more.
	Floor uint64
	// CommitAnchor is the newest commit below the horizon, Anchor the newest outcome
	// below the floor; nil if there was none. They show continuity and are no cut to
	// recover from.
	CommitAnchor, Anchor *Outcome
}

// Boundary returns what the history was cut to: the retention boundary (CK).
func (h *History) Boundary() Boundary {
	b := h.h.Boundary()
	return Boundary{Horizon: b.Horizon, Floor: b.Floor, CommitAnchor: newOutcome(b.CommitAnchor), Anchor: newOutcome(b.Anchor)}
}

// Inventory lists the outcomes at or above the horizon that are known, by epoch (CK).
func (h *History) Inventory() []*Outcome {
	var all []*Outcome
	for _, s := range h.h.Inventory() {
		all = append(all, newOutcome(s))
	}
	return all
}

// Outcome is the outcome of an epoch, nil if it has none (CK). known is false below
// what the history keeps: the epoch may have had one.
func (h *History) Outcome(epoch uint64) (o *Outcome, known bool) {
	s, known := h.h.Outcome(epoch)
	return newOutcome(s), known
}

// HighestCommit is the newest commit at or above the horizon, which a deployment
// recovers from; nil if there is none (CK).
func (h *History) HighestCommit() *Outcome { return newOutcome(h.h.HighestCommit()) }

// HighestTerminal is the newest outcome; nil before the first (CK).
func (h *History) HighestTerminal() *Outcome { return newOutcome(h.h.HighestTerminal()) }

// Settlement is what settled an attempt: the outcome of its epoch, or else the newest
// one if its checkpoint id is higher; nil while the attempt is open (CK).
func (h *History) Settlement(a Attempt) *Outcome { return newOutcome(h.h.Settlement(a)) }

// Fate is what is known of an attempt that a leadership set out to commit.
type Fate string

// The fates of an attempt.
const (
	// Pending: its leader may settle it yet.
	Pending Fate = "pending"
	// Settled: it has an outcome, or a later attempt has one.
	Settled Fate = "settled"
	// Fenced: its leader settles it no more. Whatever works for it may stop at once; a
	// later leader may settle its epoch.
	Fenced Fate = "fenced"
)

// Fate tells what may become of attempt a under p: of what is not settled, that which
// can still be is kept apart from that which never will (CK, LA4).
func (h *History) Fate(a Attempt, p tenure.Proof) Fate {
	switch {
	case h.Settlement(a) != nil:
		return Settled
	case h.Snapshot.Over(p):
		return Fenced
	}
	return Pending
}
