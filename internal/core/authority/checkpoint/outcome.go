// Package checkpoint has the rules of checkpoint outcomes (CK): one Commit or Abort
// of every attempt, the commits a chain of their own, and a horizon below which
// artifacts are given up. It is pure.
package checkpoint

import (
	"errors"
	"fmt"

	"github.com/tenure-project/tenure/internal/core/authority"
	"github.com/tenure-project/tenure/internal/core/authority/assignment"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

// The verdicts on an attempt.
const (
	Commit = "commit"
	Abort  = "abort"
)

// Attempt is one try at a checkpoint. Both numbers rise, and are at least 1.
type Attempt struct {
	Epoch      uint64 `json:"epoch"`
	Checkpoint uint64 `json:"checkpoint"`
}

// Outcome settles one attempt for good (CK). Invariants, checked by Valid:
//
//  1. v, verdict, epoch, checkpoint and deployment are set and within bounds;
//  2. the fence of the assignment is complete;
//  3. exactly a commit has a recovery capsule;
//  4. it fits into its entry.
type Outcome struct {
	V       int    `json:"v"`
	Verdict string `json:"verdict"`
	Attempt
	// Deployment is the id of the deployment: a wiped and rebuilt one has another.
	Deployment string            `json:"deployment"`
	Fence      *assignment.Fence `json:"fence"`
	// Capsule is of the commit's recovery capsule. Its object is named by the token
	// of the outcome's proof and by the capsule's attempt.
	Capsule *authority.Blob `json:"capsule,omitempty"`
}

// Valid checks the invariants.
func (o *Outcome) Valid() error {
	switch {
	case o.V < 1 || o.V > record.Level:
		return fmt.Errorf("format level %d", o.V)
	case o.Verdict != Commit && o.Verdict != Abort:
		return fmt.Errorf("unknown verdict %q", o.Verdict)
	case o.Epoch < 1 || o.Epoch > record.MaxNumber || o.Checkpoint < 1 || o.Checkpoint > record.MaxNumber:
		return fmt.Errorf("epoch %d or checkpoint %d is out of bounds", o.Epoch, o.Checkpoint)
	case !record.IsID(o.Deployment):
		return fmt.Errorf("deployment %q is not an id", o.Deployment)
	case o.Fence == nil:
		return errors.New("the assignment's fence is missing")
	case (o.Verdict == Commit) != (o.Capsule != nil):
		return errors.New("exactly a commit has a recovery capsule")
	}
	if o.Capsule != nil {
		if err := o.Capsule.Valid(); err != nil {
			return err
		}
	}
	if err := o.Fence.Valid(); err != nil {
		return err
	}
	if n := record.Size(o); n > authority.MaxInline {
		return fmt.Errorf("an outcome of %d bytes", n)
	}
	return nil
}

// Encode returns the outcome's canonical bytes: the body of its decision.
func (o *Outcome) Encode() ([]byte, error) { return record.Encode(o, authority.MaxInline) }

// Decode reads an outcome strictly (ST7).
func Decode(key string, body []byte) (*Outcome, error) {
	var o Outcome
	if err := record.Decode(key, body, &o); err != nil {
		return nil, err
	}
	return &o, nil
}

// Rules are the outcomes'. One outcome per epoch, epochs and checkpoint ids rise
// together, all are of one deployment, and commits are marked.
type Rules struct{}

var _ authority.Rules = Rules{}

// The terminal history compacts itself (CK).
const (
	CompactAt = 64
	Kept      = 16
)

// Chain is the name of the chain.
func (Rules) Chain() string { return authority.Checkpoint }

// Policy says when terminal history is compacted.
func (Rules) Policy() authority.Policy {
	return authority.Policy{CompactAt: CompactAt, Keep: Kept}
}

// Item reads an outcome.
func (Rules) Item(key string, _ authority.Proof, body []byte) (authority.Item, error) {
	o, err := Decode(key, body)
	if err != nil {
		return authority.Item{}, err
	}
	return authority.Item{Key: o.Epoch, ID: o.Checkpoint, Marked: o.Verdict == Commit, Binding: o.Deployment, Value: o}, nil
}

// Admit has nothing to add: the log compares deployments, and orders epochs and
// checkpoints.
func (Rules) Admit(*authority.Head, authority.Proof, authority.Item) error { return nil }

// Apply changes nothing else.
func (Rules) Apply(*authority.Head, authority.Item) {}

// Needs lists the capsules of the commits at or above the horizon.
func (Rules) Needs(c *authority.Chain, all []authority.Decided) (needs []authority.Need) {
	for _, d := range all {
		s := &Stands{Outcome: d.Value.(*Outcome), Proof: d.Entry.Proof, Link: d.Link}
		name, committed := s.CapsuleName()
		if !committed || s.Outcome.Epoch < c.Horizon {
			continue
		}
		needs = append(needs, authority.Need{Chain: authority.Checkpoint, Link: d.Link, Any: []authority.Object{{
			Kind: KindCapsule, Element: name.Element(), Limit: authority.MaxBlob,
			Verify: func(key string, body []byte) error { _, err := s.Load(key, body); return err },
		}}})
	}
	return needs
}

// Stands is an outcome that stands, with the proof of who decided it.
type Stands struct {
	Outcome *Outcome
	Proof   authority.Proof
	Link    authority.Link
}

// read decodes the outcome of a step of a walk.
func read(s authority.Step) (*Stands, error) {
	it, err := authority.Verify(Rules{}, s.Link.Name().Element(), s.Entry, nil)
	if err != nil {
		return nil, err
	}
	return &Stands{Outcome: it.Value.(*Outcome), Proof: s.Entry.Proof, Link: s.Link}, nil
}

// KindCapsule is the kind of objects that are recovery capsules.
const KindCapsule authority.Kind = "capsule"

// CapsuleName is the object of the commit's capsule; false for an abort.
func (s *Stands) CapsuleName() (CapsuleName, bool) {
	if s.Outcome.Capsule == nil {
		return CapsuleName{}, false
	}
	return CapsuleName{Epoch: s.Outcome.Epoch, Token: s.Proof.Token, Attempt: s.Outcome.Capsule.Attempt}, true
}

// Capsule is what a deployment recovers from. Its data are the caller's.
// Invariants, checked by Valid: v, epoch, checkpoint, deployment and fence are set
// and within bounds.
type Capsule struct {
	V int `json:"v"`
	Attempt
	Deployment string            `json:"deployment"`
	Fence      *assignment.Fence `json:"fence"`
	Data       []byte            `json:"data,omitempty"`
}

// Valid checks the invariants.
func (c *Capsule) Valid() error {
	o := Outcome{V: c.V, Verdict: Abort, Attempt: c.Attempt, Deployment: c.Deployment, Fence: c.Fence}
	return o.Valid()
}

// Encode returns the capsule's canonical bytes.
func (c *Capsule) Encode() ([]byte, error) { return record.Encode(c, authority.MaxBlob) }

// DecodeCapsule reads a capsule strictly (ST7).
func DecodeCapsule(key string, body []byte) (*Capsule, error) {
	var c Capsule
	if err := record.Decode(key, body, &c); err != nil {
		return nil, err
	}
	return &c, nil
}

// NewCommit is the outcome that commits c, whose canonical bytes are body and stand
// under attempt (see [CapsuleName]).
func NewCommit(c *Capsule, attempt string, body []byte) *Outcome {
	b := authority.NewBlob(attempt, body)
	return &Outcome{V: record.Level, Verdict: Commit, Attempt: c.Attempt, Deployment: c.Deployment, Fence: c.Fence, Capsule: &b}
}

// NewAbort is the outcome that aborts an attempt.
func NewAbort(a Attempt, deployment string, fence *assignment.Fence) *Outcome {
	return &Outcome{V: record.Level, Verdict: Abort, Attempt: a, Deployment: deployment, Fence: fence}
}

// Load reads the capsule that the commit s names: the bytes must be the ones that
// were committed, and of the same attempt, deployment and assignment. Anything else
// is ErrCorrupt; an abort is ErrInvalid.
func (s *Stands) Load(key string, body []byte) (*Capsule, error) {
	o := s.Outcome
	if o.Capsule == nil {
		return nil, store.Errorf(store.ErrInvalid, "", "load a capsule", key, "epoch %d was aborted", o.Epoch)
	}
	if err := o.Capsule.Verify(key, body); err != nil {
		return nil, err
	}
	c, err := DecodeCapsule(key, body)
	if err != nil {
		return nil, err
	}
	if c.Attempt != o.Attempt || c.Deployment != o.Deployment || c.Fence.State() != o.Fence.State() {
		return nil, store.Errorf(store.ErrCorrupt, "", "load a capsule", key, "the capsule is not of the commit of epoch %d", o.Epoch)
	}
	return c, nil
}
