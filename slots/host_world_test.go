package slots

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	tenure "github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/clock"
	"github.com/tenure-project/tenure/internal/core/lease"
	core "github.com/tenure-project/tenure/internal/core/slots"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
	"github.com/tenure-project/tenure/store/memstore"
)

const (
	hostTTL = 30 * time.Second
	orders  = "orders"
)

var (
	stretchedTTL = lease.Stretch(hostTTL, 0.01)
	noLog        = slog.New(slog.DiscardHandler)
)

// tableWorld is one table in one bubble of virtual time, with any number of hosts, each
// behind a link of its own. It fails the test if two answer for one slot at once.
type tableWorld struct {
	t    *testing.T
	st   *memstore.Store
	form Form

	mu    sync.Mutex
	hosts []*hostProc
}

// forms are both homes of a table.
var forms = []Form{RowsForm, RegisterForm}

// inTables runs f in a bubble for each home.
func inTables(t *testing.T, f func(t *testing.T, w *tableWorld)) {
	t.Helper()
	t.Parallel()
	for _, form := range forms {
		t.Run(string(form), func(t *testing.T) {
			t.Parallel()
			inTable(t, form, f)
		})
	}
}

// inTable runs f in a bubble.
func inTable(t *testing.T, form Form, f func(t *testing.T, w *tableWorld)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &tableWorld{t: t, st: memstore.New(), form: form}
		t.Cleanup(func() { _ = w.st.Close() })
		c := w.client("maker", nil)
		var opts []Option
		if form == RegisterForm {
			opts = append(opts, Register())
		}
		if _, err := Create(t.Context(), c.c, orders, opts...); err != nil {
			t.Fatal(err)
		}
		f(t, w)
	})
}

// hostProc is one process.
type hostProc struct {
	*Host
	w     *tableWorld
	c     *tenure.Client
	link  *faultstore.Store
	clk   *clock.Virtual
	table *Table

	mu    sync.Mutex
	sent  []string
	begun []*Grant
	times map[*Grant][2]time.Time // of its begin and end
	ended map[*Grant]error
}

type hostSetup struct {
	cfg   HostConfig
	node  string // joins as
	link  faultstore.Options
	inner store.Store
	more  []tenure.Option
	rate  float64
	clk   *clock.Virtual // shared with another process of the same machine
}

// client starts a process that has no host.
func (w *tableWorld) client(label string, s *hostSetup) *hostProc {
	w.t.Helper()
	if s == nil {
		s = &hostSetup{}
	}
	if s.inner == nil {
		s.inner = w.st.Peer()
	}
	if s.rate == 0 {
		s.rate = 1
	}
	w.mu.Lock()
	n := len(w.hosts) + 1
	w.mu.Unlock()
	if s.clk == nil {
		s.clk = clock.NewVirtual(s.rate)
	}
	p := &hostProc{w: w, clk: s.clk, ended: map[*Grant]error{}, times: map[*Grant][2]time.Time{}}
	trace := s.link.Trace
	s.link.Trace = func(e faultstore.Event) {
		p.trace(e)
		if trace != nil {
			trace(e)
		}
	}
	p.link = faultstore.New(s.inner, s.link)
	w.t.Cleanup(func() { _ = p.link.Close() })
	var err error
	opts := append([]tenure.Option{tenure.WithTTL(hostTTL), tenure.WithClock(p.clk), tenure.WithoutProbe(), tenure.WithLabel(label), tenure.WithLogger(noLog),
		tenure.WithRandom(rand.NewPCG(uint64(n), 7))}, s.more...)
	if p.c, err = tenure.New(w.t.Context(), p.link, opts...); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = p.c.Close() })
	return p
}

// host starts a process with a host that nobody refreshes yet.
func (w *tableWorld) host(owner string, ranges []Range, edit ...func(*hostSetup)) *hostProc {
	w.t.Helper()
	s := &hostSetup{}
	for _, e := range edit {
		e(s)
	}
	p := w.client(owner, s)
	var err error
	if p.table, err = Open(w.t.Context(), p.c, orders); err != nil {
		w.t.Fatal(err)
	}
	cfg := s.cfg
	cfg.Owner, cfg.Ranges, cfg.Addr = owner, ranges, owner+":80"
	cfg.OnClaim = func(g *Grant) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.begun = append(p.begun, g)
		p.times[g] = [2]time.Time{time.Now()}
	}
	cfg.OnLoss = func(g *Grant, cause error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if _, twice := p.ended[g]; twice {
			w.t.Errorf("%v ended twice", g)
		}
		p.ended[g] = cause
		p.times[g] = [2]time.Time{p.times[g][0], time.Now()}
	}
	if s.node != "" {
		if cfg.Session, err = p.c.Join(w.t.Context(), s.node); err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(func() { _ = cfg.Session.Leave(context.Background()) })
	}
	if p.Host, err = p.table.Host(cfg); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(p.Close)
	w.mu.Lock()
	w.hosts = append(w.hosts, p)
	w.mu.Unlock()
	return p
}

// run lets the host's loop run until stop or the end of the test.
func (p *hostProc) run() (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	var once sync.Once
	var err error
	stop = func() error {
		once.Do(func() {
			cancel()
			err = <-done
		})
		return err
	}
	p.w.t.Cleanup(func() { _ = stop() })
	return stop
}

// die ends everything that p does without a release, as kill -9 would.
func (p *hostProc) die() { p.link.SetLink(faultstore.Dead); p.Close() }

// trace notes every call but watches.
func (p *hostProc) trace(e faultstore.Event) {
	if e.Done || e.Late || e.Op == faultstore.OpWatch || !strings.Contains(e.Key, "/"+kindTable) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sent = append(p.sent, string(e.Op)+" "+strings.Split(e.Key, "/")[1])
}

// used are the calls on tables that f made.
func (p *hostProc) used(f func()) string {
	p.mu.Lock()
	p.sent = nil
	p.mu.Unlock()
	f()
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.sent, ", ")
}

// calls is how many calls on tables p made.
func (p *hostProc) calls() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.sent)
}

// pass lets time pass, and looks at every slot that a host may serve again and again.
func (w *tableWorld) pass(d time.Duration) {
	w.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		bubbleSleep(min(100*time.Millisecond, time.Until(end)))
		w.check()
	}
}

// bubbleSleep waits in bubble time.
func bubbleSleep(d time.Duration) {
	c := make(chan struct{})
	timer := time.AfterFunc(d, func() { close(c) })
	defer timer.Stop()
	<-c
}

// check fails the test if two hosts answer for a slot.
func (w *tableWorld) check() {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.hosts {
		for _, r := range p.cfg.Ranges {
			for _, slot := range []uint16{r.A, (r.A + r.B) / 2, r.B} {
				var who []string
				for _, q := range w.hosts {
					if e, ok := q.EpochFor(slot); ok {
						who = append(who, fmt.Sprintf("%s (epoch %d)", q.Owner(), e))
					}
				}
				if len(who) > 1 {
					w.t.Fatalf("slot %d is served by %v", slot, who)
				}
			}
		}
	}
}

// refresh refreshes once, and checks.
func (p *hostProc) refresh() Report {
	p.w.t.Helper()
	r := p.Refresh(p.w.t.Context())
	p.w.check()
	return r
}

// rows reads the table past every link.
func (w *tableWorld) rows() []Row {
	w.t.Helper()
	v := w.view()
	return v.Rows
}

func (w *tableWorld) view() View {
	w.t.Helper()
	c := w.client("reader", nil)
	t, err := Open(context.Background(), c.c, orders)
	if err != nil {
		w.t.Fatal(err)
	}
	v, err := t.Read(context.Background())
	if err != nil {
		w.t.Fatal(err)
	}
	return v
}

func rng(a, b uint16) Range { return Range{A: a, B: b} }

// epoch wants the host to serve slot under an epoch; 0 is not to.
func (p *hostProc) epoch(slot uint16, want uint64) {
	p.w.t.Helper()
	if got, _ := p.EpochFor(slot); got != want {
		p.w.t.Fatalf("%s answers epoch %d for slot %d, want %d", p.Owner(), got, slot, want)
	}
}

// is fails the test unless the report lists just that.
func (r Report) is(t *testing.T, want string) {
	t.Helper()
	var parts []string
	for _, c := range r.Claimed {
		parts = append(parts, fmt.Sprintf("claimed %v@%d", c.Range, c.Epoch))
	}
	for _, x := range r.Renewed {
		parts = append(parts, fmt.Sprintf("renewed %v", x))
	}
	for _, x := range r.Lost {
		parts = append(parts, fmt.Sprintf("lost %v", x))
	}
	for _, x := range r.Waiting {
		parts = append(parts, fmt.Sprintf("waiting %v", x.Range))
		if !errors.Is(x.Err, tenure.ErrHeld) && !errors.As(x.Err, new(*HeldError)) {
			t.Errorf("waiting: %v", x.Err)
		}
	}
	for _, x := range r.Failed {
		parts = append(parts, fmt.Sprintf("failed %v", x.Range))
	}
	if got := strings.Join(parts, ", "); got != want {
		t.Fatalf("the report is %q, want %q (%+v)", got, want, r)
	}
}

// wantKinds fails the test unless err is of every kind.
func wantKinds(t *testing.T, err error, kinds ...error) {
	t.Helper()
	for _, k := range kinds {
		if !errors.Is(err, k) {
			t.Fatalf("error %v, want one of kind %q", err, k)
		}
	}
}

// onRow picks calls that change the row that begins with first, or are on the register.
func (w *tableWorld) onRow(first uint16) func(faultstore.Call) bool {
	key := store.Key("default", kindRow, orders) + "/" + core.RowName(first)
	if w.form == RegisterForm {
		key = store.Key("default", kindTable, orders)
	}
	return func(c faultstore.Call) bool {
		if c.Op == faultstore.OpCommit {
			for _, ch := range c.Changes {
				if ch.Key == key {
					return true
				}
			}
		}
		return c.Key == key && c.Op.Writes()
	}
}
