package assignment

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tenure-project/tenure/internal/core/authority"
	"github.com/tenure-project/tenure/internal/core/identity"
	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

// The kinds of decision.
const (
	// Drain settles a move between processes that live.
	Drain = "drain"
	// Replace settles a recovery: it replaces processes that are gone.
	Replace = "recovery"
)

// The verdicts on a drain.
const (
	Commit = "commit" // the target is installed
	Abort  = "abort"  // the predecessor is restored, at the target's version
)

// Decision settles one version of the assignment (AS). Invariants, checked by
// Valid:
//
//  1. predecessor and target are complete, of the same number of slots, and the
//     target's version is the predecessor's + 1;
//  2. a drain has a verdict and names the leadership that began it, and nothing of a
//     recovery;
//  3. a recovery names its staged proposal and has, for every participant of the
//     predecessor that is not one of the target, exactly one certificate of its end,
//     in the order of the participants; and there is at least one.
type Decision struct {
	V           int    `json:"v"`
	Kind        string `json:"kind"`
	Verdict     string `json:"verdict,omitempty"`
	Predecessor *Fence `json:"predecessor"`
	Target      *Fence `json:"target"`
	// Begun is the leadership that began a drain.
	Begun *authority.Proof `json:"begun,omitempty"`
	// Proposal is the digest of a recovery's staged map: DigestOf its bytes.
	Proposal string `json:"proposal,omitempty"`
	// Removed are the canonical bytes of certificates.
	Removed []json.RawMessage `json:"removed,omitempty"`
}

// Valid checks the invariants.
func (d *Decision) Valid() error {
	switch {
	case d.V < 1 || d.V > record.Level:
		return fmt.Errorf("format level %d", d.V)
	case d.Predecessor == nil || d.Target == nil:
		return errors.New("predecessor or target is missing")
	}
	if err := errors.Join(d.Predecessor.Valid(), d.Target.Valid()); err != nil {
		return err
	}
	if d.Predecessor.Slots != d.Target.Slots || d.Predecessor.Version+1 != d.Target.Version {
		return errors.New("the target does not follow the predecessor")
	}
	switch d.Kind {
	case Drain:
		if d.Verdict != Commit && d.Verdict != Abort || d.Begun == nil || d.Proposal != "" || d.Removed != nil {
			return errors.New("a drain has a verdict and a leader that began it, and nothing else")
		}
		return d.Begun.Valid()
	case Replace:
		if d.Verdict != "" || d.Begun != nil || !authority.IsDigest(d.Proposal) {
			return errors.New("a recovery names its proposal, and nothing of a drain")
		}
		return d.validRemoved()
	}
	return fmt.Errorf("unknown kind %q", d.Kind)
}

// Gone lists the participants of the predecessor that the target replaces.
func (d *Decision) Gone() []Participant {
	var gone []Participant
	for _, p := range d.Predecessor.Participants {
		if !d.Target.Has(p) {
			gone = append(gone, p)
		}
	}
	return gone
}

func (d *Decision) validRemoved() error {
	gone := d.Gone()
	if len(gone) == 0 || len(gone) != len(d.Removed) {
		return fmt.Errorf("%d certificates for %d processes that were replaced", len(d.Removed), len(gone))
	}
	for i, p := range gone {
		c, err := identity.ParseCertificate(d.Removed[i])
		if err != nil {
			return err
		}
		if c.Node != p.Node || c.Predecessor.Incarnation != p.Incarnation {
			return fmt.Errorf("a certificate of incarnation %s of node %q stands in the place of %s of %q's",
				c.Predecessor.Incarnation, c.Node, p.Incarnation, p.Node)
		}
	}
	return nil
}

// Result is the assignment that the decision installs: nothing else may be
// installed at its version.
func (d *Decision) Result() *Fence {
	if d.Verdict == Abort {
		return d.Predecessor.At(d.Target.Version)
	}
	return d.Target
}

// Encode returns the decision's canonical bytes.
func (d *Decision) Encode() ([]byte, error) { return record.Encode(d, authority.MaxBlob) }

// Decode reads a decision strictly (ST7).
func Decode(key string, body []byte) (*Decision, error) {
	var d Decision
	if err := record.Decode(key, body, &d); err != nil {
		return nil, err
	}
	return &d, nil
}

// Proven is one process that is proven to be over, late enough: only [Prove] makes
// one.
type Proven struct{ c *identity.Certificate }

// Prove takes what identity.VerifyCertificate made of c. Evidence that rests on
// force proves a death only after its wait, from the caller's own first read of it
// on its own clock (LS11): left is how much longer. Anything but Over is
// ErrInvalid.
func Prove(c *identity.Certificate, v identity.Verdict, from, now time.Duration, rho float64) (p Proven, left time.Duration, err error) {
	if v.State != identity.Over || v.Certificate == nil || !v.Certificate.Equal(c) {
		return Proven{}, 0, store.Errorf(store.ErrInvalid, "", "prove", c.Node, "incarnation %s is not proven to be over by this certificate", c.Predecessor.Incarnation)
	}
	if v.Wait > 0 {
		if left = from + lease.Stretch(v.Wait, rho) - now; left > 0 {
			return Proven{}, left, nil
		}
	}
	return Proven{c: c}, 0, nil
}

// NewRecovery is the decision to install the staged proposal, whose canonical bytes
// are staged, in the place of predecessor (AS). gone are the proofs of every
// process that it replaces, in any order.
func NewRecovery(predecessor *Fence, proposal *Map, staged []byte, gone []Proven) (*Decision, error) {
	d := &Decision{V: record.Level, Kind: Replace, Predecessor: predecessor, Target: proposal.Fence(),
		Proposal: authority.DigestOf(authority.BodyDomain, staged)}
	for _, p := range d.Gone() {
		for _, g := range gone {
			if g.c == nil || g.c.Node != p.Node || g.c.Predecessor.Incarnation != p.Incarnation {
				continue
			}
			body, err := g.c.Encode()
			if err != nil {
				return nil, err
			}
			d.Removed = append(d.Removed, body)
			break
		}
	}
	if err := d.Valid(); err != nil {
		return nil, store.Wrap(store.ErrInvalid, "", "decide", authority.Assignment, err)
	}
	return d, nil
}

// Stage returns the map that the decision names, from what was staged: its bytes
// must be the ones that were decided on (AS). Anything else is ErrCorrupt.
func (d *Decision) Stage(key string, staged []byte) (*Map, error) {
	if authority.DigestOf(authority.BodyDomain, staged) != d.Proposal {
		return nil, store.Errorf(store.ErrCorrupt, "", "read", key, "the staged proposal is not the one that was decided on")
	}
	m, err := DecodeMap(key, staged)
	if err == nil && m.Fence().State() != d.Target.State() {
		err = store.Errorf(store.ErrCorrupt, "", "read", key, "the staged proposal is not the target that was decided on")
	}
	if err != nil {
		return nil, err
	}
	return m, nil
}

// Rules are the assignments'. Every decision builds on what the one before it
// installed, so that one which was made for another predecessor is refused.
type Rules struct{}

var _ authority.Rules = Rules{}

// Chain is the name of the chain.
func (Rules) Chain() string { return authority.Assignment }

// Policy leaves the floor to the leader, who first prunes what is installed.
func (Rules) Policy() authority.Policy { return authority.Policy{} }

// Item reads a decision. A drain is committed only by the leadership that began it;
// every leader may abort it.
func (Rules) Item(key string, p authority.Proof, body []byte) (authority.Item, error) {
	d, err := Decode(key, body)
	if err != nil {
		return authority.Item{}, err
	}
	if d.Verdict == Commit && *d.Begun != p {
		return authority.Item{}, store.Errorf(store.ErrCorrupt, "", "read", key, "a drain that token %d began is committed by token %d", d.Begun.Token, p.Token)
	}
	return authority.Item{Key: d.Target.Version, Base: d.Predecessor.State(), State: d.Result().State(), Value: d}, nil
}

// Admit has nothing to add: the log compares what a decision builds on.
func (Rules) Admit(*authority.Head, authority.Proof, authority.Item) error { return nil }

// Apply changes nothing else.
func (Rules) Apply(*authority.Head, authority.Item) {}
