//go:build linux || darwin

package filestore

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

const powerKey = "ns/lease/history/a"

// powerRun is a script of writes to one key, with a power cut at every step.
type powerRun struct {
	t       *testing.T
	disk    *disk
	mu      sync.Mutex // a write tidies up after its answer
	path    string
	writer  *Store
	reader  *Store // looks at every step, if there is one
	old     string // what the key held when the write began
	new     string // what it will hold; "" between writes
	told    string // what a reader was told last; "" if nothing yet
	reading bool
	tried   map[string]bool
	scratch int
}

func newPowerRun(t *testing.T, withReader bool) *powerRun {
	path := quick(t)
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	r := &powerRun{t: t, path: path, disk: newDisk(t, path), old: "-", tried: map[string]bool{}}
	r.disk.crash = r.cut
	r.writer = opened(t, path, hasty, traced(r.disk))
	if withReader {
		r.reader = opened(t, path, hasty, traced(r.disk))
	}
	return r
}

// cut tries every outcome of a power cut right before a step.
func (r *powerRun) cut(before step) {
	if r.reading || strings.HasSuffix(before.name, sourceSuffix) {
		return // a step of the reader below, or of Close
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reader != nil {
		r.reading = true
		r.told, _ = body(r.t, r.reader, powerKey)
		r.reading = false
	}
	r.tryAll(fmt.Sprintf("a power cut before %s %s", before.kind, before.name))
}

// allowed is what may be found after a power cut now: the old record or the
// new, and if a reader was told of the new one, that.
func (r *powerRun) allowed() []string {
	switch {
	case r.new == "":
		return []string{r.old}
	case r.told == r.new:
		return []string{r.new}
	}
	return []string{r.old, r.new}
}

func (r *powerRun) tryAll(when string) {
	r.t.Helper()
	r.disk.each(func(c choice) {
		text := c.text(r.disk.root) + fmt.Sprint(r.allowed())
		if r.tried[text] || r.t.Failed() {
			return
		}
		r.tried[text] = true
		r.scratch++
		path := fmt.Sprintf("%s-cut-%d", r.path, r.scratch)
		c.write(r.t, r.disk.root, r.disk.root, path)
		s := opened(r.t, path, hasty)
		got, v := body(r.t, s, powerKey)
		if !slices.Contains(r.allowed(), got) {
			r.t.Errorf("after %s (writing %q over %q) the key holds %q, want one of %q; what survived: %q",
				when, r.new, r.old, got, r.allowed(), entries(r.t, s))
		}
		if got == "-" {
			v = create(r.t, s, powerKey, "on")
		}
		replace(r.t, s, powerKey, "further", v)
		holds(r.t, s, powerKey, "further")
		_ = s.Close()
		_ = os.RemoveAll(path)
	})
}

// write makes one write with power cuts at its steps, and one after it.
func (r *powerRun) write(op, text string) {
	r.t.Helper()
	_, v := body(r.t, r.writer, powerKey)
	r.begin(r.old, text)
	err := part{Op: op, Key: powerKey, Body: text, Version: v}.write(within(r.t), r.writer)
	if err != nil {
		r.t.Fatalf("%s: %v", op, err)
	}
	r.begin(text, "")
	body(r.t, r.writer, powerKey) // waits until the write has tidied up
	r.tryAll("a power cut after an acknowledged " + op)
}

// begin says what may be found from now on.
func (r *powerRun) begin(old, new string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.old, r.new, r.told = old, new, ""
}

// killed makes a write in a process that dies right before the step that last
// accepts.
func (r *powerRun) killed(op, text string, last func(step) bool) {
	r.t.Helper()
	_, v := body(r.t, r.writer, powerKey)
	r.begin(r.old, text)
	r.disk.dying = last
	err := part{Op: op, Key: powerKey, Body: text, Version: v}.write(within(r.t), r.writer)
	if !errors.Is(err, errDead) && err != nil {
		r.t.Logf("the killed %s ended with %v", op, err)
	}
	r.disk.dying, r.disk.dead = nil, false
	// Another process asks, and is told something that lasts.
	r.disk.crash = nil
	r.old, _ = body(r.t, r.writer, powerKey)
	r.disk.crash = r.cut
	r.new = ""
	r.tryAll("a power cut after a killed " + op + " and a read")
}

// A power cut at any system call leaves the old record or the new one; after
// the acknowledgement, and once a reader was told of it, the new one.
//
// SPEC ST16
func TestPowerCutAtEveryStep(t *testing.T) {
	t.Parallel()
	for _, withReader := range []bool{false, true} {
		t.Run(fmt.Sprintf("reader-%v", withReader), func(t *testing.T) {
			t.Parallel()
			r := newPowerRun(t, withReader)
			for life := range 2 {
				r.write("create", fmt.Sprintf("%d.0", life))
				for i := range 3 {
					r.write("replace", fmt.Sprintf("%d.%d", life, i+1))
				}
				r.write("delete-if", "-")
			}
			r.write("create", "2.0")
			r.write("delete", "-")
			if r.scratch < 40 {
				t.Errorf("only %d outcomes were tried", r.scratch)
			}
		})
	}
}

// The same where processes were killed before, and others clear away after them.
//
// SPEC ST16
func TestPowerCutAfterKills(t *testing.T) {
	t.Parallel()
	nth := func(k stepKind, name string, n int) func(step) bool {
		return func(st step) bool {
			if st.kind == k && (name == "" || st.name == name) {
				n--
			}
			return n == 0
		}
	}
	for name, last := range map[string]func() func(step) bool{
		"before-life-is-unlinked": func() func(step) bool { return nth(stepUnlink, lifeName, 1) },
		"before-the-delete-syncs": func() func(step) bool { return nth(stepSync, "", 2) },
		"before-states-go":        func() func(step) bool { return nth(stepUnlink, numberName(1), 1) },
		"before-the-rmdir":        func() func(step) bool { return nth(stepRmdir, "", 1) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newPowerRun(t, false)
			r.write("create", "0")
			r.write("replace", "1")
			r.killed("delete-if", "-", last())
			r.write("create", "2")
			r.killed("replace", "3", nth(stepSync, "", 2))
			if r.old == "3" {
				r.write("replace", "4")
			}
			r.killed("delete", "-", nth(stepUnlink, "", 2))
			if r.old == "-" {
				r.write("create", "5")
			}
		})
	}
}
