//go:build linux || darwin

package filestore

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-project/tenure/store"
)

// scene is one write by another process to a store that it finds in some state.
type scene struct {
	name string
	op   string
	// prepare sets the state up and gives the version that the writer is told.
	prepare func(t *testing.T, path string) store.Version
	// old is the body before, "-" if the key is absent.
	old string
}

const sceneKey = "ns/lease/history/a"

// after is what the key holds once the scene's write is done.
func (sc scene) after() string {
	if strings.HasPrefix(sc.op, "delete") {
		return "-"
	}
	return "new"
}

func scenes() []scene {
	nothing := func(t *testing.T, path string) store.Version {
		opened(t, path)
		return ""
	}
	several := func(t *testing.T, path string) store.Version {
		s := opened(t, path)
		v := create(t, s, sceneKey, "0")
		for range 3 {
			v = replace(t, s, sceneKey, "old", v)
		}
		return v
	}
	// A life that is over, and one that is dead, as killed processes leave them.
	remains := func(dead bool) func(t *testing.T, path string) store.Version {
		return func(t *testing.T, path string) store.Version {
			killed := errors.New("killed")
			unlinks := 0
			tr := failing(func(st step) error {
				if st.kind == stepUnlink && (st.name == lifeName || unlinks > 0) {
					if unlinks++; !dead || unlinks > 1 {
						return killed
					}
				}
				return nil
			})
			s := opened(t, path, traced(tr))
			_ = s.DeleteIf(within(t), sceneKey, create(t, s, sceneKey, "old"))
			return ""
		}
	}
	return []scene{
		{"create", "create", nothing, "-"},
		{"create-over-the-remains-of-a-life-that-is-over", "create", remains(false), "-"},
		{"create-over-the-remains-of-a-dead-life", "create", remains(true), "-"},
		{"replace", "replace", several, "old"},
		{"delete-if", "delete-if", several, "old"},
		{"delete", "delete", several, "old"},
	}
}

// failing is a tracer that lets steps fail.
type failing func(step) error

func (f failing) before(st step) error { return f(st) }
func (f failing) after(step, error)    {}

// maxSteps is more than any write takes.
const maxSteps = 60

// A process that is killed before any of its steps leaves the old record or the
// new one, and others go on at once.
//
// SPEC ST1 ST2 ST5 ST16
func TestKilledAtEveryStep(t *testing.T) {
	t.Parallel()
	for _, sc := range scenes() {
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			for step := 1; ; step++ {
				if step > maxSteps {
					t.Fatal("the write takes no end")
				}
				path := quick(t)
				v := sc.prepare(t, path)
				p := start(t, part{Role: "write", Path: path, Op: sc.op, Key: sceneKey, Body: "new", Version: v, Step: step, Signal: syscall.SIGKILL})
				if p.wait() == 0 {
					if step < 5 {
						t.Fatalf("the write took only %d steps", step-1)
					}
					sc.check(t, path, "the whole write", sc.after())
					return
				}
				sc.check(t, path, fmt.Sprintf("a kill before step %d", step), sc.old, sc.after())
			}
		})
	}
}

// check looks at the key from a fresh store and goes on writing to it.
func (sc scene) check(t *testing.T, path, what string, allowed ...string) {
	t.Helper()
	s := opened(t, path, hasty)
	defer s.Close()
	got, v := body(t, s, sceneKey)
	found := false
	for _, a := range allowed {
		found = found || a == got
	}
	if !found {
		t.Errorf("after %s the key holds %q, want one of %q", what, got, allowed)
	}
	start := time.Now()
	if got == "-" {
		v = create(t, s, sceneKey, "next")
	} else {
		v = replace(t, s, sceneKey, "next", v)
	}
	holds(t, s, sceneKey, "next")
	remove(t, s, sceneKey, v)
	holds(t, s, sceneKey, "-")
	create(t, s, sceneKey, "again")
	holds(t, s, sceneKey, "again")
	if d := time.Since(start); d > limit/4 {
		t.Errorf("after %s the next writes took %v", what, d)
	}
}

// A process that is stopped before any of its steps blocks no one. When it
// wakes up, it either made its write before the others made theirs, or learns
// that it did not, or that it cannot know.
//
// SPEC ST13
func TestStoppedAtEveryStep(t *testing.T) {
	t.Parallel()
	for _, sc := range scenes() {
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			for step := 1; ; step++ {
				if step > maxSteps {
					t.Fatal("the write takes no end")
				}
				path := quick(t)
				v := sc.prepare(t, path)
				p := start(t, part{Role: "write", Path: path, Op: sc.op, Key: sceneKey, Body: "new", Version: v, Step: step, Signal: syscall.SIGSTOP})
				said := p.line()
				if strings.HasPrefix(said, "ended") {
					return
				}
				p.stopped()
				what := fmt.Sprintf("a stop before step %d (%s)", step, said)
				sc.check(t, path, what, sc.old, sc.after())
				p.signal(syscall.SIGCONT)
				p.wakesWell(what)
				s := opened(t, path)
				// An unconditional delete takes what it finds when it wakes up.
				if got, _ := body(t, s, sceneKey); got != "again" && (got != "-" || sc.op != "delete") {
					t.Errorf("after %s and its end the key holds %q", what, got)
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// wakesWell checks what a process says that slept through the writes of others.
// A success, too, is right: then its write came before theirs.
func (p *process) wakesWell(what string) {
	p.t.Helper()
	said := p.line()
	for _, ok := range []error{nil, store.ErrUnknown, store.ErrConflict, store.ErrNotFound, store.ErrExists} {
		if said == strings.TrimSpace("ended "+kindName(ok)) {
			return
		}
	}
	p.t.Errorf("after %s the process that woke up says %q", what, said)
}
