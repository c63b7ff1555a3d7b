package world

import (
	"time"

	"github.com/tenure-project/tenure/ledger"
	"github.com/tenure-project/tenure/store"
)

// Guarded is how well the thing that jobs act on is guarded.
type Guarded int

// The guards.
const (
	// Unguarded takes everything.
	Unguarded Guarded = iota
	// Fenced refuses an older epoch, and knows nothing of runs.
	Fenced
	// Full refuses an older epoch, and keeps the run's id with the effect: a second one
	// of a run changes nothing.
	Full
)

// JobNames are the jobs.
func (p Plan) JobNames() []string { return []string{"backup", "mail", "report"}[:p.Jobs] }

// jobLeases are the leases of the jobs.
func (p Plan) jobLeases() (names []string) {
	for _, job := range p.JobNames() {
		names = append(names, ledger.LeaseName(job))
	}
	return names
}

// NewLedgerPlan draws from a seed the plan of a world whose processes all have the same
// schedules, by wall clocks that nobody sets, and run every occurrence through a ledger.
func NewLedgerPlan(seed uint64) Plan {
	r := dice(seed, "ledger plan")
	p := NewPlan(seed)
	p.Slots = 3 + r.IntN(3)
	p.Jobs = 1 + r.IntN(2)
	p.Leases, p.Nodes, p.Outage = 0, 0, false
	p.Unknown = []ledger.Policy{ledger.Retry, ledger.Retry, ledger.Hold, ledger.Probe}[r.IntN(4)]
	p.Guard = Guarded(r.IntN(3))
	p.Interval = max(p.TTL/2+about(r, p.TTL), ledgerLeast).Truncate(time.Millisecond)
	p.Merges = chance(r, 0.4)
	if p.Calm {
		p.Latency = min(p.Latency, p.TTL/100)
	}
	return p
}

// ledgerLeast is the shortest interval of a schedule.
const ledgerLeast = 100 * time.Millisecond

// foreign is the site that is merged now and then.
const foreign = "lyon"

// mayStay reports whether what nobody knows may stay so: then a person must settle it.
func (p Plan) mayStay() bool {
	return p.Unknown == ledger.Hold || p.Unknown == ledger.Probe && p.Guard == Unguarded
}

// ofLedger reports whether key is of a ledger's head.
func ofLedger(key string) bool {
	return len(key) > len(headPrefix) && key[:len(headPrefix)] == headPrefix
}

var headPrefix = store.Prefix(Namespace, "ledger")
