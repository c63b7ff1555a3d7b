package sim

import (
	"context"
	"errors"
	"flag"
	"testing"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/sim/world"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

var share = flag.Int("share", 16, "with sessions, play every n-th trouble of each script")

var pairs = flag.Int("pairs", 20, "play every n-th pair of troubles")

// script is one thing that a process does with a lease.
type script struct {
	name      string
	powers    store.Power
	retention bool
	nodes     int
	setup     func(s *stage)
	act       func(ctx context.Context, s *stage)
}

// scripts are what a process does with a lease.
func scripts() []script {
	return []script{
		{name: "acquire a new name", act: acquires},
		{name: "acquire a new name that may be removed", retention: true, act: acquires},
		{name: "acquire a released name", setup: func(s *stage) { s.turnover(s.other, 1) }, act: acquires},
		{name: "acquire in line", powers: store.CanQueue | store.CanWatch, setup: func(s *stage) {
			h := s.otherHolds()
			time.AfterFunc(stageTTL/2, func() { _ = h.Release(s.other.Context()) })
		}, act: acquires},
		{name: "take over from the dead", setup: dead, act: acquires},
		{name: "take over from the dead with a watch", powers: store.CanWatch, setup: dead, act: acquires},
		{name: "take over from the silent", powers: store.CanWatch, setup: func(s *stage) {
			s.otherHolds()
			s.other.Network(faultstore.Cut, 0)
		}, act: acquires},
		{name: "renew", setup: holds, act: renews},
		{name: "renew beside jumps", setup: holds, act: func(ctx context.Context, s *stage) {
			for i := range uint64(4) {
				time.AfterFunc(time.Duration(i)*stageTTL/4, func() { _ = s.other.Client.Jump(ctx, alpha, 10*(i+1)) })
			}
			renews(ctx, s)
		}},
		{name: "release", setup: holds, act: releases},
		{name: "release a long history", setup: func(s *stage) { s.turnover(s.other, 8); holds(s) }, act: releases},
		{name: "hand over", setup: holds, act: handsOver},
		{name: "release twice around another acquisition", setup: holds, act: releasesTwice},
		{name: "release what was lost", setup: lostIt, act: releasesLost},
		{name: "work", act: works},
		{name: "steal", setup: func(s *stage) { s.otherHolds() }, act: steals(false)},
		{name: "vouch", setup: dead, act: steals(true)},
		{name: "release by proof", setup: dead, act: releasesByProof},
		{name: "jump", setup: func(s *stage) { s.otherHolds() }, act: jumps},
		{name: "jump a released name", setup: func(s *stage) { s.turnover(s.other, 1) }, act: jumps},
		{name: "watch", powers: store.CanWatch, act: watches},
		{name: "watch by polling", act: watches},
		{name: "jump all", setup: func(s *stage) { s.otherHolds() }, act: jumpsAll},
		{name: "prune", retention: true, setup: old, act: prunes},
		{name: "acquire beside a prune", retention: true, setup: old, act: func(ctx context.Context, s *stage) {
			time.AfterFunc(0, func() { _, _ = s.other.Client.Prune(s.other.Context()) })
			acquires(ctx, s)
		}},
	}
}

// Every trouble at every call of everything that a process does with a lease:
// never two holders, nothing stuck, tokens rise, and a trouble that is short
// enough costs nothing.
//
// SPEC ST9 DL4 LS1 LS2 LS4 LS5 LS6 LS10 LS11 LS12 LS13 LS15
// CASE B02 B04 B05 B18 B24 B26 B40 B42 B43 B61 B80
func TestEveryTroubleAtEveryCall(t *testing.T) { everyTrouble(t, scripts(), 1) }

// everyTrouble plays every n-th trouble of each script, others for each, and every
// crash.
func everyTrouble(t *testing.T, scripts []script, nth int) {
	for number, c := range scripts {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t) // nothing goes wrong
			n := 0
			for i, x := range troubles() {
				if testing.Short() && i%4 != 0 || (i+number)%nth != 0 && x.name != "crash after" {
					continue
				}
				k := 0
				for c.run(t, x.on(k)) {
					k++
					if k == 200 {
						t.Fatalf("%s: the script never ends", x.name)
					}
				}
				n += k
			}
			if n < 30/nth && !testing.Short() {
				t.Errorf("only %d troubles struck", n)
			}
			t.Logf("%d troubles", n)
		})
	}
}

// Two troubles, at every two calls of a script as it goes when all is well and
// some calls beyond. By default a part of them is played; -pairs 1 plays all.
//
// SPEC ST9 LS4 LS5
func TestTwoTroubles(t *testing.T) {
	for number, c := range scripts() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			played, struck, n := 0, 0, number
			for _, w := range c.pairs(c.length(t)) {
				if n++; n%*pairs == 0 {
					played++
					if c.run(t, w[0], w[1]) {
						struck++
					}
				}
			}
			t.Logf("%d of %d pairs struck", struck, played)
			if struck == 0 && *pairs <= 20 {
				t.Error("no pair struck")
			}
		})
	}
}

// length is how many calls the subject makes when all is well, at most 12.
func (c script) length(t *testing.T) int {
	n := 0
	for n < 12 && c.run(t, at("nothing", false, false, func(*stage) {}).on(n)) {
		n++
	}
	return n
}

// pairs are all pairs of troubles for a script of n calls: the second strikes at
// a later call, or one of those that the first brings about.
func (c script) pairs(n int) (all [][2]met) {
	for _, x := range fewTroubles() {
		for _, y := range fewTroubles() {
			for i := range n {
				for j := i + 1; j < n+4; j++ {
					all = append(all, [2]met{x.on(i), y.on(j)})
				}
			}
		}
	}
	return all
}

func dead(s *stage) { s.otherHolds(); s.other.Crash() }

func holds(s *stage) { s.held = s.acquire(s.subject) }

// old leaves a released record that is old enough to be removed.
func old(s *stage) {
	s.turnover(s.other, 1)
	s.subject.StepWall(100 * time.Hour)
	s.other.StepWall(100 * time.Hour)
}

// lostIt leaves the subject with a lease that the other took over while it was
// stopped.
func lostIt(s *stage) {
	holds(s)
	s.subject.Pause(4 * stageTTL)
	s.otherHolds()
	s.subject.Resume()
}

// acquires takes the lease, uses it and keeps it: whatever befell one call, it
// gets it unless it was cancelled.
func acquires(ctx context.Context, s *stage) {
	wait, cancel := s.subject.Within(ctx, 9*stageTTL)
	defer cancel()
	l, err := s.subject.Client.Acquire(wait, alpha)
	if err != nil {
		// A node that shows less than was seen is refused, rightly.
		if ctx.Err() == nil && !s.subject.Crashed() && !s.back && !errors.Is(err, tenure.ErrRegressed) {
			s.Fail("not acquired: %v", err)
		}
		return
	}
	h := s.subject.Handed(l)
	h.Write(context.Background(), time.Millisecond, time.Millisecond)
	s.subject.Sleep(ctx, stageTTL/2)
	if !h.Live() && !s.long {
		s.Fail("lost: %v", h.Err())
	}
}

func renews(ctx context.Context, s *stage) {
	s.subject.Sleep(ctx, 3*stageTTL/2)
	if !s.held.Live() && !s.long {
		s.Fail("one trouble ended the lease: %v", s.held.Err())
	}
	s.held.Write(context.Background(), time.Millisecond, time.Millisecond)
	s.release(ctx, s.held)
}

// release gives a handle up and judges the answer.
func (s *stage) release(ctx context.Context, h *world.Handle) {
	err := h.GiveUp(ctx)
	if err != nil && !s.long {
		s.Fail("released with %v", err)
	}
}

func releases(ctx context.Context, s *stage) {
	s.release(ctx, s.held)
	if s.long {
		return
	}
	l, err := s.other.Client.TryAcquire(ctx, alpha)
	if err != nil {
		s.Fail("not free at once after a release: %v", err)
		return
	}
	_ = s.other.Handed(l).GiveUp(ctx)
}

func handsOver(ctx context.Context, s *stage) {
	err := s.held.HandOver(ctx, "b", stageTTL)
	if err != nil || s.long {
		return
	}
	if l, err := s.subject.Client.TryAcquire(ctx, alpha); !errors.Is(err, tenure.ErrHeld) && !errors.Is(err, tenure.ErrUnavailable) {
		s.Fail("handed over to another, and taken by %v: %v", l, err)
	}
	l, err := s.other.Client.TryAcquire(ctx, alpha, tenure.As("b"))
	if err != nil {
		s.Fail("handed over, and refused: %v", err)
		return
	}
	s.other.Handed(l)
}

func releasesTwice(ctx context.Context, s *stage) {
	_ = s.held.GiveUp(ctx)
	wait, cancel := s.subject.Within(ctx, 9*stageTTL)
	defer cancel()
	l, err := s.subject.Client.Acquire(wait, alpha)
	if err != nil {
		if !s.long {
			s.Fail("not acquired again: %v", err)
		}
		return
	}
	second := s.subject.Handed(l)
	_ = s.held.GiveUp(ctx)
	if s.long {
		return
	}
	if err := second.Check(ctx); err != nil && !errors.Is(err, tenure.ErrUnavailable) || !second.Live() {
		s.Fail("the old handle harmed the new one: %v", err)
	}
}

func releasesLost(ctx context.Context, s *stage) {
	s.subject.Sleep(ctx, stageTTL/4)
	if err := s.held.Release(ctx); !errors.Is(err, tenure.ErrLost) && !errors.Is(err, tenure.ErrUnconfirmed) {
		s.Fail("a lost lease was released: %v", err)
	}
	if err := s.other.Client.CheckToken(ctx, alpha, s.token); err != nil && ctx.Err() == nil {
		s.Fail("the loser's release harmed the winner: %v", err)
	}
}

func works(ctx context.Context, s *stage) {
	err := s.subject.Do(ctx, alpha, world.Work{Lasts: stageTTL, Stop: stageTTL / 8, Limit: stageTTL / 2, Dawdle: stageTTL / 10})
	if err != nil && !s.long {
		s.Fail("worked with %v", err)
	}
}

func steals(vouch bool) func(ctx context.Context, s *stage) {
	return func(ctx context.Context, s *stage) {
		_, err := s.subject.Client.Steal(ctx, alpha, tenure.StealOptions{Token: s.token, Reason: "test", By: "a", Vouch: vouch})
		s.acted(ctx, err)
		if err == nil && s.Held(alpha) == s.token {
			s.Fail("stolen, and still held")
		}
	}
}

// acted judges the answer of an operator's act: after a short trouble it is done,
// or must be asked for again.
func (s *stage) acted(ctx context.Context, err error) {
	if err != nil && !s.long && ctx.Err() == nil && !errors.Is(err, tenure.ErrUnavailable) && !errors.Is(err, tenure.ErrUnknown) {
		s.Fail("acted with %v", err)
	}
}

func releasesByProof(ctx context.Context, s *stage) {
	st, err := s.subject.Client.Status(ctx, alpha)
	if err == nil {
		err = s.subject.Client.ReleaseByProof(ctx, alpha, st.Token, st.Owner)
	}
	s.acted(ctx, err)
}

func jumps(ctx context.Context, s *stage) {
	err := s.subject.Client.Jump(ctx, alpha, 100)
	s.acted(ctx, err)
	s.raised(err)
}

func jumpsAll(ctx context.Context, s *stage) {
	_, err := s.subject.Client.JumpAll(ctx, 100)
	s.acted(ctx, err)
	s.raised(err)
}

func (s *stage) raised(err error) {
	st, lookErr := s.other.Client.Status(context.Background(), alpha)
	if err == nil && lookErr == nil && st.Counter < 100 {
		s.Fail("raised, and the counter is %d", st.Counter)
	}
}

func prunes(ctx context.Context, s *stage) {
	_, err := s.subject.Client.Prune(ctx)
	s.acted(ctx, err)
	l, err := s.other.Client.TryAcquire(context.Background(), alpha)
	if err != nil {
		s.Fail("not to be had after a prune: %v", err)
		return
	}
	if s.other.Handed(l); l.Token() != 2 {
		s.Fail("token %d after a prune, want 2", l.Token())
	}
}

// watches follows the other through five tenures and must have seen the end of
// the last some time after it.
func watches(ctx context.Context, s *stage) {
	for i := range 5 {
		time.AfterFunc(time.Duration(i)*stageTTL/3, func() {
			if l, err := s.other.Client.Acquire(s.other.Context(), alpha); err == nil {
				_ = l.Release(s.other.Context())
			}
		})
	}
	wait, cancel := s.subject.Within(ctx, 9*stageTTL)
	defer cancel()
	for c := range s.subject.Client.Watch(wait, alpha) {
		if c.Tenure.Token == 5 && c.State == tenure.Released {
			return
		}
	}
	if ctx.Err() == nil && !s.subject.Crashed() {
		s.Fail("the watch never told the last change")
	}
}
