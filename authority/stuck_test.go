package authority

import (
	"context"
	"strings"
	"testing"
	"time"

	core "github.com/tenure-project/tenure/internal/core/authority"
	"github.com/tenure-project/tenure/internal/core/authority/checkpoint"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

// entriesRead matches reads of entries.
func entriesRead(c faultstore.Call) bool {
	return c.Op == faultstore.OpGet && strings.Contains(c.Key, "/entry/")
}

// A chain that filled up while nobody could walk it is compacted once it can be read.
//
// SPEC CK LA4
func TestFullForWantOfCompaction(t *testing.T) {
	if everyNth > 1 {
		return // thousands of decisions, one after the other
	}
	inWorld(t, func(t *testing.T, w *world) {
		p, q := w.proc(), w.proc()
		l := p.lead()
		for e := range uint64(70) {
			p.append(l, abort(e+1), Created)
		}
		w.stepDown(l)
		q.link.Add(faultstore.Rule{Match: entriesRead, Fault: faultstore.Fail(store.ErrDenied)})
		m, e := q.lead(), uint64(1000)
		for ; w.head().Checkpoint.Live < core.MaxLive; e++ {
			q.append(m, abort(e), Created)
		}
		_, err := q.Append(t.Context(), m.Proof(), checkpoint.Rules{}, abort(e))
		wantErr(t, err, store.ErrDenied) // why it is full
		q.link.Clear()
		w.stepDown(m)
		m = q.lead()
		q.append(m, abort(e+1), Created)
		if n := w.head().Checkpoint.Live; n > 20 {
			t.Errorf("%d live", n)
		}
		w.audit(q.Reader())
	})
}

// A definite no is told at once, also after another write came first.
//
// SPEC LA4
func TestDeniedAfterALostRace(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, q := w.proc(), w.proc()
		l := p.lead()
		p.append(l, abort(1), Created)
		replaces := func(c faultstore.Call) bool { return heads(c) && c.Op == faultstore.OpReplace }
		p.link.Add(faultstore.Rule{Match: replaces, Times: 1, Fault: faultstore.Delay(time.Second, time.Second)})
		told, began := make(chan error, 1), time.Now()
		go func() { told <- second(p.Append(t.Context(), l.Proof(), checkpoint.Rules{}, abort(2))) }()
		rested(t, 300*time.Millisecond)
		s := must(q.stands(t.Context()))
		next, _, err := s.head.Fold(q.c.NewID(), coreReport(q))
		if _, err := q.c.Store.Replace(t.Context(), q.headKey, must(must(next, err).Encode()), s.ver); err != nil {
			t.Fatal(err)
		}
		creates := func(c faultstore.Call) bool { return c.Op == faultstore.OpCreate && strings.Contains(c.Key, "/entry/") }
		p.link.Add(faultstore.Rule{Match: creates, Fault: faultstore.Fail(store.ErrDenied)})
		wantErr(t, <-told, store.ErrDenied)
		within(t, "the answer", time.Since(began), 0, 10*time.Second)
	})
}

// An entry that the store does not serve holds up nobody for ever: audits say so, and
// the pruner's health does.
//
// SPEC ST13 LA8
func TestUnreadableEntry(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, q := w.proc(func(s *setup) { s.opts = []Option{PruneEvery(time.Minute)} }), w.proc()
		l := p.lead()
		for e := range uint64(5) {
			p.append(l, abort(e+1), Created)
		}
		bad := w.keys("entry")[0]
		rule := faultstore.Rule{Match: func(c faultstore.Call) bool { return c.Op == faultstore.OpGet && strings.HasSuffix(c.Key, bad) }, Fault: faultstore.Fail(store.ErrUnavailable)}
		p.link.Add(rule)
		q.link.Add(rule)
		began := time.Now()
		_, err := q.Reader().Audit(t.Context())
		wantErr(t, err, store.ErrUnavailable)
		within(t, "the audit", time.Since(began), 3*ttl, 4*ttl)
		rested(t, 2*ttl)
		if h := p.Health(); h.PruneErr == nil || h.PrunedAt == 0 || !l.Live() {
			t.Errorf("%+v", h)
		}
		p.link.Clear()
		rested(t, 2*time.Minute)
		if h := p.Health(); h.PruneErr != nil {
			t.Errorf("%+v", h)
		}
	})
}

// Nothing lands under a proof that can decide nothing, and nothing is taken for being
// on its way for ever.
//
// SPEC LA8
func TestBadProofLeavesNothing(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.proc()
		l := p.lead()
		bad := l.Proof()
		bad.Token = 0
		n := core.Name{Kind: core.KindBlob, Token: 1, Attempt: p.c.NewID()}
		if err := p.Kit().Write(context.Background(), n, n.Element(), "x", []byte("x")); err != nil {
			t.Fatal(err)
		}
		_, err := p.Kit().Append(t.Context(), bad, checkpoint.Rules{}, Draft{Body: abort(1), Objects: []core.Name{n}})
		wantErr(t, err, store.ErrInvalid)
		if done := must(p.Prune(t.Context())); done.Removed != 1 {
			t.Errorf("%+v", done)
		}
	})
}

// A head that was lost, whose log is there, is not begun anew: nothing would reach the
// log, and the pruner would remove it. What only looks so is no reason.
//
// SPEC LA8 LS12
func TestLostHeadIsNotBegunAnew(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, q := w.proc(), w.proc()
		l := p.lead()
		p.append(l, abort(1), Created)
		w.stepDown(l)
		head := w.get(p.headKey)
		w.set(p.headKey, nil)
		_, err := q.Lead(t.Context())
		wantErr(t, err, store.ErrCorrupt)
		_, err = q.TryLead(t.Context())
		wantErr(t, err, store.ErrCorrupt)
		w.set(p.headKey, head)
		if l := q.lead(); l.Token() != 2 {
			t.Errorf("token %d", l.Token())
		}
		w.audit(q.Reader())
	})
	t.Run("a list that fails", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			p := w.proc()
			p.link.Add(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpList}, Fault: faultstore.Fail(store.ErrDenied)})
			p.lead()
		})
	})
}
