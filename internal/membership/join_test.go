package membership

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-project/tenure/internal/core/identity"
	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

// The first process gets term 1; its renewals are one request each.
//
// SPEC PL1 LS4
func TestFirstJoin(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.proc()
		var m *Member
		if used := p.used(func() { m = p.join() }); used != "get 1, create 1" {
			t.Errorf("a first join used %q, and two reads of the floor", used)
		}
		if r := w.head(); r.Term != 1 || r.Sequence != 1 || r.Counter != 1 || !r.OwnedBy(m.Owner()) || r.Note != "a note" || r.TTL() != ttl {
			t.Errorf("the record is %+v", r)
		}
		used := p.used(func() {
			time.Sleep(10 * ttl)
			synctest.Wait()
		})
		if n := w.head().Sequence - 1; n < 50 || n > 58 || used != "replace "+itoa(n) {
			t.Errorf("%d renewals in 10 TTL used %q", n, used)
		}
		if h := m.Health(); h.Err != nil || h.InDoubt != 0 || h.Unsealed || !m.Deadline().Live() || m.Record().Sequence != w.head().Sequence {
			t.Errorf("health %+v", h)
		}
		w.release(m)
	})
}

func itoa(n uint64) string { return string(appendUint(nil, n)) }

func appendUint(b []byte, n uint64) []byte {
	if n >= 10 {
		b = appendUint(b, n/10)
	}
	return append(b, '0'+byte(n%10))
}

// A clean leave frees the name at once, and its successor seals how it ended.
//
// SPEC PL8 PL3 PL4, hazard 11
func TestReleaseThenJoin(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.proc(), w.proc()
		first := a.join()
		if used := a.used(func() { w.release(first) }); used != "replace 1" {
			t.Errorf("a release used %q", used)
		}
		wantErr(t, first.Deadline().Cause(), ErrReleased)
		var second *Member
		if used := b.used(func() { within(t, "the join", took(func() { second = b.join() }), 0, 0) }); used != "get 1, create 2, replace 1" {
			t.Errorf("a join after a release used %q", used)
		}
		c := w.sealed()[first.Owner().Incarnation]
		if c == nil || c.How != lease.HowReleased || c.Successor.Incarnation != second.Owner().Incarnation || second.Owner().Term != 2 {
			t.Errorf("the certificate is %+v", c)
		}
		if !second.Health().Unsealed {
			t.Error("the record dropped its certificate within the takeover")
		}
		if used := b.used(func() { time.Sleep(ttl / 4) }); used != "replace 1" || second.Health().Unsealed || w.head().SealedTerm != 2 {
			t.Errorf("the first renewal used %q and left %+v", used, w.head())
		}
		w.release(second)
		if err := second.Release(t.Context()); err != nil {
			t.Errorf("a second release: %v", err)
		}
	})
}

// A name whose process was killed is free after one observation, on a store that
// watches and on one that does not.
//
// SPEC PL2 PL9 DL5
func TestTakeoverAfterSilence(t *testing.T) {
	for name, opt := range map[string]func(*setup){"watching": func(*setup) {}, "polling": polling} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				a, b := w.proc(), w.proc(opt)
				first := a.join()
				time.Sleep(3 * ttl)
				a.die()
				seq := w.head().Sequence
				var second *Member
				within(t, "the takeover", took(func() { second = b.join() }), stretched, stretched+400*time.Millisecond)
				if r := w.head(); r.Sequence != seq+1 || r.Term != 2 || !r.OwnedBy(second.Owner()) {
					t.Errorf("the record is %+v", r)
				}
				if c := w.sealed()[first.Owner().Incarnation]; c == nil || c.How != lease.HowObserved {
					t.Errorf("the certificate is %+v", c)
				}
				wantErr(t, first.Deadline().Cause(), errExpired)
				w.release(second)
			})
		})
	}
}

// A second process with the name never runs beside the first: it is told who
// owns it, or waits.
//
// SPEC PL9
func TestTwoProcessesOneName(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.proc(), w.proc()
		first := a.join()
		_, err := b.tryJoin(t.Context(), false, nil)
		var held *HeldError
		if !errors.As(err, &held) || held.Owner != first.Owner() || held.Note != "a note" || held.Free != "" || !errors.Is(err, ErrHeld) {
			t.Fatalf("the second was told %v", err)
		}
		waits, cancel := context.WithTimeout(t.Context(), 5*ttl)
		defer cancel()
		if _, err := b.tryJoin(waits, true, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("beside a live process: %v", err)
		}
		joined := make(chan *Member)
		go func() { joined <- b.join() }()
		time.Sleep(ttl)
		within(t, "the hand-over", took(func() { w.release(first); first = <-joined }), 0, time.Second)
		if first.Owner().Term != 2 {
			t.Errorf("the owner is %+v", first.Owner())
		}
		w.release(first)
	})
}

// Many join at once: one wins, and each of the others gets its turn.
//
// SPEC PL2 PL9
func TestManyJoin(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		terms := make(chan uint64, 20)
		for range cap(terms) {
			p := w.proc()
			go func() {
				m := p.join()
				terms <- m.Owner().Term
				time.Sleep(time.Second)
				w.release(m)
			}()
		}
		seen := map[uint64]bool{}
		for range cap(terms) {
			seen[<-terms] = true
		}
		time.Sleep(2 * time.Second)
		if len(seen) != cap(terms) || len(w.sealed()) != cap(terms)-1 {
			t.Errorf("%d terms, %d certificates", len(seen), len(w.sealed()))
		}
	})
}

// A process that dies between its takeover and each of its writes after it leaves
// nothing that its successor does not heal.
//
// SPEC PL4, hazard 10
func TestCrashWindow(t *testing.T) {
	for after, wantSealed := range []int{0, 0, 1} { // after the takeover, the first seal, the second
		t.Run(itoa(uint64(after)), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				a, c := w.proc(), w.proc()
				first := a.join()
				w.release(first)

				var b *proc
				left := after + 1 // writes that succeed
				b = w.proc(func(s *setup) {
					s.link.Trace = func(e faultstore.Event) {
						if e.Done && e.Op.Writes() && e.Err == nil {
							if left--; left == 0 {
								go b.die()
							}
						}
					}
					s.link.Rules = []faultstore.Rule{{Skip: after + 1, Ops: []faultstore.Op{faultstore.OpCreate, faultstore.OpReplace}, Fault: faultstore.Hang()}}
				})
				ctx, cancel := context.WithTimeout(t.Context(), ttl/4)
				defer cancel()
				_, err := b.tryJoin(ctx, true, nil)
				if after < 2 && err == nil {
					t.Fatal("it joined without its certificate")
				}
				crashed := w.head()
				if crashed.Term != 2 || crashed.Certificate == nil {
					t.Fatalf("the crash left %+v", crashed)
				}
				if after == 2 && len(w.sealed()) != wantSealed {
					t.Fatalf("%d certificates are sealed", len(w.sealed()))
				}
				m := c.join()
				if m.Owner().Term != 3 {
					t.Errorf("the third owner is %+v", m.Owner())
				}
				all := w.sealed()
				if all[first.Owner().Incarnation] == nil || !all[first.Owner().Incarnation].Equal(crashed.Certificate) || all[crashed.Incarnation] == nil {
					t.Errorf("certificates %v", all)
				}
				for _, o := range []identity.Owner{first.Owner(), crashed.Last()} {
					if v, _, err := c.Judge(t.Context(), node, o); err != nil || v.State != identity.Over {
						t.Errorf("%+v is %+v, %v", o, v, err)
					}
				}
				w.release(m)
			})
		})
	}
}

// Without its certificate nothing acts: what cannot be sealed before the deadline
// is given back.
//
// SPEC PL4 DL4
func TestUnsealedDoesNotAct(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.proc()
		w.release(a.join())
		b := w.proc()
		b.link.Add(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpCreate}, Fault: faultstore.Fail(store.ErrDenied)})
		_, err := b.tryJoin(t.Context(), true, nil)
		wantErr(t, err, store.ErrDenied)
		time.Sleep(time.Second)
		if r := w.head(); r.Held() || r.Term != 2 || r.Certificate == nil {
			t.Errorf("it left %+v", r)
		}
		b.link.Clear()
		b.link.Add(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpCreate}, Fault: faultstore.Hang()})
		short, cancel := context.WithTimeout(t.Context(), 3*ttl)
		defer cancel()
		if m, err := b.tryJoin(short, true, nil); err == nil {
			t.Fatalf("it joined as %+v", m.Owner())
		}
		b.link.Clear()
		time.Sleep(3 * ttl)
		if r := w.head(); r.Held() {
			t.Errorf("it left %+v", r)
		}
		m := a.join()
		w.release(m)
		if len(w.sealed()) != int(m.Owner().Term)-1 {
			t.Errorf("%d certificates at term %d", len(w.sealed()), m.Owner().Term)
		}
	})
}

// A first join gets a term above the floor, also if that rises while it creates
// its record.
//
// SPEC PL1 LS12
func TestFloor(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.floor = 40
		p := w.proc(func(s *setup) {
			s.link.Trace = func(e faultstore.Event) {
				if e.Op == faultstore.OpCreate && e.Done && e.Key == recordKey {
					w.mu.Lock()
					w.floor = 100
					w.mu.Unlock()
				}
			}
		})
		m, err := p.tryJoin(t.Context(), false, nil)
		if err != nil || m.Owner().Term != 101 || w.head().FirstTerm != 41 {
			t.Fatalf("%v: %+v", err, w.head())
		}
		w.release(m)
	})
}

// A store in trouble is ridden out by a join that waits and told at once
// otherwise; a record that vanished is neither.
//
// SPEC PL2 PL9 ST13
func TestJoinInTrouble(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.proc()
		p.link.SetLink(faultstore.Refused)
		_, err := p.tryJoin(t.Context(), false, nil)
		wantErr(t, err, store.ErrUnavailable)
		p.link.SetLink(faultstore.Cut)
		within(t, "a try on a dead link", took(func() { _, err = p.tryJoin(t.Context(), false, nil) }), 0, tries*p.cfg.Timing.Attempt)
		wantErr(t, err, store.ErrUnavailable)
		time.AfterFunc(time.Minute, func() { p.link.SetLink(faultstore.Up) })
		within(t, "the join", took(func() { w.release(p.join()) }), time.Minute, time.Minute+ttl)

		a := w.proc()
		first := a.join()
		gone := make(chan error)
		go func() {
			_, err := p.tryJoin(t.Context(), true, nil)
			gone <- err
		}()
		time.Sleep(time.Second)
		a.die()
		if err := w.st.Delete(t.Context(), recordKey); err != nil {
			t.Fatal(err)
		}
		wantErr(t, <-gone, store.ErrCorrupt)
		_ = first
	})
}

// Bad input is refused before anything is sent.
//
// SPEC ST11 DL5
func TestJoinInput(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.proc()
		for what, edit := range map[string]func(*Claim){
			"no name": func(c *Claim) { c.Node = "" },
			"timing":  func(c *Claim) { c.Timing.Renew = c.Timing.TTL },
			"note":    func(c *Claim) { c.Note = string(make([]byte, 2000)) },
			"lock":    func(c *Claim) { c.Lock = &lease.Lock{Tree: "forest"} },
		} {
			_, err := p.tryJoin(t.Context(), true, edit)
			if !errors.Is(err, store.ErrInvalid) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if n := p.link.Counts()[faultstore.OpCreate]; n != 0 {
			t.Errorf("%d records were created", n)
		}
	})
}

// At the end of its numbers a name gives no more terms, and says so.
//
// SPEC ST11 PL1
func TestEndOfNumbers(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.proc()
		m := p.join()
		r := *m.Record()
		r.Sequence = record.MaxNumber - 1
		w.put(&r)
		m.set(&r, w.version())
		time.Sleep(ttl / 4)
		if m.Record().Sequence != record.MaxNumber {
			t.Fatalf("the sequence is %d", m.Record().Sequence)
		}
		time.Sleep(ttl / 2)
		wantErr(t, m.Deadline().Cause(), ErrLost, store.ErrInvalid)
		_, err := p.tryJoin(t.Context(), true, nil)
		wantErr(t, err, store.ErrInvalid)
		_, _, err = p.Over(t.Context(), node, m.Owner())
		wantErr(t, err, store.ErrInvalid)
		if _, _, err = p.Fence(t.Context(), node, m.Owner().Incarnation, time.Hour); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("fence: %v", err)
		}
		w.release(m) // it can still be given up
		_, err = p.tryJoin(t.Context(), true, nil)
		wantErr(t, err, store.ErrInvalid)
		if _, err := p.Jump(t.Context(), node, record.MaxNumber); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("jump: %v", err)
		}
	})
}

// put replaces the record past every link.
func (w *world) put(r *identity.Record) {
	w.t.Helper()
	body := must[[]byte](w.t)(r.Encode())
	must[store.Version](w.t)(w.st.Replace(context.Background(), recordKey, body, w.version()))
}

func (w *world) version() store.Version {
	return must[store.Object](w.t)(w.st.Get(context.Background(), recordKey, identity.MaxBody)).Version
}
