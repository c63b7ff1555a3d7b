package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/tenure-project/tenure/internal/proc"
	"github.com/tenure-project/tenure/ledger"
	"github.com/tenure-project/tenure/store"
)

const (
	// looksAgain is how long the scheduler sleeps at most: its clock may be set.
	looksAgain = 30 * time.Second
	// triesAgain is the pause before an occurrence that the store stood in the way of is
	// tried again.
	triesAgain = 5 * time.Second
)

// scheduler runs the jobs of a file, each occurrence as a process of its own: it has a
// supervisor then, and goes on if this process ends.
type scheduler struct {
	a       *app
	file    string
	way     []string
	program string
	dir     string // for status files
	jobs    map[string]*task
	live    map[*task]bool // those that run, also of jobs that are not in the file any more
	ended   chan *task
}

// task is one job, and what the scheduler knows of it.
type task struct {
	scheduled
	last    time.Time // the latest occurrence that was begun
	at      time.Time // the one that is running
	process *exec.Cmd // nil if none is
	again   time.Time // not before this; zero if any time
}

func newScheduler(a *app) *scheduler {
	return &scheduler{a: a, jobs: map[string]*task{}, live: map[*task]bool{}, ended: make(chan *task)}
}

// prepare finds what every run needs.
func (s *scheduler) prepare() error {
	t, err := s.a.target()
	if err == nil {
		s.way, err = t.pairs(s.a.env)
	}
	if err != nil {
		return err
	}
	if _, secret, err := handedStore(t.url); err == nil && secret && s.a.env.get(envStore) != t.url {
		return invalid("the jobs' processes need the store's password, and get no URL of a command line: give the URL in %s", envStore)
	}
	if s.program, err = os.Executable(); err != nil {
		return err
	}
	if s.dir, err = os.MkdirTemp("", "tenure-schedule-"); err != nil {
		return store.Wrap(store.ErrInvalid, "", "make a temporary folder", os.TempDir(), err)
	}
	return nil
}

func (s *scheduler) cleanUp() { _ = os.RemoveAll(s.dir) }

// take replaces the jobs by those of the file. What is known of a job stays.
func (s *scheduler) take(jobs []scheduled) {
	old := s.jobs
	s.jobs = map[string]*task{}
	for _, j := range jobs {
		t := old[j.Name]
		if t == nil {
			t = &task{}
		}
		t.scheduled = j
		s.jobs[j.Name] = t
	}
	s.say("%d jobs from %s", len(jobs), printable(s.file))
}

// say tells a person who asked for it.
func (s *scheduler) say(format string, args ...any) {
	if s.a.flags.verbose {
		fmt.Fprintf(s.a.stderr, "tenure: %s\n", fmt.Sprintf(format, args...))
	}
}

// loop starts what is due until a signal ends it, and waits for what runs then.
func (s *scheduler) loop(ctx context.Context) {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, append(hangUps, os.Interrupt, syscall.SIGTERM)...)
	defer signal.Stop(signals)
	draining := false
	for !draining || len(s.live) > 0 {
		pause := looksAgain
		if !draining {
			pause = s.begin(wallTime(s.a.clk))
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case t := <-s.ended:
			s.finish(t)
		case <-ctx.Done():
			draining = true
		case sig := <-signals:
			switch {
			case isHangUp(sig):
				s.reload()
			case draining:
				s.pass(sig)
			default:
				draining = true
				if n := len(s.live); n > 0 {
					fmt.Fprintf(s.a.stderr, "tenure: %v: nothing more is started; waiting for what runs: %d\n", sig, n)
				}
			}
		}
		timer.Stop()
	}
}

// reload reads the file again. One that is wrong changes nothing.
func (s *scheduler) reload() {
	jobs, err := s.read()
	if err != nil {
		fmt.Fprintln(s.a.stderr, describe(err))
		s.a.warn("%s is wrong: the jobs stay as they are", s.file)
		return
	}
	s.take(jobs)
}

// pass hands a repeated signal on to everything that runs.
func (s *scheduler) pass(sig os.Signal) {
	for t := range s.live {
		_ = t.process.Process.Signal(sig)
	}
}

// begin starts what is due at now, and says how long nothing else is.
func (s *scheduler) begin(now time.Time) time.Duration {
	pause := looksAgain
	for _, t := range s.jobs {
		if t.process != nil {
			continue // its end wakes the loop
		}
		if wait := t.again.Sub(now); wait > 0 {
			pause = min(pause, wait)
			continue
		}
		if at, ok := ledger.Latest(t.Schedule, now, t.late); ok && at.After(t.last) {
			s.start(t, at)
			continue
		}
		if next, ok := t.Schedule.Next(now); ok {
			pause = min(pause, next.Sub(now))
		}
	}
	return max(pause, 0)
}

// start starts one occurrence of a job.
func (s *scheduler) start(t *task, at time.Time) {
	if next, ok := t.Schedule.Next(t.last); ok && !t.last.IsZero() && next.Before(at) {
		s.a.warn("job %s: from %s on, occurrences were passed over: an earlier one was running, or this process was stopped", showName(t.Name), instantText(next))
	}
	args := []string{"once", "--job=" + t.Name, "--at=" + instantText(at), "--status-file=" + s.statusFile(t)}
	if s.a.flags.verbose {
		args = append(args, "--verbose")
	} else {
		args = append(args, "--quiet")
	}
	args = append(append(append(args, t.flags...), "--"), shellArgs(t.Command)...)
	cmd := exec.Command(s.program, args...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = s.a.env.with(s.way...)
	cmd.Stdout, cmd.Stderr = s.a.stdout, s.a.stderr
	apart(cmd)
	_ = os.Remove(s.statusFile(t)) // of the occurrence before
	before := t.last
	t.last, t.at, t.again = at, at, time.Time{}
	s.say("job %s, occurrence %s: started", showName(t.Name), instantText(at))
	if err := cmd.Start(); err != nil {
		s.a.warn("job %s, occurrence %s: %v; it is tried again", showName(t.Name), instantText(at), err)
		t.last, t.again = before, wallTime(s.a.clk).Add(triesAgain)
		return
	}
	t.process, s.live[t] = cmd, true
	go func() {
		_ = cmd.Wait()
		s.ended <- t
	}()
}

func (s *scheduler) statusFile(t *task) string {
	return filepath.Join(s.dir, fmt.Sprintf("%x", sha256.Sum256([]byte(t.Name))))
}

// finish takes note of the end of a job's process.
func (s *scheduler) finish(t *task) {
	delete(s.live, t)
	code := t.process.ProcessState.ExitCode()
	t.process = nil
	if code == 0 {
		return
	}
	var st runStatus
	if text, err := os.ReadFile(s.statusFile(t)); err == nil {
		_ = json.Unmarshal(text, &st)
	}
	if st.Code == exitUnavailable && st.End == string(proc.NotStarted) {
		// Nothing ran, perhaps on no host: it is tried again while it is due.
		t.last, t.again = t.at.Add(-time.Millisecond), wallTime(s.a.clk).Add(triesAgain)
		return
	}
	s.a.warn("job %s, occurrence %s: exit code %d", showName(t.Name), instantText(t.at), code)
}
