package world

import (
	"sync"
	"time"
)

// gate stops and resumes the code of one process. Whatever could run code of
// the process passes it: timers and store replies. Since a world's events have
// instants of their own, no code of the process is running when it is stopped.
type gate struct {
	seed uint64
	most time.Duration // within which everything overdue runs after a resume

	mu      sync.Mutex
	resumed chan struct{} // nil while running
	since   time.Time     // of the last resume
	stops   int
	open    bool // for good: nothing counts any more
	held    []held
}

type held struct {
	key uint64
	f   func()
}

// stop stops the process and reports whether it was running.
func (g *gate) stop() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.resumed != nil || g.open {
		return false
	}
	g.resumed = make(chan struct{})
	g.stops++
	return true
}

// resume lets the process run on. What became due meanwhile runs within most,
// in an order that the seed decides.
func (g *gate) resume() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.resumed == nil {
		return
	}
	close(g.resumed)
	g.resumed = nil
	g.since = time.Now()
	for _, h := range g.held {
		time.AfterFunc(g.jitter(h.key), h.f)
	}
	g.held = nil
}

// thaw lets the process run on for good.
func (g *gate) thaw() {
	g.mu.Lock()
	g.open = true
	g.mu.Unlock()
	g.resume()
}

func (g *gate) jitter(key uint64) time.Duration {
	return 1 + time.Duration(mix(g.seed^now(), key)%uint64(g.most))
}

// stopped reports whether the process is stopped.
func (g *gate) stopped() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.resumed != nil
}

// unsettled reports whether the process is stopped, or was until so short a
// while ago that its overdue timers need not have run.
func (g *gate) unsettled() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.resumed != nil || g.stops > 0 && time.Since(g.since) <= 2*g.most
}

// count is how often the process was stopped.
func (g *gate) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.stops
}

// hold keeps f for the resume if the process is stopped, and reports whether it
// did.
func (g *gate) hold(key uint64, f func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.resumed == nil {
		return false
	}
	g.held = append(g.held, held{key, f})
	return true
}

// pass blocks while the process is stopped.
func (g *gate) pass(key uint64) {
	for {
		g.mu.Lock()
		ch := g.resumed
		g.mu.Unlock()
		if ch == nil {
			return
		}
		<-ch
		time.Sleep(g.jitter(key))
	}
}
