//go:build linux || darwin

package proc

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// supervisorMark tells a started process that it is the supervisor: the link's
// descriptor and the wrapper's pid. It never reaches the command.
const supervisorMark = "_TENURE_SUPERVISOR"

// Main plays this process's part in a run. In the process that the user started
// it starts the same command line again as the supervisor, mirrors the job and
// returns when it is over. In the supervisor it calls lead, which takes the hold,
// calls [Supervisor.Run] and gives the hold up; what lead returns becomes the
// wrapper's exit code and message. Either process should exit with Report.Code at
// once.
//
// An error means that nothing was started: an option makes no sense, or this
// platform cannot do it.
//
// Call Main early, from one goroutine, and take the command's environment inside
// lead. It reads signals, and closes standard input and output in both processes
// once the command has them.
func Main(o Options, lead func(*Supervisor) Outcome) (Report, error) {
	inherited := inheritedFiles()
	ignored := ignoredAtStart()
	if err := o.complete(); err != nil {
		return Report{}, err
	}
	fd, wrapper, marked := takeMark()
	if marked {
		return supervise(o, fd, wrapper, without(inherited, fd), ignored, lead)
	}
	if err := platformCheck(); err != nil {
		return Report{}, err
	}
	return wrap(o, inherited, ignored)
}

// takeMark reads the mark and removes it from the environment. A mark that does
// not lead to a socket is none of ours.
func takeMark() (fd, wrapper int, ok bool) {
	mark, ok := os.LookupEnv(supervisorMark)
	if !ok {
		return 0, 0, false
	}
	_ = os.Unsetenv(supervisorMark)
	left, right, _ := strings.Cut(mark, ":")
	fd, err1 := strconv.Atoi(left)
	wrapper, err2 := strconv.Atoi(right)
	if err1 != nil || err2 != nil {
		return 0, 0, false
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return 0, 0, false
	}
	return fd, wrapper, true
}

func without(fds []int, fd int) []int {
	var rest []int
	for _, f := range fds {
		if f != fd {
			rest = append(rest, f)
		}
	}
	return rest
}

// startSupervisor starts this very program with the same arguments. It is in our
// process group, so that a wait for the hold belongs to the job as well.
func startSupervisor() (pid int, l *link, err error) {
	program, err := os.Executable()
	if err != nil {
		return 0, nil, err
	}
	ours, theirs, err := newSocketPair()
	if err != nil {
		return 0, nil, err
	}
	defer unix.Close(theirs)
	// Nothing else forks while the descriptor is inheritable: Main is called from
	// one goroutine, early.
	if _, err := unix.FcntlInt(uintptr(theirs), unix.F_SETFD, 0); err != nil {
		return 0, nil, os.NewSyscallError("fcntl", err)
	}
	env := append(withoutMark(os.Environ()), fmt.Sprintf("%s=%d:%d", supervisorMark, theirs, os.Getpid()))
	pid, err = syscall.ForkExec(selfPath(program), os.Args, &syscall.ProcAttr{Env: env, Files: []uintptr{0, 1, 2}})
	if err != nil {
		_ = unix.Close(ours)
		return 0, nil, &os.PathError{Op: "start the supervisor", Path: program, Err: err}
	}
	l, err = newLink(ours)
	return pid, l, err
}

func withoutMark(env []string) []string {
	kept := make([]string, 0, len(env)+1)
	for _, e := range env {
		if !strings.HasPrefix(e, supervisorMark+"=") {
			kept = append(kept, e)
		}
	}
	return kept
}

// supervise is the supervisor's whole life.
func supervise(o Options, fd, wrapper int, inherited []int, ignored map[unix.Signal]bool, lead func(*Supervisor) Outcome) (Report, error) {
	if os.Getppid() != wrapper {
		return Report{Role: RoleSupervisor, Code: o.FailCode}, nil // it died before we began
	}
	l, err := newLink(fd)
	if err != nil {
		return Report{Role: RoleSupervisor, Code: o.FailCode}, err
	}
	s := newSupervisor(o, l, wrapper, inherited, ignored)
	out := lead(s)
	if !s.wrapperGone() {
		l.send(message{Kind: msgFinal, Code: out.Code, Text: out.Message})
		s.wakeWrapper()
		l.finish(o.Clock, time.Second)
	} else if out.Message != "" {
		fmt.Fprintln(o.Stderr, out.Message) // nobody else is left to say it
	}
	s.close()
	return Report{Role: RoleSupervisor, Code: out.Code, Message: out.Message}, nil
}
