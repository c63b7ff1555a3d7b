package ledger

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	tenure "github.com/tenure-project/tenure"
	core "github.com/tenure-project/tenure/internal/core/ledger"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
	"github.com/tenure-project/tenure/store/memstore"
)

// meanwhile is a store of one process, with something that others do right before one of
// its requests, or between its effect and its answer, which then is lost.
type meanwhile struct {
	*memstore.Store
	op, key string // of the request: a part of its key
	skip    int64
	after   bool
	lost    bool // the request never arrives
	told    bool // the reply arrives after all
	do      func()
	calls   atomic.Int64
	done    atomic.Bool
}

func (m *meanwhile) call(op, key string, do func() error) error {
	if op != m.op || !strings.Contains(key, m.key) || m.calls.Add(1) != m.skip+1 {
		return do()
	}
	m.done.Store(true)
	if !m.after {
		if m.do(); m.lost {
			return store.Errorf(store.ErrUnknown, "", op, key, "the request is lost")
		}
		return do()
	}
	if err := do(); err != nil {
		return err
	}
	if m.do(); m.told {
		return nil
	}
	return store.Errorf(store.ErrUnknown, "", op, key, "the reply is lost")
}

func (m *meanwhile) Get(ctx context.Context, key string, limit int) (o store.Object, err error) {
	err = m.call("get", key, func() error { o, err = m.Store.Get(ctx, key, limit); return err })
	return o, err
}

func (m *meanwhile) Replace(ctx context.Context, key string, body []byte, over store.Version) (v store.Version, err error) {
	err = m.call("replace", key, func() error { v, err = m.Store.Replace(ctx, key, body, over); return err })
	return v, err
}

// racing is a host behind m.
func (w *world) racing(m *meanwhile) *host {
	m.Store = w.st.Peer()
	h := w.host(func(s *setup) { s.inner = m })
	w.t.Cleanup(func() {
		if !m.done.Load() {
			w.t.Errorf("no %s of %q came: nothing was raced", m.op, m.key)
		}
	})
	return h
}

// committed is the log of a site where the runs from one number to another happened.
func committed(t *testing.T, site string, from, to int) *Log {
	t.Helper()
	var log []byte
	for n := from; n < to; n++ {
		i := core.Intent{V: 1, Agent: job, Key: Key{Run: at(n).ID, Site: site, Attempt: 1}, Status: core.Committed, Epoch: 1}
		var err error
		if log, err = core.AppendLine(log, &i); err != nil {
			t.Fatal(err)
		}
	}
	g := NewLog()
	if err := g.ReadFrom(site, bytes.NewReader(log)); err != nil {
		t.Fatal(err)
	}
	return g
}

func (h *host) imports(g *Log) {
	h.w.t.Helper()
	if _, err := h.Import(h.w.t.Context(), g); err != nil {
		h.w.t.Fatal(err)
	}
}

// A block that is split between the read of the head and its own is looked for again, by
// who asks for a run and by who reads everything; what was split is removed, or swept if
// its compaction did not come to that.
//
// SPEC EX7
func TestBlockIsSplitMeanwhile(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		other := w.host()
		other.imports(committed(t, "lyon", 0, 800))
		h := w.racing(&meanwhile{op: "get", key: "/block/", do: func() { other.imports(committed(t, "lyon", 800, 1000)) }})
		ans, err := h.Did(t.Context(), at(1))
		if err != nil || !ans.Committed || ans.Requests != 4 {
			t.Fatalf("%+v, %v", ans, err)
		}
		h = w.racing(&meanwhile{op: "get", key: "/block/", skip: 1, do: func() { other.imports(committed(t, "lyon", 1000, 3000)) }})
		x, err := h.Load(t.Context())
		if err != nil || x.Counts.Committed != 3000 {
			t.Fatalf("%+v, %v", x, err)
		}
		if names, err := other.elements(t.Context(), "block/"); err != nil || len(names) != x.Blocks || x.Blocks < 4 {
			t.Errorf("%d blocks of %d, %v", len(names), x.Blocks, err)
		}

		var dead *host
		m := &meanwhile{op: "replace", key: "/ledger/", after: true, do: func() { dead.die() }}
		dead = w.racing(m)
		ctx, cancel := context.WithTimeout(t.Context(), ttl)
		defer cancel()
		_, _ = dead.Import(ctx, committed(t, "lyon", 3000, 9000))
		swept, err := other.Sweep(t.Context(), 0)
		if err != nil || swept.Blocks == 0 || swept.Results != 0 {
			t.Fatalf("%+v, %v", swept, err)
		}
		if x, err = other.Load(t.Context()); err != nil || x.Counts.Committed != 9000 {
			t.Fatalf("%+v, %v", x, err)
		}
	})
}

// A block that the head names and that is not there was lost: that is said, and nothing
// runs.
//
// SPEC EX3 ST8
func TestBlockIsLost(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		h := w.host()
		h.do(at(1))
		if _, err := h.Compact(t.Context()); err != nil {
			t.Fatal(err)
		}
		h.do(at(2))
		if err := w.st.Delete(t.Context(), h.blockKey("")); err != nil {
			t.Fatal(err)
		}
		_, err := h.Did(t.Context(), at(1))
		wantErr(t, err, store.ErrCorrupt)
		out, err := h.Once(t.Context(), at(3), h.work)
		wantErr(t, err, store.ErrCorrupt)
		want(t, out, NotRun, 0)
		_, err = h.Load(t.Context())
		wantErr(t, err, store.ErrCorrupt)
		_, err = h.Compact(t.Context())
		wantErr(t, err, store.ErrCorrupt)
	})
}

// Two that write the same block: neither loses what the other put there.
//
// SPEC EX7
func TestTwoCompactionsMeet(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		other := w.host()
		other.imports(committed(t, "lyon", 0, 10))
		stopped := func() { // it writes the block, and comes no further
			var dead *host
			dead = w.racing(&meanwhile{op: "replace", key: "/ledger/", lost: true, do: func() { dead.die() }})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, _ = dead.Import(ctx, committed(t, "lyon", 300, 320))
		}
		all := func() { other.imports(committed(t, "lyon", 100, 120)) }
		for i, m := range []*meanwhile{{key: "/block/", do: stopped}, {key: "/block/", do: all}, {key: "/ledger/", do: all}} {
			m.op = "replace"
			h := w.racing(m)
			h.imports(committed(t, "lyon", 200+20*i, 220+20*i))
			for _, n := range []int{0, 200 + 20*i, 219 + 20*i} {
				if ans, err := h.Did(t.Context(), at(n)); err != nil || !ans.Committed {
					t.Errorf("%d: run %d: %+v, %v", i, n, ans, err)
				}
			}
		}
		if x, err := other.Load(t.Context()); err != nil || x.Counts.Committed != 110 {
			t.Fatalf("%+v, %v", x, err)
		}
	})
}

// The reply to an admission is lost, and others write the head before it can be read
// back: it is found all the same, and the run goes on.
//
// SPEC EX4 ST9
func TestAdmissionIsFoundUnderOtherWrites(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		other := w.host()
		other.do(at(0))
		h := w.racing(&meanwhile{op: "replace", key: "/ledger/", skip: 1, after: true, do: func() {
			if err := other.Jump(t.Context(), w.head().Sequence+5); err != nil {
				t.Error(err)
			}
		}})
		want(t, h.do(at(1)), Ran, 1)
		if plain, _ := w.effects(at(1)); plain != 1 {
			t.Errorf("%d effects", plain)
		}
	})
}

// Another site is merged between the admission and the check: the attempt is recorded as
// not started, and the next one knows what the merge brought.
//
// SPEC EX4 EX7
func TestMergeBetweenAdmissionAndCheck(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		other := w.host()
		other.do(at(0))
		merge := func(from, to int) *host {
			return w.racing(&meanwhile{op: "get", key: "/lease/", skip: 1, do: func() { other.imports(committed(t, "lyon", from, to)) }})
		}
		// The check reads the head, then the lease: a merge in between is after the check.
		want(t, merge(1, 2).do(at(1)), Ran, 1)
		if r := w.info(at(1)); !r.Repeated {
			t.Errorf("%+v", r)
		}
		before := func(from, to int) *host {
			return w.racing(&meanwhile{op: "get", key: "/ledger/", skip: 1, do: func() { other.imports(committed(t, "lyon", from, to)) }})
		}
		want(t, before(2, 3).do(at(2)), Done, 1)
		if plain, _ := w.effects(at(2)); plain != 0 {
			t.Errorf("%d effects", plain)
		}
		want(t, before(4, 5).do(at(3)), Ran, 2)
		r := w.info(at(3))
		if !r.Committed || r.Unknown || r.Repeated {
			t.Errorf("%+v", r)
		}
		if n := len(w.head().Open); n != 0 {
			t.Errorf("%d attempts are open", n)
		}
	})
}

// Somebody settles the attempt before its function: it is not called.
//
// SPEC EX4
func TestAttemptIsWithdrawn(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		other := w.host()
		other.do(at(0))
		h := w.racing(&meanwhile{op: "get", key: "/ledger/", skip: 1, do: func() {
			k := w.head().Open[0].Key
			if err := other.Settle(t.Context(), k, AsFailed, SettleOptions{Reason: "stop", Vouch: true}); err != nil {
				t.Error(err)
			}
		}})
		out, err := h.Once(t.Context(), at(1), h.work)
		if want(t, out, NotRun, 1); err == nil {
			t.Error("no error")
		}
		if plain, _ := w.effects(at(1)); plain != 0 {
			t.Errorf("%d effects", plain)
		}
	})
}

// A host that is stopped while the last answer of its check is on its way does not act
// on it: its own deadline has passed, or its caller was told that it did not run.
//
// SPEC EX4 DL4
func TestCheckIsTooLate(t *testing.T) {
	for _, stopped := range []time.Duration{ttl * 12 / 10, 4 * ttl} {
		t.Run(stopped.String(), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.host().do(at(0))
				var h *host
				h = w.racing(&meanwhile{op: "get", key: "/lease/", skip: 1, after: true, told: true, do: func() {
					h.link.SetLink(faultstore.Refused)
					rested(stopped)
					h.link.SetLink(faultstore.Up)
				}})
				out, err := h.Once(t.Context(), at(1), h.work)
				if out.State != NotRun || !errors.Is(err, tenure.ErrLost) {
					t.Errorf("%+v, %v", out, err)
				}
				rested(5 * ttl)
				if plain, _ := w.effects(at(1)); plain != 0 {
					t.Errorf("%d effects", plain)
				}
				if n := len(w.head().Open); n != 0 {
					t.Errorf("%d attempts are open", n)
				}
			})
		})
	}
}

// An attempt of this site may be given up, one of another that a merge brought may not:
// the run is held, and says so.
//
// SPEC EX4 EX7
func TestRetryIsHeldByAnotherSite(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.leave(at(1), false)
		rested(3 * ttl)
		i := core.Intent{V: 1, Agent: job, Key: Key{Run: at(1).ID, Site: "zurich", Attempt: 1}, Status: core.Pending, Epoch: 1, Holder: "z"}
		line, err := core.AppendLine(nil, &i)
		if err != nil {
			t.Fatal(err)
		}
		g := NewLog()
		if err := g.ReadFrom("zurich", bytes.NewReader(line)); err != nil {
			t.Fatal(err)
		}
		other := w.host()
		h := w.racing(&meanwhile{op: "get", key: "/lease/", do: func() { other.imports(g) }}) // after the first look
		out := h.do(at(1), OnUnknown(Retry), Wait(3*ttl))
		if want(t, out, Held, 1); out.Attempt.Site != "zurich" || len(out.Pending) != 2 {
			t.Errorf("%+v", out)
		}
		if plain, _ := w.effects(at(1)); plain != 0 {
			t.Errorf("%d effects", plain)
		}
	})
}

// A host that waited for another's short run met a head that moved. It looks again at
// once, and does not pause while it has the lease.
//
// SPEC EX4
func TestShortWaitIsNoPause(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, q := w.host(), w.host()
		p.do(at(0))
		began := time.Now()
		started, ended := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			p.do2(at(1), func(_ context.Context, a *Attempt) (Result, error) {
				close(started)
				rested(time.Millisecond)
				return Result{}, w.act(a)
			})
		}()
		<-started
		want(t, q.do(at(1), Wait(ttl)), Done, 1)
		<-ended
		if d := time.Since(began); d > 10*time.Millisecond {
			t.Errorf("both took %v", d)
		}
	})
}
