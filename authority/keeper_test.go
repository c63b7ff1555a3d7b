package authority

import (
	"context"
	"errors"
	"testing"
	"time"

	tenure "github.com/tenure-project/tenure"
	core "github.com/tenure-project/tenure/internal/core/authority"
	"github.com/tenure-project/tenure/internal/core/authority/catalog"
	"github.com/tenure-project/tenure/internal/core/authority/checkpoint"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

// besides are the calls on the objects beside the head.
func besides(c faultstore.Call) bool { return ours(c) && !heads(c) }

// Nothing that decisions, reports or removals wait for stands in the way of a
// renewal: the leader keeps its lease while every object beside the head hangs.
//
// SPEC LA6 LA8 RF
func TestNothingDelaysTheKeeper(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.proc(func(s *setup) { s.opts = []Option{PruneEvery(time.Second)} })
		l := p.lead()
		p.append(l, abort(1), Created)
		p.link.Add(faultstore.Rule{Match: besides, Fault: faultstore.Hang()})
		ctx, cancel := context.WithTimeout(t.Context(), 6*ttl)
		defer cancel()
		const callers = 12
		errs := make(chan error, 3*callers)
		for i := range callers {
			go func() { errs <- second(p.Append(ctx, l.Proof(), checkpoint.Rules{}, abort(uint64(2+i)))) }()
			go func() { errs <- second(p.Append(ctx, l.Proof(), catalog.Rules{}, manifest())) }()
			go func() { errs <- second(p.Report(ctx, "disk")) }()
		}
		for range 3 * callers {
			if err := <-errs; !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v", err)
			}
		}
		if !l.Live() || p.Health().RenewErr != nil {
			t.Errorf("%v, %v", l.Err(), p.Health().RenewErr)
		}
		if h := p.Health(); h.PruneErr == nil || h.FoldErr == nil {
			t.Errorf("nobody is told: %+v", h)
		}
		p.link.Clear()
		p.append(l, abort(100), Created)
		w.audit(p.Reader())
	})
}

// The work is told to stop so much before the end as it needs, of the leadership's
// own deadline and of the session's.
//
// SPEC DL5 DL6 LA6
func TestStop(t *testing.T) {
	for name, match := range map[string]func(faultstore.Call) bool{
		"the head hangs":    heads,
		"the session hangs": func(c faultstore.Call) bool { return c.Key == store.Key("default", "identity", "n1") },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				const stop = 3 * time.Second
				p := w.proc(func(s *setup) { s.opts = []Option{Stop(stop)} })
				l := p.lead()
				rested(t, ttl)
				p.link.Add(faultstore.Rule{Match: match, Fault: faultstore.Hang()})
				<-l.Done()
				wantErr(t, l.Err(), tenure.ErrExpired)
				if left := l.Remaining(); left < stop-100*time.Millisecond || !l.Live() {
					t.Errorf("%v are left", left)
				}
				<-l.own.Done()
			})
		})
	}
}

// Work that a leader's owner forgets is left to lapse after the stop limit, not
// renewed for ever.
//
// SPEC LA6
func TestForgottenWorkLapses(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.proc()
		l := p.lead()
		l.work.End(tenure.ErrShutdown)
		<-l.Done()
		within(t, "the lapse", took(func() { <-l.own.Done() }), ttl, 2*ttl)
	})
}

// A full chain refuses at once, and says what to do.
//
// SPEC LA8
func TestFullChain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.proc()
		l := p.lead()
		capsule := func(epoch uint64) []byte {
			c := &checkpoint.Capsule{V: 1, Attempt: checkpoint.Attempt{Epoch: epoch, Checkpoint: epoch}, Deployment: deployment, Fence: fence}
			return must(checkpoint.NewCommit(c, p.c.NewID(), must(c.Encode())).Encode())
		}
		p.append(l, capsule(1), Created)
		if _, err := p.change(t.Context(), l.Proof(), func(h *core.Head, attempt string) (*core.Head, error) {
			next, _, err := h.Renew(l.core(), attempt)
			full := *next.Checkpoint
			full.Marks = core.MaxLive
			next.Checkpoint = &full
			return next, err
		}); err != nil {
			t.Fatal(err)
		}
		within(t, "the refusal", took(func() {
			_, err := p.Append(t.Context(), l.Proof(), checkpoint.Rules{}, capsule(2))
			wantErr(t, err, store.ErrUnavailable)
		}), 0, time.Second)
		p.append(l, abort(3), Created) // an abort needs no mark
	})
}

// Run leads again after a loss with another token, stops with its context, and tells
// the errors of its work.
//
// SPEC LA6 LA3
func TestRun(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, q := w.proc(), w.proc()
		ctx, cancel := context.WithCancel(t.Context())
		var tokens []uint64
		err := p.Run(ctx, func(ctx context.Context, l *Leader) error {
			tokens = append(tokens, l.Token())
			switch len(tokens) {
			case 1:
				if _, err := Steal(ctx, q.client, theOne, StealOptions{Token: l.Token(), Why: "x", Vouch: true}); err != nil {
					t.Error(err)
				}
				<-ctx.Done()
				wantErr(t, context.Cause(ctx), tenure.ErrLost)
				return ctx.Err()
			case 2:
				return nil
			}
			cancel()
			<-ctx.Done()
			return ctx.Err()
		})
		if err != nil || len(tokens) != 3 || tokens[1] <= tokens[0]+1 || tokens[2] <= tokens[1] {
			t.Errorf("%v, tokens %v", err, tokens)
		}
		if h := w.head(); h.Led() {
			t.Error("it leads after Run")
		}
		mine := errors.New("mine")
		if err := p.Run(t.Context(), func(context.Context, *Leader) error { return mine }); !errors.Is(err, mine) {
			t.Errorf("%v", err)
		}
		if err := p.Run(t.Context(), func(context.Context, *Leader) error { return context.Canceled }); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	})
}

// The floor rises while the first leader begins: its token is above it all the same.
//
// SPEC LS12 LA3
func TestFloorRisesMeanwhile(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.proc()
		calls := 0
		p.c.Floor = func(context.Context) (uint64, error) {
			if calls++; calls == 1 {
				return 0, nil
			}
			return 41, nil
		}
		if l := p.lead(); l.Token() <= 41 {
			t.Errorf("token %d", l.Token())
		}
		if h := w.head(); h.Counter > record.MaxNumber || h.Raised() {
			t.Errorf("counter %d", h.Counter)
		}
	})
}

// Bad input is told before anything is sent.
//
// SPEC LA4
func TestBadDecision(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.proc()
		l := p.lead()
		bad := l.Proof()
		bad.Token = 0
		if got := p.used(func() {
			for _, x := range []struct {
				proof tenure.Proof
				body  string
			}{{bad, string(abort(1))}, {l.Proof(), "{}"}, {l.Proof(), string(abort(1)) + " "}, {l.Proof(), ""}} {
				_, err := p.Append(t.Context(), x.proof, checkpoint.Rules{}, []byte(x.body))
				wantErr(t, err, store.ErrInvalid)
			}
		}); got != "" {
			t.Errorf("sent %s", got)
		}
	})
}

// While the function of Run does not return, this process leads nothing again.
//
// SPEC LA6 LA3
func TestLeadWaitsForTheWork(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, q := w.proc(), w.proc()
		release, ended := make(chan struct{}), make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		began := make(chan uint64, 1)
		go func() {
			ended <- p.Run(ctx, func(_ context.Context, l *Leader) error { began <- l.Token(); <-release; return nil })
		}()
		if _, err := Steal(t.Context(), q.client, theOne, StealOptions{Token: <-began, Why: "x", Vouch: true}); err != nil {
			t.Fatal(err)
		}
		rested(t, ttl)
		short, stop := context.WithTimeout(t.Context(), ttl)
		defer stop()
		_, err := p.Lead(short)
		wantErr(t, err, context.DeadlineExceeded, tenure.ErrOverlap)
		cancel()
		close(release)
		if err := <-ended; err != nil && !errors.Is(err, tenure.ErrLost) {
			t.Error(err)
		}
		if l := p.lead(); l.Token() < 3 {
			t.Errorf("token %d", l.Token())
		}
	})
}
