package membership

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/tenure-project/tenure/internal/clock"
	"github.com/tenure-project/tenure/internal/core/identity"
	"github.com/tenure-project/tenure/store"
)

// The bounds of one batch of pruning. A certificate has two names.
const (
	batchDeletes = 256
	batchKeys    = 512
)

// Pruned is what one batch of Prune did.
type Pruned struct {
	// Removed counts certificates whose names were removed.
	Removed int
	// Kept counts names that stay for now, of those that the batch looked at.
	Kept int
	// More says that the batch's bounds came first: call again.
	More bool
}

// Prune folds node's certificates that are older than olderThan into the head, one
// bounded batch per call (PL5): at most 256 deletions, at most 512 names looked at;
// the next call goes on where it stopped. The local wall clock decides about space
// only: the answer of Judge for a named term stays the same. A certificate that
// cannot be read or removed is skipped, and is in the error.
func (i *Identities) Prune(ctx context.Context, node string, olderThan time.Duration) (Pruned, error) {
	if olderThan < 0 {
		return Pruned{}, store.Errorf(store.ErrInvalid, "", "prune", node, "the age is %v; give 0 or more", olderThan)
	}
	h, err := i.Read(ctx, node)
	if err != nil || h.Record == nil {
		return Pruned{}, err
	}
	b := batch{i: i, head: h.Record, before: i.nowMS() - olderThan.Milliseconds(), prefix: i.certificates(node)}
	return b.run(ctx)
}

// batch is one run of Prune.
type batch struct {
	i       *Identities
	head    *identity.Record
	before  int64 // what ended at this wall-clock instant or later stays
	prefix  string
	looked  int
	deleted int
	done    Pruned
	errs    []error
}

func (b *batch) run(ctx context.Context) (Pruned, error) {
	i, node := b.i, b.head.Node
	i.mu.Lock()
	cursor, _ := i.cursors.get(node)
	i.mu.Unlock()
	for key, err := range i.keys(ctx, b.prefix, cursor) {
		if err != nil {
			b.errs = append(b.errs, err)
			break
		}
		if b.looked == batchKeys || b.deleted+2 > batchDeletes || len(b.errs) > 0 {
			b.done.More = true
			break
		}
		cursor = key
		if err := b.visit(ctx, key); err != nil {
			b.errs = append(b.errs, err)
		}
	}
	err := errors.Join(b.errs...)
	if !b.done.More && err == nil {
		cursor = "" // from the beginning, the next time
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.cursors.put(node, cursor)
	return b.done, err
}

// visit removes the certificate that stands at key from both of its names, if it
// may be folded. The name that proves the end goes last: whoever finds the other
// may rely on it.
func (b *batch) visit(ctx context.Context, key string) error {
	b.looked++
	c, err := b.i.Certificate(ctx, b.head.Node, strings.TrimPrefix(key, b.prefix))
	if err != nil {
		return err
	}
	if c == nil { // the other name of one that went just now
		return nil
	}
	if c.At > b.before || !identity.Foldable(c, b.head) {
		b.done.Kept++
		return nil
	}
	names := c.Names()
	for _, name := range []string{names[1], names[0]} {
		b.deleted++
		call, cancel := b.i.limit(ctx)
		err := b.i.cfg.Store.Delete(call, b.prefix+name)
		cancel()
		if err != nil {
			return err
		}
	}
	b.done.Removed++
	return nil
}

// prune folds old certificates from time to time, beside the keeper and never in
// its way: its failure is told by Health alone (PL5).
func (m *Member) prune() {
	t := m.claim.Timing
	wait := t.TTL
	for clock.Sleep(m.i.cfg.Clock, wait/2+time.Duration(m.i.cfg.Rand()*float64(wait)), m.keeping.Done()) {
		err := m.pruneAll()
		if m.keeping.Err() != nil {
			return
		}
		if err != nil {
			m.i.cfg.Log.Warn("identity: old certificates cannot be removed; nothing depends on it", "node", m.claim.Node, "error", err)
		}
		m.mu.Lock()
		m.pruned, m.pruning = m.i.cfg.Clock.Boot(), err
		m.mu.Unlock()
		wait = m.i.cfg.PruneEvery
	}
}

// pruneAll runs batches until nothing is left, one fails, or renewals need the
// store more.
func (m *Member) pruneAll() (err error) {
	defer func() {
		if p := recover(); p != nil {
			m.i.cfg.Log.Error("identity: panic in the pruner", "node", m.claim.Node, "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	for {
		if m.dl.Remaining() < m.claim.Timing.Life()/2 {
			return store.Errorf(store.ErrUnavailable, m.i.identityOfStore(), "prune", m.claim.Node, "put off: renewals are late")
		}
		done, err := m.i.Prune(m.keeping, m.claim.Node, m.i.cfg.Retention)
		if err != nil || !done.More {
			return err
		}
		if !m.i.pause(m.keeping, m.claim.Timing.Attempt/4) {
			return nil
		}
	}
}
