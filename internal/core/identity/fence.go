package identity

import (
	"time"

	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/store"
)

// Step is what FenceIncarnation does next (PL6).
type Step int

// The steps of a fence.
const (
	// MissingEvidence: neither the head nor what is sealed tells of the
	// incarnation.
	MissingEvidence Step = iota
	// AlreadyOver: a successor won; its certificate is the answer.
	AlreadyOver
	// TakeReleased: the name is free at once; take it over with a revoker.
	TakeReleased
	// ObserveThenTake: observe this very state for Wait, then take it over with a
	// revoker.
	ObserveThenTake
	// Changed: the incarnation renewed while it was observed: it lives.
	Changed
	// ReadAgain: the certificate is newer than the head that was given.
	ReadAgain
)

// Plan is the next step of a fence.
type Plan struct {
	Step Step
	// Wait is the observation of ObserveThenTake, and what the evidence of
	// AlreadyOver must wait before it proves a death (LS11).
	Wait time.Duration
	// Certificate is the answer of AlreadyOver.
	Certificate *Certificate
	// Seal is what must stand under both names before the next step (PL4); nil for
	// nothing.
	Seal *Certificate
}

// Need is how much time a fence takes from here: the stretched observation and io
// for the store's calls. A deadline that does not cover it is refused before
// anything happens (PL6).
func (p Plan) Need(rho float64, io time.Duration) time.Duration {
	if p.Step == ObserveThenTake {
		return lease.Stretch(p.Wait, rho) + io
	}
	return io
}

// PlanFence says how to make durable that target is over (PL6). head is a
// linearizable read of its node's record, sealed what stands under its
// predecessor name (nil if nothing), seen the observation that the caller began
// with, zero at first.
func PlanFence(target string, head *Record, sealed *Certificate, seen Observation) (Plan, error) {
	if head == nil {
		return Plan{Step: MissingEvidence}, nil
	}
	v, err := Judge(Owner{Incarnation: target}, head, sealed)
	if err != nil {
		return Plan{}, err
	}
	plan := Plan{Seal: head.Certificate}
	switch {
	case v.State == Behind:
		return Plan{Step: ReadAgain}, nil
	case v.State == Missing:
		return Plan{Step: MissingEvidence}, nil
	case v.Certificate != nil:
		plan.Step, plan.Wait, plan.Certificate = AlreadyOver, v.Wait, v.Certificate
		return plan, nil
	case v.State == Current && seen.Incarnation == target && seen.Sequence != head.Sequence:
		return Plan{Step: Changed}, nil
	}
	d, possible := head.Wait()
	if !possible {
		return Plan{}, store.Errorf(store.ErrInvalid, "", "fence", head.Node, "the counter is at its end, %d", head.Counter)
	}
	plan.Step, plan.Wait = TakeReleased, d
	if d > 0 {
		plan.Step = ObserveThenTake
	}
	return plan, nil
}
