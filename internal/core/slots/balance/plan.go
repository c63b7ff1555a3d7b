package balance

import "time"

// Plan is who should have what.
type Plan struct {
	// Rows has one row per shard, in the order of their ranges.
	Rows []Row
	// Hosts has one row per host of the input, by name.
	Hosts []HostRow
	// Problems are what an operator should know.
	Problems []Problem
	// InFlight is how many shards with a live owner have another host for target, at
	// most MaxMoves.
	InFlight int
	// Voluntary is how many moves for balance begin with this plan, and Recent how many
	// began within the window, these included.
	Voluntary int
	Recent    int
	// Balancing: the slack was exceeded, and balance is not reached yet.
	Balancing bool
	// State is for the next Compute.
	State State
}

// Row is what a plan says of one shard.
type Row struct {
	Range Range `json:"range"`
	Load  int64 `json:"load"`
	// Owner is the live owner: it holds the shard and is alive; "" is none.
	Owner string `json:"owner,omitempty"`
	// Was is the target before, Target the one now; "" is none.
	Was    string `json:"was,omitempty"`
	Target string `json:"target,omitempty"`
	// Reason is why Target is not Was, and Keep if it is; Unplaced is why there is none.
	Reason Reason `json:"reason"`
	// Wanted is the target that MaxMoves, Window and Burst would have allowed without
	// limit, WantedReason why it is not Target, and Wait what holds it back.
	Wanted       string `json:"wanted,omitempty"`
	WantedReason Reason `json:"wanted_reason"`
	Wait         Wait   `json:"wait,omitempty"`
}

// Changed: the plan gives the shard another target than it had.
func (r Row) Changed() bool { return r.Target != r.Was }

// Waiting: the plan would give the shard yet another target, but for the limits.
func (r Row) Waiting() bool { return r.Wanted != r.Target }

// Moving: a live owner is to give the shard up to another host.
func (r Row) Moving() bool { return r.Owner != "" && r.Target != "" && r.Owner != r.Target }

// HostRow is what a plan says of one host. Loads are in the unit of Shard.Load.
type HostRow struct {
	ID       string `json:"id"`
	Weight   int    `json:"weight"`
	Capacity int    `json:"capacity,omitempty"`
	// Takes: it may get shards: alive, not leaving, with a weight.
	Takes bool `json:"takes"`
	// Settled: shards may be moved to it. Otherwise SettlesIn says how long that takes,
	// if it stays.
	Settled   bool          `json:"settled"`
	SettlesIn time.Duration `json:"settles_in,omitempty"`
	// Share is the load that weights, capacities and pins give it.
	Share float64 `json:"share"`
	// Holds counts the shards that it holds alive; Targets those that the plan gives it,
	// Wanted those that it would have without limits.
	Holds      int   `json:"holds"`
	HoldsLoad  int64 `json:"holds_load"`
	Targets    int   `json:"targets"`
	TargetLoad int64 `json:"target_load"`
	Wanted     int   `json:"wanted"`
	WantedLoad int64 `json:"wanted_load"`
}

// ProblemKind is what is wrong.
type ProblemKind string

// The problems.
const (
	// NoHost: no host takes shards.
	NoHost ProblemKind = "no host"
	// NoRoom: all hosts together have fewer places than there are shards.
	NoRoom ProblemKind = "no room"
	// PinAbsent: a pin names a host that is not there, leaves, or has weight 0.
	PinAbsent ProblemKind = "pin absent"
	// PinBeyondCapacity: more shards are pinned to a host than it may have.
	PinBeyondCapacity ProblemKind = "pin beyond capacity"
	// OverCapacity: a host holds more shards than it may, and cannot be rid of them yet.
	OverCapacity ProblemKind = "over capacity"
)

// Problem is one thing that an operator should know.
type Problem struct {
	Kind ProblemKind `json:"kind"`
	// Host is the host concerned; "" is none.
	Host string `json:"host,omitempty"`
	// Shards is how many shards it concerns, and First one of them.
	Shards int   `json:"shards"`
	First  Range `json:"first"`
	// Detail says it in words.
	Detail string `json:"detail"`
}

// Compute makes the next plan (SL8). It is a pure function: the same input, in whatever
// order its hosts and shards come, gives the same plan, and the input is not changed.
// It returns store.ErrInvalid for an input that cannot be meant.
func Compute(in Input) (*Plan, error) {
	p, err := newPlanner(in)
	if err != nil {
		return nil, err
	}
	p.keep()
	p.placeOwnerless()
	p.wish()
	p.admit()
	return p.plan(), nil
}
