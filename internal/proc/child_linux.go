package proc

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

func dup2(from, to int) error { return unix.Dup3(from, to, 0) }

// child is a started command.
type child struct {
	pid   int
	pidfd int // -1 on kernels without
	end   func()
}

// startChild starts the command in this process's own group, with its standard
// files, and in the control group if there is one. The command is killed when
// this process dies: that signal follows the thread that created it, so the
// thread is kept until release is called.
func startChild(path string, args, env []string, group *cage) (*child, error) {
	type started struct {
		c   *child
		err error
	}
	out, over := make(chan started), make(chan struct{})
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		c := &child{pidfd: -1, end: func() { close(over) }}
		attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, PidFD: &c.pidfd}
		if group != nil {
			attr.UseCgroupFD, attr.CgroupFD = true, group.fd()
		}
		var err error
		c.pid, err = syscall.ForkExec(path, args, &syscall.ProcAttr{Env: env, Files: []uintptr{0, 1, 2}, Sys: attr})
		out <- started{c, err}
		if err == nil {
			<-over
		}
	}()
	s := <-out
	if s.err != nil {
		return nil, s.err
	}
	if s.c.pidfd >= 0 {
		unix.CloseOnExec(s.c.pidfd)
	}
	return s.c, nil
}

// signal sends sig to the command and to nothing else, also after it has been
// waited for.
func (c *child) signal(sig unix.Signal) error {
	if c.pidfd < 0 {
		return unix.Kill(c.pid, sig)
	}
	err := unix.PidfdSendSignal(c.pidfd, sig, nil, 0)
	if errors.Is(err, unix.ENOSYS) {
		return unix.Kill(c.pid, sig)
	}
	return err
}

// release gives up the thread and the descriptor. The command must be gone.
func (c *child) release() {
	if c.pidfd >= 0 {
		_ = unix.Close(c.pidfd)
	}
	c.end()
}

// platformCheck says what stands in the way of a run here.
func platformCheck() error {
	if _, err := procfs(); err != nil {
		return err
	}
	if _, err := readProcess(os.Getpid()); err != nil {
		return fmt.Errorf("the process table cannot be read: %w", err)
	}
	return nil
}
