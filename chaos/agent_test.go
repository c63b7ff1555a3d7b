//go:build linux

package chaos

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// host is a program's environment on a host of its own: where its agent's socket
// is found.
func (s *stage) host(name string) *stage {
	other := *s
	other.env = append(append([]string(nil), s.env...), "XDG_CACHE_HOME="+filepath.Join(s.dir, name))
	return &other
}

// agent starts an agent and waits until it is ready.
func (s *stage) agent(node string) *program {
	s.Helper()
	p := s.start("agent", "--node", node, "--ttl", s.ttl.String())
	for end := time.Now().Add(time.Minute); !strings.Contains(p.out.String(), "node "+node); time.Sleep(2 * time.Millisecond) { // poll: another process
		select {
		case <-p.done:
			s.Fatalf("the agent ended:\n%s", p.out.String())
		default:
		}
		if time.Now().After(end) {
			s.Fatalf("the agent is not ready:\n%s", p.out.String())
		}
	}
	return p
}

// heldBySession starts a command under the agent of the stage's host.
func (s *stage) heldBySession(then string) *program {
	s.Helper()
	return s.start(append([]string{"run", "--lease", "job", "--session"}, work("log", then)...)...)
}

// On every backend, two hosts with an agent each: kill -9 of one agent ends its
// command, and the other host's command takes over by a certificate a TTL later at
// the latest. A drain of the second frees the lease at once.
//
// SPEC LS8 PL3 PL6 PL8 UI1
func TestAgentOn(t *testing.T) {
	onEach(t, func(s *stage) {
		a, b := s.host("a"), s.host("b")
		first, second := a.agent("n1"), b.agent("n2")
		holder := a.heldBySession("exec sleep 600")
		s.begins("log", 1)
		rival := b.heldBySession("exec sleep 600")
		s.standsInLine(rival)
		killed := time.Now()
		if err := first.cmd.Process.Kill(); err != nil {
			s.Fatal(err)
		}
		holder.want(76)
		next := s.begins("log", 2)
		took := next.at.Sub(killed)
		s.Logf("%s: kill -9 of an agent to next holder %v, TTL %v", s.backend, took.Round(time.Millisecond), s.ttl)
		if next.token != 2 || took > s.failOver() {
			s.Errorf("the next holder has token %d after %v, want 2 within %v", next.token, took, s.failOver())
		}
		if out := s.run(0, "node", "history", "n1"); !strings.Contains(out, "observed") {
			s.Errorf("the history of n1 says %s", out)
		}
		if err := second.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			s.Fatal(err)
		}
		rival.want(76)
		second.want(0)
		if out := s.run(0, "run", "--lease", "job", "--wait", "0", "--", "sh", "-c", "echo token=$TENURE_TOKEN"); !strings.Contains(out, "token=3") {
			s.Errorf("after the drain the command printed %q", out)
		}
	})
}
