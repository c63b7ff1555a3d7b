package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/sim/world"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
	"github.com/tenure-project/tenure/store/memstore"
)

// Each of these was found by a seed, and is told here as a scene.

// A read that was under way while the same client saw a higher counter does not
// say that the store was restored.
//
// SPEC LS12
func TestReadUnderWayIsNoRegression(t *testing.T) {
	scene(t, 0, func(s *stage) {
		s.turnover(s.other, 1)
		s.subject.Link.Add(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpGet}, Times: 1, Fault: faultstore.DelayReply(attempt/2, attempt/2)})
		answer := make(chan error, 1)
		go func() {
			_, err := s.subject.Client.Status(s.subject.Context(), alpha)
			answer <- err
		}()
		time.Sleep(attempt / 4) // it was read, and is on its way back
		s.acquire(s.subject)
		if err := <-answer; err != nil {
			s.Fail("a status that was asked for before an acquisition: %v", err)
		}
	})
}

// A namespace that another process makes, and uses, just after it was looked for
// is not one that lost its settings.
//
// SPEC LS1
func TestNamespaceMadeMeanwhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := world.New(plan(0, false))
		defer w.End()
		a, b := w.Spawn("a.1", 1), w.Spawn("b.1", 1)
		a.At(1, false, func() { // after it found no settings
			if err := b.Open(b.Context()); err != nil {
				t.Error(err)
				return
			}
			l, err := b.Client.Acquire(b.Context(), alpha)
			if err != nil {
				t.Error(err)
				return
			}
			b.Handed(l)
		})
		if err := a.Open(a.Context()); err != nil {
			t.Errorf("open beside another that makes the namespace: %v", err)
		}
	})
}

// A waiter whose line breaks while reads go on polls; it does not ask without a
// pause.
//
// SPEC LS9
// CASE B78
func TestBrokenLineIsNoFlood(t *testing.T) {
	scene(t, store.CanQueue, func(s *stage) {
		h := s.otherHolds()
		first, err := s.other.Link.Enqueue(s.other.Context(), store.Key(world.Namespace, "lease", alpha))
		s.must(err)
		defer first.Leave()
		s.subject.Link.Add(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpWait}, Fault: faultstore.Fail(store.ErrUnavailable)})
		time.AfterFunc(2*stageTTL, func() { _ = h.GiveUp(s.other.Context()) })
		began := s.subject.Link.Counts()[faultstore.OpGet]
		s.acquire(s.subject)
		if n := s.subject.Link.Counts()[faultstore.OpGet] - began; n > 60 { // one in 133 ms
			s.Fail("it asked %d times in %v", n, 2*stageTTL)
		}
	})
}

// A watch that was cut off for so long that the record does not tell all that
// happened tells it nevertheless.
//
// SPEC LS9 LS13
func TestWatchTellsWhatWasArchived(t *testing.T) {
	for name, powers := range map[string]store.Power{"watch": store.CanWatch, "poll": 0} {
		t.Run(name, func(t *testing.T) {
			scene(t, powers, func(s *stage) {
				s.turnover(s.other, 1)
				told := []string{}
				wait, cancel := s.subject.Within(s.subject.Context(), 9*stageTTL)
				defer cancel()
				for c, err := range s.subject.Client.Watch(wait, alpha) {
					if err != nil {
						continue
					}
					told = append(told, fmt.Sprint(c.Tenure.Token, " ", c.State))
					if len(told) == 1 {
						s.subject.Network(faultstore.Cut, stageTTL)
						s.turnover(s.other, 20)
					}
					if c.Tenure.Token == 21 && c.State == tenure.Released {
						break
					}
				}
				want := []string{"1 released"}
				for token := 2; token <= 21; token++ {
					want = append(want, fmt.Sprint(token, " held"), fmt.Sprint(token, " released"))
				}
				if !slices.Equal(told, want) {
					s.Fail("the watch told %v", told)
				}
			})
		})
	}
}

// An operator's act whose answer is lost, and whose record others change before
// it is read back, still says that it took effect.
//
// SPEC ST9 LS11
// CASE B02
func TestActThatTookEffect(t *testing.T) {
	acts := map[string]func(ctx context.Context, c *tenure.Client, s tenure.Status) error{
		"vouch": func(ctx context.Context, c *tenure.Client, s tenure.Status) error {
			_, err := c.Steal(ctx, alpha, tenure.StealOptions{Token: s.Token, Reason: "dead", By: "a", Vouch: true})
			return err
		},
		"release by proof": func(ctx context.Context, c *tenure.Client, s tenure.Status) error {
			return c.ReleaseByProof(ctx, alpha, s.Token, s.Owner)
		},
	}
	for name, act := range acts {
		t.Run(name, func(t *testing.T) {
			scene(t, 0, func(s *stage) {
				ctx := s.subject.Context()
				dead(s)
				st, err := s.subject.Client.Status(ctx, alpha)
				s.must(err)
				third := s.Spawn("c.1", 1)
				s.must(third.Open(third.Context()))
				s.subject.Link.Add(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpReplace}, Times: 1, Fault: faultstore.LoseReply()})
				s.subject.At(2, false, func() { s.turnover(third, 2) }) // before it reads back
				if err := act(ctx, s.subject.Client, st); err != nil {
					s.Fail("it took effect, and the answer is: %v", err)
				}
			})
		})
	}
}

// A release whose answer was lost says that it took effect, also after others
// held the lease so often that the record tells nothing of it any more.
//
// SPEC LS5 LS13
// CASE B42 B43
func TestReleaseOfLongAgo(t *testing.T) {
	scene(t, 0, func(s *stage) {
		holds(s)
		s.subject.At(0, false, func() {
			time.AfterFunc(20*time.Microsecond, func() { s.subject.Network(faultstore.Cut, 0) }) // it is on its way
		})
		err := s.held.GiveUp(s.subject.Context())
		if !errors.Is(err, tenure.ErrUnconfirmed) {
			s.Fail("the release, cut off, says %v", err)
		}
		s.turnover(s.other, 20)
		s.subject.Network(faultstore.Up, 0)
		if err := s.held.Release(s.subject.Context()); err != nil {
			s.Fail("the release took effect long ago, and its answer is: %v", err)
		}
	})
}

// A client that is closed while its acquisition is on its way leaves nothing
// behind.
//
// SPEC ST9 LS5
// CASE B24 B72
func TestCloseDuringAcquire(t *testing.T) {
	scene(t, 0, func(s *stage) {
		closed := make(chan struct{})
		s.subject.At(2, false, func() { // the write: it is sent, and then the client is closed
			time.AfterFunc(20*time.Microsecond, func() { _ = s.subject.Client.Close(); close(closed) })
		})
		_, err := s.subject.Client.Acquire(s.subject.Context(), alpha)
		if !errors.Is(err, tenure.ErrClosed) {
			s.Fail("acquired from a closed client: %v", err)
		}
		<-closed
		if l, err := s.other.Client.TryAcquire(s.other.Context(), alpha); err != nil {
			s.Fail("what was given up at Close is still held: %v", err)
		} else {
			_ = s.other.Handed(l).GiveUp(s.other.Context())
		}
	})
}

// A hand-over that is not confirmed stays one while it is tried again, and who
// asks again for its end is answered within the limit.
//
// SPEC LS5 LS10
// CASE B43 B73
func TestUnconfirmedHandOver(t *testing.T) {
	scene(t, 0, func(s *stage) {
		holds(s)
		s.subject.Network(faultstore.Cut, 0)
		for range 2 {
			if err := s.held.HandOver(s.subject.Context(), "b", stageTTL); !errors.Is(err, tenure.ErrUnconfirmed) {
				s.Fail("handed over a cut link: %v", err)
			}
		}
		s.subject.Network(faultstore.Up, 0)
		s.subject.Sleep(s.subject.Context(), stageTTL/2) // it goes on trying
		l, err := s.other.Client.TryAcquire(s.other.Context(), alpha, tenure.As("b"))
		if err != nil {
			s.Fail("the successor was refused: %v", err)
			return
		}
		_ = s.other.Handed(l).GiveUp(s.other.Context())
	})
}

// A holder that is stopped between asking whether it is live and writing is
// refused by the guard, once another has written.
//
// SPEC GD1 LS7
// CASE B12 B40
func TestStoppedWriterIsRefused(t *testing.T) {
	for name, stop := range map[string]func(p *world.Proc){
		"stopped":   func(p *world.Proc) { p.Pause(3 * stageTTL) },
		"suspended": func(p *world.Proc) { p.Suspend(3 * stageTTL) },
	} {
		t.Run(name, func(t *testing.T) {
			scene(t, 0, func(s *stage) {
				holds(s)
				time.AfterFunc(5*time.Millisecond, func() { stop(s.subject) })
				written := make(chan struct{})
				go func() {
					defer close(written)
					s.held.Write(context.Background(), 10*time.Millisecond, time.Millisecond)
				}()
				next := s.acquire(s.other)
				next.Write(context.Background(), time.Millisecond, time.Millisecond)
				<-written
				time.Sleep(stageTTL / 4)
				if s.held.Live() || s.held.Err() == nil {
					s.Fail("live after it was stopped for three TTLs: %v", s.held.Err())
				}
				if n := s.Verdict().Stats["guard refused"]; n != 1 {
					s.Fail("the guard refused %d writes, want 1", n)
				}
			})
		})
	}
}

// A store that hangs while one caller takes the lock of the process holds up
// nobody else.
//
// SPEC ST13
func TestHungWitnessHoldsUpNobodyElse(t *testing.T) {
	t.Parallel()
	st := &hungProver{Store: memstore.New(), asked: make(chan struct{}), answer: make(chan struct{})}
	c, err := tenure.New(t.Context(), st, tenure.WithoutProbe())
	if err != nil {
		t.Fatal(err)
	}
	first := make(chan error, 1)
	go func() {
		_, err := c.Acquire(t.Context(), "one", tenure.NoChildren())
		first <- err
	}()
	<-st.asked
	second := make(chan error, 1)
	go func() {
		_, err := c.Acquire(t.Context(), "two")
		second <- err
	}()
	select {
	case err := <-second:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("an acquisition that needs no lock waits for one that does")
	}
	close(st.answer)
	if err := <-first; err != nil {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// hungProver does not answer whoever wants a lock until it may.
type hungProver struct {
	*memstore.Store
	asked, answer chan struct{}
}

func (h *hungProver) Info() store.Info {
	i := h.Store.Info()
	i.Can |= store.CanProve
	return i
}

func (h *hungProver) NewWitness(context.Context) (store.Witness, error) {
	close(h.asked)
	<-h.answer
	return noWitness{}, nil
}

func (h *hungProver) Gone(context.Context, store.Mark) (bool, error) { return false, nil }

func (h *hungProver) WatchGone(ctx context.Context, _ store.Mark) error {
	<-ctx.Done()
	return store.CtxErr(ctx, "test", "watch gone", "")
}

type noWitness struct{}

func (noWitness) Mark() store.Mark { return store.Mark{Boot: "test", Dev: 1, Inode: 1} }
func (noWitness) Close() error     { return nil }
