package tenure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-project/tenure/internal/membership"
	"github.com/tenure-project/tenure/internal/settle"
	"github.com/tenure-project/tenure/store"
)

// releaseWidth is how many leases of a session are released at the same time.
const releaseWidth = 64

// Leave ends every lease of the session, waits for the work under Do within its
// stop limit, settles every write in doubt, and then gives the node's name up, so
// that the next process joins at once (PL8). It has its own time limits, like
// [Lease.Release]; only ctx's values are used.
//
// If anything is unfinished at the limit, the name is left to lapse after its TTL,
// and Leave returns an ErrUnconfirmed or ErrOverlap. Leaving a session that was
// lost returns why; leaving twice is fine.
func (s *Session) Leave(ctx context.Context) error {
	err := s.leave(ctx)
	if s.closes { // after the session's own end, which Close waits for, too
		err = errors.Join(err, s.c.Close())
	}
	return err
}

func (s *Session) leave(ctx context.Context) error {
	s.leaving <- struct{}{}
	defer func() { <-s.leaving }()
	if s.left {
		return s.leftErr
	}
	s.stopAccepting()
	var attached error
	var wg sync.WaitGroup
	wg.Go(func() { attached = s.endAttached(ctx) })
	unfinished, err := s.endLeases()
	wg.Wait()
	if lost := s.Err(); lost != nil {
		err = errors.Join(lost, s.giveUpLost(ctx, attached))
	} else {
		err = errors.Join(err, s.giveUp(ctx, attached, unfinished))
	}
	s.cancel(fmt.Errorf("session of node %q: %w", s.owner.Node, ErrReleased))
	s.settling.Wait() // all have ended with the session
	s.endStops()
	s.c.mu.Lock()
	delete(s.c.sessions, s)
	s.c.mu.Unlock()
	s.left, s.leftErr = true, err
	return err
}

// stopAccepting makes sure that no lease is added any more.
func (s *Session) stopAccepting() {
	s.mu.Lock()
	s.refuse(fmt.Errorf("session of node %q: %w", s.owner.Node, ErrShutdown))
	s.mu.Unlock()
	s.acquiring.Wait()
}

// held are the session's leases, in the order of their names.
func (s *Session) held() []*Lease {
	s.mu.Lock()
	all := slices.Collect(maps.Keys(s.leases))
	s.mu.Unlock()
	slices.SortFunc(all, func(a, b *Lease) int { return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.token, b.token)) })
	return all
}

// endLeases ends all leases but those whose work would overlap: it stops all work at
// once, waits for it, and then releases, some at a time and all within one limit. In
// an outage those whose turn does not come just end here; it returns how many.
func (s *Session) endLeases() (unfinished int, err error) {
	all := s.held()
	errs := make([]error, len(all))
	width := make(chan struct{}, releaseWidth)
	var late atomic.Int64
	var wg sync.WaitGroup
	over := make(chan struct{})
	end := sync.OnceFunc(func() { s.c.clk.AfterFunc(s.c.releaseLimit(s.timing), func() { close(over) }) })
	for i, l := range all {
		if l.stuck.Load() {
			continue
		}
		l.stopWork(ErrShutdown)
		wg.Go(func() {
			if l.awaitWork() {
				return // Do released it, or left it stuck
			}
			end()
			select {
			case width <- struct{}{}:
				defer func() { <-width }()
				errs[i] = l.shutdown()
			case <-over:
				late.Add(1)
				l.never()
			}
		})
	}
	wg.Wait()
	return int(late.Load()), errors.Join(errs...)
}

// giveUp releases the name if nothing is unfinished, and lets it lapse otherwise.
// attached is how what else lived by the session ended, unfinished counts leases that
// ended here only.
func (s *Session) giveUp(ctx context.Context, attached error, unfinished int) error {
	limit := s.c.releaseLimit(s.timing)
	settled := s.awaitSettled(limit)
	left := len(s.held())
	settled = settled && unfinished == 0
	if attached != nil {
		s.m.Abandon(attached)
		return fmt.Errorf("session of node %q: %w, so its name lapses after the TTL %v: %w", s.owner.Node, ErrUnconfirmed, s.timing.TTL, attached)
	}
	if !settled || left > 0 {
		err := fmt.Errorf("session of node %q: %w after %v: %d writes are in doubt, %d leases are not released and the work under %d runs on, so its name and they lapse after the TTL %v",
			s.owner.Node, ErrUnconfirmed, limit, s.Health().InDoubt, unfinished, left, s.timing.TTL)
		if left > 0 {
			err = fmt.Errorf("%w: %w", ErrOverlap, err)
		}
		s.m.Abandon(err)
		return err
	}
	switch err := s.m.Release(ctx); {
	case errors.Is(err, membership.ErrUnconfirmed):
		return fmt.Errorf("session of node %q: %w: %w", s.owner.Node, ErrUnconfirmed, err)
	case err != nil:
		return s.cause(err)
	}
	s.c.observe(Event{Node: s.owner.Node, Term: s.owner.Term, Kind: EventReleased})
	if cause := s.m.Deadline().Cause(); !errors.Is(cause, membership.ErrReleased) {
		return s.cause(cause)
	}
	return nil
}

// giveUpLost releases the name of a session that ended by itself, so that the next
// process need not wait: one that expired or was raised by a jump may own it yet.
// Not while work of it may run on.
func (s *Session) giveUpLost(ctx context.Context, attached error) error {
	if attached != nil || len(s.held()) > 0 {
		return errors.Join(fmt.Errorf("session of node %q: %w", s.owner.Node, ErrOverlap), attached)
	}
	switch err := s.m.Release(ctx); {
	case errors.Is(err, membership.ErrUnconfirmed):
		return fmt.Errorf("session of node %q: %w: %w", s.owner.Node, ErrUnconfirmed, err)
	case err != nil && !errors.Is(err, membership.ErrLost):
		return s.cause(err)
	}
	return nil
}

// awaitSettled waits until no write is in doubt, for at most limit.
func (s *Session) awaitSettled(limit time.Duration) bool {
	ctx, cancel := settle.Limit(s.ctx, s.c.clk, limit)
	defer cancel()
	for {
		s.mu.Lock()
		calm := s.calm
		s.mu.Unlock()
		if calm == nil {
			return true
		}
		select {
		case <-calm:
		case <-ctx.Done():
			return false
		}
	}
}

// DrainOptions say how a session is drained.
type DrainOptions struct {
	// Limit is how long the work under each lease may take to stop; the default is
	// the lease's own stop limit.
	Limit time.Duration
	// Successor names who gets a lease at once: the node name of another session,
	// or what it acquires As. nil, or "", releases the lease to everybody.
	Successor func(lease string) string
	// Hold is how long everybody but the successor watches the released lease, at
	// most the TTL, which is the default.
	Hold time.Duration
}

// Drain empties the session for a planned end: it acquires nothing more, asks the
// work under all leases to stop at the same time, releases each or hands it over
// once its work has stopped, and then leaves. Work under Do has stopped when its
// function returned; the holder of any other lease says so by calling Release once
// its context has ended.
//
// A lease whose work does not stop within the limit, or before ctx ends, is an
// ErrOverlap and is not released: it lapses with the session's name.
func (s *Session) Drain(ctx context.Context, o DrainOptions) error {
	if o.Hold == 0 {
		o.Hold = s.timing.TTL
	}
	if o.Hold < 0 || o.Hold > s.timing.TTL || o.Hold%time.Millisecond != 0 || o.Limit < 0 {
		return store.Errorf(ErrInvalid, "", "drain", s.owner.Node, "a hold is whole milliseconds above 0 and at most the TTL %v, not %v, and a limit is not negative", s.timing.TTL, o.Hold)
	}
	s.stopAccepting()
	all := s.held()
	errs := make([]error, len(all)+1)
	var wg sync.WaitGroup
	for i, l := range all {
		wg.Go(func() { errs[i] = l.drain(ctx, o) })
	}
	wg.Wait()
	errs[len(all)] = s.Leave(ctx)
	return errors.Join(errs...)
}

// drain stops the work under the lease and waits for its release.
func (l *Lease) drain(ctx context.Context, o DrainOptions) error {
	if o.Successor != nil {
		if err := l.succeedBy(ctx, o.Successor(l.name), o.Hold); err != nil {
			return err
		}
	}
	l.stopWork(ErrShutdown)
	limit := o.Limit
	if limit == 0 {
		limit = l.limit
	}
	ctx, cancel := settle.Limit(ctx, l.c.clk, limit)
	defer cancel()
	select {
	case <-l.dl.Done(): // by its release, or with the session
	case <-ctx.Done():
		l.stuck.Store(true)
		return fmt.Errorf("lease %q (token %d): %w", l.name, l.token, ErrOverlap)
	}
	select {
	case l.end.lock <- struct{}{}: // the release has come to its end
		defer func() { <-l.end.lock }()
		return l.end.err
	case <-ctx.Done(): // it goes on in the background: Leave counts it
		return nil
	}
}

// succeedBy makes whatever releases the lease hand it over.
func (l *Lease) succeedBy(ctx context.Context, successor string, hold time.Duration) error {
	if successor == "" {
		return nil
	}
	if err := store.CheckName("successor", successor); err != nil {
		return err
	}
	select {
	case l.end.lock <- struct{}{}:
		defer func() { <-l.end.lock }()
		l.end.successor, l.end.hold = successor, hold
	case <-ctx.Done(): // its release is under way
	}
	return nil
}
