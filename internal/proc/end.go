//go:build linux || darwin

package proc

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tenure-project/tenure/internal/clock"
	"golang.org/x/sys/unix"
)

// ender ends a process tree: TERM to all of it, at killAt KILL, and it does not
// rest before the tree is gone or killBound has passed (UI1).
type ender struct {
	clk clock.Clock
	// tree returns what there is to end; see treeBelow.
	tree func() (tree, error)
	// group is the control group that holds the tree; nil if there is none.
	group *cage
	// killAt is the instant on the boot clock when TERM has had its time. It may
	// move while the end is under way.
	killAt func() time.Duration
	// signal sends one signal to one process; nil is signalProcess.
	signal func(process, unix.Signal) error
	// reaper waits for what has died below us; nil if nobody does.
	reaper *reaper
	// woken is poked when a child has died: then it is worth a look. Without it
	// the ender looks every now and then.
	woken <-chan struct{}
	// childless reports that the kernel vouches for an empty tree; may be nil.
	childless func() bool
}

// tree is one look at a process tree.
type tree struct {
	// living is what can still act.
	living []process
	// children are the direct children, dead ones too: those at which the tree
	// hangs. Sorted.
	children []procID
	// hidden is true if the kernel says that there are processes which the table
	// does not show.
	hidden bool
}

// run ends the tree and returns what is left of it.
func (e *ender) run() []Survivor {
	if e.signal == nil {
		e.signal = signalProcess
	}
	if e.gone() {
		return nil
	}
	e.terminate()
	for pause := time.Millisecond; ; pause = e.longer(pause) {
		left := e.killAt() - e.clk.Boot()
		if left <= 0 {
			return e.destroy()
		}
		e.rest(min(pause, left))
		if e.gone() {
			return nil
		}
	}
}

// longer is the pause after pause. Looks cost time that the tree needs to end:
// fewer are enough where a death wakes us.
func (e *ender) longer(pause time.Duration) time.Duration {
	if e.woken != nil {
		return min(2*pause, 100*time.Millisecond)
	}
	return min(2*pause, 20*time.Millisecond)
}

// rest waits for pause, or until something died.
func (e *ender) rest(pause time.Duration) {
	rung := make(chan struct{})
	t := e.clk.AfterFunc(pause, func() { close(rung) })
	defer t.Stop()
	select {
	case <-rung:
	case <-e.woken:
	}
}

// terminate asks every process to end. One that is stopped must go on to do so.
func (e *ender) terminate() {
	t, err := e.tree()
	if err != nil {
		return // destroy will meet and report it
	}
	for _, p := range t.living {
		_ = e.signal(p, unix.SIGTERM)
		if p.stopped() {
			_ = e.signal(p, unix.SIGCONT)
		}
	}
}

// destroy kills the tree, again and again until nothing is left: what was started
// while a look was taken is met by the next one. A process with a KILL pending
// starts nothing any more, and parents are killed before their children, so that
// none replaces a child that was killed.
func (e *ender) destroy() []Survivor {
	limit := e.clk.Boot() + killBound
	met := map[procID]bool{}
	for pause := time.Millisecond; ; pause = e.longer(pause) {
		if e.group != nil {
			_ = e.group.kill()
		}
		t, err := e.tree()
		refused := map[procID]error{}
		for _, p := range t.living {
			if !met[p.id()] {
				met[p.id()] = true
				pause = time.Millisecond
			}
			if err := e.signal(p, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				refused[p.id()] = err
			}
		}
		e.rest(pause) // those that die need a processor more than we do
		if err == nil && e.gone() {
			return nil
		}
		if e.clk.Boot() >= limit {
			return survivors(t, err, refused)
		}
	}
}

// gone reports whether nothing of the tree is left that could act.
//
// One look that shows nothing alive is no proof: a process can start another one
// and end while the table is read. Two looks are, if the direct children are the
// same ones both times and nobody waited for a dead one in between. For if
// anything were alive when the second look began, then so would be the direct
// child above it. Having been alive or unborn at the first look, it is either
// seen alive then or now, or it is dead now and was not among the children then.
func (e *ender) gone() bool {
	if e.reaper != nil {
		e.reaper.mu.Lock()
		defer e.reaper.mu.Unlock()
		e.reaper.reap()
	}
	if e.group != nil {
		if busy, err := e.group.populated(); err != nil || busy {
			return false
		}
	}
	if e.childless != nil && e.childless() {
		return true
	}
	first, err := e.tree()
	if err != nil || first.hidden || len(first.living) > 0 {
		return false
	}
	second, err := e.tree()
	return err == nil && !second.hidden && len(second.living) == 0 && slices.Equal(first.children, second.children)
}

func survivors(t tree, err error, refused map[procID]error) []Survivor {
	var left []Survivor
	if err != nil {
		left = append(left, Survivor{Why: fmt.Sprintf("the process table cannot be read: %v", err)})
	}
	if t.hidden {
		left = append(left, Survivor{Why: "there are processes that /proc does not show to this user"})
	}
	for _, p := range t.living {
		left = append(left, Survivor{Pid: p.pid, Why: whyAlive(p, refused[p.id()])})
	}
	if len(left) == 0 {
		left = append(left, Survivor{Why: "the control group still holds a process that cannot be seen"})
	}
	return left
}

func whyAlive(p process, refused error) string {
	switch {
	case refused != nil:
		return fmt.Sprintf("no signal reaches it: %v", refused)
	case p.state == 'D':
		return "it is in uninterruptible sleep (state D)"
	}
	return fmt.Sprintf("KILL had no effect within %v (state %c)", killBound, p.state)
}
