package assignment

import (
	"context"

	"github.com/tenure-project/tenure/authority"
	"github.com/tenure-project/tenure/authority/internal/chains"
	coreauthority "github.com/tenure-project/tenure/internal/core/authority"
	core "github.com/tenure-project/tenure/internal/core/authority/assignment"
	"github.com/tenure-project/tenure/store"
)

// The kinds of objects of assignments. Each is created once.
const (
	kindInstalled = string(core.KindInstalled)
	kindProposal  = string(core.KindProposal)
	kindDrain     = string(core.KindDrain)
)

func versionElement(version uint64) string { return core.VersionElement(version) }

func proposalElement(f *Fence) string { return core.ProposalElement(f) }

// Reader reads the assignments of one authority. All methods are safe for concurrent
// use.
type Reader struct{ r *authority.Reader }

// Read returns a reader for processes that only look.
func Read(r *authority.Reader) *Reader { return &Reader{r} }

// Current is the assignment that stands, at one state of the head.
type Current struct {
	// Map says who owns which slot.
	Map *Map
	// Fence names it.
	Fence *Fence
	// Decision is the one that installed it; nil for version 1, which is seeded.
	Decision *Decision
	// Materialized says that it is written down at its version.
	Materialized bool
	// Snapshot is the state of the head: validate its PartAssignment just before
	// acting.
	Snapshot authority.Snapshot
}

// Current reads the assignment that the newest decision installed, verified against
// it (AS). Nothing else is ever current: a map that somebody wrote without its
// decision is store.ErrCorrupt or not looked at. Before version 1 was seeded it is
// store.ErrNotFound.
func (r *Reader) Current(ctx context.Context) (c *Current, err error) {
	err = chains.Reread(ctx, r.r, authority.Assignment, func(s authority.Snapshot) error {
		c, err = r.at(ctx, s)
		return err
	})
	return c, err
}

func (r *Reader) at(ctx context.Context, s authority.Snapshot) (*Current, error) {
	chain, ok := s.Chain(authority.Assignment)
	if !ok {
		m, err := r.installed(ctx, 1)
		if err == nil && m == nil {
			err = store.Errorf(store.ErrNotFound, "", "read", r.r.Name(), "the authority has no assignment yet: seed version 1")
		}
		if err != nil {
			return nil, err
		}
		return &Current{Map: m, Fence: m.Fence(), Materialized: true, Snapshot: s}, nil
	}
	d, err := chains.Decode(ctx, r.r, core.Rules{}, chain.Head)
	if err != nil {
		return nil, err
	}
	decided := d.Item.Value.(*core.Decision)
	m, materialized, err := r.resolve(ctx, d, 0)
	if err != nil {
		return nil, err
	}
	return &Current{Map: m, Fence: m.Fence(), Decision: newDecision(decided, d.Proof, chain.Head), Materialized: materialized, Snapshot: s}, nil
}

// resolve finds the map that a decision installed: where it is written down, where it
// was staged, or, for an abort, in what came before. depth counts the decisions
// behind the newest one.
func (r *Reader) resolve(ctx context.Context, d chains.Decision, depth int) (m *Map, materialized bool, err error) {
	decided := d.Item.Value.(*core.Decision)
	result := decided.Result()
	m, err = r.installed(ctx, result.Version)
	switch {
	case err != nil:
		return nil, false, err
	case m != nil:
		m, err = m.Named(r.r.Key(kindInstalled, versionElement(result.Version)), result)
		return m, true, err
	case decided.Verdict != core.Abort:
		m, err = r.staged(ctx, decided)
	default:
		m, err = r.before(ctx, d, depth)
	}
	return m, false, err
}

// staged reads the map that a decision names and that it was staged as.
func (r *Reader) staged(ctx context.Context, d *core.Decision) (*Map, error) {
	element := proposalElement(d.Target)
	key := r.r.Key(kindProposal, element)
	body, err := r.r.Object(ctx, kindProposal, element, MaxBytes)
	if err == nil && body == nil {
		err = store.Errorf(store.ErrNotFound, "", "read", key, "the map of version %d is neither written down nor staged", d.Target.Version)
	}
	if err != nil {
		return nil, err
	}
	if d.Kind == core.Replace {
		return d.Stage(key, body)
	}
	m, err := core.DecodeMap(key, body)
	if err != nil {
		return nil, err
	}
	return m.Named(key, d.Target)
}

// before finds the map of a predecessor, under the version at which an abort restored
// it.
func (r *Reader) before(ctx context.Context, d chains.Decision, depth int) (*Map, error) {
	decided := d.Item.Value.(*core.Decision)
	was := decided.Predecessor
	var m *Map
	var err error
	switch prev := d.Entry.Previous; {
	case prev == nil:
		if m, err = r.installed(ctx, was.Version); err == nil && m == nil {
			err = store.Errorf(store.ErrNotFound, "", "read", r.r.Name(), "the map of version %d is not there", was.Version)
		}
	case depth >= maxBehind:
		err = store.Errorf(store.ErrCorrupt, "", "read", r.r.Name(), "no map of the last %d versions was written down", maxBehind)
	default:
		m, err = r.behind(ctx, *prev, was.Version, depth)
	}
	if err != nil {
		return nil, err
	}
	if m, err = m.Named(r.r.Key(kindInstalled, versionElement(was.Version)), was); err != nil {
		return nil, err
	}
	return m.At(decided.Result().Version), nil
}

// behind is the map at version, written down or by its own decision, which l links.
func (r *Reader) behind(ctx context.Context, l coreauthority.Link, version uint64, depth int) (*Map, error) {
	if m, err := r.installed(ctx, version); err != nil || m != nil {
		return m, err
	}
	d, err := chains.Decode(ctx, r.r, core.Rules{}, l)
	if err != nil {
		return nil, err
	}
	m, _, err := r.resolve(ctx, d, depth+1)
	return m, err
}

// installed reads the map that is written down at version; nil if none is.
func (r *Reader) installed(ctx context.Context, version uint64) (*Map, error) {
	body, err := r.r.Object(ctx, kindInstalled, versionElement(version), MaxBytes)
	if err != nil || body == nil {
		return nil, err
	}
	key := r.r.Key(kindInstalled, versionElement(version))
	m, err := core.DecodeMap(key, body)
	if err == nil && m.Version != version {
		err = store.Errorf(store.ErrCorrupt, "", "read", key, "the map there is of version %d", m.Version)
	}
	return m, err
}

// Draining is the drain that was begun and not decided, nil if there is none (AS). Its
// leader may lead no more: Snapshot.Leads says so, and then it will not be committed.
func (r *Reader) Draining(ctx context.Context) (*Transition, error) {
	c, err := r.Current(ctx)
	if err != nil {
		return nil, err
	}
	return r.draining(ctx, c)
}

// draining reads the transition from c.
func (r *Reader) draining(ctx context.Context, c *Current) (*Transition, error) {
	version := c.Fence.Version + 1
	body, err := r.r.Object(ctx, kindDrain, versionElement(version), MaxBytes)
	if err != nil || body == nil {
		return nil, err
	}
	return r.transition(body, c)
}

// transition reads the bytes of a transition, which must begin at c.
func (r *Reader) transition(body []byte, c *Current) (*Transition, error) {
	version := c.Fence.Version + 1
	key := r.r.Key(kindDrain, versionElement(version))
	t, err := core.DecodeTransition(key, r.r.Name(), version, body)
	if err != nil {
		return nil, err
	}
	if t.Predecessor.State() != c.Fence.State() {
		return nil, store.Errorf(store.ErrCorrupt, "", "read", key, "the drain to version %d does not begin at the assignment that stands", version)
	}
	return newTransition(t), nil
}
