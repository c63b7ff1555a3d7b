package faultstore

import (
	"slices"
	"time"

	"github.com/tenure-project/tenure/store"
)

// Chaos is a bad day of the network: errors, lost requests and replies, late
// landings, duplicates, delays and hangs, and no fault that breaks the
// contract of package store. intensity runs from 0 (nothing) to 1 (about every
// second call meets something). Late landings arrive within longest.
func Chaos(seed uint64, intensity float64, longest time.Duration) Options {
	odds := func(p float64) float64 { return min(p*intensity, 1) }
	if intensity <= 0 {
		return Options{Seed: seed}
	}
	return Options{Seed: seed, Rules: []Rule{
		{Odds: odds(0.20), Fault: Delay(0, longest/20)},
		{Odds: odds(0.10), Fault: DelayReply(0, longest/20)},
		{Odds: odds(0.02), Fault: Hang()},
		{Odds: odds(0.02), Fault: HangApplied()},
		{Odds: odds(0.06), Fault: Fail(store.ErrUnavailable)},
		{Odds: odds(0.05), Fault: LoseReply()},
		{Odds: odds(0.03), Fault: LoseRequest()},
		{Odds: odds(0.04), Fault: LandLate(0, longest)},
		// A second Create or Delete could take effect after the key's state came
		// back to what it was, which no store with one copy of each request does.
		{Odds: odds(0.03), Ops: []Op{OpReplace, OpDeleteIf}, Fault: Duplicate(0, longest)},
		{Odds: odds(0.05), Ops: []Op{OpList}, Fault: BreakList(3)},
		{Odds: odds(0.03), Ops: []Op{OpCommit}, Match: onlyOnce, Fault: Duplicate(0, longest)},
	}}
}

// onlyOnce reports whether a commit changes a version, which never comes back:
// then a second copy of it is refused.
func onlyOnce(c Call) bool {
	return slices.ContainsFunc(c.Changes, func(c store.Change) bool { return c.Do != store.Keep && c.Over != "" })
}
