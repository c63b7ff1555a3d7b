// Package checkpoint settles checkpoints through an authority's log (CK): every
// attempt is committed or aborted once, by the leader, for good.
//
// A commit carries a recovery capsule, what a deployment recovers from, and the exact
// assignment of slots that it was made under. The newest commit is found from the
// head at once. The history of outcomes compacts itself; commits and their capsules
// stay until the leader moves the horizon past them with [Client.Advance], and
// [Client.Sweep] then removes the capsules below it.
package checkpoint

import (
	tenure "github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/authority"
	"github.com/tenure-project/tenure/authority/assignment"
	coreauthority "github.com/tenure-project/tenure/internal/core/authority"
	core "github.com/tenure-project/tenure/internal/core/authority/checkpoint"
)

// Limits.
const (
	// MaxCapsule bounds an encoded capsule: every store takes an object of that size in
	// one write, and reads it within one call's limit.
	MaxCapsule = coreauthority.MaxBlob
	// MaxData bounds a capsule's data in bytes: what is left of MaxCapsule after the
	// encoding, which takes a third more, and the longest fence.
	MaxData = 5 << 20
	// CompactAt is how many outcomes are live when the next one compacts the history
	// to Kept: a walk of the history stays within 64 reads beside the commits, and a
	// process that comes late still finds the last 16 outcomes.
	CompactAt = core.CompactAt
	Kept      = core.Kept
	// SweepStep is how many capsules one step of a sweep looks at, at most: a step
	// reads each of them, and ends within a leader's few seconds.
	SweepStep = core.SweepStep
)

// Attempt is one try at a checkpoint: an epoch and a checkpoint id, both at least 1.
// Both rise from outcome to outcome. It may be compared (==).
//
//	Epoch      uint64 // numbers the attempts: the newest outcome's + 1
//	Checkpoint uint64 // the caller's own id of the checkpoint
type Attempt = core.Attempt

// Verdict is what became of an attempt.
type Verdict string

// The verdicts.
const (
	Committed Verdict = core.Commit
	Aborted   Verdict = core.Abort
)

// Capsule is what a deployment recovers from.
type Capsule struct {
	Attempt
	// Fence names the assignment that the checkpoint was made under.
	Fence *assignment.Fence
	// Data are the caller's: at most MaxData bytes.
	Data []byte
}

// Outcome settled one attempt for good.
type Outcome struct {
	Attempt
	// Verdict is Committed or Aborted.
	Verdict Verdict
	// Deployment is the id of the deployment: a wiped and rebuilt one has another.
	Deployment string
	// Fence names the assignment that it was made under.
	Fence *assignment.Fence
	// Proof is the leadership that decided.
	Proof tenure.Proof
	// Link pins the outcome's bytes.
	Link authority.Link
	// CapsuleDigest and CapsuleBytes are of a commit's encoded capsule.
	CapsuleDigest string
	CapsuleBytes  uint64

	stands *core.Stands
}

func newOutcome(s *core.Stands) *Outcome {
	if s == nil {
		return nil
	}
	o := &Outcome{
		Attempt: s.Outcome.Attempt, Verdict: Verdict(s.Outcome.Verdict), Deployment: s.Outcome.Deployment,
		Fence: s.Outcome.Fence, Proof: tenure.Proof(s.Proof), Link: s.Link, stands: s,
	}
	if c := s.Outcome.Capsule; c != nil {
		o.CapsuleDigest, o.CapsuleBytes = c.Digest, c.Length
	}
	return o
}

// Result is what became of a commit or an abort.
type Result struct {
	authority.Result
	// Outcome is the one that stands: this one for Created and Unchanged, the winner
	// for Conflict; nil for Fenced and BelowFloor, and where the winner was given up
	// meanwhile. After a Conflict its Attempt tells whether this attempt's epoch has
	// another outcome, or a later one settled it.
	Outcome *Outcome
}
