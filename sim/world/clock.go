package world

import (
	"sync"
	"time"

	"github.com/tenure-project/tenure"
)

// simClock is a process's view of time. True time is the bubble's. The boot
// clock counts all of it, at the process's rate; the monotonic clock stands
// still while the machine is suspended; the wall clock is stepped at will.
//
// internal/clock.Virtual cannot take its place here: there a suspend takes no
// true time, so the boot clock of a candidate would run ahead of the truth,
// which no rule of the lease protocol allows.
type simClock struct {
	origin time.Time
	rate   float64
	gate   *gate

	mu        sync.Mutex
	asleep    time.Duration // own time of all suspends that are over
	from      time.Duration // own time at which the present suspend began
	suspended bool
	step      time.Duration // of the wall clock

	// What no clock may do, for mutations.
	jump time.Duration // of all three clocks
	late time.Duration // of every timer on the boot clock
	deaf bool          // the boot clock does not count suspend
}

func newClock(rate float64, g *gate) *simClock {
	return &simClock{origin: time.Now(), rate: rate, gate: g}
}

// own is the time since the origin at the clock's rate. Under mu.
func (c *simClock) own() time.Duration {
	return time.Duration(float64(time.Since(c.origin))*c.rate) + c.jump
}

// mono is own less what was slept through. Under mu.
func (c *simClock) mono() time.Duration {
	if c.suspended {
		return c.from - c.asleep
	}
	return c.own() - c.asleep
}

// Read returns the wall and the monotonic clock.
func (c *simClock) Read() tenure.ClockReading {
	c.mu.Lock()
	defer c.mu.Unlock()
	since := c.own()
	if c.deaf {
		since = c.mono()
	}
	return tenure.ClockReading{Wall: time.Duration(c.origin.UnixNano()) + since + c.step, Mono: c.mono()}
}

// Boot returns the boot clock, which starts at one hour.
func (c *simClock) Boot() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.deaf {
		return time.Hour + c.mono()
	}
	return time.Hour + c.own()
}

func (c *simClock) running() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mono()
}

// suspend makes the monotonic clock stand still until wake.
func (c *simClock) suspend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.suspended {
		c.suspended, c.from = true, c.own()
	}
}

func (c *simClock) wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.suspended {
		c.suspended = false
		c.asleep += c.own() - c.from
	}
}

// stepWall moves the wall clock alone.
func (c *simClock) stepWall(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.step += d
}

// shift moves all three clocks, which no clock may do.
func (c *simClock) shift(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.jump += d
}

// AfterFunc calls f after d of running time.
func (c *simClock) AfterFunc(d time.Duration, f func()) tenure.ClockTimer {
	return start(&timer{c: c, now: c.running, at: c.running() + max(d, 0) + apart(), f: f})
}

// AfterBoot calls f when Boot reaches at.
func (c *simClock) AfterBoot(at time.Duration, f func()) tenure.ClockTimer {
	return start(&timer{c: c, now: c.Boot, at: at + c.late + apart(), f: f})
}

func start(t *timer) *timer {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.arm()
	return t
}

// apart is up to four microseconds that depend on who sets a timer: two timers
// of one process for one instant then go off in an order that is always the
// same.
func apart() time.Duration { return time.Duration(site(4) % 4096) }

// timer is a pending call. It fires when its own clock says so, and never while
// the process is stopped.
type timer struct {
	c   *simClock
	now func() time.Duration
	at  time.Duration
	f   func()

	mu   sync.Mutex
	t    *time.Timer
	done bool
}

// arm sets the timer for the time that is left. Under mu.
func (t *timer) arm() {
	left := 1 + time.Duration(float64(t.at-t.now())/t.c.rate)
	if t.t == nil {
		t.t = time.AfterFunc(left, t.fire)
		return
	}
	t.t.Reset(left)
}

func (t *timer) fire() {
	if t.c.gate.hold(uint64(t.at), t.fire) {
		return
	}
	t.mu.Lock()
	if t.done {
		t.mu.Unlock()
		return
	}
	if t.now() < t.at {
		t.arm()
		t.mu.Unlock()
		return
	}
	t.done = true
	t.mu.Unlock()
	t.f()
}

// Stop prevents the call and reports whether it did.
func (t *timer) Stop() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.done {
		return false
	}
	t.done = true
	t.t.Stop()
	return true
}
