package checkpoint

import (
	"context"
	"errors"

	tenure "github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/authority"
	"github.com/tenure-project/tenure/authority/assignment"
	"github.com/tenure-project/tenure/authority/internal/chains"
	coreauthority "github.com/tenure-project/tenure/internal/core/authority"
	core "github.com/tenure-project/tenure/internal/core/authority/checkpoint"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

// Client decides and reads checkpoints of one authority and one deployment. All
// methods are safe for concurrent use.
type Client struct {
	Reader
	a          *authority.Authority
	k          authority.Kit
	deployment string
}

// Open returns a client for the deployment of that id, a UUID in lower case that was
// made once for it: outcomes of another deployment are a conflict (CK). It does no
// I/O.
func Open(a *authority.Authority, deployment string) (*Client, error) {
	if !record.IsID(deployment) {
		return nil, store.Errorf(store.ErrInvalid, "", "open checkpoints", a.Name(), "the deployment id %q is not a UUID in lower case", deployment)
	}
	return &Client{Reader: *Read(a.Reader()), a: a, k: a.Kit(), deployment: deployment}, nil
}

// Commit settles c's attempt as committed, as p's leader: the capsule is written
// first, then the outcome that names its digest (CK). The same capsule again is
// Unchanged; another outcome of the epoch, or any later checkpoint id, is Conflict. An
// error is one of [authority.Authority.Append]; a capsule that was written for a
// commit that does not stand is swept once the horizon is past it.
func (c *Client) Commit(ctx context.Context, p tenure.Proof, capsule Capsule) (Result, error) {
	if len(capsule.Data) > MaxData {
		return Result{}, store.Errorf(store.ErrInvalid, "", "commit", c.a.Name(), "the capsule has %d bytes of data; at most %d are allowed", len(capsule.Data), MaxData)
	}
	made := &core.Capsule{V: record.Level, Attempt: capsule.Attempt, Deployment: c.deployment, Fence: capsule.Fence, Data: capsule.Data}
	body, err := made.Encode()
	if err != nil {
		return Result{}, store.Wrap(store.ErrInvalid, "", "commit", c.a.Name(), err)
	}
	attempt := c.k.Session().NewID()
	outcome := core.NewCommit(made, attempt, body)
	name := core.CapsuleName{Epoch: capsule.Epoch, Token: p.Token, Attempt: attempt}
	draft, err := newDraft(outcome)
	if err != nil {
		return Result{}, store.Wrap(store.ErrInvalid, "", "commit", c.a.Name(), err)
	}
	if !c.a.Leads(p) { // nor ever will: no outcome that names a capsule would be sent
		return c.append(ctx, p, outcome, draft)
	}
	if err := c.k.Write(ctx, name.Name(), name.Element(), outcome.Capsule.Digest, body); err != nil {
		c.k.Landed(name.Name()) // no outcome that names it is ever sent
		return Result{}, err
	}
	draft.Objects = []coreauthority.Name{name.Name()}
	return c.append(ctx, p, outcome, draft)
}

// Abort settles an attempt as aborted, as p's leader (CK). fence names the assignment
// that it was made under. The answers are those of Commit.
func (c *Client) Abort(ctx context.Context, p tenure.Proof, a Attempt, fence *assignment.Fence) (Result, error) {
	outcome := core.NewAbort(a, c.deployment, fence)
	draft, err := newDraft(outcome)
	if err != nil {
		return Result{}, store.Wrap(store.ErrInvalid, "", "abort", c.a.Name(), err)
	}
	return c.append(ctx, p, outcome, draft)
}

func newDraft(o *core.Outcome) (authority.Draft, error) {
	body, err := o.Encode()
	return authority.Draft{Body: body}, err
}

func (c *Client) append(ctx context.Context, p tenure.Proof, o *core.Outcome, d authority.Draft) (Result, error) {
	res, err := c.k.Append(ctx, p, core.Rules{}, d)
	if err != nil {
		return Result{Result: res}, err
	}
	if res.Stands() { // bytes and proof are these
		return Result{Result: res, Outcome: newOutcome(&core.Stands{Outcome: o, Proof: coreauthority.Proof(p), Link: res.Winner})}, nil
	}
	if res.Answer != authority.Conflict {
		return Result{Result: res}, nil
	}
	stands, err := c.stands(ctx, res.Winner)
	switch {
	case errors.Is(err, store.ErrNotFound): // compacted since
		return Result{Result: res}, nil
	case err != nil:
		return Result{Result: res}, err
	}
	if tenure.Proof(stands.Proof) == p && same(stands.Outcome, o) {
		res.Answer = authority.Unchanged
	}
	return Result{Result: res, Outcome: newOutcome(stands)}, nil
}

// same reports whether two outcomes say the same, and differ only by the attempt
// that their capsules were written under: a retry writes its capsule under a fresh
// one (LA8).
func same(a, b *core.Outcome) bool {
	if a.Capsule == nil || b.Capsule == nil {
		return false // equal aborts are equal bytes
	}
	return a.Attempt == b.Attempt && a.Deployment == b.Deployment && a.Fence.State() == b.Fence.State() &&
		a.Capsule.Digest == b.Capsule.Digest && a.Capsule.Length == b.Capsule.Length
}

// Check judges the commit that would remain the lowest one to recover from: its
// capsule, and the artifacts that it names. An error stops the advance.
type Check func(ctx context.Context, o *Outcome, c *Capsule) error

// Advance moves the horizon up to epoch as p's leader: commits, capsules and artifacts
// of lower epochs may be given up then (CK). A commit at or above it must remain: the
// newest one, whose capsule is read and verified, and which check must accept.
// Without one it is store.ErrConflict, and so it is if the history changed while it
// was checked: call again. changed is false where the horizon is there already.
func (c *Client) Advance(ctx context.Context, p tenure.Proof, epoch uint64, check Check) (changed bool, err error) {
	if check == nil {
		return false, store.Errorf(store.ErrInvalid, "", "advance the horizon", c.a.Name(), "a check of what remains is required")
	}
	h, err := c.History(ctx)
	if err != nil {
		return false, err
	}
	cut, err := h.h.Cut(epoch)
	if err != nil {
		return false, err
	}
	body, key, err := c.capsuleBody(ctx, cut.Stands)
	if err != nil {
		return false, err
	}
	accepted, err := cut.Accept(key, body, func(s *core.Stands, capsule *core.Capsule) error {
		return check(ctx, newOutcome(s), newCapsule(capsule))
	})
	if err != nil {
		return false, err
	}
	_, err = c.k.Change(ctx, p, func(h *coreauthority.Head, attempt string) (*coreauthority.Head, error) {
		next, err := core.Advance(h, coreauthority.Proof(p), attempt, accepted)
		changed = next != nil
		return next, err
	})
	return changed && err == nil, err
}

// stands reads the outcome that l links.
func (r *Reader) stands(ctx context.Context, l authority.Link) (*core.Stands, error) {
	d, err := chains.Decode(ctx, r.r, core.Rules{}, l)
	if err != nil {
		return nil, err
	}
	return &core.Stands{Outcome: d.Item.Value.(*core.Outcome), Proof: d.Entry.Proof, Link: l}, nil
}

func newCapsule(c *core.Capsule) *Capsule {
	return &Capsule{Attempt: c.Attempt, Fence: c.Fence, Data: c.Data}
}
