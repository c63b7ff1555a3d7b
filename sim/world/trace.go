package world

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// maxTrace bounds the steps kept of one world; the oldest half goes first.
const maxTrace = 1 << 16

// trace is what happened, in virtual time. Its lines carry no ids, so that two
// runs of one seed can be compared.
type trace struct {
	began time.Time

	mu    sync.Mutex
	steps []traced
	cut   int
}

// traced is one step; it is formatted only when somebody reads it.
type traced struct {
	at     time.Duration
	who    string
	format string
	args   []any
}

func newTrace() *trace { return &trace{began: time.Now()} }

// add notes a step. The arguments must not change afterwards.
func (t *trace) add(who, format string, args ...any) {
	s := traced{time.Since(t.began), who, format, args}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.steps) == maxTrace {
		t.steps = append(t.steps[:0], t.steps[maxTrace/2:]...)
		t.cut += maxTrace / 2
	}
	t.steps = append(t.steps, s)
}

func (s traced) String() string {
	return fmt.Sprintf("%14.9fs  %-8s %s", s.at.Seconds(), s.who, fmt.Sprintf(s.format, s.args...))
}

// lines is the trace in the order of time; steps of one instant are in the
// order of their texts, since nothing says which of them came first.
func (t *trace) lines() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	type line struct {
		at   time.Duration
		text string
	}
	all := make([]line, len(t.steps))
	for i, s := range t.steps {
		all[i] = line{s.at, s.String()}
	}
	slices.SortStableFunc(all, func(a, b line) int {
		if a.at != b.at {
			return int(a.at - b.at)
		}
		return strings.Compare(a.text, b.text)
	})
	out := make([]string, len(all))
	for i, l := range all {
		out[i] = l.text
	}
	return out
}
