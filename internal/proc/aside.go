//go:build linux || darwin

package proc

import (
	"context"
	"os/exec"
	"runtime"
	"time"
)

// Aside runs cmd, a helper of whoever leads, until it and everything that it started is
// gone. When ctx ends, or once cmd itself has ended and left something behind, its tree is
// ended like that of a command: TERM, and KILL after grace. It returns what could not be
// ended, and cmd's error. Call it before Run, one at a time.
func (s *Supervisor) Aside(ctx context.Context, cmd *exec.Cmd, grace time.Duration) ([]Survivor, error) {
	if err := becomeSubreaper(); err != nil {
		return nil, err
	}
	r := &run{s: s, others: ownChildren()}
	r.reaper = newReaper(r.reap)
	started, ended := make(chan error, 1), make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: cmd is killed when this thread ends
		cmd.SysProcAttr = apartFromUs()
		err := cmd.Start()
		started <- err
		if err == nil {
			ended <- cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	r.child = &child{pid: cmd.Process.Pid}
	r.kin.follow(cmd.Process.Pid)
	var err error
	over := false
	select {
	case err = <-ended:
		over = true
	case <-ctx.Done():
	}
	killAt := s.opt.Clock.Boot() + grace
	e := &ender{clk: s.opt.Clock, tree: r.look, killAt: func() time.Duration { return killAt }, reaper: r.reaper, childless: childless}
	left := e.run()
	if !over {
		err = <-ended
	}
	return left, err
}
