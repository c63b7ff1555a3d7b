//go:build linux || darwin

package proc

import (
	"errors"
	"math"
	"os/signal"
	"syscall"
	"time"

	"github.com/tenure-project/tenure/internal/clock"
	"golang.org/x/sys/unix"
)

const forever = time.Duration(math.MaxInt64)

// bell rings on a channel at an instant of the boot clock.
type bell struct {
	clk clock.Clock
	c   chan struct{}
	t   clock.Timer
}

func newBell(c clock.Clock) *bell { return &bell{clk: c, c: make(chan struct{}, 1)} }

// at sets the instant; an earlier one is forgotten.
func (b *bell) at(when time.Duration) {
	b.stop()
	b.t = b.clk.AfterBoot(when, func() {
		select {
		case b.c <- struct{}{}:
		default:
		}
	})
}

func (b *bell) stop() {
	if b.t != nil {
		b.t.Stop()
	}
}

// watch follows the command until its tree is gone, or cannot be ended.
func (r *run) watch() {
	tick := newBell(r.s.opt.Clock)
	defer tick.stop()
	tick.at(r.nextLook())
	done, gone := r.hold.Done(), r.s.gone
	for {
		select {
		case m := <-r.inbox:
			r.fromWrapper(m)
		case <-r.died:
			r.collect()
			r.reaper.run()
		case <-done:
			done = nil
			r.lose(r.hold.Err())
		case <-gone:
			gone = nil
			r.collect()
			r.begin(WrapperGone, r.s.times.grace)
		case <-tick.c:
			r.checkDeadline()
			tick.at(r.nextLook())
		case r.res.Survivors = <-r.ending:
			return
		}
	}
}

func (r *run) nextLook() time.Duration {
	now := r.s.opt.Clock.Boot()
	return now + r.s.times.look(now, time.Duration(r.deadline.Load()))
}

// checkDeadline follows the hold's deadline, and ends the tree by it even if the
// hold itself does not say so.
func (r *run) checkDeadline() {
	r.publish()
	if !orphansComeHome {
		_, _ = r.look() // remember whom we see
	}
	if d := time.Duration(r.deadline.Load()); r.s.opt.Clock.Boot() >= r.s.times.term(d) {
		r.lose(errors.New("the hold was not extended in time"))
	}
}

// publish tells wrapper and command of a deadline that moved.
func (r *run) publish() {
	before := time.Duration(r.deadline.Load())
	d := r.newest()
	if d == before {
		return
	}
	r.s.link.send(message{Kind: msgDeadline, Deadline: d})
	if f := r.cmd.DeadlineFile; f != nil {
		_ = f.Set(r.s.opt.Clock, d) // a full disk must not end the work: the old deadline is the safe one
	}
}

func (r *run) lose(why error) {
	r.collect() // a command that has ended by itself was not ended for this
	if r.res.Lost == nil {
		r.res.Lost = errors.Join(why) // never a typed nil
	}
	if r.res.Lost == nil {
		r.res.Lost = errors.New("the hold ended")
	}
	r.begin(Lost, r.s.times.grace)
}

// begin begins to end the tree, within grace; if that is under way already, the
// shorter time counts.
func (r *run) begin(why End, grace time.Duration) {
	limit := r.s.opt.Clock.Boot() + grace
	if limit < time.Duration(r.limit.Load()) {
		r.limit.Store(int64(limit))
	}
	if r.ending != nil {
		return
	}
	r.res.End = why
	r.ending = make(chan []Survivor, 1)
	e := &ender{clk: r.s.opt.Clock, tree: r.look, group: r.s.group, killAt: r.killAt, reaper: r.reaper, woken: r.reaper.poke, childless: childless}
	go func() { r.ending <- e.run() }()
}

// killAt is when the tree's grace is over: its own limit, or what the hold's
// deadline leaves.
func (r *run) killAt() time.Duration {
	return min(time.Duration(r.limit.Load()), r.s.times.kill(time.Duration(r.deadline.Load())))
}

// collect takes in what became of the command since the last call. Nothing else
// waits for it.
func (r *run) collect() {
	for !r.over {
		var s syscall.WaitStatus
		pid, err := syscall.Wait4(r.child.pid, &s, syscall.WNOHANG|syscall.WUNTRACED|unix.WCONTINUED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil || pid == 0:
			return
		case s.Stopped():
			r.mirror.stopped(s.StopSignal())
		case s.Continued():
			r.mirror.continued()
		default:
			r.over, r.status = true, s
			r.mirror.over()
			r.begin(Exited, r.s.times.grace)
		}
	}
}

func (r *run) fromWrapper(m message) {
	switch m.Kind {
	case msgSignal:
		r.signal(m)
	case msgResumed:
		r.collect()
		r.mirror.resumed(m.Stop, r.child)
	}
}

// signal passes a signal on that was meant for the command, unless the kernel
// gave it to the command already.
func (r *run) signal(m message) {
	hadIt := m.Kernel && m.At >= r.began
	alive := !r.over
	if alive && hadIt {
		return
	}
	again := 0
	switch sig := unix.Signal(m.Signal); sig {
	case unix.SIGINT, unix.SIGQUIT, unix.SIGTERM:
		r.s.mu.Lock()
		again = r.s.asked.ask(m.Signal, m.At)
		r.s.mu.Unlock()
	}
	switch {
	case r.ending != nil && again > 0:
		r.begin(Interrupted, 0)
		r.s.hurry()
	case alive && r.ending == nil:
		_ = r.child.signal(unix.Signal(m.Signal))
		if again >= 2 {
			r.begin(Interrupted, min(r.s.times.grace, hurriedGrace))
		}
	}
}

// finish waits for the command's status, which the kernel has by now, and puts
// everything away.
func (r *run) finish() Result {
	limit := r.s.opt.Clock.Boot() + time.Second
	for r.collect(); !r.over && len(r.res.Survivors) == 0; r.collect() {
		if r.s.opt.Clock.Boot() > limit {
			r.res.Survivors = []Survivor{{Pid: r.child.pid, Why: "the kernel did not report its end"}}
		}
		clock.Sleep(r.s.opt.Clock, time.Millisecond, nil)
	}
	if r.over {
		r.child.release()
	}
	if err := r.hold.Err(); err != nil && r.res.Lost != nil {
		r.res.Lost = err // it knows better than the clock alone
	}
	r.res.Code, r.res.Signal = exitCode(r.status)
	r.tidy()
	return r.res
}

// exitCode is a status as shells tell it.
func exitCode(s syscall.WaitStatus) (code, signal int) {
	if s.Signaled() {
		return 128 + int(s.Signal()), int(s.Signal())
	}
	return s.ExitStatus(), 0
}

// tidy ends what the run left in place: the wrapper need not watch any more.
func (r *run) tidy() {
	signal.Stop(r.died)
	if f := r.cmd.DeadlineFile; f != nil {
		_ = f.Remove()
	}
	if len(r.res.Survivors) == 0 {
		r.s.link.send(message{Kind: msgEnded})
	}
}
