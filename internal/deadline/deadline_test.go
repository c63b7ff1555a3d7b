package deadline

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-project/tenure/internal/clock"
)

// bubble runs f with virtual time.
func bubble(t *testing.T, f func(t *testing.T, c *clock.Virtual)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { f(t, clock.NewVirtual(1)) })
}

const (
	life   = 10 * time.Second
	margin = time.Second
)

// The states of DL1: idle, live, ended, and no way back.
//
// SPEC DL1
func TestStates(t *testing.T) {
	bubble(t, func(t *testing.T, c *clock.Virtual) {
		d := New(c, margin)
		if d.Live() {
			t.Fatal("an idle deadline is live")
		}
		if !d.Extend(Take(c), life) || !d.Live() {
			t.Fatal("a granted deadline is not live")
		}
		d.Withdraw()
		if d.Live() || d.Cause() != nil {
			t.Fatal("a withdrawn deadline must be idle, not ended")
		}
		if !d.Extend(Take(c), life) {
			t.Fatal("a withdrawn deadline can be granted again")
		}
		boom := errors.New("boom")
		if !d.End(boom) || d.End(errors.New("later")) {
			t.Fatal("exactly the first End ends")
		}
		<-d.Done()
		if !errors.Is(d.Cause(), boom) {
			t.Fatalf("cause = %v, want the first one", d.Cause())
		}
		if d.Extend(Take(c), life) || d.Live() {
			t.Fatal("an ended deadline was revived")
		}
	})
}

// Live is strict at T; an expiry is final and wakes waiters.
//
// SPEC DL1 DL2
func TestExpiryIsStrictAndFinal(t *testing.T) {
	bubble(t, func(t *testing.T, c *clock.Virtual) {
		d := New(c, margin)
		start := Take(c)
		d.Extend(start, life)
		time.Sleep(life - 1)
		if !d.Live() {
			t.Fatal("not live one nanosecond before T")
		}
		time.Sleep(1 * time.Nanosecond)
		if d.Live() {
			t.Fatal("live at T itself")
		}
		if d.Extend(Take(c), life) {
			t.Fatal("an expired deadline was extended")
		}
		<-d.Done()
		if !errors.Is(d.Cause(), ErrExpired) {
			t.Fatalf("cause = %v", d.Cause())
		}
	})
}

// Extend sets T, counted from its stamp; a late grant is none (CASE B04's
// kernel: the time that the reply took is never given away).
//
// SPEC DL4
func TestExtendCountsFromTheStamp(t *testing.T) {
	bubble(t, func(t *testing.T, c *clock.Virtual) {
		d := New(c, margin)
		sent := Take(c)
		time.Sleep(6 * time.Second) // a slow reply
		if !d.Extend(sent, life) {
			t.Fatal("refused with 4 s left")
		}
		if got := d.Remaining(); got != 4*time.Second {
			t.Fatalf("remaining = %v, want 4s", got)
		}
		late := New(c, margin)
		sent = Take(c)
		time.Sleep(life)
		if late.Extend(sent, life) || late.Live() {
			t.Fatal("a grant that arrived at T was published")
		}
	})
}

// A renewal moves T without a new timer; shortening moves the timer.
//
// SPEC DL1 DL2
func TestTimerFollowsT(t *testing.T) {
	bubble(t, func(t *testing.T, c *clock.Virtual) {
		d := New(c, margin)
		d.Extend(Take(c), life)
		time.Sleep(life / 2)
		d.Extend(Take(c), life)
		time.Sleep(life - 1)
		synctest.Wait()
		if d.Cause() != nil || !d.Live() {
			t.Fatal("ended before the renewed T")
		}
		d2 := New(c, margin)
		d2.Extend(Take(c), life)
		d2.Extend(Take(c), time.Second)
		time.Sleep(time.Second + time.Millisecond)
		synctest.Wait()
		if d2.Cause() == nil {
			t.Fatal("a shortened deadline did not end at its new T")
		}
	})
}

// A suspend that the monotonic clock does not see ends the lease at once on
// resume, also when a wall-clock step hides it from the quick check.
//
// SPEC DL2 DL3
// CASE B12
func TestSuspend(t *testing.T) {
	bubble(t, func(t *testing.T, c *clock.Virtual) {
		d := New(c, margin)
		d.Extend(Take(c), life)
		c.Suspend(time.Hour)
		if d.Live() {
			t.Fatal("live after a suspend of one hour")
		}
		time.Sleep(min(margin/2, 100*time.Millisecond))
		synctest.Wait()
		if d.Cause() == nil {
			t.Fatal("the boot-clock timer did not fire after the resume")
		}

		hidden := New(c, margin)
		hidden.Extend(Take(c), life)
		c.Suspend(time.Hour)
		c.StepWall(-time.Hour) // the wall clock now agrees with the monotonic one
		time.Sleep(min(margin/2, 100*time.Millisecond))
		synctest.Wait()
		if hidden.Live() || hidden.Cause() == nil {
			t.Fatal("a wall-clock step hid a suspend")
		}
	})
}

// A step of the wall clock alone neither ends nor prolongs anything.
//
// SPEC DL2 DL3
func TestWallStepAloneIsHarmless(t *testing.T) {
	for _, step := range []time.Duration{-time.Hour, time.Hour, margin / 4} {
		bubbleSub(t, step.String(), func(t *testing.T, c *clock.Virtual) {
			d := New(c, margin)
			d.Extend(Take(c), life)
			c.StepWall(step)
			time.Sleep(life - 1)
			if !d.Live() {
				t.Fatal("a wall-clock step ended the deadline")
			}
			time.Sleep(1 * time.Nanosecond)
			if d.Live() {
				t.Fatal("a wall-clock step prolonged the deadline")
			}
		})
	}
}

func bubbleSub(t *testing.T, name string, f func(t *testing.T, c *clock.Virtual)) {
	t.Run(name, func(t *testing.T) { bubble(t, f) })
}

// What lives under a parent is live exactly while both are, whoever ends first,
// and the parent forgets what ended before it.
//
// SPEC DL6
func TestUnder(t *testing.T) {
	bubble(t, func(t *testing.T, c *clock.Virtual) {
		cause := errors.New("the session ended")
		parent := New(c, margin)
		early := NewUnder(parent)
		if early.Live() {
			t.Fatal("live under a parent that is idle")
		}
		parent.Extend(Take(c), time.Minute)
		if !early.Live() || early.Extend(Take(c), time.Hour) {
			t.Fatal("not live with its parent, or granted by itself")
		}
		if at, ok := early.T(); !ok || at != c.Boot()+time.Minute || early.Remaining() != time.Minute {
			t.Fatalf("T is %v, %v", at, ok)
		}
		own := errors.New("released")
		early.End(own)
		if early.Live() || early.Cause() != own || len(parent.children) != 0 || !parent.Live() {
			t.Fatal("an end of its own is not just its own")
		}
		late := NewUnder(parent)
		told := make(chan error, 1)
		late.OnEnd(func() { told <- late.Cause() })
		parent.End(cause)
		if err := <-told; err != cause || late.Live() {
			t.Fatalf("ended by %v", err)
		}
		if _, ok := late.T(); ok {
			t.Fatal("a T after the end")
		}
		if after := NewUnder(parent); after.Live() || after.Cause() != cause {
			t.Fatal("live under a parent that has ended")
		}
	})
}

// A parent that expires ends what is under it.
//
// SPEC DL6
func TestUnderExpires(t *testing.T) {
	bubble(t, func(t *testing.T, c *clock.Virtual) {
		parent := New(c, margin)
		parent.Extend(Take(c), time.Second)
		child := NewUnder(parent)
		<-child.Done()
		if child.Cause() != ErrExpired {
			t.Fatal(child.Cause())
		}
	})
}

// Live allocates nothing, and races with every transition.
//
// SPEC DL2
func TestLiveAllocatesNothing(t *testing.T) {
	c := clock.NewSystem()
	d := New(c, margin)
	d.Extend(Take(c), time.Hour)
	defer d.End(nil)
	if n := testing.AllocsPerRun(1000, func() { d.Live() }); n != 0 {
		t.Fatalf("Live allocates %v times", n)
	}
}

// SPEC DL1
func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	c := clock.NewSystem()
	d := New(c, margin)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				d.Extend(Take(c), time.Minute)
				d.Live()
				d.Withdraw()
				d.Remaining()
			}
		})
	}
	wg.Wait()
	d.End(nil)
	if d.Live() || d.Extend(Take(c), time.Minute) {
		t.Fatal("live after the end")
	}
}

func BenchmarkLive(b *testing.B) {
	c := clock.NewSystem()
	d := New(c, margin)
	d.Extend(Take(c), time.Hour)
	defer d.End(nil)
	b.Run("Live", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			d.Live()
		}
	})
	b.Run("time.Now", func(b *testing.B) {
		var sink time.Time
		for b.Loop() {
			sink = time.Now()
		}
		_ = sink
	})
	b.Run("boot", func(b *testing.B) {
		for b.Loop() {
			c.Boot()
		}
	})
}
