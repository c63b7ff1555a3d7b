package authority

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	tenure "github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/core/authority/catalog"
	"github.com/tenure-project/tenure/store/faultstore"
)

// Who waits for news is woken by what it waits for and by nothing else: not by
// renewals, nor by another part, nor by an outage.
//
// SPEC LA7 RF
func TestNext(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, q := w.proc(), w.proc()
		l := p.lead()
		from, err := q.Reader().Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		type news struct {
			s   Snapshot
			err error
		}
		ask := func(ctx context.Context, of ...Part) chan news {
			c := make(chan news, 1)
			go func() {
				s, err := from.Next(ctx, of...)
				c <- news{s, err}
			}()
			return c
		}
		quiet := func(what string, c chan news) {
			t.Helper()
			synctest.Wait()
			select {
			case n := <-c:
				t.Fatalf("%s: %+v", what, n)
			default:
			}
		}
		ctx, stop := context.WithCancelCause(t.Context())
		seals, any, never := ask(t.Context(), PartCatalog), ask(t.Context()), ask(ctx, PartRound)
		time.Sleep(3 * ttl)
		quiet("renewals", seals)
		quiet("renewals", any)
		q.link.Add(faultstore.Rule{Match: heads, Fault: faultstore.Hang()})
		time.Sleep(ttl)
		p.append(l, abort(1), Created)
		q.link.Clear()
		if n := <-any; n.err != nil || n.s.Sequence() <= from.Sequence() {
			t.Fatalf("%+v", n)
		}
		quiet("another part", seals)
		if _, err := p.Append(t.Context(), l.Proof(), catalog.Rules{}, manifest()); err != nil {
			t.Fatal(err)
		}
		n := <-seals
		if _, sealed := n.s.Chain(Catalog); n.err != nil || !sealed {
			t.Fatalf("%+v", n)
		}
		quiet("a round that never comes", never)
		gone := errors.New("gone")
		stop(gone)
		if n := <-never; !errors.Is(n.err, gone) {
			t.Errorf("%v", n.err)
		}
		if _, err := from.Next(t.Context(), "lunch"); err == nil {
			t.Error("an unknown part changes")
		}
	})
}

// A leadership is over for a reader exactly when nothing of it can be admitted any
// more: the same node with a newer token is another leadership.
//
// SPEC LA1 LA4
func TestOver(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.proc()
		snapshot := func() Snapshot {
			s, err := p.Reader().Snapshot(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		first := p.lead()
		then := snapshot()
		w.stepDown(first)
		between := snapshot()
		second := p.lead()
		now := snapshot()
		for what, x := range map[string]struct {
			s    Snapshot
			p    tenure.Proof
			want bool
		}{
			"while it leads":                 {then, first.Proof(), false},
			"of the future":                  {then, second.Proof(), false},
			"stepped down":                   {between, first.Proof(), true},
			"the next of the same process":   {now, first.Proof(), true},
			"the newer one of that process":  {now, second.Proof(), false},
			"its token, but another process": {now, tenure.Proof{Node: "x", Incarnation: second.Proof().Incarnation, Term: 1, Token: second.Token()}, true},
		} {
			if got := x.s.Over(x.p); got != x.want || x.s.Leads(x.p) && got {
				t.Errorf("%s: over %v, leads %v", what, got, x.s.Leads(x.p))
			}
		}
	})
}
