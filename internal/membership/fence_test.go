package membership

import (
	"context"
	"testing"
	"time"

	"github.com/tenure-project/tenure/internal/core/identity"
	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

// A fence of a process that was killed takes one observation. The next process then
// joins at once, and the fenced one can do nothing.
//
// SPEC PL6, hazard 11
func TestFence(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.proc(), w.proc(polling)
		first := a.join()
		time.Sleep(ttl)
		a.link.SetLink(faultstore.Cut)
		within(t, "the fence", took(func() {
			c, v, err := b.Fence(t.Context(), node, first.Owner().Incarnation, b.FenceTime(ttl))
			if err != nil || c.How != lease.HowObserved || v.State != identity.Over || v.Wait != 0 || !c.Equal(w.sealed()[first.Owner().Incarnation]) {
				t.Fatalf("%+v, %+v, %v", c, v, err)
			}
		}), stretched, stretched+time.Second)
		used := b.used(func() {
			within(t, "a second fence", took(func() {
				if _, _, err := b.Fence(t.Context(), node, first.Owner().Incarnation, time.Second); err != nil {
					t.Error(err)
				}
			}), 0, 0)
		})
		if used != "get 6, create 2" { // it seals what the head carries yet
			t.Errorf("a fence of one that is over used %q", used)
		}
		var second *Member
		within(t, "the join", took(func() { second = b.join() }), 0, 0)
		if second.Owner().Term != 3 || w.sealed()[w.revoker(2)].How != lease.HowReleased {
			t.Errorf("%+v, %v", second.Owner(), w.sealed())
		}
		a.link.SetLink(faultstore.Up)
		wantErr(t, first.Release(t.Context()), ErrSuperseded)
		w.release(second)
	})
}

// revoker is who owned term, by the certificates.
func (w *world) revoker(term uint64) string {
	for _, c := range w.sealed() {
		if c.Successor.Term == term {
			return c.Successor.Incarnation
		}
	}
	return ""
}

// Whoever renews is not fenced, whom nothing tells of is not over, and too little
// time is refused before anything happens.
//
// SPEC PL6 PL5
func TestFenceErrors(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.proc(), w.proc()
		_, _, err := b.Fence(t.Context(), node, w.newID(), time.Hour)
		wantErr(t, err, ErrMissingEvidence)
		m := a.join()
		before := w.version()
		_, _, err = b.Fence(t.Context(), node, m.Owner().Incarnation, ttl)
		wantErr(t, err, ErrTooShort)
		_, _, err = b.Fence(t.Context(), node, w.newID(), time.Hour)
		wantErr(t, err, ErrMissingEvidence)
		if w.version() != before {
			t.Error("a refused fence wrote something")
		}
		within(t, "the answer", took(func() {
			_, _, err = b.Fence(t.Context(), node, m.Owner().Incarnation, time.Hour)
			wantErr(t, err, ErrAlive)
		}), 0, ttl/4)
		// A revocation is no sign of life.
		a.link.SetLink(faultstore.Cut)
		time.Sleep(time.Second)
		time.AfterFunc(ttl/2, func() {
			_ = b.Revoke(context.Background(), node, m.Owner(), identity.Revocation{Resource: "r", Token: 1})
		})
		within(t, "the fence", took(func() {
			if _, _, err := b.Fence(t.Context(), node, m.Owner().Incarnation, time.Hour); err != nil {
				t.Error(err)
			}
		}), stretched+ttl/2, stretched+ttl/2+time.Second)
	})
}

// A fence of a released name is at once; one of a forced end passes its wait on.
//
// SPEC PL6 LS11
func TestFenceReleasedAndForced(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.proc(), w.proc()
		m := a.join()
		w.release(m)
		used := b.used(func() {
			within(t, "the fence", took(func() {
				c, _, err := b.Fence(t.Context(), node, m.Owner().Incarnation, ttl)
				if err != nil || c.How != lease.HowReleased {
					t.Errorf("%+v, %v", c, err)
				}
			}), 0, 0)
		})
		if used != "get 4, create 2, replace 1" {
			t.Errorf("it used %q", used)
		}
		m = b.join()
		if err := a.Force(t.Context(), node, m.Owner(), identity.Operator{Why: "so"}); err != nil {
			t.Fatal(err)
		}
		c, v, err := a.Fence(t.Context(), node, m.Owner().Incarnation, time.Hour)
		if err != nil || c.How != lease.HowForced || v.Wait != ttl {
			t.Fatalf("%+v, %+v, %v", c, v, err)
		}
		within(t, "the join after a forced fence", took(func() { w.release(a.join()) }), stretched, stretched+time.Second)
	})
}

// A retired node leaves a record that nobody owns and nothing removes; a process
// that lives is not retired.
//
// SPEC PL5
func TestRetire(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.proc(), w.proc()
		wantErr(t, b.Retire(t.Context(), node, time.Hour), store.ErrNotFound)
		m := a.join()
		wantErr(t, b.Retire(t.Context(), node, time.Hour), ErrAlive)
		wantErr(t, b.Retire(t.Context(), node, ttl), ErrTooShort)
		a.die()
		for range 2 {
			if err := b.Retire(t.Context(), node, time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		if r := w.head(); r.Held() || r.Counter != 2 || r.Certificate != nil || w.sealed()[m.Owner().Incarnation] == nil {
			t.Errorf("%+v", r)
		}
		m = b.join()
		w.release(m)
		if err := b.Retire(t.Context(), node, 0); err != nil {
			t.Errorf("of a released node: %v", err)
		}
	})
}

// A store that hangs or fails is ridden out by a fence for as long as it has time.
//
// SPEC PL6 ST13
func TestFenceInTrouble(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.proc(), w.proc()
		m := a.join()
		a.die()
		b.link.SetLink(faultstore.Cut)
		var err error
		within(t, "a fence without a store", took(func() { _, _, err = b.Fence(t.Context(), node, m.Owner().Incarnation, 3*ttl) }), ttl, 3*ttl+time.Second)
		wantErr(t, err, store.ErrUnavailable)
		time.AfterFunc(ttl, func() { b.link.SetLink(faultstore.Up) })
		if _, _, err = b.Fence(t.Context(), node, m.Owner().Incarnation, 5*ttl); err != nil {
			t.Error(err)
		}
	})
}

// Two who fence the same start get the same certificate.
//
// SPEC PL3 PL6
func TestTwoFences(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.proc()
		m := a.join()
		a.die()
		got := make(chan *identity.Certificate)
		for range 5 {
			p := w.proc()
			go func() {
				c, _, err := p.Fence(t.Context(), node, m.Owner().Incarnation, time.Hour)
				if err != nil {
					t.Error(err)
				}
				got <- c
			}()
		}
		first := <-got
		for range 4 {
			if c := <-got; !c.Equal(first) {
				t.Errorf("%+v and %+v", first, c)
			}
		}
	})
}
