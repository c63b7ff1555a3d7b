package tenure

import (
	"context"
	"errors"
	"sync"

	"github.com/tenure-project/tenure/internal/core/identity"
	"github.com/tenure-project/tenure/internal/kit"
)

// Kit is for the packages of this module that build on a client. Its type is
// internal, and so is its meaning.
func (c *Client) Kit() *kit.Client {
	t := c.timing.Defaults()
	return &kit.Client{
		Store: c.st, Namespace: c.namespace, Clock: c.clk, Rand: c.rand, NewID: c.newID, Log: c.log,
		Timing: t, Poll: c.pollInterval(t), Label: c.label, Floor: c.floor, Seen: c.seenOf, Recall: c.memory.recallFrom, Remember: c.memory.rememberFrom, Identities: c.ids, Background: c.background,
		Observe: func(e kit.Event) {
			c.observe(Event{
				Authority: e.Authority, Token: e.Token, Chain: e.Chain, Answer: e.Answer,
				Kind: EventKind(e.Kind), Took: e.Took, Margin: e.Margin, Err: e.Err,
			})
		},
	}
}

// Kit is for the packages of this module that build on a session. Its type is
// internal, and so is its meaning.
func (s *Session) Kit() *kit.Session {
	return &kit.Session{
		Client: s.c.Kit(), Node: s.owner.Node, Owner: identity.Owner{Incarnation: s.owner.Incarnation, Term: s.owner.Term},
		Timing: s.timing, Deadline: s.m.Deadline(), Accept: s.accept, Attach: s.attach,
		Settle: func(what string, f func(ctx context.Context) error) { s.settle(what, f) },
	}
}

// seenOf begins a read of a counter: see memory.check.
func (c *Client) seenOf(kind, name string) func(counter uint64) error {
	key := "\x00" + kind + "\x00" + name // no lease's name holds such a byte
	seen := c.memory.highest(key)
	return func(counter uint64) error {
		if err := c.memory.check(key, seen, counter); err != nil {
			return &RegressedError{Kind: kind, Name: name, Seen: seen, Now: counter}
		}
		c.memory.rememberCounter(key, counter)
		return nil
	}
}

// attachment is what ends with the session, beside its leases.
type attachment struct {
	end func(ctx context.Context) error
}

func (s *Session) attach(end func(ctx context.Context) error) (detach func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.accept.Err() != nil {
		return nil, context.Cause(s.accept)
	}
	a := &attachment{end}
	s.attached[a] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.attached, a)
	}, nil
}

// endAttached ends what is attached, all at the same time.
func (s *Session) endAttached(ctx context.Context) error {
	s.mu.Lock()
	var ends []func(ctx context.Context) error
	for a := range s.attached {
		ends = append(ends, a.end)
	}
	s.mu.Unlock()
	errs := make([]error, len(ends))
	var wg sync.WaitGroup
	for i, end := range ends {
		wg.Go(func() { errs[i] = end(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
