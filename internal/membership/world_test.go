package membership

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tenure-project/tenure/internal/clock"
	"github.com/tenure-project/tenure/internal/core/identity"
	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/internal/deadline"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
	"github.com/tenure-project/tenure/store/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	ttl  = 10 * time.Second
	node = "n1"
	rho  = 0.01
)

var stretched = lease.Stretch(ttl, rho)

// world is one store in one bubble of virtual time, with any number of processes,
// each behind a link of its own. It knows who acts, and fails the test if two do.
type world struct {
	t  *testing.T
	st *memstore.Store
	// machine is the clock of those that run on one machine.
	machine *clock.Virtual

	mu     sync.Mutex
	ids    int
	floor  uint64
	acting map[string][]*act
	notes  map[string]time.Duration // what short commands keep
}

// act is one membership that was published.
type act struct {
	until time.Time // true time
	m     *Member   // nil until Join returned
}

func inWorld(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, st: memstore.New(), machine: clock.NewVirtual(1), acting: map[string][]*act{}, notes: map[string]time.Duration{}}
		t.Cleanup(func() { _ = w.st.Close() })
		f(t, w)
	})
}

// proc is a process with its link and clock.
type proc struct {
	*Identities
	w    *world
	link *faultstore.Store
	clk  *clock.Virtual
	rate float64

	bg   sync.WaitGroup
	life context.Context
	end  context.CancelFunc

	mu      sync.Mutex
	members []*Member
	closed  bool
}

// background is what a client's is: nothing begins once it is closed.
func (p *proc) background(f func(context.Context)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.bg.Go(func() { f(p.life) })
	}
}

type setup struct {
	cfg   Config
	link  faultstore.Options
	rate  float64
	clk   *clock.Virtual // nil: one of its own
	inner store.Store
}

// proc starts a process, which is closed with the test.
func (w *world) proc(opts ...func(*setup)) *proc {
	w.t.Helper()
	s := setup{rate: 1, inner: w.st.Peer(), cfg: Config{
		Namespace: "ns", Rand: func() float64 { return 0.5 }, NewID: w.newID, Timing: lease.Timing{TTL: ttl}.Defaults(),
		Poll: 200 * time.Millisecond, PruneEvery: -1,
		Floor: func(context.Context) (uint64, error) { w.mu.Lock(); defer w.mu.Unlock(); return w.floor, nil },
	}}
	for _, o := range opts {
		o(&s)
	}
	if s.clk == nil {
		s.clk = clock.NewVirtual(s.rate)
	}
	p := &proc{w: w, rate: s.rate, clk: s.clk, link: faultstore.New(s.inner, s.link)}
	p.life, p.end = context.WithCancel(context.Background())
	s.cfg.Store, s.cfg.Clock = p.link, p.clk
	s.cfg.Background = p.background
	p.Identities = New(s.cfg)
	w.t.Cleanup(p.close)
	return p
}

func (p *proc) close() {
	for _, m := range p.members {
		m.Abandon(errors.New("the test is over"))
		m.kept.Wait()
	}
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.end()
	p.bg.Wait()
	_ = p.link.Close()
}

// die ends everything that p does without a release, as kill -9 would.
func (p *proc) die() { p.link.SetLink(faultstore.Dead) }

func (w *world) newID() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ids++
	return fmt.Sprintf("00000000-0000-4000-8000-%012x", w.ids)
}

// join joins without fail.
func (p *proc) join() *Member {
	p.w.t.Helper()
	m, err := p.tryJoin(p.w.t.Context(), true, nil)
	if err != nil {
		p.w.t.Fatalf("join: %v", err)
	}
	return m
}

func (p *proc) tryJoin(ctx context.Context, wait bool, edit func(*Claim)) (*Member, error) {
	a := &act{}
	c := Claim{Node: node, Timing: p.cfg.Timing, Note: "a note", Extended: func(deadline.Stamp) { p.acts(a) }}
	if edit != nil {
		edit(&c)
	}
	m, err := p.Join(ctx, c, wait)
	if err != nil {
		return nil, err
	}
	p.w.mu.Lock()
	a.m = m
	p.w.mu.Unlock()
	p.mu.Lock()
	p.members = append(p.members, m)
	p.mu.Unlock()
	return m, nil
}

// acts notes that a may act from now on, which nobody else may.
func (p *proc) acts(a *act) {
	w := p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	a.until = time.Now().Add(time.Duration(float64(p.cfg.Timing.Life()) / p.rate))
	known := false
	for _, b := range w.acting[node] {
		known = known || a == b
		if a != b && b.until.After(time.Now()) && (b.m == nil || b.m.Deadline().Cause() == nil) {
			w.t.Errorf("two processes act as %s until %v and %v", node, a.until, b.until)
		}
	}
	if !known {
		w.acting[node] = append(w.acting[node], a)
	}
}

// release releases without fail.
func (w *world) release(m *Member) {
	w.t.Helper()
	if err := m.Release(w.t.Context()); err != nil {
		w.t.Fatalf("release: %v", err)
	}
}

// took returns how much bubble time f took.
func took(f func()) time.Duration {
	began := time.Now()
	f()
	return time.Since(began)
}

// within fails the test unless d is between least and most.
func within(t *testing.T, what string, d, least, most time.Duration) {
	t.Helper()
	if d < least || d > most {
		t.Errorf("%s took %v, want %v to %v", what, d, least, most)
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

func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// used returns the store calls that f made, without watches.
func (p *proc) used(f func()) string {
	before := p.link.Counts()
	f()
	var s []string
	for _, op := range []faultstore.Op{faultstore.OpGet, faultstore.OpCreate, faultstore.OpReplace, faultstore.OpDelete, faultstore.OpList} {
		if n := p.link.Counts()[op] - before[op]; n > 0 {
			s = append(s, fmt.Sprintf("%s %d", op, n))
		}
	}
	return strings.Join(s, ", ")
}

// head reads the record past every link.
func (w *world) head() *identity.Record {
	w.t.Helper()
	o, err := w.st.Get(context.Background(), store.Key("ns", "identity", node), identity.MaxBody)
	if err != nil {
		w.t.Fatal(err)
	}
	return must[*identity.Record](w.t)(identity.Decode("k", node, o.Body))
}

// sealed checks that every certificate that stands under one name of the node
// stands under both, and returns them by predecessor.
func (w *world) sealed() map[string]*identity.Certificate {
	w.t.Helper()
	all := map[string]*identity.Certificate{}
	prefix := store.Key("ns", "certificate", node) + "/"
	bodies := map[string]string{}
	for key, err := range w.st.List(context.Background(), prefix, "") {
		if err != nil {
			w.t.Fatal(err)
		}
		o, err := w.st.Get(context.Background(), key, identity.MaxCertificate)
		if err != nil {
			w.t.Fatal(err)
		}
		bodies[strings.TrimPrefix(key, prefix)] = string(o.Body)
	}
	for name, body := range bodies {
		c := must[*identity.Certificate](w.t)(identity.DecodeCertificate("k", node, name, []byte(body)))
		all[c.Predecessor.Incarnation] = c
		for _, other := range c.Names() {
			if bodies[other] != body {
				w.t.Errorf("certificate %s is not the same under %s", name, other)
			}
		}
	}
	return all
}

// polling takes the watch away.
func polling(s *setup) {
	s.link.Info = func(i store.Info) store.Info { i.Can &^= store.CanWatch; return i }
}

// kept gives the process the notes that short commands leave for each other.
func (w *world) kept(s *setup) {
	s.clk = w.machine
	s.cfg.Recall = func(name string, body []byte) (time.Duration, bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		d, ok := w.notes[name+"\x00"+string(body)]
		return d, ok
	}
	s.cfg.Remember = func(name string, body []byte, from time.Duration) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.notes[name+"\x00"+string(body)] = from
	}
}

// recordKey is the key of the node's record.
var recordKey = store.Key("ns", "identity", node)
