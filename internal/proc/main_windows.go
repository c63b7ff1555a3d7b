package proc

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/tenure-project/tenure/internal/clock"
	"golang.org/x/sys/windows"
)

// On Windows one process does it all: the kernel ends a job object's processes
// when the last handle to it is closed, so nothing outlives a killed wrapper.
// There is no TERM, so no grace either, and nothing acts for a suspended wrapper.

// Supervisor takes the hold and owns the command's tree.
type Supervisor struct {
	opt       Options
	times     timing
	ctx       context.Context
	cancel    context.CancelCauseFunc
	hurried   chan struct{}
	hurryOnce sync.Once

	mu       sync.Mutex
	running  bool
	finished bool
}

// Main calls lead, which takes the hold, calls [Supervisor.Run] and gives the
// hold up, prints the outcome's message and returns its code.
func Main(o Options, lead func(*Supervisor) Outcome) (Report, error) {
	if err := o.complete(); err != nil {
		return Report{}, err
	}
	s := &Supervisor{opt: o, times: timing{o.Grace, o.Reserve}, hurried: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	keys := make(chan os.Signal, 8)
	signal.Notify(keys, os.Interrupt)
	defer signal.Stop(keys)
	go s.listen(keys)
	out := lead(s)
	if out.Message != "" {
		fmt.Fprintln(o.Stderr, out.Message)
	}
	return Report{Role: RoleWrapper, Code: out.Code, Message: out.Message}, nil
}

// listen hears Ctrl-C and Ctrl-Break; the console tells the command as well.
func (s *Supervisor) listen(keys <-chan os.Signal) {
	for range keys {
		s.mu.Lock()
		running, finished := s.running, s.finished
		s.mu.Unlock()
		switch {
		case finished:
			s.hurryOnce.Do(func() { close(s.hurried) })
		case !running:
			s.cancel(&SignalError{Signal: int(syscall.SIGINT), Name: "SIGINT"})
		}
	}
}

// Context ends when the wait for the hold must end: its cause is a *[SignalError].
func (s *Supervisor) Context() context.Context { return s.ctx }

// Hurried is closed once somebody asked for the end after the command was over.
func (s *Supervisor) Hurried() <-chan struct{} { return s.hurried }

// SetTimes replaces the reserve of the options; there is no grace. Call it before
// Run, from the same goroutine.
func (s *Supervisor) SetTimes(grace, reserve time.Duration) { s.times = timing{grace, reserve} }

// Contained says what holds the command's tree together: "job", a job object.
func (s *Supervisor) Contained() string { return "job" }

// Contain returns "": another process cannot look into a job object of ours.
func (s *Supervisor) Contain() string { return "" }

// Run runs cmd under hold until its whole job is gone. On a loss the job is
// terminated at once.
func (s *Supervisor) Run(cmd Command, hold Hold) Result {
	r := &run{s: s, cmd: cmd, hold: hold}
	s.setRunning(true, false)
	defer s.setRunning(false, true)
	if err := r.start(); err != nil {
		r.tidy()
		return notStarted(err)
	}
	r.watch()
	r.tidy()
	return r.res
}

func (s *Supervisor) setRunning(running, finished bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running, s.finished = running, finished
}

func notStarted(err error) Result {
	res := Result{End: NotStarted, Err: err}
	var start *StartError
	var sig *SignalError
	switch {
	case errors.As(err, &start):
		res.Code = start.Code
	case errors.As(err, &sig):
		res.Code = sig.Code()
	default:
		res.Lost = err
	}
	return res
}

type run struct {
	s        *Supervisor
	cmd      Command
	hold     Hold
	job      windows.Handle
	process  *os.Process
	deadline time.Duration
	res      Result
}

func (r *run) start() error {
	if len(r.cmd.Args) == 0 {
		return &StartError{Code: 127, Err: errors.New("no command was given")}
	}
	path, err := Resolve(r.cmd.Args[0], r.cmd.Env)
	if err != nil {
		return err
	}
	if err := context.Cause(r.s.ctx); err != nil {
		return err
	}
	r.newest()
	if r.over() {
		return errors.Join(errors.New("the hold ended before the command could start"), r.hold.Err())
	}
	if f := r.cmd.DeadlineFile; f != nil {
		if err := f.Set(r.s.opt.Clock, r.deadline); err != nil {
			return &StartError{Name: r.cmd.Args[0], Code: 126, Err: err}
		}
	}
	if err := r.startInJob(path); err != nil {
		return &StartError{Name: r.cmd.Args[0], Code: 126, Err: err}
	}
	return nil
}

// startInJob starts the command suspended, so that it cannot start anything
// before it is in the job.
func (r *run) startInJob(path string) error {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return err
	}
	r.job = job
	var limits windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION
	limits.BasicLimitInformation.LimitFlags = windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
	if _, err := windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&limits)), uint32(unsafe.Sizeof(limits))); err != nil {
		return err
	}
	r.process, err = os.StartProcess(path, r.cmd.Args, &os.ProcAttr{
		Env: r.cmd.Env, Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		Sys: &syscall.SysProcAttr{CreationFlags: windows.CREATE_SUSPENDED},
	})
	if err != nil {
		return err
	}
	if err := r.resumeInJob(); err != nil {
		_ = r.process.Kill()
		_, _ = r.process.Wait()
		return err
	}
	return nil
}

var ntResumeProcess = windows.NewLazySystemDLL("ntdll.dll").NewProc("NtResumeProcess")

func (r *run) resumeInJob() error {
	h, err := windows.OpenProcess(windows.PROCESS_SET_QUOTA|windows.PROCESS_TERMINATE|windows.PROCESS_SUSPEND_RESUME, false, uint32(r.process.Pid))
	if err != nil {
		return err
	}
	defer windows.CloseHandle(h)
	if err := windows.AssignProcessToJobObject(r.job, h); err != nil {
		return err
	}
	if status, _, _ := ntResumeProcess.Call(uintptr(h)); status != 0 {
		return fmt.Errorf("NtResumeProcess: status %#x", status)
	}
	return nil
}

// newest reads the hold's deadline and reports whether it moved.
func (r *run) newest() bool {
	d, ok := r.hold.Deadline()
	if !ok || d == r.deadline {
		return false
	}
	r.deadline = d
	return true
}

func (r *run) over() bool {
	select {
	case <-r.hold.Done():
		return true
	default:
		return r.s.opt.Clock.Boot() >= r.s.times.term(r.deadline)
	}
}

// watch follows the command until its job is empty.
func (r *run) watch() {
	exited := make(chan *os.ProcessState, 1)
	go func() {
		state, _ := r.process.Wait()
		exited <- state
	}()
	c := r.s.opt.Clock
	for {
		select {
		case state := <-exited:
			r.res.End = Exited
			r.exit(state)
			return
		case <-r.hold.Done():
			r.lose(exited)
			return
		case <-after(c, r.s.times.look(c.Boot(), r.deadline)):
		}
		if r.newest() && r.cmd.DeadlineFile != nil {
			_ = r.cmd.DeadlineFile.Set(c, r.deadline)
		}
		if r.over() {
			r.lose(exited)
			return
		}
	}
}

func after(c clock.Clock, d time.Duration) <-chan struct{} {
	rung := make(chan struct{})
	c.AfterFunc(d, func() { close(rung) })
	return rung
}

func (r *run) lose(exited <-chan *os.ProcessState) {
	r.res.End = Lost
	if r.res.Lost = r.hold.Err(); r.res.Lost == nil {
		r.res.Lost = errors.New("the hold was not extended in time")
	}
	_ = windows.TerminateJobObject(r.job, 1)
	select {
	case state := <-exited:
		r.exit(state)
	case <-after(r.s.opt.Clock, killBound):
		r.res.Survivors = []Survivor{{Pid: r.process.Pid, Why: "it could not be terminated"}}
	}
}

func (r *run) exit(state *os.ProcessState) {
	if state != nil {
		r.res.Code = state.ExitCode()
	}
	r.empty()
}

// accounting is JOBOBJECT_BASIC_ACCOUNTING_INFORMATION.
type accounting struct {
	userTime, kernelTime, periodUserTime, periodKernelTime int64
	pageFaults, total, active, terminated                  uint32
}

const basicAccounting = 1

// empty terminates what is left in the job and waits until that is gone.
func (r *run) empty() {
	_ = windows.TerminateJobObject(r.job, 1)
	limit := r.s.opt.Clock.Boot() + killBound
	for {
		info := accounting{active: math.MaxUint32}
		err := windows.QueryInformationJobObject(r.job, basicAccounting, uintptr(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info)), nil)
		if err == nil && info.active == 0 {
			return
		}
		if r.s.opt.Clock.Boot() >= limit {
			r.res.Survivors = append(r.res.Survivors, Survivor{Why: fmt.Sprintf("the job object still holds %d processes", info.active)})
			return
		}
		clock.Sleep(r.s.opt.Clock, 5*time.Millisecond, nil)
	}
}

func (r *run) tidy() {
	if r.cmd.DeadlineFile != nil {
		_ = r.cmd.DeadlineFile.Remove()
	}
	if r.job != 0 {
		_ = windows.CloseHandle(r.job)
	}
}

// Resolve finds the program that name stands for in this process's PATH. The
// error is a *[StartError].
func Resolve(name string, _ []string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", &StartError{Name: name, Code: 127, Err: err}
	}
	return path, nil
}

// CgroupEmpty can say nothing here: there are no control groups.
func CgroupEmpty(string) (bool, error) {
	return false, errors.New("this system has no control groups")
}

func bootID() string { return "" }

// The temporary directory is the user's own here.
func userTag() string { return "run" }

func ownPrivate(os.FileInfo) bool { return true }
