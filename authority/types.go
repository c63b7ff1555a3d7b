package authority

import (
	"time"

	tenure "github.com/tenure-project/tenure"
	core "github.com/tenure-project/tenure/internal/core/authority"
)

// The chains of an authority, in the order in which they are walked.
const (
	Checkpoint = core.Checkpoint // CK
	Assignment = core.Assignment // AS
	Recovery   = core.Recovery   // RF: releases
	Catalog    = core.Catalog    // CT
)

// Chains are the names of all chains.
func Chains() []string { return core.ChainNames() }

// Rules are the rules of one chain: what a decision's bytes mean, and when it may
// stand. The packages below this one implement them, and no program does: the methods
// of this interface have internal types.
type Rules = core.Rules

// Answer is what became of a decision (LA4).
//
//	func (a Answer) String() string // "created", "unchanged" and so on
type Answer = core.Answer

// The answers of Append. Conflict and Fenced mean: certainly not admitted.
const (
	// Created: the decision stands, by an attempt of this call.
	Created = core.Created
	// Unchanged: an identical decision stands already.
	Unchanged = core.Unchanged
	// Conflict: the winner stands in its place.
	Conflict = core.Conflict
	// BelowFloor: it is older than what the chain keeps: not known.
	BelowFloor = core.BelowFloor
	// Fenced: its proof leads no more.
	Fenced = core.Fenced
)

// Result is what became of one decision.
type Result struct {
	// Answer is Created, Unchanged, Conflict, BelowFloor or Fenced.
	Answer Answer
	// Winner links the entry that stands: for Created, Unchanged and Conflict.
	Winner Link
	// Sequence and Token are the head's from which the answer was found.
	Sequence uint64
	// Token is the head's present or last leader's.
	Token uint64
}

// Stands reports whether the decision stands: Created or Unchanged.
func (r Result) Stands() bool { return r.Answer == Created || r.Answer == Unchanged }

// Link names one entry of a chain and pins its bytes (LA5). Links are equal (==) if
// they link the same bytes.
//
//	Sequence uint64 // the head's at which the entry was admitted
//	Token    uint64 // of the leader that wrote it
//	Attempt  string // a fresh id: token and attempt name the object
//	Key      uint64 // what it is unique by in its chain: epoch, version, generation
//	ID       uint64 // a second number that rises with the key: the checkpoint id; else 0
//	Digest   string // of the entry's bytes, 64 hex digits
type Link = core.Link

// Entry is one decision that stands, verified: its bytes are the linked ones, in
// their strict form, and its body is read by its chain's rules (LA4, LA5).
type Entry struct {
	// Chain is the chain's name.
	Chain string
	// Link names the entry.
	Link Link
	// Proof is the leadership that decided.
	Proof tenure.Proof
	// Marked entries form a chain within their chain: commits among checkpoints.
	Marked bool
	// At is when it was decided, by the leader's wall clock.
	At time.Time
	// Body are the decision's canonical bytes.
	Body []byte
	// Value is the decoded decision, of the type that the chain's rules define.
	Value any
}

// Leadership is one past leadership, as the head remembers it.
type Leadership struct {
	// Proof named it.
	Proof tenure.Proof
	// First is the sequence at which it began, Last the last one at which it stood.
	First uint64
	// Last is the last sequence at which it stood.
	Last uint64
	// Since and Until are wall-clock times of those who wrote them.
	Since time.Time
	// Until is when it ended.
	Until time.Time
	// How is released, observed, proven, store-clock, forced or vouched.
	How string
	// Why and By are the operator's, for an end by force.
	Why string
	// By is who ended it.
	By string
}

// ChainStatus is what the head says of one chain.
type ChainStatus struct {
	// Name is the chain's.
	Name string
	// Head is the newest entry.
	Head Link
	// Live counts the entries at or above Floor.
	Live uint64
	// Floor is the lowest key that is kept, but for marked entries; 0 where all are.
	Floor uint64
	// Anchor is the newest entry below the floor; nil without a floor.
	Anchor *Link
	// Mark is the newest marked entry; nil if there is none.
	Mark *Link
	// Marks counts the marked entries at or above Horizon.
	Marks uint64
	// Horizon is the lowest key of a marked entry that is kept.
	Horizon uint64
	// Binding is what every entry names, empty where the chain has none.
	Binding string
	// State is what the newest entry left behind, empty where the chain has none.
	State string
}

// Fault is the newest fault report of one node (RF).
type Fault struct {
	// Proof names the process start that reported it; its token is 0.
	Proof tenure.Proof
	// Request counts the reports of that start.
	Request uint64
	// Sequence is the head's at which it was made.
	Sequence uint64
	// Active is false once a release cleared it.
	Active bool
}

// Round is a recovery round that was begun and not released (RF).
type Round struct {
	// Generation rises with every round.
	Generation uint64
	// ID is fresh for every round.
	ID string
	// Proof is the leadership that began it.
	Proof tenure.Proof
	// Revision is the fault inventory's that it froze.
	Revision uint64
	// Began is the head's sequence.
	Began uint64
	// Plan is the digest of what it is to do.
	Plan string
}
