package checkpoint

import (
	"slices"

	"github.com/tenure-project/tenure/internal/core/authority"
	"github.com/tenure-project/tenure/store"
)

// History is the outcomes that one head reaches.
type History struct {
	trail    *authority.Trail
	chain    *authority.Chain
	outcomes []*Stands // by epoch
}

// Read makes the history of a walk of h's checkpoint chain that is done. A walk of
// another state is ErrConflict: walk again.
func Read(h *authority.Head, t *authority.Trail) (*History, error) {
	if !t.Of(h) || !t.Done() || t.Chain() != authority.Checkpoint {
		return nil, store.Errorf(store.ErrConflict, "", "read", authority.Checkpoint, "the chain changed, or was not walked to its end: walk it again")
	}
	x := &History{trail: t, chain: h.Checkpoint}
	for _, step := range slices.Backward(t.Steps()) {
		s, err := read(step)
		if err != nil {
			return nil, err
		}
		x.outcomes = append(x.outcomes, s)
	}
	return x, nil
}

// Boundary is what the history was cut to.
type Boundary struct {
	// Horizon: artifacts of lower epochs may be given up.
	Horizon uint64
	// Floor: aborts of lower epochs are not known any more.
	Floor uint64
	// CommitAnchor is the newest commit below the horizon, Anchor the newest outcome
	// below the floor; nil if there was none. They show continuity and are no cut to
	// recover from.
	CommitAnchor, Anchor *Stands
}

// Boundary returns the history's (CK).
func (x *History) Boundary() Boundary {
	var b Boundary
	if x.chain == nil {
		return b
	}
	b.Horizon, b.Floor = x.chain.Horizon, x.chain.Floor
	for _, s := range x.outcomes {
		if x.chain.Anchor != nil && s.Link == *x.chain.Anchor {
			b.Anchor = s
		}
		if x.chain.MarkAnchor != nil && s.Link == *x.chain.MarkAnchor {
			b.CommitAnchor = s
		}
	}
	return b
}

// Inventory lists the outcomes at or above the horizon that are known, by epoch
// (CK).
func (x *History) Inventory() []*Stands {
	if x.chain == nil {
		return nil
	}
	i, _ := x.find(x.chain.Horizon)
	return x.outcomes[i:]
}

// Outcome is the outcome of an epoch (CK). known is false where it is below what
// the history keeps: it may have had one.
func (x *History) Outcome(epoch uint64) (s *Stands, known bool) {
	switch _, presence := x.trail.Find(epoch); presence {
	case authority.Unknown:
		return nil, false
	case authority.Absent:
		return nil, true
	}
	if i, ok := x.find(epoch); ok {
		return x.outcomes[i], true
	}
	return nil, true
}

func (x *History) find(epoch uint64) (int, bool) {
	return slices.BinarySearchFunc(x.outcomes, epoch, func(s *Stands, epoch uint64) int {
		switch {
		case s.Outcome.Epoch < epoch:
			return -1
		case s.Outcome.Epoch > epoch:
			return 1
		}
		return 0
	})
}

// HighestCommit is the newest commit at or above the horizon; nil if there is none.
func (x *History) HighestCommit() *Stands {
	for _, s := range slices.Backward(x.outcomes) {
		if s.Outcome.Verdict == Commit && s.Outcome.Epoch >= x.chain.Horizon {
			return s
		}
	}
	return nil
}

// HighestTerminal is the newest outcome; nil before the first.
func (x *History) HighestTerminal() *Stands {
	if len(x.outcomes) == 0 {
		return nil
	}
	return x.outcomes[len(x.outcomes)-1]
}

// Settlement is what settled an attempt: the outcome of its epoch, or else the
// newest one if its checkpoint id is higher; nil while the attempt is open (CK).
func (x *History) Settlement(a Attempt) *Stands {
	if i, ok := x.find(a.Epoch); ok {
		return x.outcomes[i]
	}
	if top := x.HighestTerminal(); top != nil && top.Outcome.Checkpoint > a.Checkpoint {
		return top
	}
	return nil
}

// Cut is a commit that would remain if the horizon moved up to an epoch.
type Cut struct {
	*Stands
	trail   *authority.Trail
	horizon uint64
}

// Cut chooses the newest commit at or above horizon: what a deployment would
// recover from (CK). Without one it is ErrConflict: the horizon may not move there.
func (x *History) Cut(horizon uint64) (Cut, error) {
	s := x.HighestCommit()
	if s == nil || s.Outcome.Epoch < horizon || horizon < 1 {
		return Cut{}, store.Errorf(store.ErrConflict, "", "advance the horizon", authority.Checkpoint, "no commit would remain at or above epoch %d", horizon)
	}
	return Cut{Stands: s, trail: x.trail, horizon: horizon}, nil
}

// Accepted is a cut whose capsule and artifacts were accepted. Only Accept makes
// one.
type Accepted struct{ cut *Cut }

// Accept checks the bytes of the cut's capsule, and lets check judge it and the
// artifacts that it names (CK). An error of check is returned as it is.
func (c Cut) Accept(key string, body []byte, check func(*Stands, *Capsule) error) (Accepted, error) {
	capsule, err := c.Load(key, body)
	if err != nil {
		return Accepted{}, err
	}
	if err := check(c.Stands, capsule); err != nil {
		return Accepted{}, err
	}
	return Accepted{cut: &c}, nil
}

// Advance returns the head in which p's leader moved the horizon to a's epoch, and
// the floor with it (CK). h must say of the chain exactly what it said when the cut
// was chosen: heads and floors did not move while it was checked; else it is
// ErrConflict. A nil head means that the horizon is there already.
func Advance(h *authority.Head, p authority.Proof, attempt string, a Accepted) (*authority.Head, error) {
	if a.cut == nil {
		return nil, store.Errorf(store.ErrInvalid, "", "advance the horizon", authority.Checkpoint, "no cut was accepted")
	}
	return a.cut.trail.Advance(h, p, attempt, 0, a.cut.horizon)
}
