package authority

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	tenure "github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/clock"
	core "github.com/tenure-project/tenure/internal/core/authority"
	"github.com/tenure-project/tenure/internal/core/authority/assignment"
	"github.com/tenure-project/tenure/internal/core/authority/checkpoint"
	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
	"github.com/tenure-project/tenure/store/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	ttl    = 10 * time.Second
	theOne = "jobs"
)

var stretched = lease.Stretch(ttl, 0.01)

// world is one store in one bubble of virtual time, with any number of processes,
// each behind a link of its own. It fails the test if two lead at once.
type world struct {
	t  *testing.T
	st *memstore.Store

	mu     sync.Mutex
	leads  map[*Leader]bool
	nodes  int
	sealed uint64
}

func inWorld(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, st: memstore.New(), leads: map[*Leader]bool{}}
		t.Cleanup(func() { _ = w.st.Close() })
		f(t, w)
	})
}

// proc is one process: a client, a session and an authority, with their link.
type proc struct {
	*Authority
	w      *world
	client *tenure.Client
	s      *tenure.Session
	link   *faultstore.Store
	clk    *clock.Virtual

	mu   sync.Mutex
	sent []string // calls on the authority's keys
}

type setup struct {
	link  faultstore.Options
	inner store.Store
	opts  []Option
	more  []tenure.Option
	name  string
	seed  uint64
}

// proc starts a process, which ends with the test.
func (w *world) proc(edit ...func(*setup)) *proc {
	w.t.Helper()
	w.mu.Lock()
	w.nodes++
	node := fmt.Sprintf("n%d", w.nodes)
	s := setup{inner: w.st.Peer(), name: theOne, seed: uint64(w.nodes)}
	w.mu.Unlock()
	for _, e := range edit {
		e(&s)
	}
	p := &proc{w: w, clk: clock.NewVirtual(1)}
	s.link.Trace = p.trace
	p.link = faultstore.New(s.inner, s.link)
	opts := append([]tenure.Option{tenure.WithTTL(ttl), tenure.WithClock(p.clk), tenure.WithoutProbe(), tenure.WithRandom(rand.NewPCG(s.seed, 1))}, s.more...)
	var err error
	if p.client, err = tenure.New(w.t.Context(), p.link, opts...); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = p.client.Close() })
	if p.s, err = p.client.Join(w.t.Context(), node); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = p.s.Leave(context.Background()) })
	if p.Authority, err = Open(w.t.Context(), p.s, s.name, append([]Option{PruneEvery(-1)}, s.opts...)...); err != nil {
		w.t.Fatal(err)
	}
	return p
}

// trace notes every call on the authority's keys, but for watches.
func (p *proc) trace(e faultstore.Event) {
	if e.Done || e.Late || e.Op == faultstore.OpWatch || !strings.Contains(e.Key, "/"+kindHead) {
		return
	}
	what := "head"
	if i := strings.Index(e.Key, "/"+kindLog+"/"); i >= 0 {
		what = strings.Split(e.Key[i+1:], "/")[2]
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sent = append(p.sent, string(e.Op)+" "+what)
}

// used are the calls on the authority's keys that f made.
func (p *proc) used(f func()) string {
	p.mu.Lock()
	p.sent = nil
	p.mu.Unlock()
	f()
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.sent, ", ")
}

// die ends everything that p does without a release, as kill -9 would.
func (p *proc) die() { p.link.SetLink(faultstore.Dead) }

// lead campaigns without fail.
func (p *proc) lead() *Leader {
	p.w.t.Helper()
	l, err := p.Lead(p.w.t.Context())
	if err != nil {
		p.w.t.Fatalf("lead: %v", err)
	}
	p.w.leading(l)
	return l
}

// leading notes that l was handed out: nobody else may lead now.
func (w *world) leading(l *Leader) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leads[l] = true
	live := 0
	for x := range w.leads {
		if x.Live() {
			live++
		}
	}
	if live > 1 {
		w.t.Errorf("%d lead at once", live)
	}
}

// stepDown gives l up without fail.
func (w *world) stepDown(l *Leader) {
	w.t.Helper()
	if err := l.StepDown(w.t.Context()); err != nil {
		w.t.Fatalf("step down: %v", err)
	}
}

// head reads the head past every link.
func (w *world) head() *core.Head {
	w.t.Helper()
	key := store.Key("default", kindHead, theOne)
	o, err := w.st.Get(context.Background(), key, core.MaxHead)
	if err != nil {
		w.t.Fatal(err)
	}
	h, err := core.Decode(key, theOne, o.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return h
}

// audit fails the test unless everything is sound.
func (w *world) audit(r *Reader) AuditReport {
	w.t.Helper()
	report, err := r.Audit(w.t.Context())
	if err != nil {
		w.t.Fatalf("audit: %v", err)
	}
	return report
}

const deployment = "dddddddd-4444-4444-8444-444444444444"

var fence = func() *assignment.Fence {
	return &assignment.Fence{Version: 1, Slots: 1, Digest: core.DigestOf("map", nil), Participants: []assignment.Participant{{Node: "n1", Incarnation: deployment}}}
}()

// abort is the outcome that aborts the checkpoint of an epoch.
func abort(epoch uint64) []byte {
	body, err := checkpoint.NewAbort(checkpoint.Attempt{Epoch: epoch, Checkpoint: epoch}, deployment, fence).Encode()
	if err != nil {
		panic(err)
	}
	return body
}

// append appends without fail, and expects the answer.
func (p *proc) append(l *Leader, body []byte, want Answer) Result {
	p.w.t.Helper()
	res, err := p.Append(p.w.t.Context(), l.Proof(), checkpoint.Rules{}, body)
	if err != nil || res.Answer != want {
		p.w.t.Fatalf("append: %v, %v, want %v", res.Answer, err, want)
	}
	return res
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

// within fails the test unless d is between least and most.
func within(t *testing.T, what string, d, least, most time.Duration) {
	t.Helper()
	if d < least || d > most {
		t.Errorf("%s took %v, want %v to %v", what, d, least, most)
	}
}

// took returns how much bubble time f took.
func took(f func()) time.Duration {
	began := time.Now()
	f()
	return time.Since(began)
}

// rested waits in bubble time.
func rested(t *testing.T, d time.Duration) {
	t.Helper()
	c := make(chan struct{})
	timer := time.AfterFunc(d, func() { close(c) })
	defer timer.Stop()
	<-c
}

// polling takes the watch away.
func polling(s *setup) {
	s.link.Info = func(i store.Info) store.Info { i.Can &^= store.CanWatch; return i }
}

// keys lists what is stored of the log, by kind.
func (w *world) keys(kind string) []string {
	w.t.Helper()
	var all []string
	prefix := store.Key("default", kindLog, theOne) + "/" + kind + "/"
	for key, err := range w.st.List(context.Background(), prefix, "") {
		if err != nil {
			w.t.Fatal(err)
		}
		all = append(all, strings.TrimPrefix(key, prefix))
	}
	slices.Sort(all)
	return all
}
