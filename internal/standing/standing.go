// Package standing is where a ticket stands in a waiting line, as whoever keeps
// the line tells it, and the waiting for its turn. Every driver with a line of
// its own uses it.
package standing

import (
	"context"
	"sync"
	"time"
)

// At is where a ticket stands.
type At struct {
	// Before is how many live ones stand before it; below 0: not known.
	Before int
	// Err is why it cannot be known.
	Err error
}

// Unknown is where a ticket stands of which nothing was told yet.
var Unknown = At{Before: -1}

// Place is one ticket's place. It is safe for concurrent use.
type Place struct {
	mu    sync.Mutex
	at    At
	moved chan struct{} // has room for one: at is another than Wait knows
}

// New is a place of which nothing is known yet.
func New() *Place { return &Place{at: Unknown, moved: make(chan struct{}, 1)} }

// Move notes where the ticket stands now. Wait reads the place itself and not
// the news of it, so a later one cannot be lost behind an earlier one.
func (p *Place) Move(at At) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.at.Before == at.Before && p.at.Err == nil && at.Err == nil {
		return
	}
	p.at = at
	select {
	case p.moved <- struct{}{}:
	default:
	}
}

// Now is where the ticket stands.
func (p *Place) Now() At {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.at
}

// Wait returns nil at the head of the line. With patience, it also returns nil
// after patience for each live one before, counted anew whenever it hears of its
// place: so those who overtake a stopped member do so one by one. It returns the
// place's error where it has one, and what alive says, which is asked first and
// whenever ctx or closed ended (LS9).
func (p *Place) Wait(ctx context.Context, closed <-chan struct{}, patience time.Duration, alive func() error) error {
	for {
		if err := alive(); err != nil {
			return err
		}
		at := p.Now()
		if at.Err != nil || at.Before == 0 {
			return at.Err
		}
		if p.sleep(ctx, closed, patience*time.Duration(max(at.Before, 0))) {
			return nil
		}
	}
}

// sleep waits for a reason to look again and reports whether limit, if not
// zero, went by instead.
func (p *Place) sleep(ctx context.Context, closed <-chan struct{}, limit time.Duration) bool {
	var expired <-chan time.Time
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		expired = timer.C
	}
	select {
	case <-p.moved:
	case <-expired:
		return true
	case <-ctx.Done():
	case <-closed:
	}
	return false
}
