//go:build linux

package chaos

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"
)

// slack is what a loaded machine may add to a fail-over: processes that start,
// a store that answers late.
const slack = 2 * time.Second

// failOver is the longest that a lease may stand without a holder after its
// holder stopped to renew it (SPEC LS2): its TTL on a slow clock, one poll or one
// watch, and slack.
func (s *stage) failOver() time.Duration {
	poll := min(max(s.ttl/15, 100*time.Millisecond), time.Second) * 3 / 2
	return s.ttl + s.ttl/100 + poll + slack
}

// onEach plays f on every backend, beside the others.
func onEach(t *testing.T, f func(s *stage)) {
	t.Parallel()
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			f(newStage(t, b))
		})
	}
}

// On every backend: the next token for each run, status tells of the holder,
// another one is told who holds it, steal ends the tenure of exactly one token,
// and history tells what happened.
//
// SPEC UI1 UI2 UI4 LS1 LS11
func TestCommandsOn(t *testing.T) {
	onEach(t, func(s *stage) {
		ttl := s.ttl.String()
		for token := 1; token <= 2; token++ {
			out := s.run(0, "run", "--lease", "job", "--ttl", ttl, "--", "sh", "-c", "echo token=$TENURE_TOKEN")
			if want := fmt.Sprintf("token=%d\n", token); !strings.Contains(out, want) {
				s.Fatalf("the command printed %q, want %q", out, want)
			}
		}
		holder := s.holds("exec sleep 600", "--note", "by hand")
		if w := s.begins("log", 1); w.token != 3 {
			s.Fatalf("the third holder has token %d", w.token)
		}
		if out := s.run(0, "status", "job", "--json"); !strings.Contains(out, `"token":3`) && !strings.Contains(out, `"token": 3`) {
			s.Errorf("status says %s", out)
		}
		if out := s.run(75, "run", "--lease", "job", "--wait", "0", "--", "true"); !strings.Contains(out, "by hand") {
			s.Errorf("one who finds it held is told %s", out)
		}
		s.run(76, "steal", "job", "--token", "2", "--reason", "test", "--by", "op")
		s.run(0, "steal", "job", "--token", "3", "--reason", "test", "--by", "op")
		if out := holder.want(76); !strings.Contains(out, `forced by "op"`) {
			s.Errorf("the robbed holder says %s", out)
		}
		if out := s.run(0, "history", "job"); !strings.Contains(out, "op") {
			s.Errorf("history says %s", out)
		}
		s.run(0, "doctor")
	})
}

// kill -9 of everything that a holder consists of: the one who waits has the
// lease a TTL later at the latest.
//
// SPEC LS2 LS9 UI1
// CASE B05
func TestKillOn(t *testing.T) {
	onEach(t, func(s *stage) {
		_, _, rival, took := s.takeOver(syscall.SIGKILL)
		s.Logf("%s: kill -9 to next holder %v, TTL %v", s.backend, took.Round(time.Millisecond), s.ttl)
		rival.want(5)
	})
}

// takeOver sends sig to all of a holder, lets a rival that waits take over, and
// returns how long that took.
func (s *stage) takeOver(sig syscall.Signal) (holder *program, w begun, rival *program, took time.Duration) {
	s.Helper()
	holder = s.holds("exec sleep 600")
	w = s.begins("log", 1)
	rival = s.holds("sleep 3; exit 5")
	s.standsInLine(rival)
	sent := s.signalAll(holder, w, sig)
	next := s.begins("log", 2)
	took = next.at.Sub(sent)
	if next.token != w.token+1 || took > s.failOver() {
		s.Errorf("the next holder has token %d after %v, want %d within %v", next.token, took, w.token+1, s.failOver())
	}
	return holder, w, rival, took
}

// standsInLine lets the rival look once, so that its observation begins before
// the harm. It has no other sign of that than its patience.
func (s *stage) standsInLine(rival *program) {
	select {
	case <-rival.done:
		s.Fatalf("it did not wait:\n%s", rival.out.String())
	case <-time.After(500 * time.Millisecond):
	}
}

// SIGSTOP of everything that a holder consists of, for longer than the TTL: the
// next one holds the lease meanwhile, and the woken holder ends at once as lost,
// and releases nothing.
//
// SPEC LS2 LS4 DL3 UI1
// CASE B01 B07
func TestPauseOn(t *testing.T) {
	onEach(t, func(s *stage) {
		holder, w, rival, took := s.takeOver(syscall.SIGSTOP)
		s.Logf("%s: SIGSTOP to next holder %v, TTL %v", s.backend, took.Round(time.Millisecond), s.ttl)
		if least := s.ttl - s.ttl/5 - 100*time.Millisecond; took < least {
			s.Errorf("the next holder came after %v already, the TTL is %v", took, s.ttl)
		}
		s.signalAll(holder, w, syscall.SIGCONT)
		holder.want(76)
		rival.want(5)
		if out := s.run(0, "run", "--lease", "job", "--ttl", s.ttl.String(), "--", "sh", "-c", "echo token=$TENURE_TOKEN"); !strings.Contains(out, "token=3") {
			s.Errorf("afterwards the command printed %q", out)
		}
	})
}

// The demo on every backend: a kill, a pause, a zombie whose write is refused,
// and a hand-over.
//
// SPEC UI4 GD1
func TestDemoOn(t *testing.T) {
	onEach(t, func(s *stage) {
		out := s.run(0, "--store", s.url, "demo", "--svg", "")
		for _, want := range []string{"was refused", "no zombie got through"} {
			if !strings.Contains(out, want) {
				s.Errorf("%q is missing in:\n%s", want, out)
			}
		}
		for line := range strings.Lines(out) {
			if strings.Contains(line, "took over") || strings.Contains(line, "held it") {
				s.Log(s.backend, strings.TrimSpace(line))
			}
		}
	})
}
