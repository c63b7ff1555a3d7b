package clock

import (
	"testing"
	"time"
)

// The boot clock fires timers in order, Stop works, and no goroutine is left
// once nothing is pending.
//
// SPEC DL3
func TestSystemTimers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]*System{"native": NewSystem(), "polled": polled()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fired := make(chan int, 3)
			now := c.Boot()
			never := c.AfterBoot(now+time.Hour, func() { fired <- 9 })
			c.AfterBoot(now+40*time.Millisecond, func() { fired <- 2 })
			c.AfterBoot(now+10*time.Millisecond, func() { fired <- 1 })
			if first, second := <-fired, <-fired; first != 1 || second != 2 {
				t.Fatalf("fired %d then %d", first, second)
			}
			if !never.Stop() || never.Stop() {
				t.Fatal("exactly the first Stop stops")
			}
			for c.running() {
				time.Sleep(time.Millisecond) // poll: the goroutine of a timer ends on its own
			}
		})
	}
}

func (s *System) running() bool {
	s.boot.mu.Lock()
	defer s.boot.mu.Unlock()
	return s.boot.alarm != nil
}

func polled() *System {
	s := NewSystem()
	a := newPollAlarm(s.Boot)
	a.set(s.Boot() + time.Hour)
	s.boot.alarm = a
	go s.boot.run(a)
	return s
}

// SPEC DL3
func TestSystemReadings(t *testing.T) {
	t.Parallel()
	c := NewSystem()
	a, bootA := c.Read(), c.Boot()
	b, bootB := c.Read(), c.Boot()
	if b.Mono < a.Mono || bootB < bootA {
		t.Fatalf("clocks went back: %v %v, %v %v", a, b, bootA, bootB)
	}
	if bootA <= 0 {
		t.Fatalf("boot clock reads %v", bootA)
	}
}
