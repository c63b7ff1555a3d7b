package main

import (
	"errors"
	"fmt"
	"testing"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/store"
)

// Only the parts of a joined error are lines of their own; a line break from
// outside is escaped, wherever it stands.
//
// SPEC UI1
func TestErrorText(t *testing.T) {
	t.Parallel()
	outside := errors.New("it was forced by \"op\": a\ntenure: all is well\x00\x1b[2J")
	const escaped = `it was forced by "op": a\ntenure: all is well\x00\x1b[2J`
	for _, c := range []struct {
		name string
		err  error
		want string
	}{
		{"from outside", outside, escaped},
		{"joined", errors.Join(errors.New("one"), outside), "one\ntenure:   " + escaped},
		{"joined of one", errors.Join(outside), escaped},
		{"wrapped join", fmt.Errorf("bad: %w (twice)", errors.Join(outside, errors.New("two"))), "bad: " + escaped + "\ntenure:   two (twice)"},
		{"join in a join", errors.Join(errors.Join(errors.New("one"), errors.New("two")), outside), "one\ntenure:   two\ntenure:   " + escaped},
		{"wrapped by two", fmt.Errorf("%w: %w", tenure.ErrLost, outside), "the lease was lost: " + escaped},
		{"empty", errors.New(""), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := errorText(c.err); got != c.want {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}

// What to do next fits what happened.
//
// SPEC UI1
func TestNextSteps(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		err  error
		want string
	}{
		{"marks of a guard", store.Errorf(store.ErrCorrupt, "fileguard", "check", "p", "the marks were removed"),
			"put the guard's folder back as it was; no command runs on that path without its marks"},
		{"regressed", fmt.Errorf("x: %w", &tenure.RegressedError{Name: "a", Seen: 9, Now: 3}),
			"stop every client for the largest TTL, then `tenure jump --all --above 9` or higher (docs/GUARANTEES.md, lost state)"},
		{"doctor", &doctorError{[]finding{failure("store", store.Errorf(store.ErrUnavailable, "", "open", "", "gone"))}}, ""},
	} {
		if got := nextStep(c.err); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
	if f := failure("store", store.Errorf(store.ErrUnavailable, "", "open", "", "gone")); f.Todo != "see that the store is up and answers from here, then try again" {
		t.Errorf("the doctor sends to %q", f.Todo)
	}
}
