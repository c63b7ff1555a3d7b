package ledger

import (
	"github.com/tenure-project/tenure/store"
)

// Policy says what is done about an unknown run (EX4).
type Policy string

// The policies.
const (
	// Hold leaves it to a person. The run is not repeated.
	Hold Policy = "hold"
	// Probe asks a command whether the effect happened.
	Probe Policy = "probe"
	// Retry abandons the attempt and starts the next one: the effect may come twice.
	Retry Policy = "retry"
)

// ParsePolicy reads a policy; anything else is ErrInvalid.
func ParsePolicy(s string) (Policy, error) {
	switch p := Policy(s); p {
	case Hold, Probe, Retry:
		return p, nil
	}
	return "", store.Errorf(store.ErrInvalid, "", "parse policy", "", "%q: a policy is hold, probe or retry", s)
}

// Finding is what a probe said of an attempt.
type Finding int

// The findings.
const (
	// NotAsked: no probe ran yet.
	NotAsked Finding = iota
	// Happened: the effect is there.
	Happened
	// DidNotHappen: it is not there, and will not come.
	DidNotHappen
	// CannotSay: hold it.
	CannotSay
)

// Step is what to do about an unknown run.
type Step int

// The steps.
const (
	// StepWait: its holder may be at it. Look again after it ended or lapsed.
	StepWait Step = iota
	// StepHold: stop, and tell a person.
	StepHold
	// StepProbe: run the probe, then ask again with its finding.
	StepProbe
	// StepSettle: write the outcome (Head.Settle), then look again.
	StepSettle
	// StepRetry: Found.Retry.
	StepRetry
)

// Next is what the policy does about d, whose answer is Unknown. over says that the
// attempt's holder can no longer be at it by any right (Over, or a foreign site
// that was vouched for). by is who settles.
func (p Policy) Next(d Decision, over bool, f Finding, by string) (Step, Outcome) {
	switch {
	case !over && d.Running:
		return StepWait, Outcome{}
	case !over || p == Hold:
		return StepHold, Outcome{}
	case p == Retry:
		return StepRetry, Outcome{}
	case f == NotAsked:
		return StepProbe, Outcome{}
	case f == Happened:
		return StepSettle, Outcome{Key: d.Open.Key, Status: Committed, By: by}
	case f == DidNotHappen:
		return StepSettle, Outcome{Key: d.Open.Key, Status: Failed, NotStarted: true, By: by}
	}
	return StepHold, Outcome{}
}

// Over reports whether the holder of an open attempt has lost its right to be at
// it: a later epoch was raised at its site, or the lease, read after h, names
// another holder or none. A lease that lapsed still names its holder and proves
// nothing. For an attempt of another site the answer is always no: its lease is not
// here.
func Over(h *Head, o Open, l Lease) bool {
	return o.Site == h.Site && (o.Epoch < h.Epoch || l.Epoch != o.Epoch || l.Holder != o.Holder)
}

// Exceeded reports whether an attempt is past its own time limit, by the clock that
// wrote it: for people, never for decisions.
func (o Open) Exceeded(nowMS int64) bool { return o.Until != 0 && nowMS >= o.Until }
