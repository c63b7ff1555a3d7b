package authority

import (
	"context"
	"testing"
	"time"

	tenure "github.com/tenure-project/tenure"
	core "github.com/tenure-project/tenure/internal/core/authority"
	"github.com/tenure-project/tenure/internal/membership"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/memstore"
)

// Being the leader again under another token is not the same proof.
//
// SPEC LA7
func TestLeads(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.proc()
		l := p.lead()
		one := l.Proof()
		w.stepDown(l)
		m := p.lead()
		two := m.Proof()
		for what, change := range map[string]func(*tenure.Proof){
			"node": func(p *tenure.Proof) { p.Node = "n9" }, "incarnation": func(p *tenure.Proof) { p.Incarnation = deployment },
			"term": func(p *tenure.Proof) { p.Term++ }, "token": func(p *tenure.Proof) { p.Token++ },
		} {
			other := two
			if change(&other); p.Leads(other) || m.Leads(other) {
				t.Errorf("another %s leads", what)
			}
		}
		if p.Leads(one) || m.Leads(one) || l.Leads(two) || !p.Leads(two) || !m.Leads(two) {
			t.Error("the wrong proof leads")
		}
		if at, ok := m.Deadline(); !ok || at-p.clk.Boot() > p.cfg.timing.Life() || m.Remaining() > m.TTL() {
			t.Errorf("deadline %v, %v", at, ok)
		}
	})
}

// bomb panics in the goroutine that renews.
type bomb struct {
	store.Store
	armed func(key string) bool
}

func (b *bomb) Replace(ctx context.Context, key string, body []byte, v store.Version) (store.Version, error) {
	if b.armed(key) {
		panic("the driver broke")
	}
	return b.Store.Replace(ctx, key, body, v)
}

// A panic of the keeper ends the leadership, and one of the work too; the process
// may lead again.
//
// SPEC LA6
func TestPanicEndsTheGrant(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		armed := make(chan struct{}, 1)
		p := w.proc(func(s *setup) {
			inner := s.inner
			s.inner = &bomb{inner, func(key string) bool {
				if key != store.Key("default", kindHead, theOne) {
					return false
				}
				select {
				case <-armed:
					return true
				default:
					return false
				}
			}}
			s.link.Info = func(i store.Info) store.Info { i.Can = 0; return i }
		})
		l := p.lead()
		armed <- struct{}{}
		<-l.Done()
		wantErr(t, l.Err(), tenure.ErrLost)
		if l.Live() {
			t.Error("it leads after a panic")
		}
		m := p.lead()
		if m.Token() <= l.Token() {
			t.Errorf("token %d", m.Token())
		}
		w.stepDown(m)
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic was swallowed")
				}
			}()
			_ = p.Run(t.Context(), func(_ context.Context, l *Leader) error { m = l; panic("the work broke") })
		}()
		if m.Live() || w.head().Led() {
			t.Error("it leads after its work panicked")
		}
		p.lead()
	})
}

// An operator's steal makes everybody wait the superseded TTL, also the one that was
// stolen from; one that is vouched for does not. A jump ends the leadership at its
// next write, and the next token is above it.
//
// SPEC LA3 LA6 LS11 LS12
func TestOperators(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, q := w.proc(), w.proc()
		l := p.lead()
		ctx := t.Context()
		_, err := Steal(ctx, q.client, theOne, StealOptions{Token: 9, Why: "x"})
		wantErr(t, err, store.ErrConflict)
		_, err = Steal(ctx, q.client, theOne, StealOptions{Token: 1})
		wantErr(t, err, store.ErrInvalid)
		_, err = Steal(ctx, q.client, "never", StealOptions{Token: 1, Why: "x"})
		wantErr(t, err, store.ErrNotFound)
		if _, err = Steal(ctx, q.client, theOne, StealOptions{Token: 1, Why: "it hangs", By: "me"}); err != nil {
			t.Fatal(err)
		}
		var m *Leader
		within(t, "after force", took(func() { m = q.lead() }), stretched, stretched+time.Second)
		wantErr(t, l.Err(), tenure.ErrLost)
		if _, err = Steal(ctx, p.client, theOne, StealOptions{Token: m.Token(), Why: "it is gone", Vouch: true}); err != nil {
			t.Fatal(err)
		}
		var n *Leader
		within(t, "after a vouched end", took(func() { n = must(p.Lead(ctx)) }), 0, time.Second)
		<-m.Done()
		s, err := Jump(ctx, q.client, theOne, JumpTo{Token: 100, Sequence: 1000})
		if err != nil || s.Counter() != 100 || s.Sequence() <= 1000 {
			t.Fatalf("%v, %+v", err, s)
		}
		<-n.Done()
		wantErr(t, n.Err(), tenure.ErrLost)
		if again := p.lead(); again.Token() != 101 {
			t.Errorf("token %d", again.Token())
		}
		_, err = Jump(ctx, q.client, "never", JumpTo{Token: 1})
		wantErr(t, err, store.ErrNotFound)
		if past, _ := must(p.Reader().Snapshot(ctx)).Past(); len(past) != 3 || past[0].Why != "it hangs" || past[1].How != "vouched" {
			t.Errorf("past %+v", past)
		}
	})
}

// Asking in a hot path allocates nothing.
//
// SPEC LA7
func TestLeadsAllocatesNothing(t *testing.T) {
	s, err := tenure.Join(t.Context(), memstore.New(), "n1")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Leave(context.Background()) //nolint:errcheck // of no interest here
	a, err := Open(t.Context(), s, theOne)
	if err != nil {
		t.Fatal(err)
	}
	l, err := a.Lead(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	proof := l.Proof()
	if n := testing.AllocsPerRun(100, func() {
		if !a.Leads(proof) || !l.Leads(proof) {
			t.Error("it does not lead")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// The leadership ends in the very instant in which its session does.
//
// SPEC DL6 LA7
func TestNothingOutlivesTheSession(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.proc()
		l := p.lead()
		p.session.Deadline.End(membership.ErrSuperseded)
		if l.Live() || p.Leads(l.Proof()) {
			t.Error("it outlives its session")
		}
		<-l.Done()
		wantErr(t, l.Err(), tenure.ErrLost)
	})
}

// A leader goes on only from heads that carry its own last attempt and take nothing
// back; anything else ends it, and the process does not begin again from a head that
// went back.
//
// SPEC ST9 LA3 LS12
func TestAdoption(t *testing.T) {
	for name, change := range map[string]func(w *world, old []byte, h *core.Head) []byte{
		"another's attempt": func(w *world, _ []byte, h *core.Head) []byte {
			next, _, err := h.Renew(h.Last(), deployment)
			return must(must(next, err).Encode())
		},
		"went back": func(_ *world, old []byte, _ *core.Head) []byte { return old },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				p := w.proc()
				l := p.lead()
				p.append(l, abort(1), Created)
				old := w.get(p.headKey)
				p.append(l, abort(2), Created)
				w.set(p.headKey, change(w, old, w.head()))
				<-l.Done()
				wantErr(t, l.Err(), tenure.ErrLost)
			})
		})
	}
	inWorldNamed(t, "before it begins again", func(t *testing.T, w *world) {
		p := w.proc()
		l := p.lead()
		old := w.get(p.headKey)
		p.append(l, abort(1), Created)
		w.stepDown(l)
		w.set(p.headKey, old)
		_, err := p.Lead(t.Context())
		wantErr(t, err, store.ErrCorrupt)
		if _, err := Jump(t.Context(), p.client, theOne, JumpTo{Sequence: 100}); err != nil {
			t.Fatal(err)
		}
		p.lead()
	})
}
