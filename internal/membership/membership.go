// Package membership is the shell of process identity: it reads, writes, waits
// and renews as package identity decides. One process owns the name of its node
// at a time, and whoever wants to know that one exact start of it is over learns
// it from the store alone.
package membership

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/tenure-project/tenure/internal/clock"
	"github.com/tenure-project/tenure/internal/core/identity"
	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/internal/settle"
	"github.com/tenure-project/tenure/store"
)

// Config is what the identities of one namespace need from their owner. All
// functions must be safe for concurrent use.
type Config struct {
	// Store keeps the records.
	Store store.Store
	// Namespace is where the identities live.
	Namespace string
	// Clock is all that is known of time.
	Clock clock.Clock
	// Rand gives numbers in [0,1) for jitter.
	Rand func() float64
	// NewID makes fresh ids.
	NewID func() string
	// Log receives what a person should know later; nil discards it.
	Log *slog.Logger
	// Timing is complete (its Defaults applied). Attempt limits every store call,
	// Rho stretches every observation, TTL bounds whatever has no bound of its own.
	Timing lease.Timing
	// Poll is how often a waiter looks where the store cannot watch; 0 is TTL/15.
	Poll time.Duration
	// Floor reads the namespace's floor now (LS12).
	Floor func(ctx context.Context) (uint64, error)
	// Seen begins a read of node's head. The func that it returns is told the
	// counter found (0: absent) and returns an error if that is below what was seen
	// when the read began (LS12). May be nil.
	Seen func(node string) func(counter uint64) error
	// Recall returns the boot-clock instant from which exactly these bytes were
	// seen under name, kept across short commands (LS2). May be nil.
	Recall func(name string, body []byte) (from time.Duration, ok bool)
	// Remember keeps that instant. May be nil.
	Remember func(name string, body []byte, from time.Duration)
	// Background runs f in a goroutine that the owner waits for when it closes; f's
	// context ends then. Once the owner is closed it may do nothing.
	Background func(f func(ctx context.Context))
	// TreeEmpty reports whether a control group holds no process (LS14). May be nil.
	TreeEmpty func(cgroup string) (bool, error)
	// StoreClock reads the store's own clock; nil unless the namespace uses it (LS3).
	StoreClock func(ctx context.Context) (instance string, now time.Time, err error)
	// PruneEvery is the pause between two runs of a member's pruner (PL5); 0 is one
	// hour, negative is never.
	PruneEvery time.Duration
	// Retention is how old a certificate must be before a member's pruner folds it
	// into the head (PL5); 0 is 30 days.
	Retention time.Duration
}

// Identities are the process identities of one namespace. It is safe for
// concurrent use.
type Identities struct {
	cfg Config

	mu       sync.Mutex // guards what follows, and is not held over calls of others
	observed *bounded[string, identity.Observation]
	over     *bounded[start, time.Duration] // when a start was first seen to be over
	evidence *bounded[start, *Evidence]
	cursors  *bounded[string, string] // where the next batch of a node's pruning begins
	vigils   map[start]*vigil
}

// start names one process start of one node.
type start struct {
	node  string
	owner identity.Owner
}

// remembered bounds each thing that is remembered of nodes and starts.
const remembered = 4096

// New returns the identities of one namespace. It does no I/O and starts nothing.
func New(cfg Config) *Identities {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Seen == nil {
		cfg.Seen = func(string) func(uint64) error { return func(uint64) error { return nil } }
	}
	if cfg.Poll == 0 {
		cfg.Poll = cfg.Timing.TTL / 15
	}
	if cfg.PruneEvery == 0 {
		cfg.PruneEvery = time.Hour
	}
	if cfg.Retention == 0 {
		cfg.Retention = 30 * 24 * time.Hour
	}
	return &Identities{
		cfg: cfg, vigils: map[start]*vigil{},
		observed: newBounded[string, identity.Observation](remembered), over: newBounded[start, time.Duration](remembered),
		evidence: newBounded[start, *Evidence](remembered), cursors: newBounded[string, string](remembered),
	}
}

func (i *Identities) recordKey(node string) string {
	return store.Key(i.cfg.Namespace, "identity", node)
}

// certificates is the prefix of the keys of node's certificates.
func (i *Identities) certificates(node string) string {
	return store.Key(i.cfg.Namespace, "certificate", node) + "/"
}

func (i *Identities) nowMS() int64 { return i.cfg.Clock.Read().Wall.Milliseconds() }

func (i *Identities) identityOfStore() string { return i.cfg.Store.Info().Identity }

// limit bounds one store call.
func (i *Identities) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	return settle.Limit(ctx, i.cfg.Clock, i.cfg.Timing.Attempt)
}

func (i *Identities) pace() settle.Pace { return i.paceOf(i.cfg.Timing) }

func (i *Identities) paceOf(t lease.Timing) settle.Pace {
	return settle.Pace{Clock: i.cfg.Clock, Attempt: t.Attempt, Backoff: max(t.Attempt/16, time.Millisecond), Rand: i.cfg.Rand}
}

// pause waits about d, jittered, and reports whether ctx still lives.
func (i *Identities) pause(ctx context.Context, d time.Duration) bool {
	return clock.Sleep(i.cfg.Clock, d/2+time.Duration(i.cfg.Rand()*float64(d)), ctx.Done())
}

// bounded is a map that forgets its oldest entry where it would grow beyond its
// bound.
type bounded[K comparable, V any] struct {
	most  int
	byKey map[K]V
	order []K // of insertion; a ring once it is full
	next  int // where the ring's oldest entry is
}

func newBounded[K comparable, V any](most int) *bounded[K, V] {
	return &bounded[K, V]{most: most, byKey: map[K]V{}}
}

func (b *bounded[K, V]) get(k K) (V, bool) {
	v, ok := b.byKey[k]
	return v, ok
}

// atLeast makes room for most entries. It never shrinks.
func (b *bounded[K, V]) atLeast(most int) { b.most = max(b.most, most) }

func (b *bounded[K, V]) put(k K, v V) {
	if _, known := b.byKey[k]; !known {
		if len(b.order) < b.most {
			b.order = append(b.order, k)
		} else {
			delete(b.byKey, b.order[b.next])
			b.order[b.next] = k
			b.next = (b.next + 1) % b.most
		}
	}
	b.byKey[k] = v
}
