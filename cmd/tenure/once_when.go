package main

import (
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // for hosts without a table of zones

	"github.com/spf13/cobra"

	"github.com/tenure-project/tenure/cmd/tenure/internal/crontab"
	"github.com/tenure-project/tenure/ledger"
	"github.com/tenure-project/tenure/schedule"
)

// occurrence says which one is meant: exactly one of at, every, expr and name.
type occurrence struct {
	at    time.Time
	every time.Duration
	expr  string
	zone  string // of expr
	name  string
	late  time.Duration

	schedule ledger.Schedule // of every and expr
}

// everyRange is what every interval must keep.
func everyRange(d time.Duration) error {
	_, err := ledger.NewEvery(d, 0)
	if err != nil {
		return fmt.Errorf("an interval is whole milliseconds, at least 100ms, not %v", d)
	}
	return nil
}

// whichFlags say which occurrence is meant.
var whichFlags = []string{"at", "every", "cron", "run-id"}

// complete wants exactly one of them, and what goes with it.
func (o *occurrence) complete(cmd *cobra.Command) (err error) {
	bad := func(format string, args ...any) error {
		return &usageError{err: fmt.Errorf(format, args...), path: cmd.CommandPath()}
	}
	var given []string
	for _, name := range whichFlags {
		if cmd.Flags().Changed(name) {
			given = append(given, "--"+name)
		}
	}
	switch {
	case len(given) == 0:
		return bad("which occurrence is missing: give one of --at, --every, --cron and --run-id")
	case len(given) > 1:
		return bad("%s say two things: give one of them", strings.Join(given, " and "))
	case o.zone != "" && o.expr == "":
		return bad("--tz goes with --cron only; other occurrences are instants")
	case cmd.Flags().Changed("late") && o.every == 0 && o.expr == "":
		return bad("--late goes with --every or --cron; %s names its occurrence", given[0])
	}
	switch {
	case o.every > 0:
		if !cmd.Flags().Changed("late") {
			o.late = max(o.late, o.every) // the latest multiple is always due
		}
		o.schedule, err = ledger.NewEvery(o.every, 0)
	case o.expr != "":
		zone := time.UTC
		if o.zone != "" {
			if zone, err = crontab.Zone(o.zone); err != nil {
				return bad("--tz: %v", err)
			}
		}
		o.schedule, err = schedule.Parse(o.expr, zone)
	}
	return err
}

// notDueError says that there is nothing to do now. It is no failure.
type notDueError struct {
	job  string
	late time.Duration
	last time.Time // zero if there was none
	next time.Time // zero if there is none
}

func (e *notDueError) Error() string {
	text := fmt.Sprintf("job %s: nothing is due: ", showName(e.job))
	if e.last.IsZero() {
		text += "there was no occurrence yet"
	} else {
		text += fmt.Sprintf("the latest occurrence was %s, longer ago than --late allows (%v; give more to make up for it)", instantText(e.last), e.late)
	}
	if !e.next.IsZero() {
		text += fmt.Sprintf("; the next is %s", instantText(e.next))
	}
	return text
}

// run is the run of the job that is meant at now.
func (o *occurrence) run(job string, now time.Time) (ledger.Run, error) {
	switch {
	case o.name != "":
		return ledger.Named(job, o.name)
	case o.schedule == nil:
		return ledger.Occurrence(job, ledger.DefaultTrigger, o.at)
	}
	if at, ok := ledger.Latest(o.schedule, now, o.late); ok {
		return ledger.Occurrence(job, ledger.DefaultTrigger, at)
	}
	last, _ := ledger.Latest(o.schedule, now, pastAll)
	idle := &notDueError{job: job, late: o.late, last: last}
	if next := nextOf(o.schedule, now, 1); len(next) > 0 {
		idle.next = next[0]
	}
	return ledger.Run{}, idle
}

// pastAll is more than lies between two occurrences of anything: a 29 February comes at
// most eight years after the one before it.
const pastAll = 9 * 366 * 24 * time.Hour

// instantText prints an occurrence exactly: in UTC, with its milliseconds if it has any.
func instantText(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.999Z") }

// runText names a run for people.
func runText(run ledger.Run) string {
	switch {
	case !run.At.IsZero():
		return fmt.Sprintf("job %s, occurrence %s", showName(run.Agent), instantText(run.At))
	case run.Trigger != "":
		return fmt.Sprintf("job %s, run %s", showName(run.Agent), showText(run.Trigger))
	}
	return fmt.Sprintf("job %s, run %v", showName(run.Agent), run.ID)
}
