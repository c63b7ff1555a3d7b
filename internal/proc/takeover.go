//go:build linux || darwin

package proc

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/tenure-project/tenure/internal/clock"
	"golang.org/x/sys/unix"
)

// takeOver ends the run in the place of a supervisor that is dead, or does not
// answer (UI1). The hold is not given up: it lapses.
func (w *wrapper) takeOver(dead bool) Report {
	what := "died"
	if !dead {
		what = "does not answer"
		_ = unix.Kill(w.supervisor, unix.SIGSTOP) // it must not wake up half-way
	}
	var left []Survivor
	if running := w.starting != nil && !w.ended; running {
		left = w.endTree(dead)
	}
	if !w.left.Load() { // not waited for yet, so still the same process
		_ = unix.Kill(w.supervisor, unix.SIGKILL)
	}
	w.awaitSupervisor(killBound)
	if w.starting != nil {
		w.clearUp(len(left) == 0)
	}
	w.leaveGroup()
	return w.say(w.verdict(what, left))
}

func (w *wrapper) verdict(what string, survivors []Survivor) Report {
	r := Report{Role: RoleWrapper, TookOver: true, Code: w.opt.LostCode, Survivors: survivors}
	left := "the lease is not released and lapses"
	if w.starting != nil {
		r.Note = w.starting.Note
		if w.starting.Text != "" {
			left = w.starting.Text
		}
	}
	who := fmt.Sprintf("tenure: the supervisor (process %d) %s", w.supervisor, what)
	switch {
	case w.starting == nil:
		r.Code, r.Message = w.opt.FailCode, who+" before the command was started"
	case w.ended:
		r.Message = who + " after the command had ended; " + left
	case len(survivors) > 0:
		var names []string
		for _, s := range survivors {
			names = append(names, s.String())
		}
		r.Message = who + "; the command could not be ended and may overlap with the next holder's: " + strings.Join(names, "; ")
	default:
		r.Message = who + "; the command was ended; " + left
	}
	return r
}

// endTree ends everything below this process but the supervisor. A dead
// supervisor leaves all of the grace that the deadline allows; one that does not
// answer was waited for until that had begun to run out.
func (w *wrapper) endTree(dead bool) []Survivor {
	limit := forever
	if dead {
		limit = w.opt.Clock.Boot() + w.times.grace
	}
	killAt := min(limit, w.times.kill(w.deadline))
	e := &ender{
		clk: w.opt.Clock, tree: w.look, group: w.group, reaper: w.reaper,
		killAt: func() time.Duration { return killAt },
	}
	return e.run()
}

// awaitSupervisor waits until the supervisor has been waited for.
func (w *wrapper) awaitSupervisor(limit time.Duration) {
	end := w.opt.Clock.Boot() + limit
	for !w.left.Load() && w.opt.Clock.Boot() < end {
		clock.Sleep(w.opt.Clock, time.Millisecond, nil)
		w.reaper.run()
	}
}

// clearUp removes what the supervisor would have removed. What it left below it
// has come to this process by now, and goes too.
func (w *wrapper) clearUp(gone bool) {
	if gone {
		e := &ender{clk: w.opt.Clock, tree: w.look, reaper: w.reaper, killAt: func() time.Duration { return 0 }}
		_ = e.run()
	}
	if w.starting.File != "" {
		_ = os.Remove(w.starting.File)
	}
}
