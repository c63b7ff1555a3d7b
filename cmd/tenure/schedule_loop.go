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
	"runtime"
	"syscall"
	"time"

	"github.com/tenure-project/tenure/internal/proc"
	"github.com/tenure-project/tenure/ledger"
	"github.com/tenure-project/tenure/store"
)

const (
	// looksAgain is how long the scheduler sleeps at most: its clock may be set.
	looksAgain = 30 * time.Second
	// triesAgain is the pause before an occurrence that was not begun is tried again. It
	// doubles each time, up to triesAgainMax.
	triesAgain    = 5 * time.Second
	triesAgainMax = time.Minute
)

// scheduler runs the jobs of a file, each occurrence as a process of its own: it has a
// supervisor then, and goes on if this process ends.
type scheduler struct {
	a        *app
	file     string
	parallel int  // how many places there are
	exists   bool // the store must
	way      []string
	program  string
	dir      string      // for status files; see folder
	made     os.FileInfo // what dir is
	looks    *looker
	jobs     map[string]*task
	live     map[*task]bool // those that have a place, also of jobs that are not in the file any more
	looked   chan looked
	ended    chan *task
	crowd    crowd
}

// task is one job, and what the scheduler knows of it.
type task struct {
	scheduled
	last    time.Time     // the latest occurrence that was begun
	at      time.Time     // the one that has a place, or had the last
	status  string        // the status file of its process
	process *exec.Cmd     // nil if none is
	tries   int           // how often it was not begun
	again   time.Duration // of the boot clock, which nobody sets: not before this; 0 if any time
}

// minParallel is how many places there are at least, if nobody says.
const minParallel = 4

func newScheduler(a *app) *scheduler {
	return &scheduler{
		a: a, parallel: max(minParallel, 2*runtime.GOMAXPROCS(0)), jobs: map[string]*task{}, live: map[*task]bool{},
		looked: make(chan looked), ended: make(chan *task),
	}
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
	if s.exists { // the processes tell if it does not
		t.url = t.withoutMaking()
	}
	s.looks = newLooker(s.a, t)
	return s.folder()
}

// folder makes the folder of the status files, and another one if it is gone: what cleans
// temporary files up takes it for old where a job runs once a month.
func (s *scheduler) folder() error {
	if s.made != nil {
		if is, err := os.Lstat(s.dir); err == nil && os.SameFile(is, s.made) {
			return nil // nobody else's that has its name
		}
	}
	var err error
	if s.dir, err = os.MkdirTemp("", "tenure-schedule-"); err == nil {
		s.made, err = os.Lstat(s.dir)
	}
	if err != nil {
		return store.Wrap(store.ErrInvalid, "", "make a temporary folder", os.TempDir(), err)
	}
	return nil
}

func (s *scheduler) cleanUp() {
	s.looks.close()
	_ = os.RemoveAll(s.dir)
}

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
	drain := func() {
		draining = true
		s.looks.stop()
	}
	for !draining || len(s.live) > 0 {
		pause := looksAgain
		if !draining {
			pause = s.begin(wallTime(s.a.clk))
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case l := <-s.looked:
			if draining {
				delete(s.live, l.t)
			} else {
				s.found(l)
			}
		case t := <-s.ended:
			s.finish(t)
		case <-ctx.Done():
			drain()
		case sig := <-signals:
			switch {
			case isHangUp(sig):
				s.reload()
			case draining:
				s.pass(sig)
			default:
				drain()
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
		if t.process == nil {
			continue
		}
		_ = t.process.Process.Signal(sig)
	}
}

// start starts the process of a job's occurrence.
func (s *scheduler) start(t *task) {
	if err := s.folder(); err != nil {
		delete(s.live, t)
		s.postpone(t, errorText(err))
		return
	}
	t.status = s.statusFile(t)
	args := []string{"once", "--job=" + t.Name, "--at=" + instantText(t.at), "--status-file=" + t.status}
	if s.a.flags.verbose {
		args = append(args, "--verbose")
	} else {
		args = append(args, "--quiet")
	}
	if s.exists {
		args = append(args, "--must-exist")
	}
	args = append(append(append(args, t.flags...), "--"), shellArgs(t.Command)...)
	cmd := exec.Command(s.program, args...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = s.a.env.with(s.way...)
	cmd.Stdout, cmd.Stderr = s.a.stdout, s.a.stderr
	apart(cmd)
	_ = os.Remove(t.status) // of the occurrence before
	s.say("job %s, occurrence %s: started", showName(t.Name), instantText(t.at))
	if err := cmd.Start(); err != nil {
		delete(s.live, t)
		s.postpone(t, err.Error())
		return
	}
	t.process = cmd
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
		t.tries = 0
		return
	}
	why := fmt.Sprintf("exit code %d", code)
	if code < 0 {
		why = "its process was killed"
	}
	if s.undone(t) {
		s.postpone(t, why)
		return
	}
	t.tries = 0
	s.a.warn("job %s, occurrence %s: %s", showName(t.Name), instantText(t.at), why)
}

// undone says whether the process of a job ended without a verdict on the occurrence.
// What its exit code was does not tell that: a command may end with any. Whether one that
// was killed did the work is for the ledger to say, so trying again is safe then, too.
func (s *scheduler) undone(t *task) bool {
	var st runStatus
	text, err := os.ReadFile(t.status)
	if err != nil || json.Unmarshal(text, &st) != nil {
		return true
	}
	switch st.End {
	case endSupervisorGone:
		return true
	case string(proc.NotStarted):
		o := ledger.State(st.Outcome)
		return o != ledger.Done && o != ledger.GaveUp && o != ledger.Held
	}
	return false
}

// postpone lets an occurrence be tried again as long as it is due. The first of several
// times in a row is told.
func (s *scheduler) postpone(t *task, why string) {
	t.last = t.at.Add(-time.Millisecond)
	pause := min(triesAgain<<min(t.tries, 8), triesAgainMax)
	now := wallTime(s.a.clk)
	if next, ok := t.Schedule.Next(now); ok { // which deserves a try of its own
		pause = min(pause, max(next.Sub(now), triesAgain))
	}
	t.again = s.a.clk.Boot() + pause
	if t.tries++; t.tries == 1 {
		s.a.warn("job %s, occurrence %s: it was not begun (%s); it is tried again while it is due", showName(t.Name), instantText(t.at), why)
	}
}
