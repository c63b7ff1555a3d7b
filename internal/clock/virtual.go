package clock

import (
	"sync"
	"time"
)

// Virtual is a clock for tests and simulation. It runs on package time, so in
// a testing/synctest bubble it is under the bubble's control, and on top of
// that it can run at another rate, be suspended, and have its wall clock
// stepped. Make one with [NewVirtual].
type Virtual struct {
	origin time.Time
	rate   float64

	mu       sync.Mutex
	asleep   time.Duration // boot-clock time during which Mono stood still
	wallStep time.Duration
	pending  map[*virtualTimer]struct{}
}

// NewVirtual returns a clock that runs rate times as fast as package time; 1 is
// true time, 1.01 gains one per cent.
func NewVirtual(rate float64) *Virtual {
	return &Virtual{origin: time.Now(), rate: rate, pending: map[*virtualTimer]struct{}{}}
}

func (v *Virtual) mono() time.Duration {
	return time.Duration(float64(time.Since(v.origin)) * v.rate)
}

// Read returns the virtual wall and monotonic clocks.
func (v *Virtual) Read() Reading {
	v.mu.Lock()
	defer v.mu.Unlock()
	m := v.mono()
	return Reading{Wall: time.Duration(v.origin.UnixNano()) + m + v.asleep + v.wallStep, Mono: m}
}

// Boot returns the virtual boot clock, which starts at one hour.
func (v *Virtual) Boot() time.Duration {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.bootLocked()
}

func (v *Virtual) bootLocked() time.Duration { return time.Hour + v.mono() + v.asleep }

// Suspend makes the machine seem to have slept for d just now: wall and boot
// clock jump, the monotonic clock does not.
func (v *Virtual) Suspend(d time.Duration) {
	v.mu.Lock()
	v.asleep += d
	timers := make([]*virtualTimer, 0, len(v.pending))
	for t := range v.pending {
		timers = append(timers, t)
	}
	v.mu.Unlock()
	for _, t := range timers {
		t.arm()
	}
}

// StepWall moves the wall clock alone.
func (v *Virtual) StepWall(d time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.wallStep += d
}

// AfterFunc calls f after d on this clock's running time.
func (v *Virtual) AfterFunc(d time.Duration, f func()) Timer {
	return time.AfterFunc(time.Duration(float64(d)/v.rate)+1, f)
}

// AfterBoot calls f when Boot reaches at.
func (v *Virtual) AfterBoot(at time.Duration, f func()) Timer {
	t := &virtualTimer{v: v, at: at, f: f}
	v.mu.Lock()
	v.pending[t] = struct{}{}
	v.mu.Unlock()
	t.arm()
	return t
}

type virtualTimer struct {
	v  *Virtual
	at time.Duration
	f  func()

	mu sync.Mutex
	t  *time.Timer
}

func (t *virtualTimer) arm() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.t != nil {
		t.t.Stop()
	}
	left := time.Duration(float64(t.at-t.v.Boot()) / t.v.rate)
	t.t = time.AfterFunc(left+1, t.fire)
}

func (t *virtualTimer) fire() {
	if t.v.Boot() < t.at { // rounding: not yet
		t.arm()
		return
	}
	if t.take() {
		t.f()
	}
}

func (t *virtualTimer) take() bool {
	t.v.mu.Lock()
	defer t.v.mu.Unlock()
	_, pending := t.v.pending[t]
	delete(t.v.pending, t)
	return pending
}

func (t *virtualTimer) Stop() bool {
	if !t.take() {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.t.Stop()
	return true
}
