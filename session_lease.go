package tenure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenure-project/tenure/internal/clock"
	"github.com/tenure-project/tenure/internal/core/identity"
	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/internal/settle"
	"github.com/tenure-project/tenure/store"
)

// Acquire waits until the session holds the lease name, or ctx ends, as
// [Client.Acquire] does. The lease is live as long as the session is: it has no
// renewals of its own, and others take it over only with evidence that this exact
// session is over. The session's TTL is the lease's; its process's proof of death
// is the session's, too. If nothing else is said, it acquires As its node's name.
func (s *Session) Acquire(ctx context.Context, name string, opts ...AcquireOption) (*Lease, error) {
	return s.c.acquire(ctx, s, name, true, opts)
}

// TryAcquire takes the lease name if it is free, or if its holder is over before
// this process's eyes. Otherwise it returns a *[HeldError] at once.
func (s *Session) TryAcquire(ctx context.Context, name string, opts ...AcquireOption) (*Lease, error) {
	return s.c.acquire(ctx, s, name, false, opts)
}

// Do waits for the lease name, runs fn while holding it under the session, and
// releases it after fn returned: see [Client.Do]. If fn does not stop within the
// stop limit, the lease is stuck until fn returns or the session ends.
func (s *Session) Do(ctx context.Context, name string, fn func(ctx context.Context, l *Lease) error, opts ...AcquireOption) error {
	l, err := s.Acquire(ctx, name, opts...)
	if err != nil {
		return err
	}
	return l.do(ctx, fn)
}

// TryDo is Do, but returns a *[HeldError] at once if the lease is held.
func (s *Session) TryDo(ctx context.Context, name string, fn func(ctx context.Context, l *Lease) error, opts ...AcquireOption) error {
	l, err := s.TryAcquire(ctx, name, opts...)
	if err != nil {
		return err
	}
	return l.do(ctx, fn)
}

// Elect campaigns for the lease name and runs lead while this session leads, again
// and again: when lead returns nil or the leadership is lost, the lease is given up
// and the next campaign begins, behind those who wait. It returns nil when ctx
// ends, why the session is over when it is, and any other error of lead or of the
// campaign. Every leadership has a new token.
func (s *Session) Elect(ctx context.Context, name string, lead func(ctx context.Context, l *Lease) error, opts ...AcquireOption) error {
	for {
		err := s.Do(ctx, name, lead, opts...)
		switch {
		case errors.Is(err, ErrOverlap):
			return err
		case s.Err() != nil:
			return s.Err()
		case s.accept.Err() != nil:
			return context.Cause(s.accept)
		case ctx.Err() != nil:
			return notCtx(ctx, err)
		case err != nil && !errors.Is(err, ErrLost):
			return err
		}
	}
}

// notCtx is err unless it only says that ctx ended.
func notCtx(ctx context.Context, err error) error {
	if errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx)) || errors.Is(err, ErrShutdown) {
		return nil
	}
	return err
}

// request is what every lease of the session begins with.
func (s *Session) request() request {
	return request{s: s, timing: s.timing, as: s.owner.Node}
}

// mayAsk refuses what belongs to the session itself. A nil session is none.
func (s *Session) mayAsk(name string, r request) error {
	if s == nil {
		return nil
	}
	t := r.timing
	t.Stop = 0
	if t != s.timing || r.lock != nil {
		return store.Errorf(ErrInvalid, "", "acquire", name, "TTL, NoChildren and ContainedIn are the session's: give them to Join")
	}
	return nil
}

// begin counts a call of Acquire, unless the session takes no more.
func (s *Session) begin() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.accept.Err() != nil {
		return context.Cause(s.accept)
	}
	s.acquiring.Add(1)
	return nil
}

// enter makes l one of the session's leases, if both are live after the reply that
// granted it and nobody revoked it meanwhile (DL6, LS11).
func (s *Session) enter(l *Lease) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, revoked := s.revoked[identity.Revocation{Resource: l.name, Token: l.token}]
	switch {
	case s.accept.Err() != nil:
		return context.Cause(s.accept)
	case revoked:
		return fmt.Errorf("lease %q (token %d): %w", l.name, l.token, errRevoked)
	case !l.dl.Live() || !l.work.Live():
		return store.Errorf(ErrUnavailable, s.c.st.Info().Identity, "acquire", l.name, "the session lives no longer than %v unless it is renewed", s.m.Deadline().Remaining())
	}
	s.leases[l] = struct{}{}
	return nil
}

func (s *Session) forget(l *Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.leases, l)
}

// settle goes on with f, for what may be held in the store though nobody here holds
// it, until it is done or the session is over: nothing else would ever free it
// (LS8).
func (s *Session) settle(what string, f func(ctx context.Context) error) {
	if !s.doubt(1) {
		return
	}
	s.settling.Go(func() {
		defer s.doubt(-1)
		pause := max(s.timing.Attempt/8, time.Millisecond)
		for s.ctx.Err() == nil {
			err := f(s.ctx)
			if err == nil || settle.LostRace(err) || errors.Is(err, ErrLost) {
				return
			}
			s.c.log.Warn("session: a write is in doubt, trying on", "node", s.owner.Node, "of", what, "error", err)
			clock.Sleep(s.c.clk, s.c.pace(s.timing).Jitter(pause), s.ctx.Done())
			pause = min(2*pause, s.timing.TTL)
		}
	})
}

// freeRevoked frees a lease that was taken from the session if whoever took it does
// not within a TTL: it may have died between its two writes, and the session would
// keep for as long as it lives what it does not hold (LS11).
func (l *Lease) freeRevoked() {
	l.c.background(func(ctx context.Context) {
		if !clock.Sleep(l.c.clk, l.timing.TTL, l.s.ctx.Done()) {
			return // whoever wants the lease has evidence that the session is over
		}
		_ = l.c.change(ctx, l.name, func(r *lease.Record, attempt string) (*lease.Record, error) {
			if r == nil || !r.SameOwner(l.owner, l.token) {
				return nil, errNothingToDo
			}
			return r.Steal(attempt, lease.Theft{Token: l.token, Told: true, NowMS: l.c.nowMS(), By: l.owner.Node, Why: "revoked by one who did not come back"})
		})
	})
}

// doubt counts writes in doubt. It reports false, and counts nothing, once the
// session is over.
func (s *Session) doubt(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n > 0 && s.ctx.Err() != nil {
		return false
	}
	s.doubts += n
	switch {
	case s.doubts == 0:
		close(s.calm)
		s.calm = nil
	case s.calm == nil:
		s.calm = make(chan struct{})
	}
	return true
}
