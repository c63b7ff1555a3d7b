//go:build linux || darwin

package proc

import (
	"os"
	"os/signal"
	"sync/atomic"
	"time"

	"github.com/tenure-project/tenure/internal/clock"
	"golang.org/x/sys/unix"
)

// forwarded are the signals that the wrapper passes on to the command.
var forwarded = []unix.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2}

// arrival is a signal that came to the wrapper.
type arrival struct {
	sig unix.Signal
	// kernel is true if the kernel sent it, as it does for the terminal's keys, to
	// the whole process group.
	kernel bool
	at     time.Duration
}

// signals are the wrapper's.
type signals struct {
	clk     clock.Clock
	ignored map[unix.Signal]bool
	raw     chan os.Signal
	out     chan arrival
	// blind are the signals whose origin cannot be told: they are passed on.
	blind [65]atomic.Bool
}

// catchSignals begins to catch what is passed on. A signal that was ignored at
// the start (nohup) stays ignored.
func catchSignals(c clock.Clock, ignored map[unix.Signal]bool) *signals {
	s := &signals{clk: c, ignored: ignored, raw: make(chan os.Signal, 64), out: make(chan arrival)}
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE) // a closed pipe must not end the wrapper
	s.catch(forwarded)
	go s.sort()
	return s
}

func (s *signals) catch(list []unix.Signal) {
	for _, sig := range list {
		if s.ignored[sig] {
			continue
		}
		// The probe first, so that none slips through uncounted. A signal that the
		// runtime leaves alone until it is asked for is the other way round.
		probed := probeSignal(sig) == nil
		signal.Notify(s.raw, sig)
		if !probed {
			s.blind[sig].Store(probeSignal(sig) != nil)
		}
	}
}

// sort tells signals apart by origin, as they arrive.
func (s *signals) sort() {
	for got := range s.raw {
		sig, ok := got.(unix.Signal)
		if !ok {
			continue
		}
		at := s.clk.Boot()
		kernel, process := arrivals(sig)
		if s.blind[sig].Load() {
			kernel, process = 0, 1
		}
		if kernel > 0 {
			s.out <- arrival{sig, true, at}
		}
		if process > 0 {
			s.out <- arrival{sig, false, at}
		}
	}
}
