// Package store is the contract between Tenure and the place that keeps its
// records: a small set of linearizable conditional writes.
//
// A driver implements [Store] and, where its backend can, the optional powers
// ([ConditionalDeleter], [Watcher], [Clocker], [Queuer], [Prover],
// [Committer]). It declares each power in [Info]; callers ask through the As...
// functions and never type assert, so that a wrapper can pass powers on or take
// them away.
//
// A new driver is proven by one call to the suite in package storetest, and
// abused through package faultstore.
//
// # What a driver owes
//
//   - Create has one winner among any number of racers; Replace changes a key
//     only from the exact version named. Both are linearizable, and Get sees
//     every write that was acknowledged before it began (ST1, ST2, ST3).
//   - A version never comes back for a key, not even for equal bytes, not even
//     after the key was deleted and made again (ST4). A backend that cannot
//     give this sets [Info.ContentVersions].
//   - An acknowledged write is durable (ST16).
//   - A write that may have happened is [ErrUnknown] and nothing else. A driver
//     never repeats a conditional write by itself: a repeat that meets its own
//     first success would look like a loss (ST9).
//   - Every call returns soon after its context ends (ST13).
//   - There is no unconditional write.
package store

import (
	"context"
	"iter"
	"time"
)

// Version is the store's opaque mark of one state of one key. Versions are
// compared for equality only. The zero Version stands for an absent key where
// a parameter says so; no driver returns it from a successful call.
type Version string

// Object is one state of one key.
type Object struct {
	// Body is owned by the caller.
	Body []byte
	// Version marks this exact state.
	Version Version
	// Modified is when the store says it was written, by the store's own clock;
	// zero where the store keeps no such time.
	Modified time.Time
}

// Store is a flat map from keys to bodies with conditional writes. All methods
// are safe for concurrent use. Errors are *[Error] values of one of the kinds
// in errors.go.
//
// Keys are built by [Key] and hold only the characters [a-z0-9=_-] and '/'.
type Store interface {
	// Get returns the present state of key. A body longer than limit bytes is
	// ErrCorrupt, found before it is loaded. Absent is ErrNotFound, and nothing
	// else is (ST3, ST7).
	Get(ctx context.Context, key string, limit int) (Object, error)

	// Create stores body only if key is absent (ST1). The loser of a race, or a
	// caller that finds the key present, gets ErrExists.
	Create(ctx context.Context, key string, body []byte) (Version, error)

	// Replace stores body only if key is at exactly version v (ST2). Another
	// version is ErrConflict; an absent key is ErrNotFound, never a create.
	Replace(ctx context.Context, key string, body []byte, v Version) (Version, error)

	// Delete removes key; an absent key is a success (ST5). Only scratch keys
	// are deleted without a version: nothing that carries a counter is.
	Delete(ctx context.Context, key string) error

	// List yields the keys that start with prefix and are greater than after,
	// in byte order, as many as there are, fetching pages as it goes (ST6). It
	// shows every write that finished before it began. After an error it stops.
	List(ctx context.Context, prefix, after string) iter.Seq2[string, error]

	// Info says what this store is and can do. It never does I/O.
	Info() Info

	// Close frees what the driver holds. Calls in flight end; none may follow.
	Close() error
}

// Info describes an open store.
type Info struct {
	// Scheme is the URL scheme, such as "file".
	Scheme string
	// Identity names the place, the same from every process that opens it and
	// without secrets: the key for cached verdicts and remembered tokens.
	Identity string
	// Place is how this client was led to the place, such as hosts and database,
	// without secrets; "" where that is Identity. Remembered tokens are kept under
	// both: an Identity that a wiped or restored server does not keep would let its
	// loss go unnoticed (LS12).
	Place string
	// Driver is the driver's name and revision, such as "filestore/1". A change
	// of behaviour that a probe should see again changes it.
	Driver string
	// Can are the powers that this store really has.
	Can Power
	// ContentVersions says that equal bytes get an equal version (an MD5 ETag);
	// callers then put something fresh into every body. Tenure always does.
	ContentVersions bool
	// WritesPerSecond is how many writes one key takes per second; 0 means that
	// no limit below a hundred is known (ST14).
	WritesPerSecond float64
	// MaxBody is the largest body in bytes that the store accepts.
	MaxBody int
	// SingleHost says that every client must be on this one machine.
	SingleHost bool
}

// Power is a set of optional abilities.
type Power uint

// The optional abilities of a store.
const (
	// CanDeleteIf: the store implements ConditionalDeleter.
	CanDeleteIf Power = 1 << iota
	// CanWatch: the store implements Watcher.
	CanWatch
	// CanClock: the store implements Clocker.
	CanClock
	// CanQueue: the store implements Queuer.
	CanQueue
	// CanProve: the store implements Prover.
	CanProve
	// CanModTime: Object.Modified is set, by one steady clock.
	CanModTime
	// CanCommit: the store implements Committer.
	CanCommit
)

// Has reports whether all of q are in p.
func (p Power) Has(q Power) bool { return p&q == q }

// ConditionalDeleter removes a key only at one exact version.
type ConditionalDeleter interface {
	// DeleteIf removes key if it is at version v. Another version is
	// ErrConflict, an absent key ErrNotFound. It must be atomic against Replace;
	// Probe races the two before anything rests on it (LS15).
	DeleteIf(ctx context.Context, key string, v Version) error
}

// Watcher waits for a change without polling.
type Watcher interface {
	// Watch returns nil once key may be at another version than v (the zero
	// Version: once it may exist), at the latest a short while after the change.
	// It may return early for no reason, so callers read and decide. It returns
	// ErrUnavailable when watching broke; callers then poll. The watch is in
	// place before the driver compares v with the present state, so no change
	// after v was read is missed.
	Watch(ctx context.Context, key string, v Version) error
}

// Reading is an instant of the store's own clock.
type Reading struct {
	// Time is the instant.
	Time time.Time
	// Instance names the clock; readings of two instances are not comparable
	// (a fail-over to another server changes it).
	Instance string
}

// Clocker gives the store's own clock (ST12), the same that stamps
// Object.Modified.
type Clocker interface {
	// Now reads the store's clock at some instant between call and return.
	Now(ctx context.Context) (Reading, error)
}

// Queuer lets waiters for a key stand in line across processes. The line is
// advice: it says whose turn it is to try, and the conditional write decides
// (LS9). A member that is gone or stopped delays the others for a bounded time.
type Queuer interface {
	// Enqueue joins the end of the line for key.
	Enqueue(ctx context.Context, key string) (Ticket, error)
	// Waiting reports whether anybody alive stands in line for key, so that a
	// newcomer does not push in. It writes nothing and costs at most one cheap
	// read.
	Waiting(ctx context.Context, key string) (bool, error)
}

// Ticket is a place in a line. Its methods are for one goroutine.
type Ticket interface {
	// Wait returns nil when nobody alive stands before this ticket, or when
	// those before it had their chance for at least patience and did not use
	// it. Patience counts while the caller says that the key is free: it passes
	// 0 when it knows of no reason to hurry. Wait returns the context's error
	// (wrapped) when ctx ends; the place in line is kept until Leave.
	Wait(ctx context.Context, patience time.Duration) error
	// Leave gives the place up and leaves nothing behind. It is safe to call
	// more than once, and it does not block for long.
	Leave()
}

// Prover proves that a holder on the same kernel is dead (LS14): the kernel
// frees an operating-system lock when the process that took it is gone.
type Prover interface {
	// NewWitness takes a fresh lock for the calling process. It is inherited by
	// no child.
	NewWitness(ctx context.Context) (Witness, error)
	// Gone reports whether the process that made the witness is proven gone:
	// the very file exists, on this boot, and its lock is free; or mark is of an
	// earlier boot of this kernel on a local disk. A missing or other file
	// proves nothing: (false, nil).
	Gone(ctx context.Context, mark Mark) (bool, error)
	// WatchGone returns nil as soon as Gone may have become true, or ctx's
	// error. It may return early for no reason.
	WatchGone(ctx context.Context, mark Mark) error
}

// Mark names a witness in a record.
type Mark struct {
	// Boot is the kernel's boot id.
	Boot string `json:"boot"`
	// Dev and Inode name the lock file.
	Dev   uint64 `json:"dev"`
	Inode uint64 `json:"inode"`
}

// Witness is a held lock whose freedom proves that its process is gone.
type Witness interface {
	// Mark is what a record says of this witness.
	Mark() Mark
	// Close frees the lock and removes its file.
	Close() error
}

// AsConditionalDeleter returns s's conditional delete, if it declares one.
func AsConditionalDeleter(s Store) (ConditionalDeleter, bool) {
	return as[ConditionalDeleter](s, CanDeleteIf)
}

// AsWatcher returns s's watch, if it declares one.
func AsWatcher(s Store) (Watcher, bool) { return as[Watcher](s, CanWatch) }

// AsClocker returns s's clock, if it declares one.
func AsClocker(s Store) (Clocker, bool) { return as[Clocker](s, CanClock) }

// AsQueuer returns s's waiting line, if it declares one.
func AsQueuer(s Store) (Queuer, bool) { return as[Queuer](s, CanQueue) }

// AsProver returns s's proof of death, if it declares one.
func AsProver(s Store) (Prover, bool) { return as[Prover](s, CanProve) }

// AsCommitter returns s's transactions over several keys, if it declares them.
func AsCommitter(s Store) (Committer, bool) { return as[Committer](s, CanCommit) }

func as[T any](s Store, p Power) (T, bool) {
	var none T
	if !s.Info().Can.Has(p) {
		return none, false
	}
	t, ok := s.(T)
	return t, ok
}
