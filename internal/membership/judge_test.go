package membership

import (
	"strings"
	"testing"
	"time"

	"github.com/tenure-project/tenure/internal/core/identity"
	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

// Judge answers for every kind of evidence, and costs what it must.
//
// SPEC PL5 LS8
func TestJudge(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.proc()
		stranger := identity.Owner{Incarnation: w.newID(), Term: 7}
		check := func(what string, o identity.Owner, want identity.State, how, used string) {
			t.Helper()
			var v identity.Verdict
			var err error
			if u := p.used(func() { v, _, err = p.Judge(t.Context(), node, o) }); err != nil || v.State != want || v.How != how || u != used {
				t.Errorf("%s: %+v, %v, used %q", what, v, err, u)
			}
		}
		check("no record", stranger, identity.Missing, "", "get 2")
		m := p.join()
		first := m.Owner()
		check("the owner", first, identity.Current, "", "get 1")
		check("a stranger", stranger, identity.Missing, "", "get 4")
		w.release(m)
		check("released", first, identity.Over, lease.HowReleased, "get 1")
		m = p.join()
		check("superseded, in the head", first, identity.Over, lease.HowReleased, "get 1")
		time.Sleep(ttl)
		check("superseded, sealed", first, identity.Over, lease.HowReleased, "get 2")
		w.release(m)
		w.release(p.join())
		if done, err := p.Prune(t.Context(), node, 0); err != nil || done.Removed != 1 {
			t.Fatalf("%+v, %v", done, err)
		}
		check("folded", first, identity.Over, "", "get 2")
		check("folded, without its term", identity.Owner{Incarnation: first.Incarnation}, identity.Missing, "", "get 4")
	})
}

// Evidence that is newer than the head means to read again; a head that stays
// behind is a store that went back.
//
// SPEC LS12 PL7
func TestBehind(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.proc()
		m := p.join()
		w.release(m)
		released := *w.head()
		for range 2 {
			m = p.join()
			w.release(m)
		}
		third := m.Owner()
		m = p.join()
		time.Sleep(ttl)
		w.put(&released) // as from a backup
		_, _, err := p.Judge(t.Context(), node, third)
		wantErr(t, err, ErrBehind, store.ErrCorrupt)
		_, err = p.AwaitOver(t.Context(), node, third)
		wantErr(t, err, ErrBehind)
		_, _, err = p.Fence(t.Context(), node, third.Incarnation, time.Hour)
		wantErr(t, err, ErrBehind)
		<-m.Deadline().Done()
		wantErr(t, m.Deadline().Cause(), ErrSuperseded)
	})
}

// VerifyCurrent is true for the owner alone, and reads the head again after the
// evidence.
//
// SPEC PL7
func TestVerifyCurrent(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.proc(), w.proc()
		check := func(what string, o identity.Owner, want bool, used string) {
			t.Helper()
			var ok bool
			var err error
			if u := b.used(func() { ok, err = b.VerifyCurrent(t.Context(), node, o) }); err != nil || ok != want || u != used {
				t.Errorf("%s: %v, %v, used %q", what, ok, err, u)
			}
		}
		m := a.join()
		check("first", m.Owner(), true, "get 2")
		check("any term", identity.Owner{Incarnation: m.Owner().Incarnation}, true, "get 2")
		check("other term", identity.Owner{Incarnation: m.Owner().Incarnation, Term: 2}, false, "get 1")
		w.release(m)
		check("released", m.Owner(), false, "get 1")
		m = a.join()
		check("second", m.Owner(), true, "get 3")

		// The owner changes between the two reads of the head.
		b.link.Add(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpGet}, Match: func(c faultstore.Call) bool { return strings.Contains(c.Key, "successor-") },
			Times: 1, Fault: faultstore.Delay(time.Second, time.Second)})
		time.AfterFunc(time.Second/2, func() { w.release(m) })
		check("released in between", m.Owner(), false, "get 3")

		m = a.join()
		time.Sleep(ttl / 2)
		key := a.certificates(node) + identity.SuccessorName(m.Owner())
		if err := w.st.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		_, err := b.VerifyCurrent(t.Context(), node, m.Owner())
		wantErr(t, err, store.ErrCorrupt)
		w.release(m)
	})
}

// A certificate that somebody cites is true if it stands there, or was folded.
//
// SPEC PL7 PL5
func TestVerifyCertificate(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.proc()
		w.release(p.join())
		w.release(p.join())
		c := must[[]*identity.Certificate](t)(p.History(t.Context(), node))[0]
		check := func(what string, c *identity.Certificate, want identity.State, folded bool, kind error) {
			t.Helper()
			v, err := p.VerifyCertificate(t.Context(), c)
			if store.KindOf(err) != kind || err == nil && (v.State != want || v.Folded != folded) {
				t.Errorf("%s: %+v, %v", what, v, err)
			}
		}
		check("sealed", c, identity.Over, false, nil)
		other := *c
		other.At++
		check("altered", &other, 0, false, store.ErrCorrupt)
		check("not valid", &identity.Certificate{}, 0, false, store.ErrCorrupt)
		future := *c
		future.Predecessor.Incarnation, future.Predecessor.Term, future.Predecessor.Counter = w.newID(), 8, 8
		future.Successor.Term, future.Successor.Counter = 9, 9
		_, err := p.VerifyCertificate(t.Context(), &future)
		wantErr(t, err, ErrBehind)
		w.release(p.join())
		if done, err := p.Prune(t.Context(), node, 0); err != nil || done.Removed != 1 {
			t.Fatalf("%+v, %v", done, err)
		}
		check("folded", c, identity.Over, true, nil)
	})
}

// Other bytes under a certificate's name stop everyone who would seal it.
//
// SPEC PL3
func TestOtherBytesUnderACertificate(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.proc()
		m := p.join()
		w.release(m)
		key := p.certificates(node) + identity.PredecessorName(m.Owner().Incarnation)
		must[store.Version](t)(w.st.Create(t.Context(), key, []byte("{}")))
		_, err := p.tryJoin(t.Context(), true, nil)
		wantErr(t, err, store.ErrCorrupt)
		time.Sleep(time.Second)
		if r := w.head(); r.Held() || r.Certificate == nil {
			t.Errorf("it left %+v", r)
		}
		_, err = p.tryJoin(t.Context(), true, nil)
		wantErr(t, err, store.ErrCorrupt)
		if _, err := p.Seal(t.Context(), w.head().Certificate); !errorsIs(err, store.ErrCorrupt) {
			t.Errorf("seal: %v", err)
		}
	})
}

// Sealing again changes nothing, whoever does it.
//
// SPEC PL3 PL4
func TestSealTwice(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.proc()
		w.release(p.join())
		m := p.join()
		c := m.Record().Certificate
		if used := p.used(func() { must[identity.Sealed](t)(p.Seal(t.Context(), c)) }); used != "get 2, create 2" {
			t.Errorf("sealing again used %q", used)
		}
		p.link.Add(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpGet}, Times: 2, Fault: faultstore.Fail(store.ErrUnavailable)})
		must[identity.Sealed](t)(p.Seal(t.Context(), c))
		w.release(m)
		w.sealed()
	})
}

// A listing shows every node, also those with long names, and goes on after a
// record that cannot be read.
//
// SPEC PL1 ST7
func TestList(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.proc()
		names := []string{"a", "B c", strings.Repeat("é", 60), "z"}
		for _, n := range names {
			m, err := p.tryJoin(t.Context(), false, func(c *Claim) { c.Node, c.Extended = n, nil })
			if err != nil {
				t.Fatal(err)
			}
			w.release(m)
		}
		must[store.Version](t)(w.st.Create(t.Context(), store.Key("ns", "identity", "broken"), []byte("{}")))
		found, bad := map[string]bool{}, 0
		for h, err := range p.List(t.Context()) {
			if err != nil {
				wantErr(t, err, store.ErrCorrupt)
				bad++
				continue
			}
			found[h.Node] = !h.Record.Held() && h.Record.Node == h.Node
		}
		for _, n := range names {
			if !found[n] {
				t.Errorf("%q was not listed", n)
			}
		}
		if len(found) != len(names) || bad != 1 {
			t.Errorf("%v, %d bad", found, bad)
		}
		p.link.Add(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpList}, Fault: faultstore.Hang()})
		n := 0
		within(t, "a listing that hangs", took(func() {
			for _, err := range p.List(t.Context()) {
				wantErr(t, err, store.ErrUnavailable)
				n++
			}
		}), 0, 2*p.cfg.Timing.Attempt)
		if n != 1 {
			t.Errorf("%d answers", n)
		}
	})
}

// History tells every change of owners once, also the one that is not sealed yet.
//
// SPEC PL3 PL5
func TestHistory(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.proc()
		if all, err := p.History(t.Context(), node); err != nil || len(all) != 0 {
			t.Errorf("%v, %v", all, err)
		}
		for range 5 {
			w.release(p.join())
		}
		m := p.join()
		all, err := p.History(t.Context(), node)
		if err != nil || len(all) != 5 {
			t.Fatalf("%d, %v", len(all), err)
		}
		for i, c := range all {
			if c.Successor.Term != uint64(i)+2 {
				t.Errorf("at %d: term %d", i, c.Successor.Term)
			}
		}
		w.release(m)
	})
}
