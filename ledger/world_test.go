package ledger

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	tenure "github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/clock"
	core "github.com/tenure-project/tenure/internal/core/ledger"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
	"github.com/tenure-project/tenure/store/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	ttl = 10 * time.Second
	job = "nightly"
)

// world is one store in one bubble of virtual time, with any number of hosts, each
// behind a link of its own, and a thing that they act on.
type world struct {
	t  *testing.T
	st *memstore.Store

	mu    sync.Mutex
	hosts int
	plain map[RunID]int // effects, counted by a thing that refuses nobody
	mark  uint64        // of a thing that refuses an older epoch,
	runs  map[RunID]int // and keeps the run's id beside the effect
}

func inWorld(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	t.Parallel()
	inWorldNow(t, f)
}

// inWorldNow is inWorld for a part of a test.
func inWorldNow(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, st: memstore.New(), plain: map[RunID]int{}, runs: map[RunID]int{}}
		t.Cleanup(func() { _ = w.st.Close() })
		f(t, w)
	})
}

// errOld is the guard's refusal.
var errOld = errors.New("an older epoch")

// act is the effect, on both things.
func (w *world) act(a *Attempt) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.plain[a.Run().ID]++
	if a.Epoch() < w.mark {
		return errOld
	}
	w.mark = a.Epoch()
	w.runs[a.Run().ID] = 1 // in the same transaction: a second time changes nothing
	return nil
}

// effects are the counts of the thing that refuses nobody, and of the guarded one.
func (w *world) effects(run Run) (plain, guarded int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.plain[run.ID], w.runs[run.ID]
}

// host is one process.
type host struct {
	*Ledger
	w    *world
	c    *tenure.Client
	link *faultstore.Store
	clk  *clock.Virtual

	mu   sync.Mutex
	sent []string
}

type setup struct {
	link  faultstore.Options
	agent string
	opts  []Option
	more  []tenure.Option
	rate  float64
	inner store.Store
}

// host starts a process, which ends with the test.
func (w *world) host(edit ...func(*setup)) *host {
	w.t.Helper()
	w.mu.Lock()
	w.hosts++
	n := w.hosts
	w.mu.Unlock()
	s := setup{agent: job, rate: 1, inner: w.st.Peer()}
	for _, e := range edit {
		e(&s)
	}
	h := &host{w: w, clk: clock.NewVirtual(s.rate)}
	if s.link.Trace == nil {
		s.link.Trace = h.trace
	}
	h.link = faultstore.New(s.inner, s.link)
	opts := append([]tenure.Option{tenure.WithTTL(ttl), tenure.WithClock(h.clk), tenure.WithoutProbe(), tenure.WithLabel(fmt.Sprint("host-", n)),
		tenure.WithRandom(rand.NewPCG(uint64(n), 1)), tenure.WithLogger(quiet)}, s.more...)
	var err error
	if h.c, err = tenure.New(w.t.Context(), h.link, opts...); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = h.c.Close() })
	if h.Ledger, err = Open(h.c, s.agent, s.opts...); err != nil {
		w.t.Fatal(err)
	}
	return h
}

// trace notes every call by what it is on.
func (h *host) trace(e faultstore.Event) {
	if e.Done || e.Late || e.Op == faultstore.OpWatch {
		return
	}
	parts := strings.Split(e.Key, "/")
	what := parts[1]
	if what == kindLog {
		what = parts[3]
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sent = append(h.sent, string(e.Op)+" "+what)
}

// used are the calls that f made.
func (h *host) used(f func()) string {
	h.mu.Lock()
	h.sent = nil
	h.mu.Unlock()
	f()
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.sent, ", ")
}

// die ends everything that h does, as kill -9 would.
func (h *host) die() { h.link.SetLink(faultstore.Dead) }

// do runs the run with the effect, without fail.
func (h *host) do(run Run, opts ...OnceOption) Outcome {
	h.w.t.Helper()
	out, err := h.Once(h.w.t.Context(), run, h.work, opts...)
	if err != nil {
		h.w.t.Fatalf("once: %v, %v", out.State, err)
	}
	return out
}

// work is the function that only acts.
func (h *host) work(_ context.Context, a *Attempt) (Result, error) { return Result{}, h.w.act(a) }

// leave makes an attempt that nobody settles: its host dies within the function, after
// the effect if there is one.
func (w *world) leave(run Run, effect bool) (*host, Key) {
	w.t.Helper()
	h := w.host()
	out, err := h.Once(w.t.Context(), run, func(_ context.Context, a *Attempt) (Result, error) {
		if effect {
			if err := w.act(a); err != nil {
				w.t.Error(err)
			}
		}
		h.die()
		return Result{}, ErrUnsettled
	})
	if out.State != Unsettled || !errors.Is(err, ErrUnsettled) {
		w.t.Fatalf("%v, %v", out.State, err)
	}
	return h, out.Attempt
}

// head reads the head past every link.
func (w *world) head() *core.Head {
	w.t.Helper()
	key := store.Key("default", kindHead, job)
	o, err := w.st.Get(context.Background(), key, core.MaxHead)
	if err != nil {
		w.t.Fatal(err)
	}
	h, err := core.DecodeHead(key, job, o.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return h
}

// at is the n-th occurrence of the job.
func at(n int) Run {
	r, err := Occurrence(job, DefaultTrigger, time.UnixMilli(int64(1_000_000_000_000+n*1000)))
	if err != nil {
		panic(err)
	}
	return r
}

// info is what a fresh process shows of the run.
func (w *world) info(run Run) RunInfo {
	w.t.Helper()
	r, err := w.host().Show(w.t.Context(), run)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// want fails the test unless out is as wanted.
func want(t *testing.T, out Outcome, s State, attempt uint64) {
	t.Helper()
	if out.State != s || out.Attempt.Attempt != attempt {
		t.Fatalf("state %q of attempt %d, want %q of %d", out.State, out.Attempt.Attempt, s, attempt)
	}
}

// wantErr fails the test unless err is of every kind.
func wantErr(t *testing.T, err error, kinds ...error) {
	t.Helper()
	for _, k := range kinds {
		if !errors.Is(err, k) {
			t.Fatalf("error %v, want one of kind %q", err, k)
		}
	}
}

// rested waits in bubble time.
func rested(d time.Duration) { time.Sleep(d) }
