package membership

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/tenure-project/tenure/internal/core/identity"
	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
	"github.com/tenure-project/tenure/store/memstore"
)

func errorsIs(err, kind error) bool { return errors.Is(err, kind) }

// Ten thousand leases of one dead session cost one observation and one fence, and
// then no request at all.
//
// SPEC LS8 LS9 PL6
func TestAwaitOverIsShared(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.proc(), w.proc(polling)
		m := a.join()
		time.Sleep(ttl)
		a.die()
		const callers = 10_000
		var wg sync.WaitGroup
		used := b.used(func() {
			within(t, "the wait", took(func() {
				for range callers {
					wg.Go(func() {
						e, err := b.AwaitOver(t.Context(), node, m.Owner())
						if err != nil || e.How != lease.HowObserved || len(e.Cite) > lease.MaxEvidence {
							t.Errorf("%+v, %v", e, err)
						}
					})
				}
				wg.Wait()
			}), stretched, stretched+time.Second)
		})
		// One read per poll of 200 ms, the last one ripe; takeover and two names.
		if used != "get 52, create 2, replace 1" {
			t.Errorf("it used %q", used)
		}
		if used := b.used(func() {
			e, err := b.AwaitOver(t.Context(), node, m.Owner())
			over, left, err2 := b.Over(t.Context(), node, m.Owner())
			if err != nil || err2 != nil || e != over || left != 0 || e.Cite != string(must[[]byte](t)(w.sealed()[m.Owner().Incarnation].Encode())) {
				t.Errorf("%+v, %v, %+v, %v", e, err, over, err2)
			}
		}); used != "" {
			t.Errorf("later callers used %q", used)
		}
	})
}

// Callers that leave end the wait when the last of them does, and a store in
// trouble is ridden out.
//
// SPEC LS9 ST13
func TestAwaitOverCallersLeave(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.proc(), w.proc(polling)
		m := a.join()
		var wg sync.WaitGroup
		for n := range 10 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(n+1)*time.Second)
			defer cancel()
			wg.Go(func() {
				_, err := b.AwaitOver(ctx, node, m.Owner())
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("caller %d: %v", n, err)
				}
			})
		}
		wg.Wait()
		time.Sleep(time.Second)
		if used := b.used(func() { time.Sleep(ttl) }); used != "" || len(b.vigils) != 0 {
			t.Errorf("without callers it used %q, %d wait", used, len(b.vigils))
		}
		b.link.SetLink(faultstore.Refused)
		time.AfterFunc(ttl, func() { b.link.SetLink(faultstore.Up) })
		time.AfterFunc(2*ttl, func() { w.release(m) })
		within(t, "the wait", took(func() {
			e, err := b.AwaitOver(t.Context(), node, m.Owner())
			if err != nil || e.How != lease.HowReleased {
				t.Errorf("%+v, %v", e, err)
			}
		}), 2*ttl, 2*ttl+time.Second)
		_, err := b.AwaitOver(t.Context(), node, identity.Owner{Incarnation: w.newID(), Term: 9})
		wantErr(t, err, ErrMissingEvidence)
	})
}

// Over answers without waiting: by what was seen in this process, and by what
// short commands leave for each other.
//
// SPEC LS2 LS8
func TestOverAcrossCommands(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.proc()
		m := a.join()
		time.Sleep(ttl)
		for range 5 {
			e, left, err := w.proc(w.kept).Over(t.Context(), node, m.Owner())
			if err != nil || e != nil || left < ttl/2 {
				t.Fatalf("%+v, %v, %v", e, left, err)
			}
			time.Sleep(ttl)
		}
		a.die()
		for at := range 3 { // every half TTL a new command
			e, left, err := w.proc(w.kept).Over(t.Context(), node, m.Owner())
			if err != nil || (e != nil) != (at == 3) || e == nil && left <= 0 {
				t.Fatalf("at %d: %+v, %v, %v", at, e, left, err)
			}
			time.Sleep(ttl / 2)
		}
		e, _, err := w.proc(w.kept).Over(t.Context(), node, m.Owner())
		if err != nil || e == nil || e.Verdict.Certificate == nil {
			t.Fatalf("at last: %+v, %v", e, err)
		}
	})
}

// Evidence by force proves a death only after the superseded TTL from each
// reader's own first look, also if the operator vouched.
//
// SPEC LS11
func TestOverByForce(t *testing.T) {
	for _, vouch := range []bool{false, true} {
		inWorldNamed(t, map[bool]string{false: "forced", true: "vouched"}[vouch], func(t *testing.T, w *world) {
			a, b := w.proc(), w.proc()
			m := a.join()
			if err := b.Force(t.Context(), node, m.Owner(), identity.Operator{Why: "so", Vouch: vouch}); err != nil {
				t.Fatal(err)
			}
			a.die()
			time.Sleep(3 * ttl)
			e, left, err := b.Over(t.Context(), node, m.Owner())
			if e != nil || err != nil || left != stretched {
				t.Fatalf("%+v, %v, %v", e, left, err)
			}
			next := b.join() // meanwhile the name passes on
			within(t, "the rest", took(func() {
				e, err := b.AwaitOver(t.Context(), node, m.Owner())
				if want := map[bool]string{false: lease.HowForced, true: lease.HowVouched}[vouch]; err != nil || e.How != want || e.Verdict.Wait != ttl {
					t.Errorf("%+v, %v", e, err)
				}
			}), 0, stretched+time.Millisecond)
			within(t, "another reader's wait", took(func() {
				if _, err := w.proc().AwaitOver(t.Context(), node, m.Owner()); err != nil {
					t.Error(err)
				}
			}), stretched, stretched+time.Second)
			// Folded, it may rest on force, and says so.
			w.release(next)
			for range 2 {
				w.release(b.join())
			}
			if _, err := b.Prune(t.Context(), node, 0); err != nil {
				t.Fatal(err)
			}
			within(t, "the wait for folded evidence", took(func() {
				e, err := w.proc().AwaitOver(t.Context(), node, m.Owner())
				if err != nil || e.How != lease.HowForced || !e.Verdict.Folded {
					t.Fatalf("%+v, %v", e, err)
				}
				c := must[*identity.Citation](t)(identity.ParseCitation([]byte(e.Cite)))
				if c.Incarnation != m.Owner().Incarnation || c.Term != 1 || c.Head.Term <= 1 {
					t.Errorf("%+v", c)
				}
			}), stretched, stretched+time.Second)
		})
	}
}

// Many processes wait for one dead session: one fences it, and all get evidence.
//
// SPEC LS8 PL3
func TestAwaitOverInManyProcesses(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.proc()
		m := a.join()
		a.die()
		var wg sync.WaitGroup
		for range 10 {
			p := w.proc()
			wg.Go(func() {
				if e, err := p.AwaitOver(t.Context(), node, m.Owner()); err != nil || e.How != lease.HowObserved {
					t.Errorf("%+v, %v", e, err)
				}
			})
		}
		wg.Wait()
		if n := len(w.sealed()); n != 1 {
			t.Errorf("%d certificates", n)
		}
	})
}

// prover is a store whose kernel proves deaths.
type prover struct {
	*memstore.Store
	dead chan struct{}
}

func (p *prover) Info() store.Info { i := p.Store.Info(); i.Can |= store.CanProve; return i }

func (p *prover) NewWitness(context.Context) (store.Witness, error) { return nil, store.ErrInvalid }

func (p *prover) Gone(_ context.Context, m store.Mark) (bool, error) {
	select {
	case <-p.dead:
		return m.Boot == "boot", nil
	default:
		return false, nil
	}
}

func (p *prover) WatchGone(ctx context.Context, _ store.Mark) error {
	select {
	case <-p.dead:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A death that the kernel proves is evidence at once, for who waits and for who
// joins.
//
// SPEC LS14 PL2
func TestProvenDeath(t *testing.T) {
	for _, join := range []bool{false, true} {
		inWorldNamed(t, map[bool]string{false: "over", true: "join"}[join], func(t *testing.T, w *world) {
			dead := make(chan struct{})
			a := w.proc()
			b := w.proc(func(s *setup) { s.inner = &prover{Store: w.st.Peer(), dead: dead} })
			m, err := a.tryJoin(t.Context(), true, func(c *Claim) {
				c.Lock = &lease.Lock{Mark: store.Mark{Boot: "boot", Dev: 1, Inode: 2}, Tree: "none"}
			})
			if err != nil {
				t.Fatal(err)
			}
			time.AfterFunc(ttl, func() {
				a.die()
				m.Abandon(errors.New("killed"))
				close(dead)
			})
			within(t, "the wait", took(func() {
				if join {
					w.release(b.join())
				} else if e, err := b.AwaitOver(t.Context(), node, m.Owner()); err != nil || e.How != lease.HowProven {
					t.Errorf("%+v, %v", e, err)
				}
			}), ttl, ttl+10*time.Millisecond)
			if c := w.sealed()[m.Owner().Incarnation]; c == nil || c.How != lease.HowProven {
				t.Errorf("%+v", c)
			}
		})
	}
}

// Where the namespace uses the store's clock, a process that never saw the owner
// before may take over what has been silent long enough.
//
// SPEC LS3
func TestStoreClock(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		clocked := func(s *setup) {
			s.cfg.StoreClock = func(ctx context.Context) (string, time.Time, error) {
				r, err := w.st.Now(ctx)
				return r.Instance, r.Time, err
			}
		}
		a := w.proc(clocked)
		m := a.join()
		if w.head().ClockInstance == "" {
			t.Fatal("the record names no clock")
		}
		a.die()
		time.Sleep(ttl)
		if e, left, err := w.proc(clocked).Over(t.Context(), node, m.Owner()); e != nil || err != nil || left <= 0 {
			t.Errorf("too early: %+v, %v", e, err)
		}
		time.Sleep(ttl)
		e, _, err := w.proc(clocked).Over(t.Context(), node, m.Owner())
		if err != nil || e == nil || e.How != lease.HowStoreClock {
			t.Errorf("%+v, %v", e, err)
		}
	})
}

// What is remembered is bounded.
func TestBounded(t *testing.T) {
	t.Parallel()
	b := newBounded[int, int](3)
	for n := range 10 {
		b.put(n, n)
		b.put(n, -n)
	}
	for n := range 10 {
		if v, ok := b.get(n); ok != (n >= 7) || ok && v != -n {
			t.Errorf("%d: %d, %v", n, v, ok)
		}
	}
}
