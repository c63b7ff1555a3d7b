package clock

import (
	"sync"
	"time"
)

// System reads the machine's clocks. The zero value is not usable; call
// [NewSystem].
type System struct {
	origin time.Time
	boot   scheduler
}

// NewSystem returns a clock of this machine. It starts no goroutine until a
// timer is pending and leaves none once no timer is.
func NewSystem() *System {
	s := &System{origin: time.Now()}
	s.boot.now = s.Boot
	return s
}

// Read reads both cheap clocks with one time.Now.
func (s *System) Read() Reading {
	t := time.Now()
	return Reading{Wall: time.Duration(t.UnixNano()), Mono: t.Sub(s.origin)}
}

// Boot reads the clock that counts suspend.
func (s *System) Boot() time.Duration { return bootNow() }

// AfterFunc is time.AfterFunc.
func (s *System) AfterFunc(d time.Duration, f func()) Timer { return time.AfterFunc(d, f) }

// lazily is how long a far instant waits on the ordinary clock before the boot
// clock is asked to tell of it: most leases and limits end before, and arming
// the boot clock takes system calls. A suspend meanwhile costs that much running
// time after the resume, within what AfterBoot promises.
const lazily = 5 * time.Millisecond

// AfterBoot waits on the boot clock.
func (s *System) AfterBoot(at time.Duration, f func()) Timer {
	if at-s.Boot() < 10*lazily {
		return s.boot.add(at, f)
	}
	l := &lazyTimer{}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now = time.AfterFunc(lazily, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.now != nil {
			l.now = s.boot.add(at, f)
		}
	})
	return l
}

// lazyTimer is first a timer of the ordinary clock, then one of the boot clock;
// nil once it was stopped.
type lazyTimer struct {
	mu  sync.Mutex
	now Timer
}

// Stop stops whichever it is. Before the boot clock was asked, f has not begun,
// so that it is prevented even where the ordinary timer fires at this moment.
func (l *lazyTimer) Stop() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now == nil {
		return false
	}
	_, far := l.now.(*time.Timer)
	stopped := l.now.Stop() || far
	l.now = nil
	return stopped
}

// alarm wakes the scheduler at an instant of the boot clock. Its two forms are
// a timerfd, which the kernel fires on resume from suspend, and a poll.
type alarm interface {
	// set arms the alarm; it may be called while wait blocks, which then obeys
	// the new instant.
	set(at time.Duration)
	// wait blocks until the alarm fired. It may return early.
	wait()
	close()
}

// scheduler runs functions at instants of the boot clock. One goroutine lives
// while any entry is pending.
type scheduler struct {
	now func() time.Duration

	mu      sync.Mutex
	entries map[*entry]struct{}
	alarm   alarm // nil while no goroutine runs
}

type entry struct {
	s  *scheduler
	at time.Duration
	f  func()
}

func (s *scheduler) add(at time.Duration, f func()) Timer {
	e := &entry{s: s, at: at, f: f}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.entries == nil {
		s.entries = map[*entry]struct{}{}
	}
	s.entries[e] = struct{}{}
	if s.alarm == nil {
		s.alarm = newAlarm(s.now)
		s.alarm.set(at)
		go s.run(s.alarm)
	} else {
		s.alarm.set(s.earliest())
	}
	return e
}

// earliest is the next instant of interest. A linear scan is cheap beside the
// system call that follows, up to some thousands of leases in one process; a
// session (one entry for all its leases) serves those who hold more.
func (s *scheduler) earliest() time.Duration {
	first := time.Duration(-1)
	for e := range s.entries {
		if first < 0 || e.at < first {
			first = e.at
		}
	}
	return max(first, 0)
}

func (s *scheduler) run(a alarm) {
	defer a.close()
	for {
		a.wait()
		s.mu.Lock()
		now := s.now()
		for e := range s.entries {
			if e.at <= now {
				delete(s.entries, e)
				go e.f()
			}
		}
		if len(s.entries) == 0 {
			s.alarm = nil
			s.mu.Unlock()
			return
		}
		a.set(s.earliest())
		s.mu.Unlock()
	}
}

// Stop takes the entry out.
func (e *entry) Stop() bool {
	s := e.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, pending := s.entries[e]; !pending {
		return false
	}
	delete(s.entries, e)
	if len(s.entries) == 0 && s.alarm != nil {
		s.alarm.set(0) // wakes the goroutine, which then ends
	}
	return true
}

// pollAlarm looks at the clock at least every 50 ms of running time, for
// systems without a timer on the boot clock.
type pollAlarm struct {
	now  func() time.Duration
	mu   sync.Mutex
	at   time.Duration
	wake chan struct{}
}

const pollEvery = 50 * time.Millisecond

func newPollAlarm(now func() time.Duration) *pollAlarm {
	return &pollAlarm{now: now, wake: make(chan struct{}, 1)}
}

func (a *pollAlarm) set(at time.Duration) {
	a.mu.Lock()
	a.at = at
	a.mu.Unlock()
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

func (a *pollAlarm) wait() {
	for {
		a.mu.Lock()
		left := a.at - a.now()
		a.mu.Unlock()
		if left <= 0 {
			return
		}
		t := time.NewTimer(min(left, pollEvery))
		select {
		case <-t.C:
		case <-a.wake:
			t.Stop()
		}
	}
}

func (a *pollAlarm) close() {}
