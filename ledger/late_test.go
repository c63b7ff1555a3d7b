package ledger

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	tenure "github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

// lateCommit has a run whose holder lost the lease and commits just when the operator
// has looked at the lease; compact moves the commit into a block before he goes on.
func lateCommit(t *testing.T, w *world, compact bool) (operator *host) {
	t.Helper()
	a := w.host()
	goOn, in, over := make(chan bool), make(chan bool), make(chan bool)
	go func() {
		defer close(over)
		out, err := a.Once(t.Context(), at(1), func(context.Context, *Attempt) (Result, error) {
			close(in)
			<-goOn
			w.mu.Lock()
			defer w.mu.Unlock()
			w.plain[at(1).ID]++
			return Result{}, nil
		})
		if out.State != Ran {
			t.Errorf("the holder: %v, %v", out.State, err)
		}
	}()
	<-in
	a.link.SetLink(faultstore.Refused)
	b := w.host()
	want(t, b.do(at(2), Wait(time.Hour)), Ran, 1)
	a.link.SetLink(faultstore.Up)
	var once sync.Once
	return w.host(func(s *setup) {
		s.link.Trace = func(e faultstore.Event) {
			if e.Op != faultstore.OpGet || !e.Done || !strings.Contains(e.Key, "/lease/") {
				return
			}
			once.Do(func() {
				close(goOn)
				<-over
				if compact {
					if _, err := b.Compact(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		}
	})
}

// An operator who gives a run up, or says that it failed, while its holder commits it
// after all, is told so: the run is committed, once, and not repeated.
//
// SPEC EX3 EX4
func TestOperatorMeetsALateCommit(t *testing.T) {
	t.Parallel()
	o := SettleOptions{Reason: "it hangs"}
	k := Key{Run: at(1).ID, Site: DefaultSite, Attempt: 1}
	for name, c := range map[string]struct {
		do   func(ctx context.Context, h *host) error
		kind error
	}{
		"retry":     {func(ctx context.Context, h *host) error { _, err := h.Retry(ctx, at(1), o); return err }, ErrCommitted},
		"abandoned": {func(ctx context.Context, h *host) error { return h.Settle(ctx, k, AsAbandoned, o) }, store.ErrConflict},
		"failed":    {func(ctx context.Context, h *host) error { return h.Settle(ctx, k, AsFailed, o) }, store.ErrConflict},
		"committed": {func(ctx context.Context, h *host) error { return h.Settle(ctx, k, AsCommitted, o) }, nil},
	} {
		for _, compact := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				inWorld(t, func(t *testing.T, w *world) {
					op := lateCommit(t, w, compact)
					if err := c.do(t.Context(), op); !errors.Is(err, c.kind) {
						t.Errorf("the operator got %v, want %v", err, c.kind)
					}
					r := w.info(at(1))
					if plain, _ := w.effects(at(1)); plain != 1 || !r.Committed || r.Repeated || len(r.Saved) != 0 {
						t.Errorf("%d effects, %+v", plain, r)
					}
				})
			})
		}
	}
}

// An operator's command that is stopped between the verdict and the reason, or cannot
// write that, says so; the same command again keeps the reason. An attempt that its host
// left a result of keeps that one.
//
// SPEC EX3
// CASE B13
func TestReasonIsKeptBySayingItAgain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for n, v := range []Verdict{AsCommitted, AsFailed} {
			_, k := w.leave(at(n), true)
			want(t, w.host().do(at(10+n), Wait(3*ttl)), Ran, 1) // the lease is free again
			h, o := w.host(), SettleOptions{By: "ann", Reason: "I looked", Vouch: true}
			h.link.Add(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpCreate}, Times: 1, Fault: faultstore.Fail(store.ErrDenied), Match: func(c faultstore.Call) bool {
				return strings.Contains(c.Key, "/result/")
			}})
			if err := h.Settle(t.Context(), k, v, o); !errors.Is(err, store.ErrDenied) || !strings.Contains(err.Error(), "say it again") {
				t.Fatalf("%s: %v", v, err)
			}
			if r := w.info(at(n)); r.Unknown || r.Running || len(r.Saved) != 0 {
				t.Fatalf("%s: %+v", v, r)
			}
			o.Vouch = false
			if err := w.host().Settle(t.Context(), k, v, o); err != nil {
				t.Fatal(err)
			}
			if r := w.info(at(n)); len(r.Saved) != 1 || r.Saved[0].Why != "ann: I looked" || r.Saved[0].Failed != (v == AsFailed) {
				t.Errorf("%s: %+v", v, r)
			}
		}
		h := w.host()
		out := h.do2(at(5), func(context.Context, *Attempt) (Result, error) { return Result{Output: []byte("its own")}, nil })
		if err := h.Settle(t.Context(), out.Attempt, AsCommitted, SettleOptions{Reason: "x"}); err != nil {
			t.Fatal(err)
		}
		if r := w.info(at(5)); len(r.Saved) != 1 || string(r.Saved[0].Output) != "its own" {
			t.Errorf("%+v", r)
		}
	})
}

// warnings counts what is warned of.
type warnings struct {
	io.Writer
	mu sync.Mutex
	n  int
}

func (w *warnings) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if strings.Contains(string(b), "the store is in trouble") {
		w.n++
	}
	return len(b), nil
}

// Who waits for a store in trouble before anything was looked at says so, once.
//
// SPEC EX6
func TestWaitForAStoreInTroubleIsTold(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		told := &warnings{}
		h := w.host(func(s *setup) {
			s.more = append(s.more, tenure.WithLogger(slog.New(slog.NewTextHandler(told, nil))))
		})
		h.link.SetLink(faultstore.Refused)
		time.AfterFunc(time.Minute, func() { h.link.SetLink(faultstore.Up) })
		want(t, h.do(at(1), Wait(time.Hour)), Ran, 1)
		if told.n != 1 {
			t.Errorf("%d warnings", told.n)
		}
	})
}
