package sim

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/sim/world"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

const (
	stageTTL = 2 * time.Second
	attempt  = 2 * stageTTL / 15 // the default limit of one call
	alpha    = "alpha"
	beta     = "beta"
)

// stage is a world with one process whose calls meet trouble, and another whose
// calls do not.
type stage struct {
	*world.World
	subject, other *world.Proc
	held, second   *world.Handle  // what the setup left to the subject
	member         *world.Session // the subject's, and the other's
	otherMember    *world.Session
	token          uint64 // what the setup left to the other
	cancel         context.CancelFunc
	reached        atomic.Int64 // how many troubles struck
	long           bool         // the troubles may cost a lease
	stale          bool         // the subject was shown old states
	back           bool         // the other is there again
}

// must stops a setup that cannot be.
func (s *stage) must(err error) {
	if err != nil {
		panic(fmt.Sprintf("the setup failed: %v", err))
	}
}

// acquire takes alpha for a process that has no trouble.
func (s *stage) acquire(p *world.Proc) *world.Handle {
	l, err := p.Client.Acquire(p.Context(), alpha)
	s.must(err)
	return p.Handed(l)
}

// otherHolds lets the other hold alpha.
func (s *stage) otherHolds() *world.Handle {
	h := s.acquire(s.other)
	s.token = h.Token()
	return h
}

func (s *stage) turnover(p *world.Proc, times int) {
	for range times {
		s.must(s.acquire(p).Release(p.Context()))
	}
}

// trouble is something that befalls one call of the subject.
type trouble struct {
	name string
	// long trouble may cost a lease, or the answer to a release.
	long bool
	// meet arranges that it befalls the call number k from now on.
	meet func(s *stage, k int)
}

func fault(long bool, f faultstore.Fault) trouble {
	return trouble{name: f.String(), long: long, meet: func(s *stage, k int) {
		s.subject.Link.Add(faultstore.Rule{Skip: k, Times: 1, Fault: f, Match: nil})
	}}
}

// named tells faults of one kind apart.
func (x trouble) named(more string) trouble {
	x.name += " " + more
	return x
}

// at runs f before call k, or after it.
func at(name string, long, after bool, f func(s *stage)) trouble {
	return trouble{name: name, long: long, meet: func(s *stage, k int) {
		s.subject.At(k, after, func() { s.reached.Add(1); f(s) })
	}}
}

// troubles are all that can befall a call.
func troubles() []trouble {
	all := []trouble{
		fault(false, faultstore.Fail(store.ErrUnavailable)),
		fault(false, faultstore.LoseReply()),
		fault(false, faultstore.LoseRequest()),
		fault(false, faultstore.Hang()),
		fault(false, faultstore.HangApplied()),
		fault(false, faultstore.Delay(attempt/2, attempt/2)),
		fault(false, faultstore.Delay(2*attempt, 2*attempt)).named("beyond the limit"),
		fault(false, faultstore.DelayReply(attempt/2, attempt/2)),
		fault(false, faultstore.LandLate(attempt/2, attempt/2)).named("soon"),
		fault(false, faultstore.LandLate(stageTTL/2, stageTTL/2)),
		fault(false, faultstore.LandLate(3*stageTTL/2, 3*stageTTL/2)).named("after a TTL"),
		{name: "duplicate", meet: func(s *stage, k int) { // a second create is another write
			s.subject.Link.Add(faultstore.Rule{Skip: k, Times: 1, Ops: []faultstore.Op{faultstore.OpReplace}, Fault: faultstore.Duplicate(stageTTL/2, stageTTL/2)})
		}},
		at("crash in flight", true, false, func(s *stage) { time.AfterFunc(20*time.Microsecond, s.subject.Crash) }),
		at("cancel", true, false, func(s *stage) { s.cancel() }),
		at("cancel after", true, true, func(s *stage) { s.cancel() }),
	}
	for _, after := range []bool{false, true} {
		when := map[bool]string{false: "before", true: "after"}[after]
		all = append(all,
			at("crash "+when, true, after, func(s *stage) { s.subject.Crash() }),
			at("pause "+when, false, after, func(s *stage) { s.subject.Pause(stageTTL / 4) }),
			at("long pause "+when, true, after, func(s *stage) { s.subject.Pause(3 * stageTTL) }),
			at("suspend "+when, true, after, func(s *stage) { s.subject.Suspend(3 * stageTTL) }),
			at("cut "+when, false, after, func(s *stage) { s.subject.Network(faultstore.Cut, stageTTL/3) }),
			at("long cut "+when, true, after, func(s *stage) { s.subject.Network(faultstore.Cut, 2*stageTTL) }),
			at("mute "+when, true, after, func(s *stage) { s.subject.Network(faultstore.Mute, 2*stageTTL) }),
			at("refused "+when, false, after, func(s *stage) { s.subject.Network(faultstore.Refused, stageTTL/3) }),
			at("frozen "+when, true, after, func(s *stage) { s.stale = true; s.subject.Network(faultstore.Frozen, 2*stageTTL) }),
			at("the other comes back "+when, true, after, func(s *stage) {
				s.back = true
				s.other.Network(faultstore.Up, 0)
				time.Sleep(stageTTL / 10) // and the subject is slow meanwhile
			}),
		)
	}
	return all
}

// fewTroubles are those worth a combination with another.
func fewTroubles() []trouble {
	return []trouble{
		fault(false, faultstore.Fail(store.ErrUnavailable)),
		fault(false, faultstore.LoseReply()),
		fault(false, faultstore.LandLate(stageTTL/3, stageTTL/3)),
		at("pause after", true, true, func(s *stage) { s.subject.Pause(3 * stageTTL) }),
		at("cut before", true, false, func(s *stage) { s.subject.Network(faultstore.Cut, 2*stageTTL) }),
		at("crash after", true, true, func(s *stage) { s.subject.Crash() }),
	}
}

// met is one trouble at one call.
type met struct {
	trouble
	k int
}

// plan is what a stage is made from.
func plan(powers store.Power, retention bool) world.Plan {
	return world.Plan{
		Seed: 1, Slots: 2, Leases: 2, TTL: stageTTL, Rho: 0.01, Latency: stageTTL / 200,
		Powers: powers | store.CanDeleteIf, Retention: retention,
	}
}

// scene plays f on a stage of its own. Then the two processes leave, everything
// must recover, and nothing may be broken.
func scene(t *testing.T, powers store.Power, f func(s *stage)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(plan(powers, false))
		defer s.End()
		f(s)
		for _, p := range []*world.Proc{s.subject, s.other} {
			if !p.Crashed() {
				_ = p.Client.Close() // R14 judges whether anything stays behind
			}
		}
		s.Recover(0)
		if v := s.Verdict(); len(v.Broken) > 0 {
			t.Error(v.Report(200))
		}
	})
}

// newStage makes a stage whose two processes are ready to act.
func newStage(p world.Plan) *stage {
	w := world.New(p)
	s := &stage{World: w, subject: w.Spawn("a.1", 1), other: w.Spawn("b.1", 1)}
	s.must(s.subject.Open(s.subject.Context()))
	s.must(s.other.Open(s.other.Context()))
	return s
}

// run plays a script once. It reports whether all of the troubles struck.
func (c script) run(t *testing.T, with ...met) bool {
	t.Helper()
	all := false
	synctest.Test(t, func(t *testing.T) {
		p := plan(c.powers, c.retention)
		p.Nodes = c.nodes
		s := newStage(p)
		defer s.End()
		if c.setup != nil {
			c.setup(s)
		}
		for _, m := range with {
			m.meet(s, m.k)
			s.long = s.long || m.long
		}
		s.play(c)
		for _, n := range s.subject.Link.Fired() {
			s.reached.Add(int64(n))
		}
		if all = s.reached.Load() >= int64(len(with)); !all && len(with) > 0 {
			return // nothing new
		}
		if v := s.Verdict(); len(v.Broken) > 0 {
			t.Errorf("%s with %s:\n%s", c.name, names(with), v.Report(200))
		}
	})
	return all
}

// on is x at one call.
func (x trouble) on(k int) met { return met{x, k} }

func names(with []met) (s string) {
	for _, m := range with {
		s += fmt.Sprintf("%s at call %d; ", m.name, m.k)
	}
	return s
}

// play lets the subject act, the other leave, and everything recover.
func (s *stage) play(c script) {
	s.subject.Go(func(ctx context.Context) {
		ctx, s.cancel = context.WithCancel(ctx)
		defer s.cancel()
		c.act(ctx, s)
	})
	if !s.subject.Await(20 * stageTTL) {
		s.Fail("the subject did not end")
	}
	if !s.other.Crashed() {
		s.other.Network(faultstore.Up, 0)
		if err := s.other.Client.Close(); err != nil && !errors.Is(err, tenure.ErrLost) {
			s.Fail("the other could not leave: %v", err)
		}
	}
	s.Recover(0)
}
