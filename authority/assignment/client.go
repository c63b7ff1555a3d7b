package assignment

import (
	"bytes"
	"context"
	"errors"

	tenure "github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/authority"
	"github.com/tenure-project/tenure/authority/internal/chains"
	coreauthority "github.com/tenure-project/tenure/internal/core/authority"
	core "github.com/tenure-project/tenure/internal/core/authority/assignment"
	"github.com/tenure-project/tenure/internal/core/authority/checkpoint"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

// Client decides and reads the assignments of one authority. All methods are safe for
// concurrent use.
type Client struct {
	Reader
	a *authority.Authority
	k authority.Kit
}

// Open returns a client. It does no I/O.
func Open(a *authority.Authority) *Client {
	return &Client{Reader: Reader{a.Reader()}, a: a, k: a.Kit()}
}

// Seed makes owners, by slot, version 1, if there is none (AS). It returns the version
// 1 that stands, and whether it is this one. Once a later version was decided on it is
// store.ErrConflict; where checkpoints name another version 1, whose map is gone, it is
// store.ErrCorrupt. A seed is no decision and changes no head: whoever waits for it
// looks again from time to time (authority.Snapshot.Next does not tell of it).
func (c *Client) Seed(ctx context.Context, owners []Participant) (m *Map, ours bool, err error) {
	if m, err = core.NewMap(1, owners); err != nil {
		return nil, false, err
	}
	s, err := c.r.Snapshot(ctx)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, false, err
	}
	if err == nil {
		if chain, decided := s.Chain(authority.Assignment); decided {
			return nil, false, store.Errorf(store.ErrConflict, "", "seed", c.a.Name(), "version %d was decided on already", chain.Head.Key)
		}
		if stands, err := c.installed(ctx, 1); err != nil || stands != nil {
			return stands, stands != nil && stands.Fence().State() == m.Fence().State(), err
		}
		if err := c.unnamed(ctx, s, m.Fence()); err != nil {
			return nil, false, err
		}
	}
	body, err := m.Encode()
	if err != nil {
		return nil, false, err
	}
	key := c.r.Key(kindInstalled, versionElement(1))
	stands, ours, err := chains.Create(ctx, c.k.Session().Client, key, body, MaxBytes)
	if err != nil || ours {
		return m, ours, err
	}
	m, err = core.DecodeMap(key, stands)
	return m, false, err
}

// unnamed returns an error if a checkpoint names another version 1 than f: the map that
// was seeded is gone then, and nothing in the log but checkpoints tells of it.
func (c *Client) unnamed(ctx context.Context, s authority.Snapshot, f *Fence) error {
	chain, ok := s.Chain(authority.Checkpoint)
	if !ok {
		return nil
	}
	d, err := chains.Decode(ctx, c.r, checkpoint.Rules{}, chain.Head)
	if errors.Is(err, store.ErrNotFound) { // compacted since: there are newer ones
		return store.Errorf(store.ErrConflict, "", "seed", c.a.Name(), "the checkpoints change at present: look again")
	}
	if err != nil {
		return err
	}
	if o := d.Item.Value.(*checkpoint.Outcome); o.Fence.Version == 1 && o.Fence.State() != f.State() {
		return store.Errorf(store.ErrCorrupt, "", "seed", c.a.Name(),
			"the checkpoint of epoch %d was made under another version 1: its map at %s is gone: put it back, or seed that very map", o.Epoch, c.r.Key(kindInstalled, versionElement(1)))
	}
	return nil
}

// Proposal is a map that is staged: it stands in the store, under its version and
// content, and may be decided on. Only Stage and Proposals make one.
type Proposal struct {
	// Map is what it would install.
	Map *Map

	staged []byte
}

// Stage writes owners down as a proposal for the version after the current one (AS).
// It installs nothing, and costs nothing if nobody decides on it: Prune removes it.
func (c *Client) Stage(ctx context.Context, owners []Participant) (*Proposal, error) {
	cur, err := c.Current(ctx)
	if err != nil {
		return nil, err
	}
	return c.stage(ctx, cur, owners)
}

func (c *Client) stage(ctx context.Context, cur *Current, owners []Participant) (*Proposal, error) {
	m, err := core.NewMap(cur.Fence.Version+1, owners)
	if err != nil {
		return nil, err
	}
	if n := uint64(len(owners)); n != cur.Fence.Slots {
		return nil, store.Errorf(store.ErrInvalid, "", "assign", c.a.Name(), "the map has %d slots; the assignment that stands has %d, and their number never changes", n, cur.Fence.Slots)
	}
	body, err := m.Encode()
	if err != nil {
		return nil, err
	}
	key := c.r.Key(kindProposal, proposalElement(m.Fence()))
	stands, ours, err := chains.Create(ctx, c.k.Session().Client, key, body, MaxBytes)
	if err != nil || ours {
		return &Proposal{Map: m, staged: stands}, err
	}
	return readProposal(key, stands, m.Fence())
}

func readProposal(key string, body []byte, f *Fence) (*Proposal, error) {
	m, err := core.DecodeMap(key, body)
	if err != nil {
		return nil, err
	}
	if m, err = m.Named(key, f); err != nil {
		return nil, err
	}
	return &Proposal{Map: m, staged: body}, nil
}

// BeginDrain begins to move the current assignment to owners, by slot, as p's leader:
// the target is staged, then the transition written down, where participants find it
// (AS). The same again is the same transition. One that another leadership began, or
// this one to another target, is a *[PendingError]. It installs nothing.
func (c *Client) BeginDrain(ctx context.Context, p tenure.Proof, owners []Participant) (*Transition, error) {
	cur, err := c.Current(ctx)
	if err != nil {
		return nil, err
	}
	if !cur.Snapshot.Leads(p) {
		return nil, authority.ErrFenced
	}
	target, err := c.stage(ctx, cur, owners)
	if err != nil {
		return nil, err
	}
	t := &core.Transition{V: record.Level, Authority: c.a.Name(), Predecessor: cur.Fence, Target: target.Map.Fence(), Begun: coreauthority.Proof(p)}
	body, err := t.Encode()
	if err != nil {
		return nil, err
	}
	key := c.r.Key(kindDrain, versionElement(t.Target.Version))
	stands, _, err := chains.Create(ctx, c.k.Session().Client, key, body, MaxBytes)
	if err != nil {
		return nil, err
	}
	found, err := c.transition(stands, cur)
	if err != nil {
		return nil, err
	}
	if found.Begun != p || !bytes.Equal(stands, body) {
		return nil, &PendingError{Pending: found}
	}
	return found, nil
}

// CommitDrain installs t's target, as p's leader, which must be the one that began t
// (AS); another one is store.ErrInvalid.
func (c *Client) CommitDrain(ctx context.Context, p tenure.Proof, t *Transition) (Result, error) {
	return c.decide(ctx, p, t.t.Decide(core.Commit))
}

// AbortDrain restores t's predecessor at the target's version, as p's leader, any one
// (AS).
func (c *Client) AbortDrain(ctx context.Context, p tenure.Proof, t *Transition) (Result, error) {
	return c.decide(ctx, p, t.t.Decide(core.Abort))
}

// decide appends d. A decision of its version that stands, or another state than it
// builds on, is Conflict.
func (c *Client) decide(ctx context.Context, p tenure.Proof, d *core.Decision) (Result, error) {
	body, err := d.Encode()
	if err != nil {
		return Result{}, err
	}
	res, err := c.a.Append(ctx, p, core.Rules{}, body)
	switch {
	case err != nil || !res.Stands() && res.Answer != authority.Conflict:
		return Result{Result: res}, err
	case res.Stands(): // bytes and proof are these
		return Result{Result: res, Decision: newDecision(d, p, res.Winner)}, nil
	}
	stands, err := chains.Decode(ctx, c.r, core.Rules{}, res.Winner)
	switch {
	case errors.Is(err, store.ErrNotFound): // pruned since
		return Result{Result: res}, nil
	case err != nil:
		return Result{Result: res}, err
	}
	return Result{Result: res, Decision: newDecision(stands.Item.Value.(*core.Decision), stands.Proof, res.Winner)}, nil
}

// Materialize writes the current assignment down at its version, as its decision
// says, and returns it (AS). Any process may; it is written once, and whoever comes
// later finds it. Reading does not need it, but Prune does.
func (c *Client) Materialize(ctx context.Context) (*Current, error) {
	cur, err := c.Current(ctx)
	if err != nil || cur.Materialized {
		return cur, err
	}
	body, err := cur.Map.Encode()
	if err != nil {
		return nil, err
	}
	key := c.r.Key(kindInstalled, versionElement(cur.Fence.Version))
	stands, _, err := chains.Create(ctx, c.k.Session().Client, key, body, MaxBytes)
	if err != nil {
		return nil, err
	}
	m, err := core.DecodeMap(key, stands)
	if err != nil {
		return nil, err
	}
	if cur.Map, err = m.Named(key, cur.Fence); err != nil {
		return nil, err
	}
	cur.Materialized = true
	return cur, nil
}
