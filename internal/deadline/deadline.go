// Package deadline holds the instant until which a holder may act.
//
// The trust begins before the request that won it was sent, and is counted on
// a clock that counts suspend (DL1 to DL4, DL6).
package deadline

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-project/tenure/internal/clock"
)

// ErrExpired is the cause of a deadline that passed without being extended.
var ErrExpired = errors.New("the deadline passed")

// Stamp is an instant, read on all clocks together before a request is sent.
type Stamp struct {
	reading clock.Reading
	boot    time.Duration
}

// Take reads c now. Whatever is counted from the stamp is counted from before
// any request that is sent after Take returned.
func Take(c clock.Clock) Stamp { return Stamp{reading: c.Read(), boot: c.Boot()} }

// Boot is the stamp's boot-clock reading.
func (s Stamp) Boot() time.Duration { return s.boot }

// grant is one extension. It never changes once published.
//
// Invariants: t = ref.boot + life; life > 0.
type grant struct {
	ref   Stamp
	life  time.Duration
	t     time.Duration
	slack time.Duration
}

func (g *grant) live(c clock.Clock) bool {
	r := c.Read()
	mono := r.Mono - g.ref.reading.Mono
	// Wall and monotonic clock part when the machine was suspended or the wall
	// clock was set. Either way the boot clock knows.
	if apart := r.Wall - g.ref.reading.Wall - mono; apart > g.slack || apart < -g.slack {
		return c.Boot() < g.t
	}
	return mono < g.life
}

// Deadline is idle (nothing granted yet), live until T, or ended. The end is
// final: an expired deadline cannot be revived; whoever may act again gets a
// new one (DL1). All methods are safe for concurrent use.
type Deadline struct {
	clk    clock.Clock
	slack  time.Duration
	parent *Deadline // whose grant this one lives by; nil for one of its own

	grant atomic.Pointer[grant] // nil while idle and once ended
	over  atomic.Bool           // ended

	mu       sync.Mutex
	timer    clock.Timer // pending while a grant stands
	cause    error
	done     chan struct{} // nil until somebody asks: most deadlines are never waited for
	onEnd    []func()
	children map[*Deadline]uint64 // that have not ended, numbered as they came
	born     uint64
	orphans  map[*Deadline]uint64 // to be ended once the lock is free
}

// New returns an idle deadline. margin is the holder's margin, of which an
// eighth is how far wall and monotonic clock may part before the boot clock is
// asked (DL2).
func New(c clock.Clock, margin time.Duration) *Deadline {
	return &Deadline{clk: c, slack: margin / 8}
}

// NewUnder returns a deadline that lives by parent's grants: it is live while
// parent is, until it is ended itself, and it ends with parent, for parent's cause
// (DL6). It costs no timer, and nothing when parent is extended.
func NewUnder(parent *Deadline) *Deadline {
	d := &Deadline{clk: parent.clk, parent: parent}
	parent.mu.Lock()
	ended := parent.over.Load()
	if !ended {
		if parent.children == nil {
			parent.children = map[*Deadline]uint64{}
		}
		parent.born++
		parent.children[d] = parent.born
	}
	parent.mu.Unlock()
	if ended {
		d.End(parent.Cause())
	}
	return d
}

// Children counts what lives under d and has not ended.
func (d *Deadline) Children() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.children)
}

// Live reports whether the holder may act right now, strictly before T. It
// takes no lock, allocates nothing, and costs about one clock reading.
func (d *Deadline) Live() bool {
	if d.parent != nil {
		return !d.over.Load() && d.parent.Live()
	}
	g := d.grant.Load()
	return g != nil && g.live(d.clk)
}

// Extend sets T to from + life and reports whether the deadline is live then.
// It sets, it does not add, so it can also shorten. After a natural expiry or
// an end it does nothing and returns false, and so does one under a parent, which
// has no grants of its own.
func (d *Deadline) Extend(from Stamp, life time.Duration) bool {
	d.mu.Lock()
	defer d.unlock()
	now := d.clk.Boot()
	if g := d.grant.Load(); g != nil && now >= g.t {
		d.endLocked(ErrExpired)
	}
	if d.over.Load() || d.parent != nil {
		return false
	}
	g := &grant{ref: from, life: life, t: from.boot + life, slack: d.slack}
	if now >= g.t {
		if d.grant.Load() != nil {
			d.endLocked(ErrExpired)
		}
		return false // a grant that comes too late is none (DL4)
	}
	shorter := false
	if old := d.grant.Load(); old != nil {
		shorter = g.t < old.t
	}
	d.grant.Store(g)
	if d.timer == nil || shorter {
		d.armLocked(g.t)
	}
	return true
}

// armLocked makes expire run at t. A later extension does not move the timer:
// expire finds the new T and arms again, so a renewal costs no timer.
func (d *Deadline) armLocked(t time.Duration) {
	if d.timer != nil {
		d.timer.Stop()
	}
	d.timer = d.clk.AfterBoot(t, d.expire)
}

func (d *Deadline) expire() {
	d.mu.Lock()
	defer d.unlock()
	g := d.grant.Load()
	if d.over.Load() || g == nil {
		return
	}
	if d.clk.Boot() < g.t {
		d.armLocked(g.t)
		return
	}
	d.endLocked(ErrExpired)
}

// Withdraw takes a live grant back: the deadline is idle again and can be
// granted anew. After the end it does nothing.
func (d *Deadline) Withdraw() {
	d.mu.Lock()
	defer d.unlock()
	if g := d.grant.Load(); g != nil && d.clk.Boot() >= g.t {
		d.endLocked(ErrExpired)
	}
	if d.over.Load() {
		return
	}
	d.grant.Store(nil)
	d.stopTimerLocked()
}

// End ends the deadline for good and wakes every waiter; the first cause
// stays. It reports whether this call ended it.
func (d *Deadline) End(cause error) bool {
	if !d.end(cause) {
		return false
	}
	if p := d.parent; p != nil {
		p.mu.Lock()
		delete(p.children, d)
		p.mu.Unlock()
	}
	return true
}

func (d *Deadline) end(cause error) bool {
	d.mu.Lock()
	defer d.unlock()
	if d.over.Load() {
		return false
	}
	d.endLocked(cause)
	return true
}

// unlock gives up the lock, and ends whatever lived by this deadline if it has
// ended, in the order in which it came: two deadlines are never locked at once.
func (d *Deadline) unlock() {
	orphans, cause := d.orphans, d.cause
	d.orphans = nil
	d.mu.Unlock()
	for _, child := range slices.SortedFunc(maps.Keys(orphans), func(a, b *Deadline) int { return cmp.Compare(orphans[a], orphans[b]) }) {
		child.end(cause)
	}
}

func (d *Deadline) endLocked(cause error) {
	d.over.Store(true)
	d.cause = cause
	d.orphans, d.children = d.children, nil
	d.grant.Store(nil)
	d.stopTimerLocked()
	if d.done != nil {
		close(d.done)
	}
	for _, f := range d.onEnd {
		go f()
	}
	d.onEnd = nil
}

// OnEnd calls f in its own goroutine once the deadline has ended, at once if it
// has ended already. It costs no goroutine until then.
func (d *Deadline) OnEnd(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over.Load() {
		go f()
		return
	}
	d.onEnd = append(d.onEnd, f)
}

func (d *Deadline) stopTimerLocked() {
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
}

// Done is closed when the deadline has ended, by expiry within 100 ms of
// running time.
func (d *Deadline) Done() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.done == nil {
		d.done = make(chan struct{})
		if d.over.Load() {
			close(d.done)
		}
	}
	return d.done
}

// Cause says why the deadline ended, nil before that.
func (d *Deadline) Cause() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cause
}

// T is the instant on the boot clock until which the holder may act, and
// whether there is one.
func (d *Deadline) T() (time.Duration, bool) {
	if d.parent != nil {
		t, ok := d.parent.T()
		return t, ok && !d.over.Load() // looked at last: a T after the end is none
	}
	if g := d.grant.Load(); g != nil {
		return g.t, true
	}
	return 0, false
}

// Remaining is the time left until T by the boot clock, 0 if not live.
func (d *Deadline) Remaining() time.Duration {
	t, ok := d.T()
	if !ok {
		return 0
	}
	return max(0, t-d.clk.Boot())
}
