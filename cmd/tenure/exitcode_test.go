package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/guard"
	"github.com/tenure-project/tenure/internal/proc"
	"github.com/tenure-project/tenure/store"
)

// Every kind of error has its code, also deep inside others, and what matters
// most wins.
//
// SPEC UI1
func TestExitCodes(t *testing.T) {
	t.Parallel()
	kind := func(k error) error {
		return fmt.Errorf("outside: %w", store.Wrap(k, "s", "op", "key", errors.New("cause")))
	}
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{&usageError{err: errors.New("x")}, 64},
		{kind(store.ErrInvalid), 64},
		{kind(store.ErrNotFound), 64},
		{kind(store.ErrCorrupt), 65},
		{kind(store.ErrUnavailable), 69},
		{kind(store.ErrUnknown), 69},
		{errors.New("anything else"), 69},
		{&outputError{errors.New("disk full")}, 69},
		{&endedError{cause: &timeLimitError{time.Second}, err: kind(store.ErrUnavailable)}, 69},
		{fmt.Errorf("x: %w", tenure.ErrUnconfirmed), 73},
		{&tenure.HeldError{Name: "job"}, 75},
		{kind(store.ErrConflict), 75},
		{kind(store.ErrExists), 75},
		{tenure.ErrLost, 76},
		{tenure.ErrExpired, 76},
		{fmt.Errorf("%w: %w", tenure.ErrNotCurrent, kind(store.ErrConflict)), 76},
		{errors.Join(tenure.ErrUnconfirmed, tenure.ErrLost), 76},
		{fmt.Errorf("node %q: %w", "n", tenure.ErrTooShort), 64},
		{fmt.Errorf("node %q: %w", "n", tenure.ErrAlive), 75},
		{fmt.Errorf("node %q: %w", "n", tenure.ErrMissingEvidence), 76},
		{&notOwnerError{tenure.Proof{Node: "n"}, "x"}, 76},
		{&silentError{node: "n"}, 76},
		{&citedError{kind(store.ErrCorrupt)}, 65},
		{kind(store.ErrDenied), 77},
		{fmt.Errorf("x: %w", &store.ProbeError{Property: store.OneCreator}), 78},
		{errors.Join(&guard.FencedError{Token: 1, Highest: 2}, kind(store.ErrUnavailable)), 79},
		{&tenure.RegressedError{Name: "job", Seen: 2, Now: 1}, 82},
		{kind(store.ErrNewer), 83},
		{errors.Join(kind(store.ErrUnavailable), kind(store.ErrCorrupt)), 65},
		{errors.Join(kind(store.ErrCorrupt), kind(store.ErrNewer)), 83},
		{&endedError{cause: &signalError{syscall.SIGTERM}, err: kind(store.ErrUnavailable)}, 143},
		{&endedError{cause: &signalError{os.Interrupt}, err: kind(store.ErrUnavailable)}, 130},
	} {
		if got := exitCode(c.err); got != c.want {
			t.Errorf("%v: exit code %d, want %d", c.err, got, c.want)
		}
	}
}

// What to do next is said where there is something to do: not where the message
// says it all, and not "try again" where a command ran or could not run.
//
// SPEC UI1
func TestNextStep(t *testing.T) {
	t.Parallel()
	down := store.Errorf(store.ErrUnavailable, "s", "get", "k", "down")
	for _, c := range []struct {
		err  error
		want string // a part of it; "" for none at all
	}{
		{down, "try again"},
		{&proc.StartError{Name: "x", Code: 127, Err: errors.New("not found")}, ""},
		{errors.Join(&proc.StartError{Name: "x", Code: 126, Err: errors.New("no")}, down), ""},
		{fmt.Errorf("%w, before the command was started", &proc.SignalError{Signal: 15, Name: "SIGTERM"}), ""},
		{&commandEndedError{"the command was ended", errors.New("the hold was not extended in time")}, ""},
		{&commandEndedError{"the command was ended", tenure.ErrExpired}, ""},
		{&commandEndedError{"the command was ended", &guard.FencedError{Token: 1, Highest: 2}}, "this holder was superseded"},
		{&guardAheadError{&guard.FencedError{Token: 1, Highest: 2}}, "`tenure jump` above the token seen"},
		{fmt.Errorf("x: %w", tenure.ErrUnconfirmed), "lapses by itself"},
		{&endedError{cause: &waitedError{time.Second}, err: down}, "try again"},
		{&usageError{err: errors.New("x"), path: "tenure run"}, "see `tenure run --help`"},
		{&tenure.HeldError{Name: "job"}, ""},
		{fmt.Errorf("x: %w", tenure.ErrAlive), "`tenure node force`"},
		{fmt.Errorf("x: %w", tenure.ErrMissingEvidence), "take it for alive"},
		{fmt.Errorf("x: %w", tenure.ErrTooShort), "give --within"},
		{&citedError{store.Errorf(store.ErrCorrupt, "s", "verify", "n", "another")}, "do not act on it"},
		{&citedError{down}, "try again"},
		{&silentError{node: "n"}, ""},
	} {
		if got := nextStep(c.err); got == "" != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%v: next %q, want %q", c.err, got, c.want)
		}
	}
}

// Every kind of error of package store has a row of its own.
func TestEveryKindHasACode(t *testing.T) {
	t.Parallel()
	for _, k := range store.Kinds() {
		if k != store.ErrUnavailable && k != store.ErrUnknown && exitCode(k) == exitUnavailable {
			t.Errorf("%v has no exit code of its own", k)
		}
	}
}

// The table that people read is the table that the program uses.
//
// SPEC UI1
func TestExitCodesAreDocumented(t *testing.T) {
	t.Parallel()
	documented := docTable(t, "Exit codes")
	for _, v := range verdicts {
		if v.meaning != "" && documented[v.code] != v.meaning {
			t.Errorf("docs/cli.md says of exit code %d: %q, the program %q", v.code, documented[v.code], v.meaning)
		}
	}
}

// docTable reads the rows "| code | meaning |" below a heading of docs/cli.md.
func docTable(t *testing.T, heading string) map[int]string {
	t.Helper()
	_, text, found := strings.Cut(readDoc(t), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("docs/cli.md has no section %q", heading)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	rows := map[int]string{}
	for _, m := range regexp.MustCompile(`(?m)^\| (\d+) \| (.*) \|$`).FindAllStringSubmatch(text, -1) {
		code, err := strconv.Atoi(m[1])
		if _, twice := rows[code]; err != nil || twice {
			t.Errorf("row %q: not a number, or given twice", m[0])
		}
		rows[code] = m[2]
	}
	return rows
}

func readDoc(t *testing.T) string {
	t.Helper()
	body, err := os.ReadFile(filepath.Join("..", "..", "docs", "cli.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}
