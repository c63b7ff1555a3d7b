package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-project/tenure/ledger"
)

// Which occurrence is meant, to the millisecond, also in nights with other clocks.
//
// SPEC EX5
// CASE B87
func TestWhichOccurrence(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		flags, now, want string // "" is that nothing is due
	}{
		{"--every 1h", "2026-03-01T10:00:00Z", "2026-03-01T10:00:00Z"},
		{"--every 1h", "2026-03-01T09:59:59.999Z", "2026-03-01T09:00:00Z"},
		{"--every 1500ms", "1970-01-01T00:00:04Z", "1970-01-01T00:00:03Z"},
		{"--every 100ms", "2026-03-01T10:00:00.250Z", "2026-03-01T10:00:00.2Z"},
		{"--every 48h", "1970-01-04T23:00:00Z", "1970-01-03T00:00:00Z"}, // as late as the interval is long
		{"--every 48h --late 2h", "1970-01-04T23:00:00Z", ""},
		{"--every 48h --late 2h", "1970-01-05T01:59:59.999Z", "1970-01-05T00:00:00Z"},
		{"--every 48h --late 2h", "1970-01-05T02:00:00Z", ""},
		{"--cron @daily", "2026-03-01T00:59:59.999Z", "2026-03-01T00:00:00Z"},
		{"--cron @daily", "2026-03-01T01:00:00Z", ""}, // the default is one hour
		{"--cron @daily --late 24h", "2026-03-01T23:59:59.999Z", "2026-03-01T00:00:00Z"},
		{"--cron 30_2_*_*_* --tz Europe/Berlin", "2026-03-28T01:30:00Z", "2026-03-28T01:30:00Z"},
		{"--cron 30_2_*_*_* --tz Europe/Berlin", "2026-03-29T00:59:59.999Z", ""},
		{"--cron 30_2_*_*_* --tz Europe/Berlin", "2026-03-29T01:00:00Z", "2026-03-29T01:00:00Z"}, // 03:00, for there is no 02:30
		{"--cron 30_2_*_*_* --tz Europe/Berlin", "2026-10-25T00:45:00Z", "2026-10-25T00:30:00Z"},
		{"--cron 30_2_*_*_* --tz Europe/Berlin", "2026-10-25T01:30:00Z", ""}, // not twice
		{"--cron */30_*_*_*_* --tz Europe/Berlin", "2026-10-25T01:30:00Z", "2026-10-25T01:30:00Z"},
		{"--cron 0_6_*_*_5-1", "2026-03-01T06:30:00Z", "2026-03-01T06:00:00Z"}, // Friday to Monday, on a Sunday
		{"--cron 0_6_*_*_5-1", "2026-03-03T06:30:00Z", ""},                     // and on a Tuesday
		{"--cron 0_22-2_*_*_*", "2026-03-01T02:30:00Z", "2026-03-01T02:00:00Z"},
		{"--cron 0_22-2_*_*_*", "2026-03-01T03:30:00Z", ""},
		{"--at 2026-03-01T02:30:00+01:00", "2030-01-01T00:00:00Z", "2026-03-01T01:30:00Z"},
		{"--at 2026-03-01T02:30:00.5Z", "2020-01-01T00:00:00Z", "2026-03-01T02:30:00.5Z"},
	} {
		run, err := whichRun(t, c.flags, c.now)
		var idle *notDueError
		switch {
		case c.want == "" && !errors.As(err, &idle):
			t.Errorf("%s at %s: %v, %v, want nothing", c.flags, c.now, run.At, err)
		case c.want != "" && (err != nil || instantText(run.At) != c.want):
			t.Errorf("%s at %s: %v, %v, want %s", c.flags, c.now, run.At, err, c.want)
		}
		if want, _ := ledger.Occurrence("j", ledger.DefaultTrigger, run.At); c.want != "" && run.ID != want.ID {
			t.Errorf("%s at %s is another run than that of its instant", c.flags, c.now)
		}
	}
	_, err := whichRun(t, "--cron 0_6_*_*_*", "2026-03-01T09:00:00Z")
	const says = "job j: nothing is due: the latest occurrence was 2026-03-01T06:00:00Z, longer ago than --late allows (1h0m0s; give more to make up for it); the next is 2026-03-02T06:00:00Z"
	if err == nil || err.Error() != says {
		t.Errorf("%v, want %s", err, says)
	}
	named, err := whichRun(t, "--run-id 2026-03-01T01:30:00Z", "2026-03-01T01:30:00Z")
	if instant, _ := whichRun(t, "--at 2026-03-01T01:30:00Z", "2026-03-01T01:30:00Z"); err != nil || named.ID == instant.ID || !named.At.IsZero() {
		t.Errorf("a name is an instant: %+v, %v", named, err)
	}
}

// whichRun is what the flags mean at now; "_" stands for a blank.
func whichRun(t *testing.T, flags, now string) (ledger.Run, error) {
	t.Helper()
	a := newApp(strings.NewReader(""), discard{}, discard{}, nil)
	o := newDoing(a)
	f := &cobra.Command{Use: "once"}
	o.addWhichFlags(f)
	o.addJobFlags(f)
	var words []string
	for _, w := range strings.Fields(flags) {
		words = append(words, strings.ReplaceAll(w, "_", " "))
	}
	if err := f.ParseFlags(words); err != nil {
		t.Fatal(err)
	}
	if err := o.when.complete(f); err != nil {
		t.Fatal(err)
	}
	at, err := parseInstant(now)
	if err != nil {
		t.Fatal(err)
	}
	return o.when.run("j", at)
}

// A keeper passes everything on, and keeps the beginning.
func TestKeeper(t *testing.T) {
	t.Parallel()
	in, inW := pipe(t)
	out, outW := pipe(t)
	k := &keeper{read: in, to: outW, undo: func() {}, done: make(chan struct{})}
	go k.pass()
	text := bytes.Repeat([]byte("0123456789abcdef"), 3*keptOutput/16)
	go func() {
		_, _ = inW.Write(text)
		_ = inW.Close()
	}()
	var got []byte
	read := make(chan struct{})
	go func() {
		defer close(read)
		got, _ = io.ReadAll(out)
	}()
	kept, total, whole := k.end(nil)
	_ = outW.Close()
	<-read
	if !whole || !bytes.Equal(got, text) || !bytes.Equal(kept, text[:keptOutput]) || total != int64(len(text)) {
		t.Errorf("%d of %d bytes came, %d were kept of %d", len(got), len(text), len(kept), total)
	}
}

// Somebody who has the output open for ever does not keep it from ending.
func TestKeeperDoesNotWaitForEver(t *testing.T) {
	t.Parallel()
	in, inW := pipe(t)
	_, outW := pipe(t)
	defer inW.Close()
	k := &keeper{read: in, to: outW, undo: func() {}, done: make(chan struct{})}
	go k.pass()
	if _, err := inW.Write([]byte("said")); err != nil {
		t.Fatal(err)
	}
	from := time.Now()
	kept, total, whole := k.end(nil)
	if !whole || string(kept) != "said" || total != 4 {
		t.Errorf("%q of %d bytes were kept", kept, total)
	}
	if d := time.Since(from); d < keepLimit || d > 20*time.Second {
		t.Errorf("it took %v", d)
	}
	<-k.done
}

// A reader that begins only long after the command's end gets everything, and everything
// is counted, whether or not something else has the output open by then.
//
// SPEC EX6
func TestKeeperWaitsForASlowReader(t *testing.T) {
	t.Parallel()
	for _, stray := range []bool{false, true} {
		in, inW := pipe(t)
		out, outW := pipe(t)
		k := &keeper{read: in, to: outW, undo: func() {}, done: make(chan struct{})}
		go k.pass()
		text := bytes.Repeat([]byte("0123456789"), 12_000) // more than one pipe takes, and less than two and a buffer
		if _, err := inW.Write(text); err != nil {
			t.Fatal(err)
		}
		if !stray {
			_ = inW.Close()
		}
		var kept []byte
		var total int64
		var whole bool
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			kept, total, whole = k.end(nil)
		}()
		select {
		case <-ended:
			t.Errorf("stray %v: it did not wait for the reader", stray)
		case <-time.After(keepLimit + 200*time.Millisecond):
		}
		var got []byte
		read := make(chan struct{})
		go func() {
			defer close(read)
			got, _ = io.ReadAll(out)
		}()
		<-ended
		_ = outW.Close()
		<-read
		if !whole || !bytes.Equal(got, text) || !bytes.Equal(kept, text[:keptOutput]) || total != int64(len(text)) {
			t.Errorf("stray %v: %d of %d bytes came, %d were kept of %d, whole %v", stray, len(got), len(text), len(kept), total, whole)
		}
	}
}

// Who is in a hurry does not wait for a reader that takes nothing, and is told.
func TestKeeperInAHurry(t *testing.T) {
	t.Parallel()
	in, inW := pipe(t)
	out, outW := pipe(t)
	k := &keeper{read: in, to: outW, undo: func() {}, done: make(chan struct{})}
	go k.pass()
	if _, err := inW.Write(make([]byte, 120_000)); err != nil {
		t.Fatal(err)
	}
	hurried := make(chan struct{})
	close(hurried)
	if kept, total, whole := k.end(hurried); whole || total < 120_000-(64<<10) || len(kept) != min(int(total), keptOutput) {
		t.Errorf("%d bytes were kept of %d, whole %v", len(kept), total, whole)
	}
	_ = out.Close()
	<-k.done
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = r.Close(), w.Close() })
	return r, w
}
