package world

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/clock"
	"github.com/tenure-project/tenure/internal/settle"
	"github.com/tenure-project/tenure/store/faultstore"
)

// Proc is one process: its clocks, its link to the store, its client, and
// whether it runs at all.
type Proc struct {
	// Client is set by Open.
	Client *tenure.Client
	// Link is the process's link to the store, with its faults.
	Link *faultstore.Store

	w    *World
	id   int
	name string
	seed uint64
	clk  *simClock
	gate *gate

	ctx     context.Context // ends when the process is told to stop
	quit    context.CancelFunc
	died    chan struct{} // closed by a crash
	over    chan struct{} // closed when its main function returned
	started atomic.Bool   // it has a main function
	crashed atomic.Bool
	began   atomic.Value // the last incarnation that it made an owner: a string
	frozen  atomic.Bool  // its link once showed an old state for ever

	mu    sync.Mutex
	since time.Time // of the calls counted
	calls int
	total int // calls ever
	hooks map[hook]func()
}

// hook is a place before or after one call.
type hook struct {
	call  int
	after bool
}

// At runs f in the place of the call number n from now on, counted from 0:
// before it is sent, or when its answer has come and nobody knows it yet.
func (p *Proc) At(n int, after bool, f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hooks[hook{p.total + 1 + n, after}] = f
}

func (p *Proc) hooked(call int, after bool) {
	p.mu.Lock()
	f := p.hooks[hook{call, after}]
	p.mu.Unlock()
	if f != nil {
		f()
	}
}

// busiest is how many calls of one process in one TTL are too many (R16).
const busiest = 1000

// toll counts a call, and ends a process that makes far too many: a loop without
// a pause would go on for ever in virtual time.
func (p *Proc) toll(op faultstore.Op, key string) (number int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total++
	if time.Since(p.since) > p.w.Plan.TTL {
		p.since, p.calls = time.Now(), 0
	}
	if p.calls++; p.calls == busiest+100*p.w.Plan.Leases+1000*(p.w.Plan.Authorities+p.w.Plan.Tables) {
		p.w.oracle.failNow("R16", "%s made %d calls within %v, the last a %s of %s", p.name, p.calls, time.Since(p.since), op, short(key))
		p.Crash()
	}
	return p.total
}

// Spawn makes a process that has no client yet, with a clock that runs rate
// times as fast as true time. name is "slot" or "slot.generation".
func (w *World) Spawn(name string, rate float64) *Proc {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := &Proc{
		w: w, id: len(w.procs) + 1, name: name, seed: mix(w.Plan.Seed, hash(name)),
		died: make(chan struct{}), over: make(chan struct{}), hooks: map[hook]func(){},
	}
	p.gate = &gate{seed: p.seed, most: max(min(w.Plan.TTL/200, 25*time.Millisecond), time.Microsecond)}
	p.clk = newClock(rate, p.gate)
	p.ctx, p.quit = context.WithCancel(context.Background())
	p.Link = faultstore.New(&wire{w: w, p: p, mem: w.place.mem.Peer()}, faultstore.Options{Seed: p.seed, Trace: p.traced})
	p.Link.Add(w.Plan.rules()...)
	w.procs = append(w.procs, p)
	return p
}

// Slot is the part of the name that the successors of a process share.
func (p *Proc) Slot() string { slot, _, _ := strings.Cut(p.name, "."); return slot }

// traced notes what the link does to calls.
func (p *Proc) traced(e faultstore.Event) {
	switch {
	case e.Late && e.Done:
		p.w.trace.add(p.name, "%s %s landed late: %s", e.Op, short(e.Key), kind(e.Err))
	case !e.Done && len(e.Faults) > 0:
		p.w.trace.add(p.name, "%s %s meets %v", e.Op, short(e.Key), e.Faults)
	}
}

// Open makes the client.
func (p *Proc) Open(ctx context.Context, opts ...tenure.Option) error {
	all := append(p.w.Plan.options(), tenure.WithClock(p.clk), tenure.WithLabel(p.name),
		tenure.WithRandom(&source{seed: p.seed}), tenure.WithObserver(observer{p.w.oracle, p}))
	c, err := tenure.New(ctx, port{p.Link, p}, append(all, opts...)...)
	if err != nil {
		return fmt.Errorf("%s: open: %w", p.name, err)
	}
	p.Client = c
	return nil
}

// Sleep lets d of the process's running time pass, and reports false if ctx
// ended first.
func (p *Proc) Sleep(ctx context.Context, d time.Duration) bool {
	return clock.Sleep(p.clk, d, ctx.Done()) && ctx.Err() == nil
}

// Within is a context that ends after d of the process's running time.
func (p *Proc) Within(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return settle.Limit(ctx, p.clk, d)
}

// Crash stops the process for ever: no line of its code runs any more. What it
// sent still arrives.
func (p *Proc) Crash() {
	if !p.crashed.CompareAndSwap(false, true) {
		return
	}
	p.w.trace.add(p.name, "CRASH")
	p.gate.stop()
	p.Link.SetLink(faultstore.Dead)
	close(p.died)
}

// Context ends when the process is told to stop.
func (p *Proc) Context() context.Context { return p.ctx }

// Crashed reports whether the process has crashed.
func (p *Proc) Crashed() bool { return p.crashed.Load() }

// Pause stops the process for d, as SIGSTOP and SIGCONT would: its clocks go
// on.
func (p *Proc) Pause(d time.Duration) {
	if p.gate.stop() {
		p.w.trace.add(p.name, "PAUSE %v", d)
		time.AfterFunc(d, p.resume)
	}
}

// Suspend stops the machine for d: its monotonic clock stands still.
func (p *Proc) Suspend(d time.Duration) {
	if p.gate.stop() {
		p.w.trace.add(p.name, "SUSPEND %v", d)
		p.clk.suspend()
		time.AfterFunc(d, p.resume)
	}
}

// resume ends a pause or a suspend. A process that crashed meanwhile stays.
func (p *Proc) resume() {
	if p.crashed.Load() {
		return
	}
	p.clk.wake()
	if p.gate.stopped() {
		p.w.trace.add(p.name, "RESUME")
		p.gate.resume()
	}
}

// Resume ends a pause or a suspend before its time.
func (p *Proc) Resume() { p.resume() }

// StepWall moves the process's wall clock.
func (p *Proc) StepWall(d time.Duration) {
	p.w.trace.add(p.name, "WALL CLOCK %v", d)
	p.clk.stepWall(d)
}

// Network changes the state of the process's link, for d if that is not zero.
func (p *Proc) Network(l faultstore.Link, d time.Duration) {
	if p.crashed.Load() {
		return
	}
	if l == faultstore.Frozen {
		p.frozen.Store(true)
	}
	p.w.trace.add(p.name, "LINK %s %v", linkNames[l], d)
	p.Link.SetLink(l)
	if d > 0 {
		time.AfterFunc(d, func() { p.Link.SetLink(faultstore.Up) })
	}
}

var linkNames = map[faultstore.Link]string{
	faultstore.Up: "UP", faultstore.Cut: "CUT", faultstore.Refused: "REFUSED", faultstore.Mute: "MUTE",
	faultstore.Frozen: "FROZEN", faultstore.Dead: "DEAD",
}

// misled reports whether the process ever read what was no longer true; then
// its answers may be wrong, and only its acts count.
func (p *Proc) misled() bool { return p.frozen.Load() || p.w.Plan.Mutation.Name != "" }

// thaw lets what is left of a crashed process end, when nothing counts any
// more.
func (p *Proc) thaw() {
	p.quit()
	p.clk.wake()
	p.gate.thaw()
}
