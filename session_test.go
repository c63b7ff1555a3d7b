package tenure

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func (w *world) session(p *peer, node string, opts ...AcquireOption) *Session {
	w.t.Helper()
	s, err := p.Join(w.t.Context(), node, opts...)
	if err != nil {
		w.t.Fatalf("join %q: %v", node, err)
	}
	return s
}

func (w *world) under(s *Session, name string, opts ...AcquireOption) *Lease {
	w.t.Helper()
	l, err := s.Acquire(w.t.Context(), name, opts...)
	if err != nil {
		w.t.Fatalf("acquire %q: %v", name, err)
	}
	return l
}

func (w *world) leave(s *Session) {
	w.t.Helper()
	if err := s.Leave(w.t.Context()); err != nil {
		w.t.Fatalf("leave: %v", err)
	}
}

// One renewal per interval keeps any number of leases, and acquiring under a session
// costs what it costs without.
//
// SPEC LS8
func TestSessionRequests(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.join(WithRetention(0))
		s := w.session(a, "n1")
		time.Sleep(ttl / 2)
		a.link.take()
		l := w.under(s, "first")
		if got := a.link.take(); got["get"] != 2 || got["create"] != 1 || len(got) != 2 {
			t.Errorf("a new name takes %v, want absence, floor and create", got)
		}
		if l.Token() != 1 || l.Proof() != (Proof{"n1", s.Proof().Incarnation, 1, 1}) {
			t.Errorf("token %d, proof %+v", l.Token(), l.Proof())
		}
		w.release(l)
		a.link.take()
		w.under(s, "first")
		if got := a.link.take(); got["get"] != 1 || got["replace"] != 1 || len(got) != 2 {
			t.Errorf("a known name takes %v, want read and replace", got)
		}
		for i := range 100 {
			w.under(s, fmt.Sprint("job-", i))
		}
		a.link.take()
		time.Sleep(20 * ttl / 5)
		got := a.link.take()
		if n := got["replace"]; n < 20 || n > 24 || got["get"] > 1 || got["create"] != 0 { // one read of the first, then hourly, clean-up
			t.Errorf("100 leases over 20 intervals take %v", got)
		}
		for l := range s.leases {
			if !l.Live() {
				t.Errorf("%s is over: %v", l.Name(), l.Err())
			}
		}
	})
}

// A rival takes the leases of a dead session after one observation of its identity,
// however many they are.
//
// SPEC LS8
// SPEC LS9
// SPEC PL6
func TestDeadSessionIsObservedOnce(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		const many = 50
		a, b := w.join(WithRetention(0)), w.join(WithRetention(0))
		s := w.session(a, "n1")
		for i := range many {
			w.under(s, fmt.Sprint("job-", i))
		}
		a.die()
		died := time.Now()
		s2 := w.session(b, "n2")
		b.link.take()
		var wg sync.WaitGroup
		for i := range many {
			wg.Go(func() {
				l := w.under(s2, fmt.Sprint("job-", i))
				if l.Token() != 2 {
					t.Errorf("token %d", l.Token())
				}
			})
		}
		wg.Wait()
		if took := time.Since(died); took < ttl || took > ttl+ttl/4 {
			t.Errorf("taken over after %v, the TTL is %v", took, ttl)
		}
		got := b.link.take()
		// Per lease: two looks, one write. Once: the observation, and the fence with
		// its two names.
		if got["replace"] > many+1+5 || got["create"] != 2 || got["get"] > 2*many+30 || got["list"] != 0 {
			t.Errorf("%d leases were taken over with %v", many, got)
		}
		if err := s2.Leave(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A clean leave frees the name at once; a crash makes it wait for one TTL; a fence
// frees it at once again.
//
// SPEC PL6
// SPEC PL8
// SPEC PL9
func TestRestart(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b, c, d := w.join(), w.join(), w.join(), w.join()
		s := w.session(a, "n1")
		_, err := b.TryJoin(t.Context(), "n1")
		wantErr(t, err, ErrHeld)
		var held *HeldError
		if !errors.As(err, &held) || held.Node != "n1" || held.Owner != s.Proof().Incarnation {
			t.Fatalf("%+v", held)
		}
		w.leave(s)
		began := time.Now()
		s = w.session(b, "n1")
		if took := time.Since(began); took != 0 || s.Proof().Term != 2 {
			t.Errorf("after a leave: %v, term %d", took, s.Proof().Term)
		}
		b.die()
		began = time.Now()
		s = w.session(c, "n1")
		if took := time.Since(began); took < ttl-ttl/5 || took > ttl+ttl/4 || s.Proof().Term != 3 {
			t.Errorf("after a crash: %v, term %d", took, s.Proof().Term)
		}
		dead := s.Proof()
		c.die()
		cert, err := d.FenceIncarnation(t.Context(), "n1", dead.Incarnation, 5*ttl)
		if err != nil || cert.Predecessor != dead || cert.How != "observed" || !cert.Revoker {
			t.Fatalf("%+v, %v", cert, err)
		}
		wantErr(t, d.VerifyCurrent(t.Context(), dead), ErrNotCurrent)
		began = time.Now()
		s = w.session(d, "n1")
		if took := time.Since(began); took != 0 || s.Proof().Term != 5 {
			t.Errorf("after a fence: %v, term %d", took, s.Proof().Term)
		}
		if err := d.VerifyCurrent(t.Context(), s.Proof()); err != nil {
			t.Error(err)
		}
		w.leave(s)
	})
}

// The next start of a node takes the leases of the one before at once, and the
// records cite the certificate.
//
// SPEC LS8
// SPEC PL3
func TestRestartTakesItsLeasesBack(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.join(), w.join()
		s := w.session(a, "n1")
		for i := range 3 {
			w.under(s, fmt.Sprint("job-", i))
		}
		dead := s.Proof()
		a.die()
		s = w.session(b, "n1")
		began := time.Now()
		for i := range 3 {
			l, err := s.TryAcquire(t.Context(), fmt.Sprint("job-", i))
			if err != nil || l.Token() != 2 {
				t.Fatal(err)
			}
			rec, _ := l.state()
			cert, err := b.VerifyCertificate(t.Context(), []byte(rec.Evidence))
			if err != nil || cert.Predecessor != dead || cert.Successor != s.Proof() {
				t.Fatalf("%q cites %+v: %v", l.Name(), cert, err)
			}
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("took %v", took)
		}
		h, err := b.History(t.Context(), "job-1")
		if err != nil || len(h.Tenures) != 2 || h.Tenures[0].How != "observed" {
			t.Errorf("%+v, %v", h, err)
		}
	})
}

// The history of a lease says who forced its session out, and why.
//
// SPEC LS13 LS11
func TestHistoryTellsWhoForced(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.join(), w.join()
		s := w.session(a, "n1")
		w.under(s, "job")
		if err := b.ForceNode(t.Context(), s.Proof(), StealOptions{Reason: "burnt", By: "anna"}); err != nil {
			t.Fatal(err)
		}
		w.acquire(b, "job")
		h, err := b.History(t.Context(), "job")
		if err != nil || h.Tenures[0].How != "forced" || h.Tenures[0].Why != "burnt" || h.Tenures[0].By != "anna" {
			t.Errorf("%+v, %v", h, err)
		}
	})
}

// Leases that pass on by crashes only keep their whole history, too.
//
// SPEC LS13
func TestHistoryOfCrashes(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		const crashes = 40
		for i := range crashes {
			p := w.join()
			s := w.session(p, "n1")
			if l := w.under(s, "job"); l.Token() != uint64(i+1) {
				t.Fatal(l.Token())
			}
			synctest.Wait()
			p.die()
		}
		h, err := w.join().History(t.Context(), "job")
		if err != nil || len(h.Tenures) != crashes || h.Dropped != 0 {
			t.Errorf("%d tenures, %d dropped, %v", len(h.Tenures), h.Dropped, err)
		}
	})
}

// What rests on a session ends with it, for the same cause, at its own T.
//
// SPEC DL6
// SPEC PL8
func TestSessionEndsItsLeases(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.join()
		s := w.session(a, "n1")
		l, stopping := w.under(s, "job"), w.under(s, "slow", Stop(2*time.Second))
		began := time.Now()
		a.die()
		<-stopping.Done()
		if took := time.Since(began); took > 7*time.Second+time.Millisecond || !stopping.Live() || l.Err() != nil {
			t.Errorf("the work that needs time to stop was told after %v", took)
		}
		<-l.Done()
		<-s.Lost()
		if took := time.Since(began); took > 9*time.Second+time.Millisecond || l.Live() || stopping.Live() || s.Live() {
			t.Errorf("ended after %v", took)
		}
		wantErr(t, l.Err(), ErrExpired, ErrLost)
		wantErr(t, s.Err(), ErrExpired, ErrLost)
		_, err := s.Acquire(t.Context(), "more")
		wantErr(t, err, ErrLost)
		a.link.heal()
		wantErr(t, s.Leave(t.Context()), ErrLost)
		wantErr(t, l.Release(t.Context()), nil...)
	})
}

// A grant whose answer comes after the session's end is handed to nobody.
//
// SPEC DL6
func TestLateGrantUnderASession(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.join(), w.join()
		s := w.session(a, "n1")
		cut := false
		a.link.set(func(op string) fault {
			switch {
			case op == "create" && !cut:
				cut = true
				return lose
			case cut:
				return hang
			}
			return pass
		})
		_, err := s.Acquire(t.Context(), "job")
		wantErr(t, err, ErrLost)
		if s.Live() {
			t.Error("the session lives")
		}
		if l := w.acquire(b, "job"); l.Token() != 2 {
			t.Errorf("token %d", l.Token())
		}
	})
}

// An acquisition whose answer was lost is settled before the session leaves: its
// name is released only when nothing of it is left.
//
// SPEC LS8
// SPEC PL8
func TestDoubtsAreSettled(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.join(), w.join()
		s := w.session(a, "n1")
		a.link.set(func(op string) fault {
			switch op {
			case "create":
				return lose
			case "get":
				return refuse
			}
			return pass
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.Acquire(ctx, "job"); err == nil {
			t.Fatal("acquired")
		}
		a.link.set(func(op string) fault {
			if op == "create" {
				return lose
			}
			return pass
		})
		ctx2, cancel2 := context.WithTimeout(t.Context(), time.Second)
		defer cancel2()
		if _, err := s.Acquire(ctx2, "job"); err == nil {
			t.Fatal("acquired")
		}
		a.link.heal()
		w.leave(s)
		l, err := b.TryAcquire(t.Context(), "job")
		if err != nil {
			t.Fatalf("left behind: %v", err)
		}
		w.release(l)
		w.leave(w.session(b, "n1"))
	})
}

// A candidate leads again and again, with a new token each time, until it is told
// to stop.
//
// SPEC UI2
func TestElect(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.join(), w.join()
		s1, s2 := w.session(a, "n1"), w.session(b, "n2")
		var mu sync.Mutex
		leading, terms := 0, []uint64{}
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for _, s := range []*Session{s1, s2} {
			wg.Go(func() {
				err := s.Elect(ctx, "leader", func(ctx context.Context, l *Lease) error {
					mu.Lock()
					leading++
					if leading != 1 {
						t.Errorf("%d lead", leading)
					}
					terms = append(terms, l.Token())
					mu.Unlock()
					select {
					case <-ctx.Done():
					case <-time.After(time.Second): // virtual
					}
					mu.Lock()
					leading--
					mu.Unlock()
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(20 * time.Second)
		stop()
		wg.Wait()
		for i, term := range terms {
			if term != uint64(i+1) {
				t.Fatalf("tokens %v", terms)
			}
		}
		if len(terms) < 10 {
			t.Errorf("led %d times in 20 s", len(terms))
		}
		boom := errors.New("boom")
		wantErr(t, s1.Elect(t.Context(), "leader", func(context.Context, *Lease) error { return boom }), boom)
		w.leave(s1)
		wantErr(t, s1.Elect(t.Context(), "leader", func(context.Context, *Lease) error { return nil }), ErrReleased)
	})
}

// What belongs to the session is refused as an option of a lease, and the other way
// round.
//
// SPEC DL5
func TestSessionOptions(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.join()
		for _, o := range []AcquireOption{Stop(time.Second), As("x"), Guards(nil), StopLimit(time.Second)} {
			_, err := a.Join(t.Context(), "n1", o)
			wantErr(t, err, ErrInvalid)
		}
		_, err := a.Join(t.Context(), " n1")
		wantErr(t, err, ErrInvalid)
		_, err = a.Join(t.Context(), "n1", TTL(time.Millisecond))
		wantErr(t, err, ErrInvalid)
		s := w.session(a, "n1", TTL(20*time.Second), Note("rack 7"))
		if s.TTL() != 20*time.Second || s.Node() != "n1" {
			t.Error(s.TTL(), s.Node())
		}
		for _, o := range []AcquireOption{TTL(time.Second), NoChildren(), ContainedIn("/x"), Stop(19 * time.Second)} {
			_, err := s.Acquire(t.Context(), "job", o)
			wantErr(t, err, ErrInvalid)
		}
		n, err := a.Node(t.Context(), "n1")
		if err != nil || n.Note != "rack 7" || n.State != Held || n.TTL != 20*time.Second {
			t.Errorf("%+v, %v", n, err)
		}
		w.leave(s)
		w.leave(s) // twice is fine
	})
}
