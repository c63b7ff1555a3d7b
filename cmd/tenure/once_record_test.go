package main

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tenure-project/tenure/internal/proc"
	"github.com/tenure-project/tenure/ledger"
)

// A command that had ended with 0 by itself before the loss of the lease was seen did its
// work: recorded as failed, the run would be tried again, and repeated without a trace.
//
// SPEC EX3 EX4
func TestRecordOfACommandThatHadEnded(t *testing.T) {
	t.Parallel()
	lost := errors.New("lost")
	for _, c := range []struct {
		res    proc.Result
		failed bool
		why    string
	}{
		{proc.Result{End: proc.Exited}, false, ""},
		{proc.Result{End: proc.Exited, Lost: lost}, false, "the command had ended by itself: lost"},
		{proc.Result{End: proc.Exited, Lost: lost, Code: 3}, true, "the command had ended by itself: lost"},
		{proc.Result{End: proc.Lost, Lost: lost}, true, "the command was ended: lost"}, // perhaps because of TERM
		{proc.Result{End: proc.WrapperGone}, true, "the command was ended: the wrapper is gone"},
	} {
		got, err := new(onceWork).result(c.res)
		if got.Failed != c.failed || got.NotStarted || got.Why != c.why || err != nil {
			t.Errorf("%+v: %+v, %v", c.res, got, err)
		}
	}
}

// A run whose occurrence no year of four digits has, as another program's log may bring it,
// is listed, and hides no other.
//
// SPEC EX3
func TestRunBeyondTheLastYear(t *testing.T) {
	t.Parallel()
	far := time.Date(lastYear+1, 1, 1, 0, 0, 0, 0, time.UTC)
	r := ledger.RunInfo{At: far, Attempts: []ledger.AttemptInfo{{Open: &ledger.Pending{}}}}
	r.Attempts[0].Open.Since = far.UnixMilli()
	text, err := json.Marshal(newRunJSON("ns", "j", r))
	if err != nil || !strings.Contains(string(text), `"at":null`) || !strings.Contains(string(text), `"since":null`) {
		t.Errorf("%s, %v", text, err)
	}
	for text, ok := range map[string]bool{"9999-12-31T23:59:59.999Z": true, "9999-12-31T23:59:59.999-00:01": false} {
		if at, err := parseInstant(text); (err == nil) != ok {
			t.Errorf("%s is %v, %v", text, at, err)
		}
	}
	if next := nextOf(ledger.At(far), midnight, 3); len(next) > 0 {
		t.Errorf("next is %v", next)
	}
}

// Output that cannot be written where it goes to is told of: the command wrote it to a
// pipe, and does not know. A reader that went away is as usual.
//
// SPEC EX6
func TestKeeperTellsOfLostOutput(t *testing.T) {
	t.Parallel()
	to, err := os.Open(os.DevNull) // which is not open for writing
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	reader, gone := pipe(t)
	_ = reader.Close()
	for _, c := range []struct {
		to   *os.File
		lost bool
	}{{to, true}, {gone, false}} {
		in, inW := pipe(t)
		k := &keeper{read: in, to: c.to, undo: func() {}, done: make(chan struct{})}
		go k.pass()
		if _, err := inW.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		_ = inW.Close()
		kept, n, whole := k.end(nil)
		if string(kept) != "x" || n != 1 || !whole || (k.trouble() != nil) != c.lost {
			t.Errorf("%q, %d, %v, %v", kept, n, whole, k.trouble())
		}
	}
	if err := (*keeper)(nil).trouble(); err != nil {
		t.Errorf("no keeper: %v", err)
	}
}
