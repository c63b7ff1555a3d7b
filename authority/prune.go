package authority

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"

	tenure "github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/clock"
	core "github.com/tenure-project/tenure/internal/core/authority"
	"github.com/tenure-project/tenure/store"
)

// The bounds of one batch of pruning (LA8).
const (
	batchDeletes = 256
	batchNames   = 1024
)

// Pruned is what one batch of Prune did.
type Pruned struct {
	// Removed counts objects that were removed.
	Removed int
	// Kept counts objects that were looked at and stay.
	Kept int
	// More says that the batch's bounds came first: call again.
	More bool
}

// Prune removes objects that no head reaches or ever will, one bounded batch per
// call: at most 256 deletions, at most 1024 names looked at; the next call goes on
// where it stopped (LA8). Live links stay, and so does what this process has on its
// way. An object that cannot be removed is skipped, and is in the error.
func (a *Authority) Prune(ctx context.Context) (Pruned, error) {
	a.mu.Lock()
	b := batch{f: a.files, cursor: maps.Clone(a.cursor), trails: a.walked.all(), flight: a.Kit().flight, deleting: func(n core.Name) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.cand.Deleting(n)
	}}
	a.mu.Unlock()
	done, err := b.run(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cursor = b.cursor
	return done, err
}

// Prune is Authority.Prune for a process that does not lead: it removes only what
// was written under tokens below the head's. Each call begins anew.
func Prune(ctx context.Context, c *tenure.Client, name string) (Pruned, error) {
	r, err := Read(ctx, c, name)
	if err != nil {
		return Pruned{}, err
	}
	b := batch{f: r.files, cursor: map[core.Kind]string{}, flight: func() core.Flight { return core.Flight{} }, deleting: func(core.Name) {}}
	var all Pruned
	for { // the first batches may hold nothing that goes
		done, err := b.run(ctx)
		all.Removed, all.Kept, all.More = all.Removed+done.Removed, all.Kept+done.Kept, done.More
		if err != nil || !done.More || all.Removed > 0 {
			return all, err
		}
	}
}

func (k Kit) flight() core.Flight { return k.Flight() }

// batch is one run of Prune.
type batch struct {
	f        *files
	cursor   map[core.Kind]string
	trails   map[string]*core.Trail
	flight   func() core.Flight
	deleting func(n core.Name)
	from     map[core.Kind]string // the cursor when the run began
	names    []core.Name
	done     Pruned
}

// run lists, then looks what is on its way, and then reads the head: in this order
// nothing that is removed can come to be linked (LA8).
func (b *batch) run(ctx context.Context) (Pruned, error) {
	b.done, b.names, b.from = Pruned{}, nil, maps.Clone(b.cursor)
	for _, kind := range []core.Kind{core.KindEntry, core.KindBlob} {
		if err := b.list(ctx, kind); err != nil {
			return b.done, err
		}
	}
	if len(b.names) == 0 {
		return b.done, nil
	}
	flight := b.flight()
	linked, err := b.linked(ctx)
	if err != nil {
		return b.done, err
	}
	var errs []error
	for i, n := range b.names {
		if b.done.Removed == batchDeletes {
			b.done.More = true
			b.goBack(i)
			break
		}
		if !linked.Removable(n, flight) {
			b.done.Kept++
			continue
		}
		b.deleting(n)
		if err := b.f.remove(ctx, b.f.key(string(n.Kind), n.Element())); err != nil {
			errs = append(errs, err)
			if len(errs) == 8 {
				break
			}
			continue
		}
		b.done.Removed++
	}
	return b.done, errors.Join(errs...)
}

// goBack sets the cursors back to before the names from the i-th on, of any kind: they
// were not judged.
func (b *batch) goBack(i int) {
	for _, n := range b.names[i:] {
		b.cursor[n.Kind] = b.from[n.Kind]
	}
	if i > 0 && b.names[i-1].Kind == b.names[i].Kind {
		b.cursor[b.names[i].Kind] = b.names[i-1].Element()
	}
}

// list takes the next names of one kind.
func (b *batch) list(ctx context.Context, kind core.Kind) error {
	n, more := 0, false
	for element, err := range b.f.elements(ctx, b.f.key(string(kind), ""), b.cursor[kind]) {
		if err != nil {
			return err
		}
		if n == batchNames/2 {
			more = true
			break
		}
		n++
		b.cursor[kind] = element
		name, err := core.ParseName(kind, element)
		if err != nil {
			b.done.Kept++ // not ours to judge
			continue
		}
		b.names = append(b.names, name)
	}
	if !more {
		b.cursor[kind] = "" // from the beginning, the next time
	}
	b.done.More = b.done.More || more
	return nil
}

// linked is what the head reaches now.
func (b *batch) linked(ctx context.Context) (core.Linked, error) {
	for {
		s, err := b.f.stands(ctx)
		if err != nil {
			return core.Linked{}, err
		}
		var trails []*core.Trail
		moved := false
		for _, chain := range core.ChainNames() {
			t, err := b.f.walk(ctx, s.head, chain, b.trails[chain], nil)
			if err != nil {
				now, bad := b.f.stands(ctx)
				switch {
				case bad != nil: // nobody knows whether it is a break
					return core.Linked{}, bad
				case t == nil || t.Of(now.head):
					return core.Linked{}, err
				}
				moved = true
				break
			}
			trails = append(trails, t)
		}
		if !moved {
			return core.Reached(s.head, trails...)
		}
	}
}

// prune removes what is not linked from time to time, beside the keeper and never in
// its way: its failure is told by Health alone (LA8).
func (l *Leader) prune() {
	a := l.a
	for wait := a.cfg.timing.TTL; clock.Sleep(a.c.Clock, a.c.Pace(a.cfg.timing).Jitter(wait), l.keeping.Done()); wait = a.cfg.pruneEvery {
		err := l.pruneAll()
		if l.keeping.Err() != nil {
			return
		}
		if err != nil {
			a.c.Log.Warn("authority: unlinked objects cannot be removed; nothing depends on it", "authority", a.name, "error", err)
		}
		a.note(func(h *Health) { h.PrunedAt, h.PruneErr = a.c.Clock.Boot(), err })
	}
}

// pruneAll runs batches until nothing is left, one fails, or renewals need the store
// more.
func (l *Leader) pruneAll() (err error) {
	a := l.a
	defer func() {
		if p := recover(); p != nil {
			a.c.Log.Error("authority: panic in the pruner", "authority", a.name, "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	for {
		if l.own.Remaining() < a.cfg.timing.Life()/2 {
			return store.Errorf(store.ErrUnavailable, a.identity(), "prune", a.name, "put off: renewals are late")
		}
		done, err := a.Prune(l.keeping)
		if err != nil || !done.More {
			return err
		}
		if !a.pause(l.keeping, a.cfg.timing.Attempt/4) {
			return nil
		}
	}
}
