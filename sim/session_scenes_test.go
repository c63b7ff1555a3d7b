package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/core/identity"
	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/sim/world"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

// sessionScene plays f on a stage whose processes have the nodes n1 and n2 to fight
// for; edit, if not nil, changes the plan.
func sessionScene(t *testing.T, edit func(p *world.Plan), f func(s *stage)) {
	t.Helper()
	p := plan(store.CanWatch, false)
	p.Nodes = 2
	if edit != nil {
		edit(&p)
	}
	synctest.Test(t, func(t *testing.T) {
		s := newStage(p)
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

// pass lets virtual time pass.
func pass(d time.Duration) { time.Sleep(d) }

// A renewal that its owner sent and that is on its way while the owner falls
// silent: it lands before or after any call of the successor's takeover. Either the
// successor begins to observe anew, or the renewal has no effect.
//
// SPEC PL2 PL4 DL4
func TestLateRenewalOfThePredecessor(t *testing.T) {
	t.Parallel()
	landed := 0
	for k := range 9 {
		for _, after := range []bool{false, true} {
			sessionScene(t, nil, func(s *stage) {
				s.otherJoins()
				s.other.At(0, false, func() { // its next call is a renewal
					s.other.Link.Add(faultstore.Rule{Times: 1, Ops: []faultstore.Op{faultstore.OpReplace}, Fault: faultstore.LandOnCall()})
					time.AfterFunc(time.Millisecond, func() { s.other.Pause(20 * stageTTL) })
				})
				time.Sleep(stageTTL / 4)
				renewals := s.Count("name renewed")
				s.subject.At(k, after, func() { s.other.Link.Land() })
				wait, cancel := s.subject.Within(s.subject.Context(), 9*stageTTL)
				defer cancel()
				m, err := s.subject.Join(wait, node)
				if err != nil {
					s.Fail("not joined: %v", err)
					return
				}
				if s.Count("name renewed") > renewals {
					landed++
				}
				l, err := m.Acquire(wait, alpha)
				if err != nil {
					s.Fail("not acquired: %v", err)
					return
				}
				s.subject.Handed(l)
				s.other.Resume()
				time.Sleep(stageTTL / 4)
			})
		}
	}
	if landed == 0 {
		t.Error("no late renewal took effect")
	}
}

// A second process of the name never runs beside the first: it is told who has the
// name, or waits, and has it at once when the first leaves.
//
// SPEC PL8 PL9
func TestTwoProcessesOfOneName(t *testing.T) {
	t.Parallel()
	sessionScene(t, nil, func(s *stage) {
		s.otherJoins()
		_, err := s.subject.TryJoin(s.subject.Context(), node)
		if held := (*tenure.HeldError)(nil); !errors.As(err, &held) || held.Owner != s.otherMember.Proof().Incarnation {
			s.Fail("the name is taken, and a second process was told %v", err)
		}
		joined := make(chan *world.Session, 1)
		go func() {
			m, _ := s.subject.Join(s.subject.Context(), node)
			joined <- m
		}()
		time.Sleep(6 * stageTTL)
		if len(joined) > 0 || !s.otherMember.Live() {
			s.Fail("a second process joined, or the first was lost: %v", s.otherMember.Err())
		}
		s.must(s.otherMember.Quit(func() error { return s.otherMember.Leave(s.other.Context()) }))
		left := time.Now()
		m := <-joined
		if took := time.Since(left); m == nil || took > stageTTL/4 {
			s.Fail("free, and joined only %v later", took)
		}
	})
}

// A quiet session costs one write per interval: no read, no list, whatever it holds.
//
// SPEC LS4 LS8 PL5
func TestQuietSession(t *testing.T) {
	t.Parallel()
	sessionScene(t, func(p *world.Plan) { p.Leases = 60 }, func(s *stage) {
		member(s)
		for _, name := range s.Plan.Names() {
			s.under(name)
		}
		time.Sleep(2 * stageTTL) // the pruner looks once, and then every hour
		before := s.subject.Link.Counts()
		const ttls = 40
		time.Sleep(ttls * stageTTL)
		after := s.subject.Link.Counts()
		for op, n := range after {
			if n -= before[op]; n == 0 {
				continue
			}
			// Renewals are TTL/5 apart, jittered down by an eighth.
			if op != faultstore.OpReplace || n < 5*ttls || n > 5*ttls*8/7+1 {
				s.Fail("in %d TTLs a quiet session made %d calls of %s", ttls, n, op)
			}
		}
	})
}

// One process with five hundred leases dies and twenty rivals want them. All leases
// pass on within the bound, by one fence of the one session, and nobody floods the
// store.
//
// SPEC LS8 LS9 PL6
func TestTakeoverStorm(t *testing.T) {
	t.Parallel()
	const leases, rivals, each = 500, 20, 50
	sessionScene(t, func(p *world.Plan) { p.Leases = leases }, func(s *stage) {
		m := s.join(s.other, node)
		var take sync.WaitGroup
		for _, name := range s.Plan.Names() {
			take.Go(func() {
				l, err := m.Acquire(s.other.Context(), name)
				s.must(err)
				s.other.Handed(l)
			})
		}
		take.Wait()
		s.other.Crash()
		began := time.Now()
		held := 0
		var mu sync.Mutex
		for i := range rivals {
			p := s.Spawn(fmt.Sprintf("rival%d.1", i), 1+0.01*float64(i%3-1))
			s.must(p.Open(p.Context()))
			take.Go(func() {
				acquire := p.Client.Acquire
				if i == 0 { // one under a session of its own, the others without
					acquire = s.join(p, "n2").Acquire
				}
				var own sync.WaitGroup
				for j := range each {
					name := s.Plan.Names()[(i*each/2+j)%leases]
					own.Go(func() {
						l, err := acquire(p.Context(), name)
						if err != nil {
							s.Fail("%s was not taken: %v", name, err)
							return
						}
						h := p.Handed(l)
						mu.Lock()
						held++
						mu.Unlock()
						p.Sleep(p.Context(), 50*time.Millisecond)
						_ = h.GiveUp(p.Context())
					})
				}
				own.Wait()
				_ = p.Client.Close()
			})
		}
		take.Wait()
		if took := time.Since(began); took > 4*stageTTL {
			s.Fail("the leases passed on only after %v", took)
		}
		if n := s.Count("revokers"); n != 1 {
			s.Fail("the session was fenced %d times", n)
		}
	})
}

// id is an id that is told by its number.
func id(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }

// pastOf is the record of a node after n changes of owners, and their certificates.
func pastOf(n int) (*identity.Record, []*identity.Certificate) {
	now := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli() // when a bubble begins
	claim := func(n int) identity.Claim {
		return identity.Claim{Node: node, Incarnation: id(2 * n), TTL: stageTTL, NowMS: now}
	}
	r, err := identity.First(claim(0), 0)
	var all []*identity.Certificate
	var sealed identity.Sealed
	for i := range n + 1 {
		if err == nil {
			r, err = r.Release(r.Last(), identity.Renewal{Attempt: id(2*i + 1), NowMS: now, Sealed: sealed})
		}
		if err != nil || i == n {
			break
		}
		var g identity.Ground
		if g, _, err = (identity.Observation{}).Ground(r, "v", 0, 0.01); err != nil {
			break
		}
		if r, err = identity.Takeover(r, claim(i+1), g, sealed); err != nil {
			break
		}
		body, encodeErr := r.Certificate.Encode()
		all = append(all, r.Certificate)
		if sealed, err = identity.Seal(r.Certificate, [2][]byte{body, body}); err == nil {
			err = encodeErr
		}
	}
	if err != nil {
		panic(err)
	}
	return r, all
}

// A node has a history of 4,100 certificates. Joins and renewals are on time
// whatever becomes of it, and it is worked off in batches; where it cannot be,
// health says so and nothing else suffers. A pruner that dies at any call leaves the
// rest to the next.
//
// SPEC PL5
func TestOversizedHistory(t *testing.T) {
	t.Parallel()
	const many = 4100
	record, past := pastOf(many)
	denied := func(op faultstore.Op, kind error) faultstore.Rule {
		return faultstore.Rule{Ops: []faultstore.Op{op}, Fault: faultstore.Fail(kind), Match: func(c faultstore.Call) bool { return c.Key != "" }}
	}
	for _, c := range []struct {
		name    string
		trouble []faultstore.Rule
		crash   int // at this call
		healthy bool
	}{
		{name: "worked off", healthy: true},
		{name: "deletes are denied", trouble: []faultstore.Rule{denied(faultstore.OpDelete, store.ErrDenied)}},
		{name: "deletes hang", trouble: []faultstore.Rule{{Ops: []faultstore.Op{faultstore.OpDelete}, Fault: faultstore.Hang()}}},
		{name: "lists fail", trouble: []faultstore.Rule{denied(faultstore.OpList, store.ErrUnavailable)}},
		{name: "lists hang", trouble: []faultstore.Rule{{Ops: []faultstore.Op{faultstore.OpList}, Fault: faultstore.Hang()}}},
		{name: "the pruner dies early", crash: 40, healthy: true},
		{name: "the pruner dies between two names", crash: 45, healthy: true},
		{name: "the pruner dies late", crash: 999, healthy: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			sessionScene(t, func(p *world.Plan) { p.Retention = true }, func(s *stage) {
				s.PlantNode(record, past...)
				s.subject.StepWall(100 * time.Hour)
				s.other.StepWall(100 * time.Hour)
				s.subject.Link.Add(c.trouble...)
				began := time.Now()
				member(s)
				if took := time.Since(began); took > stageTTL/2 {
					s.Fail("a join beside %d certificates took %v", many, took)
				}
				h := s.under(alpha)
				if c.crash > 0 {
					s.subject.At(c.crash, true, s.subject.Crash)
					s.subject.Await(100 * stageTTL)
					m := s.join(s.other, node) // it prunes on
					time.Sleep(200 * stageTTL)
					s.worn(m, c.healthy)
					return
				}
				time.Sleep(200 * stageTTL)
				if !h.Live() {
					s.Fail("lost: %v", h.Err())
				}
				s.worn(s.member, c.healthy)
			})
		})
	}
}

// worn judges what is left of a long history, and what health says of it.
func (s *stage) worn(m *world.Session, healthy bool) {
	h := m.Health()
	if s.Count("session renew_failed") > 0 {
		s.Fail("renewals failed beside the pruner: %v", h.RenewErr)
	}
	left := s.Sealed(node)
	switch {
	case healthy && (left > 4 || h.PruneErr != nil): // the evidence of the present term, and one crash's
		s.Fail("%d names of certificates are left: %v", left, h.PruneErr)
	case !healthy && h.PruneErr == nil:
		s.Fail("nothing can be pruned, and health does not say so")
	}
}

// Numbers at their end: whoever would need a higher one is refused with a clear
// error, an owner that cannot renew any more loses its session, and nothing acts.
//
// SPEC ST11 PL1 PL2
func TestNumbersAtTheirEnd(t *testing.T) {
	t.Parallel()
	ended := func(term, counter, sequence uint64) *identity.Record {
		r, _ := pastOf(0)
		r.Term, r.FirstTerm, r.Counter, r.Sequence = term, term, counter, sequence
		return r
	}
	const most = record.MaxNumber
	for _, c := range []struct {
		name   string
		r      *identity.Record
		joins  bool // once more
		renews bool // after that, while it lasts
	}{
		{"the term", ended(most, most, 7), false, false},
		{"the counter", ended(5, most, 7), false, false},
		{"the last term", ended(most-1, most-1, 7), true, true},
		{"the sequence", ended(5, 5, most), false, false},
		{"the last sequence", ended(5, 5, most-1), true, false},
		{"the sequence soon", ended(5, 5, most-3), true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := plan(store.CanWatch, false)
			p.Nodes = 2
			synctest.Test(t, func(t *testing.T) {
				s := newStage(p)
				defer s.End()
				s.PlantNode(c.r)
				m, err := s.subject.Join(s.subject.Context(), node)
				if !c.joins {
					if !errors.Is(err, tenure.ErrInvalid) {
						t.Errorf("joined beyond the end: %v", err)
					}
					return
				}
				if err != nil {
					t.Fatalf("not joined: %v", err)
				}
				time.Sleep(2 * stageTTL)
				if m.Live() != c.renews || !c.renews && !errors.Is(m.Err(), tenure.ErrLost) {
					t.Errorf("after two TTLs it lives: %v, %v; want %v", m.Live(), m.Err(), c.renews)
				}
				s.refuse(t, m)
				if v := s.Verdict(); len(v.Broken) > 0 {
					t.Error(v.Report(100))
				}
			})
		})
	}
}

// refuse wants a clear refusal of everybody who needs a higher number than there is.
func (s *stage) refuse(t *testing.T, m *world.Session) {
	ctx, c := context.Background(), s.other.Client
	_, jumpErr := c.JumpNode(ctx, node, record.MaxNumber)
	_, joinErr := s.other.TryJoin(ctx, node)
	answers := map[string]error{"a jump": jumpErr, "a second join": joinErr}
	if m.Live() { // its term is the last
		answers["a force"] = c.ForceNode(ctx, m.Proof(), tenure.StealOptions{Reason: "test"})
	}
	for _, what := range slices.Sorted(maps.Keys(answers)) {
		if !errors.Is(answers[what], tenure.ErrInvalid) {
			t.Errorf("%s beyond the end: %v, want it refused as invalid", what, answers[what])
		}
	}
}

// A lease whose counter is at its end is refused under a session, too.
//
// SPEC ST11 LS1
func TestCounterOfALeaseAtItsEnd(t *testing.T) {
	t.Parallel()
	p := plan(store.CanWatch, false)
	p.Nodes = 2
	synctest.Test(t, func(t *testing.T) {
		s := newStage(p)
		defer s.End()
		s.PlantLease(&lease.Record{
			V: record.Level, Kind: lease.Session, Resource: alpha, Token: 3, Counter: record.MaxNumber, TTLMS: stageTTL.Milliseconds(), WriterAttempt: id(1),
			Ended: &lease.Ended{How: lease.HowReleased}, Recent: []lease.Tenure{{Token: 3, Owner: lease.Owner{Node: node, Incarnation: id(2), Term: 1}, How: lease.HowReleased}},
		})
		member(s)
		if _, err := s.member.TryAcquire(s.subject.Context(), alpha); !errors.Is(err, tenure.ErrInvalid) {
			t.Errorf("acquired beyond the end: %v", err)
		}
	})
}
