//go:build linux

package proc

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-project/tenure/internal/clock"
	"golang.org/x/sys/unix"
)

// world is a made-up process tree.
type world struct {
	clk  clock.Clock
	rows map[int]*process
	sent []string
	// heed is what a process does on a signal; the default dies of KILL.
	heed func(w *world, p process, sig unix.Signal) error
}

func (w *world) look() (tree, error) {
	var t tree
	for _, p := range w.rows {
		t.living = append(t.living, *p)
	}
	slices.SortFunc(t.living, func(a, b process) int { return a.pid - b.pid })
	return t, nil
}

func (w *world) signal(p process, sig unix.Signal) error {
	w.sent = append(w.sent, strings.TrimPrefix(unix.SignalName(sig), "SIG"))
	if w.heed != nil {
		if err := w.heed(w, p, sig); err != nil {
			return err
		}
	} else if sig == unix.SIGKILL {
		delete(w.rows, p.pid)
	}
	return nil
}

// endWorld runs an ender in a bubble with 1 s of grace, and returns what it
// left and how long it took.
func endWorld(t *testing.T, w *world) (left []Survivor, took time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w.clk = clock.NewVirtual(1)
		began := w.clk.Boot()
		e := &ender{clk: w.clk, tree: w.look, signal: w.signal, killAt: func() time.Duration { return began + time.Second }}
		left = e.run()
		took = w.clk.Boot() - began
	})
	return left, took
}

// SPEC UI1
func TestEndOfATreeThatHeedsTerm(t *testing.T) {
	t.Parallel()
	w := &world{rows: map[int]*process{7: {pid: 7, state: 'S'}, 8: {pid: 8, state: 'T'}}}
	w.heed = func(w *world, p process, sig unix.Signal) error {
		if p.state == 'T' && sig == unix.SIGCONT || p.state == 'S' && sig == unix.SIGTERM {
			delete(w.rows, p.pid)
		}
		return nil
	}
	left, took := endWorld(t, w)
	if len(left) > 0 || took > 100*time.Millisecond || !slices.Equal(w.sent, []string{"TERM", "TERM", "CONT"}) {
		t.Errorf("left %v after %v; sent %v", left, took, w.sent)
	}
}

// SPEC UI1
func TestEndOfATreeThatDoesNot(t *testing.T) {
	t.Parallel()
	w := &world{rows: map[int]*process{7: {pid: 7, state: 'S'}}}
	left, took := endWorld(t, w)
	if len(left) > 0 || took < time.Second || took > 1100*time.Millisecond || !slices.Equal(w.sent, []string{"TERM", "KILL"}) {
		t.Errorf("left %v after %v; sent %v", left, took, w.sent)
	}
}

// What is started while the tree is being killed is killed as well.
//
// SPEC UI1
func TestEndMeetsWhatIsStartedMeanwhile(t *testing.T) {
	t.Parallel()
	w := &world{rows: map[int]*process{1: {pid: 1, state: 'S'}}}
	w.heed = func(w *world, p process, sig unix.Signal) error {
		if sig == unix.SIGKILL {
			delete(w.rows, p.pid)
			if p.pid < 5 {
				w.rows[p.pid+1] = &process{pid: p.pid + 1, state: 'R'}
			}
		}
		return nil
	}
	left, _ := endWorld(t, w)
	if want := []string{"TERM", "KILL", "KILL", "KILL", "KILL", "KILL"}; len(left) > 0 || !slices.Equal(w.sent, want) {
		t.Errorf("left %v; sent %v", left, w.sent)
	}
}

// What cannot be ended is named, within a bound.
//
// SPEC UI1
func TestSurvivorsAreNamed(t *testing.T) {
	t.Parallel()
	w := &world{rows: map[int]*process{7: {pid: 7, state: 'D'}, 8: {pid: 8, state: 'S'}, 9: {pid: 9, state: 'S'}}}
	w.heed = func(w *world, p process, sig unix.Signal) error {
		switch {
		case p.pid == 8:
			return unix.EPERM
		case p.pid == 9 && sig == unix.SIGKILL:
			delete(w.rows, 9)
		}
		return nil
	}
	left, took := endWorld(t, w)
	if len(left) != 2 || left[0].Pid != 7 || left[1].Pid != 8 || took > time.Second+killBound+100*time.Millisecond {
		t.Fatalf("left %v after %v", left, took)
	}
	if !strings.Contains(left[0].String(), "uninterruptible") || !strings.Contains(left[1].String(), "not permitted") {
		t.Errorf("left %v", left)
	}
}

// A process that moves on between two looks is noticed by what it leaves behind.
//
// SPEC UI1
func TestARunawayIsNotGone(t *testing.T) {
	t.Parallel()
	looks := 0
	e := &ender{tree: func() (tree, error) {
		looks++
		return tree{children: []procID{{pid: 100 + min(looks, 9)}}}, nil
	}}
	for e.gone() {
		t.Fatalf("called gone after %d looks", looks)
	}
	for looks < 10 {
		if e.gone() && looks < 10 {
			t.Fatalf("called gone after %d looks", looks)
		}
	}
	if !e.gone() {
		t.Error("not called gone once the children stay the same")
	}
}

// A tree that cannot be seen is never called gone.
//
// SPEC UI1
func TestAnUnseenTreeIsNotGone(t *testing.T) {
	t.Parallel()
	for name, look := range map[string]func() (tree, error){
		"unreadable": func() (tree, error) { return tree{}, errors.New("no table") },
		"hidden":     func() (tree, error) { return tree{hidden: true}, nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := clock.NewVirtual(1)
				e := &ender{clk: c, tree: look, killAt: c.Boot}
				if left := e.run(); len(left) != 1 {
					t.Errorf("left %v", left)
				}
			})
		})
	}
}
