package world

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-project/tenure/store/memstore"
)

// World is a place with processes around it. Make and use it inside one
// testing/synctest bubble, and End it there.
type World struct {
	// Plan is what the world was made from.
	Plan Plan

	place    *place
	oracle   *oracle
	trace    *trace
	mutation *Mutation

	calmed    atomic.Bool   // the faults have ended
	alarmed   chan struct{} // closed at the first violation
	alarmOnce sync.Once

	mu    sync.Mutex
	procs []*Proc
	dir   string // of volumes
}

// New makes a world without processes.
func New(p Plan) *World {
	w := &World{Plan: p, trace: newTrace(), alarmed: make(chan struct{})}
	w.mutation = &w.Plan.Mutation
	w.place = &place{w: w, mem: memstore.New()}
	w.oracle = newOracle(w)
	return w
}

func (w *World) alarm() { w.alarmOnce.Do(func() { close(w.alarmed) }) }

// proc is the process with a number, nil if there is none.
func (w *World) proc(id int) *Proc {
	w.mu.Lock()
	defer w.mu.Unlock()
	if id < 1 || id > len(w.procs) {
		return nil
	}
	return w.procs[id-1]
}

func (w *World) procNamed(name string) *Proc {
	for _, p := range w.all() {
		if p.name == name {
			return p
		}
	}
	return nil
}

// all are the processes that there ever were.
func (w *World) all() []*Proc {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.procs[:len(w.procs):len(w.procs)]
}

// alive are the processes that run or are merely stopped, by name: their order
// must not depend on who was spawned first at one instant.
func (w *World) alive() []*Proc {
	alive := slices.DeleteFunc(slices.Clone(w.all()), func(p *Proc) bool {
		select {
		case <-p.over:
			return true
		default:
			return p.crashed.Load()
		}
	})
	slices.SortFunc(alive, func(a, b *Proc) int { return strings.Compare(a.name, b.name) })
	return alive
}

// Fail notes a violation of a rule of the caller's own.
func (w *World) Fail(format string, args ...any) { w.oracle.failNow("TEST", format, args...) }

// Held is the token with which a lease is held, 0 if it is not.
func (w *World) Held(name string) uint64 {
	w.oracle.mu.Lock()
	defer w.oracle.mu.Unlock()
	if r := w.oracle.byName[name].rec; r != nil && r.Held() {
		return r.Token
	}
	return 0
}

// End lets everything end that is left, after the last check. Nothing that
// happens from now on counts.
func (w *World) End() {
	w.oracle.mu.Lock()
	w.oracle.closed = true
	w.oracle.mu.Unlock()
	var wg sync.WaitGroup
	for _, p := range w.all() {
		p.thaw()
		wg.Go(func() {
			if p.started.Load() {
				<-p.over // it closes its client, if it has one
			}
			if p.Client != nil {
				_ = p.Client.Close() // what it could not confirm is nobody's concern now
			}
			_ = p.Link.Close()
		})
	}
	wg.Wait()
	w.removeVolumes()
	time.Sleep(time.Hour) // time stands still once this returns; work that overruns needs some
	_ = w.place.mem.Close()
}

// Verdict is what became of a world.
type Verdict struct {
	// Plan is what the world was made from.
	Plan Plan
	// Broken are the violations, in the order in which they were found.
	Broken []string
	// Trace are the steps in the order of virtual time.
	Trace []string
	// Stats counts what happened.
	Stats map[string]int
}

// Verdict is the verdict so far.
func (w *World) Verdict() Verdict {
	w.oracle.mu.Lock()
	defer w.oracle.mu.Unlock()
	return Verdict{Plan: w.Plan, Broken: w.oracle.broken, Trace: w.trace.lines(), Stats: maps.Clone(w.oracle.stats)}
}

// Report tells a failed world: what broke, and the last steps before the first
// violation and after it.
func (v Verdict) Report(steps int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v\n", v.Plan)
	for _, s := range v.Broken {
		fmt.Fprintf(&b, "BROKEN %s\n", s)
	}
	from := 0
	for i, l := range v.Trace {
		if strings.Contains(l, "BROKEN") {
			from = max(0, i-steps)
			break
		}
	}
	for _, l := range v.Trace[from:min(len(v.Trace), from+steps+steps/4)] {
		fmt.Fprintln(&b, l)
	}
	return b.String()
}
