package balance

import (
	"fmt"
	"strconv"
	"time"
)

// Slots is how many routing slots there are (SL1).
const Slots = 16384

// What an input may hold at most. The bounds keep every comparison of loads exact in
// 64-bit integers.
const (
	// MaxHosts is how many hosts a plan may have.
	MaxHosts = 4096
	// MaxWeight is the heaviest host.
	MaxWeight = 1 << 16
	// MaxLoad is the load of the busiest shard.
	MaxLoad = 1 << 20
)

// Range is the slots A to B, both included.
type Range struct {
	A uint16 `json:"a"`
	B uint16 `json:"b"`
}

// Size is how many slots r has.
func (r Range) Size() int { return int(r.B) - int(r.A) + 1 }

// String is "A-B", or "A" for one slot.
func (r Range) String() string {
	if r.A == r.B {
		return strconv.Itoa(int(r.A))
	}
	return fmt.Sprintf("%d-%d", r.A, r.B)
}

// Host is one host as it announces itself, and what the leader saw of it.
type Host struct {
	// ID is the owner name, which outlives restarts.
	ID string
	// Incarnation tells one run of the host from the next. Another one means that the
	// host was away, even if nobody saw it go.
	Incarnation string
	// Weight is its part of the whole beside the other hosts' weights, 0 to MaxWeight.
	// A host of weight 0 takes nothing, and what it has leaves it by and by.
	Weight int
	// Capacity is the most shards it may have; 0 is no limit.
	Capacity int
	// Leaving: it drains, and gives everything away.
	Leaving bool
	// Alive: its presence is valid. A host that is not alive may be left out.
	Alive bool
	// Since is when the leader first saw this presence, on the clock of Input.Now.
	Since time.Duration
}

// Shard is one fixed range, who has it, and who should have.
type Shard struct {
	Range Range
	// Load is what it weighs, 1 to MaxLoad; 0 stands for the number of its slots.
	Load int64
	// Owner is the host in the range's row; "" is none.
	Owner string
	// Held: the row is live. A lapsed or released row is not.
	Held bool
	// Pin is the host that should have this shard whatever the weights say; "" is none.
	Pin string
	// Target is what the last published plan says; "" is nothing yet.
	Target string
}

// Config is how far and how fast a plan may go. In every number, zero stands for the
// default.
type Config struct {
	// MaxMoves is how many hand-overs may be under way at the same time. Default
	// DefaultMaxMoves; below zero no shard leaves a live owner.
	MaxMoves int
	// Settle is how long a new or returned host must have been there before a shard is
	// moved to it. Ownerless shards it may get at once. Default DefaultSettle; below
	// zero nobody waits.
	Settle time.Duration
	// Slack is the part of a host's share by which its load may differ before anything
	// moves for balance; less than one shard is always left alone. Default
	// DefaultSlack; below zero there is no slack.
	Slack float64
	// Window and Burst: in any span of Window at most Burst moves for balance begin.
	// Defaults DefaultWindow and DefaultBurst; a Burst below zero turns balance off.
	Window time.Duration
	Burst  int
	// HardPins: a shard whose pin cannot be kept goes to nobody else. Without it a pin
	// that cannot be kept waits, and the shard is served by the others meanwhile.
	HardPins bool
}

// The defaults of Config.
const (
	DefaultMaxMoves = 8
	DefaultSettle   = time.Minute
	DefaultSlack    = 0.10
	DefaultWindow   = time.Minute
	DefaultBurst    = 64
)

func (c Config) withDefaults() Config {
	c.MaxMoves = defaulted(c.MaxMoves, DefaultMaxMoves)
	c.Settle = defaulted(c.Settle, DefaultSettle)
	c.Slack = defaulted(c.Slack, DefaultSlack)
	c.Window = defaulted(c.Window, DefaultWindow)
	c.Burst = defaulted(c.Burst, DefaultBurst)
	return c
}

func defaulted[T int | time.Duration | float64](v, def T) T {
	if v == 0 {
		return def
	}
	return max(v, 0)
}

// Input is everything that a plan rests on.
type Input struct {
	// Now is the leader's clock: any monotonic one, also that of Host.Since and State.
	Now    time.Duration
	Hosts  []Host
	Shards []Shard
	Config Config
	// State is that of the plan before; the zero State for a new leader.
	State State
}

// Reason is why a shard's target is what it is.
type Reason uint8

// The reasons.
const (
	// Keep: nothing changes.
	Keep Reason = iota
	// Ownerless: no live host holds the shard.
	Ownerless
	// Pin: an operator wants it there.
	Pin
	// Leaving: its host drains.
	Leaving
	// Capacity: its host has more shards than it may.
	Capacity
	// Balance: its host has more than its share, or another less. These are the
	// voluntary moves, which Window and Burst limit.
	Balance
	// Returned: a move was called off, and the shard stays with the live host that
	// holds it.
	Returned
	// Unplaced: nobody may have it: no host takes shards, none has room, or its hard
	// pin is not there.
	Unplaced
)

var reasonNames = [...]string{"keep", "ownerless", "pin", "leaving", "capacity", "balance", "returned", "unplaced"}

// String is the reason in one word.
func (r Reason) String() string {
	if int(r) < len(reasonNames) {
		return reasonNames[r]
	}
	return "reason " + strconv.Itoa(int(r))
}

// MarshalText writes the word.
func (r Reason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads the word.
func (r *Reason) UnmarshalText(b []byte) error {
	for i, n := range reasonNames {
		if n == string(b) {
			*r = Reason(i)
			return nil
		}
	}
	return invalid("reason", "%q is no reason", b)
}

// limited: a move for this reason takes a shard from a host that could serve it, so
// MaxMoves counts it.
func (r Reason) limited() bool { return r == Pin || r == Leaving || r == Capacity || r == Balance }

// Wait is what holds back a wanted move.
type Wait uint8

// What a wanted move may wait for.
const (
	// NoWait: it is under way, or there is none.
	NoWait Wait = iota
	// InFlight: MaxMoves hand-overs are under way.
	InFlight
	// Window: Burst moves for balance began within the window.
	Window
	// Room: the host is full until another shard has left it.
	Room
)

var waitNames = [...]string{"", "in flight", "window", "room"}

// String says what is waited for; "" for nothing.
func (w Wait) String() string {
	if int(w) < len(waitNames) {
		return waitNames[w]
	}
	return "wait " + strconv.Itoa(int(w))
}

// MarshalText writes the words.
func (w Wait) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// UnmarshalText reads the words.
func (w *Wait) UnmarshalText(b []byte) error {
	for i, n := range waitNames {
		if n == string(b) {
			*w = Wait(i)
			return nil
		}
	}
	return invalid("wait", "%q is nothing to wait for", b)
}
