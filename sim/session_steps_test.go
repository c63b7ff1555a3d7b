package sim

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/sim/world"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

const node = "n1"

// sessionScripts are what a process does with a node's name and with leases under
// it.
func sessionScripts() []script {
	all := []script{
		{name: "join a new node", act: joins},
		{name: "join a node that was left", setup: leftBefore, act: joins},
		{name: "join the node of the dead", setup: deadMember, act: joins},
		{name: "join the node of the dead with a watch", powers: store.CanWatch, setup: deadMember, act: joins},
		{name: "join the node of the silent", powers: store.CanWatch, setup: func(s *stage) {
			s.otherJoins()
			s.other.Network(faultstore.Cut, 0)
		}, act: joins},
		{name: "join after a certificate was sealed nowhere", setup: crashedTakeover(0), act: joins},
		{name: "join after a certificate was sealed under one name", setup: crashedTakeover(1), act: joins},
		{name: "join after force", setup: forcedBefore(false), act: joins},
		{name: "join after a vouched end", setup: func(s *stage) { forcedBefore(true)(s); s.other.Crash() }, act: joins},
		{name: "join after a fence", setup: fencedBefore, act: joins},
		{name: "keep a session", setup: holdsUnder, act: keeps},
		{name: "keep a session beside a theft", setup: holdsUnder, act: keepsBesideTheft},
		{name: "keep a session that prunes", retention: true, setup: func(s *stage) {
			s.subject.StepWall(100 * time.Hour)
			for range 3 {
				leftBefore(s)
			}
			holdsUnder(s)
			s.subject.StepWall(100 * time.Hour) // its own certificate is old, too
		}, act: keeps},
		{name: "acquire under a session", setup: member, act: acquiresUnder},
		{name: "acquire from a dead session", setup: func(s *stage) { deadMember(s); memberOf(s, "n2") }, act: acquiresUnder},
		{name: "acquire from a dead session for itself", setup: deadMember, act: acquires},
		{name: "acquire from a session forced out", setup: func(s *stage) { forcedBefore(false)(s); s.other.Crash() }, act: acquires},
		{name: "release under a session", setup: holdsUnder, act: releases},
		{name: "hand over under a session", setup: holdsUnder, act: handsOver},
		{name: "work under a session", setup: member, act: worksUnder},
		{name: "leave", setup: holdsUnder, act: func(ctx context.Context, s *stage) { s.leave(s.member) }},
		{name: "drain to a successor", setup: holdsUnder, act: drains},
		{name: "fence the dead", setup: deadMember, act: fences},
		{name: "fence what was left", setup: leftBefore, act: fences},
		{name: "fence after force", setup: forcedBefore(false), act: fences},
		{name: "force out", setup: func(s *stage) { s.otherJoins() }, act: forces},
		{name: "retire the dead", setup: deadMember, act: retires},
		{name: "steal from a session", setup: otherHoldsUnder, act: steals(false)},
		{name: "raise everything beside a session", setup: otherHoldsUnder, act: jumpsAll},
	}
	for i := range all {
		all[i].nodes = 2
	}
	return all
}

// Every trouble, a crash among them, at every call of everything that a process
// does with a node's name and under it: never two owners, no term without its
// certificate, nothing stuck, and a trouble that is short enough costs nothing.
//
// SPEC PL1 PL2 PL3 PL4 PL5 PL6 PL8 PL9 LS8 LS10 LS11 LS12 ST9
func TestEveryTroubleOfSessions(t *testing.T) { everyTrouble(t, sessionScripts(), *share) }

func (s *stage) join(p *world.Proc, name string) *world.Session {
	m, err := p.Join(p.Context(), name)
	s.must(err)
	return m
}

func (s *stage) otherJoins() {
	s.otherMember = s.join(s.other, node)
	l, err := s.otherMember.Acquire(s.other.Context(), alpha)
	s.must(err)
	s.token = s.other.Handed(l).Token()
}

func otherHoldsUnder(s *stage) { s.otherJoins() }

func deadMember(s *stage) { s.otherJoins(); s.other.Crash() }

func member(s *stage) { memberOf(s, node) }

func memberOf(s *stage, name string) { s.member = s.join(s.subject, name) }

// holdsUnder leaves the subject with a session and two leases under it.
func holdsUnder(s *stage) {
	member(s)
	s.held, s.second = s.under(alpha), s.under(beta)
}

// under takes a lease under the subject's session.
func (s *stage) under(name string) *world.Handle {
	l, err := s.member.Acquire(s.subject.Context(), name)
	s.must(err)
	return s.subject.Handed(l)
}

func leftBefore(s *stage) {
	m := s.join(s.other, node)
	s.must(m.Quit(func() error { return m.Leave(s.other.Context()) }))
	s.otherMember = m
}

// crashedTakeover leaves a name that a process took over and did not complete: it
// died when its certificate stood under so many names.
func crashedTakeover(sealed int) func(s *stage) {
	return func(s *stage) {
		leftBefore(s)
		p := s.Spawn("c.1", 1)
		s.must(p.Open(p.Context()))
		p.At(1+sealed, true, p.Crash) // it reads, takes over, seals, seals
		go func() { _, _ = p.Join(p.Context(), node) }()
		pass(stageTTL / 2)
		if !p.Crashed() {
			s.Fail("the takeover did not crash")
		}
	}
}

func forcedBefore(vouch bool) func(s *stage) {
	return func(s *stage) {
		s.otherJoins()
		if vouch {
			s.other.Crash()
		}
		s.must(s.subject.Client.ForceNode(s.subject.Context(), s.otherMember.Proof(), tenure.StealOptions{Reason: "test", By: "a", Vouch: vouch}))
	}
}

func fencedBefore(s *stage) {
	deadMember(s)
	_, err := s.subject.Client.FenceIncarnation(s.subject.Context(), node, s.otherMember.Proof().Incarnation, 9*stageTTL)
	s.must(err)
}

// excused reports whether an error of the subject needs no explanation.
func (s *stage) excused(ctx context.Context, err error) bool {
	return ctx.Err() != nil || s.subject.Crashed() || s.back || errors.Is(err, tenure.ErrRegressed)
}

func joins(ctx context.Context, s *stage) {
	wait, cancel := s.subject.Within(ctx, 9*stageTTL)
	defer cancel()
	m, err := s.subject.Join(wait, node)
	if err != nil {
		if !s.excused(ctx, err) {
			s.Fail("not joined: %v", err)
		}
		return
	}
	s.member = m
	if l, err := m.Acquire(wait, alpha); err == nil {
		s.subject.Handed(l).Write(context.Background(), time.Millisecond, time.Millisecond)
	} else if !s.long {
		s.Fail("not acquired: %v", err)
	}
	s.subject.Sleep(ctx, stageTTL/2)
	s.lasts()
	s.leave(m)
}

// lasts judges that the subject has its session yet.
func (s *stage) lasts() {
	if !s.member.Live() && !s.long {
		s.Fail("one trouble ended the session: %v", s.member.Err())
	}
}

func (s *stage) leave(m *world.Session) {
	err := m.Quit(func() error { return m.Leave(context.Background()) })
	if err != nil && !s.long {
		s.Fail("left with %v", err)
	}
}

func keeps(ctx context.Context, s *stage) {
	s.subject.Sleep(ctx, 2*stageTTL)
	s.lasts()
	s.held.Write(context.Background(), time.Millisecond, time.Millisecond)
}

// keepsBesideTheft: of two leases one is stolen, and only that one ends.
func keepsBesideTheft(ctx context.Context, s *stage) {
	stolen, kept := s.held, s.second
	_, err := s.other.Client.Steal(s.other.Context(), alpha, tenure.StealOptions{Token: stolen.Token(), Reason: "test", By: "b"})
	s.subject.Sleep(ctx, 3*stageTTL/2)
	s.lasts()
	if err == nil && stolen.Live() && ctx.Err() == nil {
		s.Fail("a stolen lease is live")
	}
	if !kept.Live() && !s.long {
		s.Fail("a theft ended another lease: %v", kept.Err())
	}
}

func acquiresUnder(ctx context.Context, s *stage) {
	wait, cancel := s.subject.Within(ctx, 9*stageTTL)
	defer cancel()
	l, err := s.member.Acquire(wait, alpha)
	if err != nil {
		if !s.excused(ctx, err) && s.member.Live() {
			s.Fail("not acquired: %v", err)
		}
		return
	}
	h := s.subject.Handed(l)
	s.subject.Sleep(ctx, stageTTL/4)
	s.lasts()
	s.release(ctx, h)
}

func worksUnder(ctx context.Context, s *stage) {
	err := s.member.Do(ctx, alpha, world.Work{Lasts: stageTTL, Stop: stageTTL / 8, Limit: stageTTL / 2, Dawdle: stageTTL / 10})
	if err != nil && !s.long {
		s.Fail("worked with %v", err)
	}
}

func drains(ctx context.Context, s *stage) {
	_ = s.second.GiveUp(ctx)
	done := make(chan struct{})
	go func() { // its holder releases it once it has stopped
		defer close(done)
		select {
		case <-s.held.Done():
			_ = s.held.GiveUp(ctx)
		case <-s.subject.Context().Done():
		}
	}()
	err := s.member.Quit(func() error {
		return s.member.Drain(ctx, tenure.DrainOptions{Limit: stageTTL / 2, Successor: func(string) string { return "b" }})
	})
	<-done
	if s.long || ctx.Err() != nil {
		return
	}
	if err != nil {
		s.Fail("drained with %v", err)
	}
	l, err := s.other.Client.TryAcquire(ctx, alpha, tenure.As("b"))
	if err != nil {
		s.Fail("drained to a successor, and refused: %v", err)
		return
	}
	s.other.Handed(l)
}

func fences(ctx context.Context, s *stage) {
	proof := s.otherMember.Proof()
	c, err := s.subject.Client.FenceIncarnation(ctx, node, proof.Incarnation, 9*stageTTL)
	if err != nil {
		if !s.excused(ctx, err) {
			s.acted(ctx, err)
		}
		return
	}
	if c.Predecessor != proof {
		s.Fail("the fence of %v gave the certificate of %v", proof, c.Predecessor)
	}
	v, err := s.subject.Client.VerifyCertificate(ctx, c.Body)
	if err != nil && !s.long && !s.excused(ctx, err) && !errors.Is(err, tenure.ErrUnavailable) {
		s.Fail("the certificate of a fence is not verified: %v", err)
	}
	if err == nil && v.Wait != c.Wait {
		s.Fail("the certificate asks for a wait of %v, then of %v", c.Wait, v.Wait)
	}
	if s.long || c.Wait > 0 || ctx.Err() != nil {
		return
	}
	m, err := s.subject.TryJoin(ctx, node)
	if err != nil {
		if !s.excused(ctx, err) && !errors.Is(err, tenure.ErrUnavailable) {
			s.Fail("the node is not free at once after a fence: %v", err)
		}
		return
	}
	s.leave(m)
}

func forces(ctx context.Context, s *stage) {
	err := s.subject.Client.ForceNode(ctx, s.otherMember.Proof(), tenure.StealOptions{Reason: "test", By: "a"})
	s.acted(ctx, err)
	pass(stageTTL)
	if err == nil && s.otherMember.Live() {
		s.Fail("forced out a TTL ago, and live")
	}
}

func retires(ctx context.Context, s *stage) {
	err := s.subject.Client.RetireNode(ctx, node, 9*stageTTL)
	s.acted(ctx, err)
	if err != nil {
		return
	}
	n, err := s.subject.Client.Node(context.Background(), node)
	if err == nil && !s.stale && n.State != tenure.Released {
		s.Fail("retired, and %s", n.State)
	}
}
