package sim

import (
	"errors"
	"testing"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

// Each of these was found by a seed of a world with sessions, and is told here as a
// scene.

// onLease is a rule for calls about one lease.
func onLease(name string, f faultstore.Fault, ops ...faultstore.Op) faultstore.Rule {
	return faultstore.Rule{Key: store.Key("world", "lease", name), Ops: ops, Fault: f}
}

// A store that cannot prove a process gone makes a wish for that proof idle, for a
// session as for a lease.
//
// SPEC LS14 PL1
func TestJoinWithoutProof(t *testing.T) {
	t.Parallel()
	sessionScene(t, nil, func(s *stage) { // without store.CanProve
		defer func() {
			if p := recover(); p != nil {
				s.Fail("panic: %v", p)
			}
		}()
		m, err := s.subject.Join(s.subject.Context(), node, tenure.NoChildren())
		if err != nil {
			s.Fail("not joined: %v", err)
			return
		}
		s.leave(m)
	})
}

// A session that leaves waits for a release that another caller has begun, and gives
// its name up only then.
//
// SPEC PL8 LS8
func TestLeaveWaitsForAReleaseUnderWay(t *testing.T) {
	t.Parallel()
	sessionScene(t, nil, func(s *stage) {
		holdsUnder(s)
		s.subject.Link.Add(onLease(alpha, faultstore.Delay(attempt/2, attempt/2), faultstore.OpReplace))
		released := make(chan error, 1)
		go func() { released <- s.held.GiveUp(s.subject.Context()) }()
		pass(attempt / 8)
		s.leave(s.member) // R23 judges it
		if err := <-released; err != nil {
			s.Fail("released with %v", err)
		}
	})
}

// A session that is lost while it leaves, with an acquisition in doubt, says so: it
// did not leave in order.
//
// SPEC PL8 LS12
func TestLostWhileItLeaves(t *testing.T) {
	t.Parallel()
	sessionScene(t, nil, func(s *stage) {
		member(s)
		s.under(beta)
		s.subject.Link.Add(
			onLease(alpha, faultstore.HangApplied(), faultstore.OpCreate),
			onLease(beta, faultstore.HangApplied(), faultstore.OpReplace), // its release takes longer than a renewal
			onLease(beta, faultstore.Delay(attempt*4/5, attempt*4/5), faultstore.OpGet),
		)
		time.AfterFunc(attempt/2, func() { s.subject.Link.Add(onLease(alpha, faultstore.Hang(), faultstore.OpGet)) })
		wait, cancel := s.subject.Within(s.subject.Context(), 2*attempt)
		defer cancel()
		if _, err := s.member.Acquire(wait, alpha); err == nil {
			s.Fail("an acquisition in doubt was confirmed")
		}
		go func() { _, _ = s.other.Client.JumpNode(s.other.Context(), node, 100) }()
		err := s.member.Quit(func() error { return s.member.Leave(s.subject.Context()) }) // R23 judges it, too
		if err == nil {
			s.Fail("lost while it left, and left without an error")
		}
	})
}

// A release that took effect and was not confirmed is not called a loss because the
// session ended before it was.
//
// SPEC LS5 LS8
func TestUnconfirmedReleaseIsNoLoss(t *testing.T) {
	t.Parallel()
	sessionScene(t, nil, func(s *stage) {
		holdsUnder(s)
		s.subject.Link.Add(onLease(alpha, faultstore.HangApplied(), faultstore.OpReplace), onLease(alpha, faultstore.Hang(), faultstore.OpGet))
		if err := s.held.GiveUp(s.subject.Context()); !errors.Is(err, tenure.ErrUnconfirmed) {
			s.Fail("released with %v", err)
		}
		s.subject.Network(faultstore.Cut, 0)
		<-s.member.Lost()
		pass(attempt)
		s.subject.Network(faultstore.Up, 0)
		s.subject.Link.Clear()
		if err := s.held.GiveUp(s.subject.Context()); err != nil { // R12 judges it
			s.Fail("released again with %v", err)
		}
	})
}
