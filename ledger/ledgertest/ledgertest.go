// Package ledgertest is the conformance suite of package ledger over one driver: that
// each run happens once on that store, in real time, what its ledger keeps, and how many
// requests that takes. A driver's test is its harness of package storetest and one call:
//
//	func TestLedgers(t *testing.T) { ledgertest.Run(t, harness()) }
package ledgertest

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	tenure "github.com/tenure-project/tenure"
	core "github.com/tenure-project/tenure/internal/core/ledger"
	"github.com/tenure-project/tenure/ledger"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
	"github.com/tenure-project/tenure/store/storetest"
)

// namespace is the clients', unless a test says otherwise.
const namespace = "default"

// job is the agent of most tests.
const job = "nightly"

// Run holds the ledgers on the harness's store to their rules, each in a parallel
// subtest with a place of its own, and takes some seconds. Where the harness has no
// Peer, all hosts share one handle. How many writes per second the store says that it
// takes is not looked at: the harness's must take twenty.
func Run(t *testing.T, h storetest.Harness) {
	t.Helper()
	if h.Limit == 0 {
		h.Limit = 10 * time.Second
	}
	for _, r := range []struct {
		name string
		run  func(w *world)
	}{
		{"EX6/two hosts race for a short job", races},
		{"EX4/an unknown attempt, held and then tried again", unknown},
		{"EX3/an effect that outlasts its lease", outlasts},
		{"EX4/an admission that arrives after a takeover", lateWrite},
		{"EX4/failures", failures},
		{"EX4/an operator", operators},
		{"EX6/replay", replays},
		{"EX7/compaction", compactions},
		{"EX7/split", splits},
		{"EX7/requests", requests},
		{"ST9/lost replies", losses},
		{"EX7/listing", listing},
	} {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			w := &world{T: t, h: h, st: h.Open(t), ttl: 1250 * time.Millisecond, effects: map[ledger.RunID]int{}}
			if h.Slow {
				w.ttl = 2 * time.Second
			}
			t.Cleanup(func() { _ = w.st.Close() })
			r.run(w)
		})
	}
}

// long is a TTL within which no test sees a renewal.
const long = 2 * time.Minute

// world is one place, and a thing that is acted on and refuses nobody.
type world struct {
	*testing.T
	h   storetest.Harness
	st  store.Store
	ttl time.Duration

	mu      sync.Mutex
	effects map[ledger.RunID]int
	acting  int
}

// shared is a handle that its owner closes.
type shared struct{ store.Store }

// Close does nothing.
func (shared) Close() error { return nil }

// Info declares no power: those of the handle cannot be reached through it.
func (s shared) Info() store.Info { i := s.Store.Info(); i.Can = 0; return i }

// host is one process: a client with a link of its own, and the job's ledger.
type host struct {
	*ledger.Ledger
	w      *world
	link   *faultstore.Store
	client *tenure.Client

	mu     sync.Mutex
	sent   []string
	failed bool // a call of sent did
}

// host starts a process, which ends with the test. rules are its link's.
func (w *world) host(ttl time.Duration, rules ...faultstore.Rule) *host {
	w.Helper()
	inner := store.Store(shared{w.st})
	if w.h.Peer != nil {
		inner = w.h.Peer(w.T, w.st)
	}
	h := &host{w: w}
	h.link = faultstore.New(inner, faultstore.Options{
		Seed: 1, Rules: rules, Trace: h.trace, Info: func(i store.Info) store.Info { i.WritesPerSecond = 0; return i },
	})
	w.Cleanup(func() { _ = h.link.Close() })
	h.client = w.join(h.link, ttl)
	h.Ledger = w.ledger(h.client, job)
	return h
}

func (w *world) join(s store.Store, ttl time.Duration, opts ...tenure.Option) *tenure.Client {
	w.Helper()
	// As much of the TTL for a call as there may be keeps a busy machine from failing the
	// suite; after one that failed there is a pause of up to a sixteenth of it.
	c, err := tenure.New(w.Context(), s, append([]tenure.Option{tenure.WithTTL(ttl), tenure.WithRenewEvery(ttl / 10), tenure.WithAttemptLimit(min(ttl/3, time.Second)),
		tenure.WithNamespace(namespace), tenure.WithPollEvery(20 * time.Millisecond), tenure.WithReleaseLimit(w.ttl / 4), tenure.WithoutProbe(),
		tenure.WithLogger(slog.New(slog.DiscardHandler))}, opts...)...)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = c.Close() })
	return c
}

func (w *world) ledger(c *tenure.Client, agent string) *ledger.Ledger {
	w.Helper()
	l, err := ledger.Open(c, agent)
	if err != nil {
		w.Fatal(err)
	}
	return l
}

// trace notes every call, but for watches and looks at the waiting line, which some
// stores do not have.
func (h *host) trace(e faultstore.Event) {
	if e.Late || e.Op == faultstore.OpWatch || e.Op == faultstore.OpWaiting {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if e.Done {
		h.failed = h.failed || e.Err != nil && !errors.Is(e.Err, store.ErrNotFound)
		return
	}
	h.sent = append(h.sent, string(e.Op)+" "+kindOf(e.Key))
}

// kindOf is what is kept at key.
func kindOf(key string) string {
	parts := strings.Split(key, "/")
	switch {
	case len(parts) < 2:
		return key
	case parts[1] == "ledger":
		return "head"
	case parts[1] == "ledger-log" && len(parts) > 3:
		return parts[3]
	}
	return parts[1]
}

// kind picks calls on what is of a kind.
func kind(k string) func(faultstore.Call) bool {
	return func(c faultstore.Call) bool { return kindOf(c.Key) == k }
}

// used are the calls that f made, and whether none of them failed: what follows a call
// that took too long is no measure.
func (h *host) used(f func()) (calls string, sound bool) {
	h.mu.Lock()
	h.sent, h.failed = nil, false
	h.mu.Unlock()
	f()
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.sent, ", "), !h.failed
}

// patience is how long a test waits for what must happen.
func (w *world) patience() time.Duration { return 3*w.ttl + w.h.Limit }

// within is the test's context with a limit, so that a hang fails.
func (w *world) within() context.Context {
	ctx, cancel := context.WithTimeout(w.Context(), 2*w.patience())
	w.Cleanup(cancel)
	return ctx
}

// until waits for something that should happen soon.
func (w *world) until(what string, ok func() bool) {
	w.Helper()
	for end := time.Now().Add(w.patience()); !ok(); time.Sleep(5 * time.Millisecond) { // poll
		if time.Now().After(end) {
			w.Fatalf("it did not happen: %s", what)
		}
	}
}

// act is the effect. That two are under way at the same time fails the test unless it
// is about that.
func (w *world) act(a *ledger.Attempt) {
	w.mu.Lock()
	w.effects[a.Run().ID]++
	w.acting++
	if w.acting > 1 {
		w.Errorf("%d hosts act at the same time", w.acting)
	}
	w.mu.Unlock()
	<-time.After(time.Millisecond)
	w.mu.Lock()
	w.acting--
	w.mu.Unlock()
}

// happened is how often the run's effect did.
func (w *world) happened(run ledger.Run) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.effects[run.ID]
}

// work only acts.
func (w *world) work(_ context.Context, a *ledger.Attempt) (ledger.Result, error) {
	w.act(a)
	return ledger.Result{}, nil
}

// do runs the run without fail and wants that outcome.
func (h *host) do(run ledger.Run, s ledger.State, attempt uint64, opts ...ledger.OnceOption) ledger.Outcome {
	h.w.Helper()
	return h.doWith(run, h.w.work, s, attempt, opts...)
}

func (h *host) doWith(run ledger.Run, fn ledger.Func, s ledger.State, attempt uint64, opts ...ledger.OnceOption) ledger.Outcome {
	h.w.Helper()
	out, err := h.Once(h.w.within(), run, fn, opts...)
	if err != nil || out.State != s || out.Attempt.Attempt != attempt {
		h.w.Fatalf("%q of attempt %d, %v; want %q of %d", out.State, out.Attempt.Attempt, err, s, attempt)
	}
	return out
}

// leave makes an attempt whose outcome nobody records, after its effect; its host lives
// and gives the lease up.
func (h *host) leave(run ledger.Run) ledger.Key {
	h.w.Helper()
	out, err := h.Once(h.w.within(), run, func(_ context.Context, a *ledger.Attempt) (ledger.Result, error) {
		h.w.act(a)
		return ledger.Result{}, ledger.ErrUnsettled
	})
	if out.State != ledger.Unsettled || !errors.Is(err, ledger.ErrUnsettled) {
		h.w.Fatalf("%+v, %v", out, err)
	}
	return out.Attempt
}

// dieIn ends everything that h does, as kill -9 would, within the run and after its
// effect.
func (h *host) dieIn(run ledger.Run) ledger.Key {
	h.w.Helper()
	at, over := make(chan ledger.Key, 1), make(chan error, 1)
	go func() {
		defer close(over)
		_, err := h.Once(h.w.within(), run, func(_ context.Context, a *ledger.Attempt) (ledger.Result, error) {
			h.w.act(a)
			h.link.SetLink(faultstore.Dead)
			at <- a.Key()
			return ledger.Result{}, ledger.ErrUnsettled
		})
		over <- err
	}()
	h.w.Cleanup(func() { <-over })
	select {
	case k := <-at:
		return k
	case err := <-over:
		h.w.Fatalf("the run was not started: %v", err)
		return ledger.Key{}
	}
}

// show is what the ledger knows of the run.
func (h *host) show(run ledger.Run) ledger.RunInfo {
	h.w.Helper()
	r, err := h.Show(h.w.within(), run)
	if err != nil {
		h.w.Fatalf("show: %v", err)
	}
	return r
}

// did fails the test unless the run is committed, told in at most so many requests.
func (h *host) did(run ledger.Run, most int) {
	h.w.Helper()
	var a ledger.Answer
	var err error
	calls, sound := h.used(func() { a, err = h.Did(h.w.within(), run) })
	switch n := len(strings.Split(calls, ", ")); {
	case err != nil || !a.Committed:
		h.w.Fatalf("did it happen? %+v, %v", a, err)
	case sound && (n > most || n != a.Requests || a.Bytes > 64<<10):
		h.w.Errorf("the answer took %q, and says %+v; want at most %d requests", calls, a, most)
	}
}

// counts fails the test unless the whole ledger has so many runs of each kind.
func (h *host) counts(want ledger.Counts) *ledger.Listing {
	h.w.Helper()
	x, err := h.Load(h.w.within())
	if err != nil || x.Counts != want {
		h.w.Fatalf("the ledger has %+v, %v; want %+v", x, err, want)
	}
	return x
}

func (h *host) compact() ledger.Compacted {
	h.w.Helper()
	done, err := h.Compact(h.w.within())
	if err != nil {
		h.w.Fatalf("compact: %v", err)
	}
	return done
}

// imports merges the runs from one number to another, as another site committed them.
func (h *host) imports(from, to int) {
	h.w.Helper()
	var log []byte
	for n := from; n < to; n++ {
		i := core.Intent{V: 1, Agent: job, Key: ledger.Key{Run: at(n).ID, Site: "lyon", Attempt: 1}, Status: core.Committed, Epoch: 1}
		var err error
		if log, err = core.AppendLine(log, &i); err != nil {
			h.w.Fatal(err)
		}
	}
	g := ledger.NewLog()
	if err := g.ReadFrom("lyon", bytes.NewReader(log)); err != nil {
		h.w.Fatal(err)
	}
	if _, err := h.Import(h.w.within(), g); err != nil {
		h.w.Fatalf("import: %v", err)
	}
}

// at is the n-th occurrence of the job.
func at(n int) ledger.Run {
	r, err := ledger.Occurrence(job, ledger.DefaultTrigger, time.UnixMilli(1_000_000_000_000+int64(n)*1000))
	if err != nil {
		panic(err)
	}
	return r
}

// check fails the test unless err is of the kind; nil is no error.
func (w *world) check(what string, err, kind error) {
	w.Helper()
	if !errors.Is(err, kind) {
		w.Errorf("%s: %v, want %v", what, err, kind)
	}
}

// blocks are the keys of the job's blocks.
func (w *world) blocks() (all []string) {
	w.Helper()
	for key, err := range w.st.List(w.within(), store.Key(namespace, "ledger-log", job)+"/block/", "") {
		if err != nil {
			w.Fatal(err)
		}
		all = append(all, key)
	}
	return all
}
