package faultstore

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tenure-project/tenure/store"
)

// Rule picks the calls that meet a fault. Its conditions are joined by "and".
type Rule struct {
	// Ops are the operations concerned; none means all that the fault can
	// apply to.
	Ops []Op
	// Key is the one key concerned; empty means all. A commit is concerned if one
	// of its changes is, and a scan if the key is in its range.
	Key string
	// Match, if set, decides further. It must be quick and call no store.
	Match func(Call) bool
	// Skip lets that many matching calls pass first.
	Skip int
	// Every makes only each Every-th of the remaining matching calls meet the
	// fault, the first of them included; 0 and 1 mean each.
	Every int
	// Odds is the chance, by the seed, that a call meets the fault; 0 means 1.
	Odds float64
	// Times is how often the rule fires at most; 0 means no bound.
	Times int
	// Fault is what becomes of the calls picked.
	Fault Fault
}

// Call is what a rule sees of a call. Body must not be changed.
type Call struct {
	Op      Op
	Key     string
	Body    []byte
	Version store.Version
	// Changes are those of a commit, whose first one gives Key.
	Changes []store.Change
	// Scan is the range of a scan, whose lower bound is Key.
	Scan store.ScanRange
}

// concerns reports whether the call is about key.
func (c Call) concerns(key string) bool {
	switch c.Op {
	case OpCommit:
		return slices.ContainsFunc(c.Changes, func(ch store.Change) bool { return ch.Key == key })
	case OpScan:
		return within(key, c.Scan)
	}
	return c.Key == key
}

// rule is a Rule with its counters, which the Store's mu guards.
type rule struct {
	Rule
	matched, fired int
}

// fires decides and counts.
func (r *rule) fires(c Call, chance float64) bool {
	switch {
	case len(r.Ops) > 0 && !slices.Contains(r.Ops, c.Op),
		!r.Fault.applies(c.Op),
		r.Key != "" && !c.concerns(r.Key),
		r.Match != nil && !r.Match(c):
		return false
	}
	r.matched++
	n := r.matched - r.Skip
	if n <= 0 || r.Every > 1 && (n-1)%r.Every != 0 || r.Times > 0 && r.fired >= r.Times {
		return false
	}
	if r.Odds > 0 && chance >= r.Odds {
		return false
	}
	r.fired++
	return true
}

// check says what is wrong with a rule; nil if nothing is.
func (r Rule) check() error {
	switch {
	case r.Fault.applies == nil:
		return fmt.Errorf("it has no fault")
	case r.Odds < 0 || r.Odds > 1:
		return fmt.Errorf("its odds are %v, want 0 to 1", r.Odds)
	case r.Skip < 0 || r.Every < 0 || r.Times < 0:
		return fmt.Errorf("a count is negative")
	}
	for _, op := range r.Ops {
		if !r.Fault.applies(op) {
			return fmt.Errorf("the fault %q does not apply to %q", r.Fault.name, op)
		}
	}
	return nil
}

// Add appends rules. It panics if one makes no sense.
func (s *Store) Add(rules ...Rule) {
	for i, r := range rules {
		if err := r.check(); err != nil {
			panic(fmt.Sprintf("faultstore: rule number %d: %v", i, err))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range rules {
		s.rules = append(s.rules, &rule{Rule: r})
	}
}

// Clear removes all rules. Calls that have met a fault already are not helped.
func (s *Store) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = nil
}

// roll is the chance of one call. It depends on the seed and the call, and not
// on what other calls there were.
type roll struct{ a, b uint64 }

func newRoll(seed uint64, id opKey, number int) roll {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s\x00%s\x00%d", id.op, id.key, number)
	return roll{seed, h.Sum64()}
}

// of is the chance that decides about rule number i, in [0, 1).
func (r roll) of(i int) float64 { return r.source(uint64(i)).Float64() }

// source is a random source of this call for one purpose.
func (r roll) source(purpose uint64) *rand.Rand {
	return rand.New(rand.NewPCG(r.a, r.b^(purpose+1)*0x9e3779b97f4a7c15))
}

// between draws a duration from least to most.
func (r roll) between(purpose uint64, least, most time.Duration) time.Duration {
	if most <= least {
		return least
	}
	return least + time.Duration(r.source(purpose).Int64N(int64(most-least)+1))
}

// Purposes of a roll beside the rules, which count from 0.
const (
	forDelay uint64 = 1<<32 + iota
	forReply
	forLanding
	forDamage
)
