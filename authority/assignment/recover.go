package assignment

import (
	"context"
	"time"

	tenure "github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/clock"
	core "github.com/tenure-project/tenure/internal/core/authority/assignment"
	"github.com/tenure-project/tenure/internal/core/identity"
	"github.com/tenure-project/tenure/store"
)

// Recover installs a staged proposal in the place of the current assignment, as p's
// leader (AS). certificates has, for every participant that the proposal does not
// have any more, the bytes of the certificate that it is over (tenure.Certificate.Body,
// as FenceIncarnation and NodeHistory return it); others are not looked at. Each is
// verified against the store, and one that rests on force proves a death only after
// its wait, which Recover waits (LS11). A participant without one is
// tenure.ErrMissingEvidence, and nothing is written; so is a proposal for another
// version than the next one, which is store.ErrConflict.
func (c *Client) Recover(ctx context.Context, p tenure.Proof, proposal *Proposal, certificates ...[]byte) (Result, error) {
	cur, err := c.Current(ctx)
	if err != nil {
		return Result{}, err
	}
	decided := cur.Decision
	base := cur.Fence
	if decided != nil && decided.Result.Version == proposal.Map.Version { // a retry: it may stand already
		base = decided.Predecessor
	}
	if proposal.Map.Version != base.Version+1 {
		return Result{}, store.Errorf(store.ErrConflict, "", "recover", c.a.Name(), "the proposal is for version %d, and version %d stands: stage it anew", proposal.Map.Version, cur.Fence.Version)
	}
	proofs, err := c.proofs(ctx, base, proposal.Map.Fence(), certificates)
	if err != nil {
		return Result{}, err
	}
	d, err := core.NewRecovery(base, proposal.Map, proposal.staged, proofs)
	if err != nil {
		return Result{}, err
	}
	return c.decide(ctx, p, d)
}

// claim is one certificate that was verified, and when it was first read.
type claim struct {
	certificate *identity.Certificate
	verdict     identity.Verdict
	from        time.Duration
}

// proofs verifies the certificates of all processes that target removes, then waits
// for those that rest on force, all at the same time.
func (c *Client) proofs(ctx context.Context, base, target *Fence, certificates [][]byte) ([]core.Proven, error) {
	given := map[Participant]*identity.Certificate{}
	for _, body := range certificates {
		cert, err := identity.ParseCertificate(body)
		if err != nil {
			return nil, store.Wrap(store.ErrInvalid, "", "recover", c.a.Name(), err)
		}
		given[Participant{Node: cert.Node, Incarnation: cert.Predecessor.Incarnation}] = cert
	}
	var claims []claim
	for _, gone := range base.Participants {
		if target.Has(gone) {
			continue
		}
		cert := given[gone]
		if cert == nil {
			return nil, &UnprovenError{Participant: gone, Why: "no certificate of it was given"}
		}
		verified, err := c.verify(ctx, cert)
		if err != nil {
			return nil, err
		}
		claims = append(claims, verified)
	}
	var proofs []core.Proven
	for _, one := range claims {
		proven, err := c.await(ctx, one)
		if err != nil {
			return nil, err
		}
		proofs = append(proofs, proven)
	}
	return proofs, nil
}

func (c *Client) verify(ctx context.Context, cert *identity.Certificate) (claim, error) {
	s := c.k.Session()
	v, err := s.Identities.VerifyCertificate(ctx, cert)
	if err != nil {
		return claim{}, err
	}
	if v.State != identity.Over {
		return claim{}, &UnprovenError{
			Participant: Participant{Node: cert.Node, Incarnation: cert.Predecessor.Incarnation},
			Why:         "the store has neither its certificate nor a later owner of the node",
		}
	}
	return claim{certificate: cert, verdict: v, from: s.Clock.Boot()}, nil
}

// await waits as long as the certificate must be waited for, on this clock, from this
// process's own first read of it (LS11).
func (c *Client) await(ctx context.Context, one claim) (core.Proven, error) {
	s := c.k.Session()
	for {
		proven, left, err := core.Prove(one.certificate, one.verdict, one.from, s.Clock.Boot(), s.Timing.Rho)
		if err != nil || left <= 0 {
			return proven, err
		}
		if !clock.Sleep(s.Clock, left, ctx.Done()) {
			return core.Proven{}, context.Cause(ctx)
		}
	}
}

// UnprovenError says that a process is not proven to be over: it must be taken for
// alive. It is a tenure.ErrMissingEvidence.
type UnprovenError struct {
	// Participant is the process.
	Participant Participant
	// Why says what is missing.
	Why string
}

// Error names the process.
func (e *UnprovenError) Error() string {
	return "node " + e.Participant.Node + ", incarnation " + e.Participant.Incarnation + ": it is not proven to be over: " + e.Why
}

// Is reports whether target is tenure.ErrMissingEvidence.
func (e *UnprovenError) Is(target error) bool { return target == tenure.ErrMissingEvidence }

// Proposals lists what is staged for the version after the current one, for a leader
// that goes on where another one stopped.
func (c *Client) Proposals(ctx context.Context) ([]*Proposal, error) {
	cur, err := c.Current(ctx)
	if err != nil {
		return nil, err
	}
	version := cur.Fence.Version + 1
	var all []*Proposal
	for element, err := range c.r.Elements(ctx, kindProposal, versionElement(version)) {
		if err != nil {
			return nil, err
		}
		if versionOf(element) != version {
			break
		}
		body, err := c.r.Object(ctx, kindProposal, element, MaxBytes)
		if err != nil {
			return nil, err
		}
		if body == nil {
			continue
		}
		key := c.r.Key(kindProposal, element)
		m, err := core.DecodeMap(key, body)
		if err != nil {
			return nil, err
		}
		if proposalElement(m.Fence()) != element {
			return nil, store.Errorf(store.ErrCorrupt, "", "read", key, "the proposal is another one than its name says")
		}
		all = append(all, &Proposal{Map: m, staged: body})
	}
	return all, nil
}
