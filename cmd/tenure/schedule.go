package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tenure-project/tenure/cmd/tenure/internal/crontab"
	"github.com/tenure-project/tenure/ledger"
	"github.com/tenure-project/tenure/store"
)

// checkedNext is how many occurrences of a job a check prints.
const checkedNext = 3

func newScheduleCmd(a *app) *cobra.Command {
	s := newScheduler(a)
	var check, asJSON bool
	var from time.Time
	cmd := &cobra.Command{
		Use:   "schedule FILE",
		Short: "Run the jobs of a file like a crontab, each occurrence on one host",
		Long: `Run the jobs of FILE, in one process on each host: every occurrence as
` + "`tenure once`" + ` does it. Lines are

  MINUTE HOUR DAY MONTH WEEKDAY  JOB [OPTION...] -- COMMAND
  @daily                         JOB [OPTION...] -- COMMAND
  @every 30s                     JOB [OPTION...] -- COMMAND
  TZ=Europe/Berlin               # for the lines below; UTC without it

COMMAND is for /bin/sh. The file is refused as a whole, with the lines that are
wrong, before anything runs. HUP reads it again; TERM and INT start nothing
more, and wait for what runs. One job runs once at a time: of the occurrences
that come meanwhile only the latest is made up for.`,
		Example: `  tenure schedule --check /etc/tenure/jobs
  tenure schedule /etc/tenure/jobs`,
		Args: args(1, "FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a.begun = true
			s.file = args[0]
			if !check {
				if cmd.Flags().Changed("from") || asJSON {
					return &usageError{err: errors.New("--from and --json go with --check"), path: cmd.CommandPath()}
				}
				return s.play(cmd.Context())
			}
			jobs, err := s.read()
			if err != nil {
				return err
			}
			if from.IsZero() {
				from = wallTime(a.clk)
			}
			return a.printSchedule(jobs, from, asJSON)
		},
	}
	f := cmd.Flags()
	f.Var(parallelFlag{&s.parallel}, "parallel", "how many occurrences may be at it at the same time (default twice the processors, at least 4)")
	addMustExistFlag(cmd, &s.exists)
	f.BoolVar(&check, "check", false, "only read the file, and print the next occurrences")
	f.Var(timeFlag{&from}, "from", "with --check: the occurrences after this instant, not after now")
	addJSONFlag(cmd, &asJSON)
	return cmd
}

// maxParallel is more than any host bears.
const maxParallel = 10_000

// parallelFlag is a number of places.
type parallelFlag struct{ p *int }

func (f parallelFlag) String() string { return "" } // the default depends on the host

func (f parallelFlag) Type() string { return "N" }

func (f parallelFlag) Set(s string) error {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > maxParallel {
		return fmt.Errorf("give a whole number from 1 to %d, not %q", maxParallel, s)
	}
	*f.p = n
	return nil
}

// scheduled is one job of the file that is read now.
type scheduled struct {
	crontab.Job
	late  time.Duration
	flags []string // of once, for each occurrence
}

// read reads the file. All its faults are in the error.
func (s *scheduler) read() ([]scheduled, error) {
	f, err := os.Open(s.file)
	if err != nil {
		return nil, store.Wrap(store.ErrInvalid, "", "read the schedule", s.file, err)
	}
	text, err := io.ReadAll(io.LimitReader(f, crontab.MaxFile+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, store.Wrap(store.ErrInvalid, "", "read the schedule", s.file, err)
	}
	var all []scheduled
	_, err = crontab.Parse(s.file, string(text), func(j crontab.Job) error {
		one, err := s.options(j)
		all = append(all, one)
		return err
	})
	return all, err
}

// options reads the options of a line, which are flags of once.
func (s *scheduler) options(j crontab.Job) (scheduled, error) {
	o := newDoing(s.a)
	o.job = j.Name
	line := &cobra.Command{Use: "line"}
	o.addJobFlags(line)
	onlyOnce(line)
	if err := line.ParseFlags(j.Options); err != nil {
		return scheduled{}, fmt.Errorf("job %s: %w", showName(j.Name), err)
	}
	if rest := line.Flags().Args(); len(rest) > 0 {
		return scheduled{}, fmt.Errorf("job %s: %q is no option: write the command behind --", showName(j.Name), rest[0])
	}
	for _, name := range []string{"status-file", "quiet"} {
		if line.Flags().Changed(name) {
			return scheduled{}, fmt.Errorf("job %s: --%s is for `tenure once` only", showName(j.Name), name)
		}
	}
	if err := o.completeJob(line); err != nil {
		return scheduled{}, fmt.Errorf("job %s: %w", showName(j.Name), err)
	}
	if !line.Flags().Changed("late") {
		o.when.late = max(o.when.late, j.Interval)
	}
	one := scheduled{Job: j, late: o.when.late}
	line.Flags().Visit(func(f *pflag.Flag) {
		if f.Name != "late" && f.Name != "guard" {
			one.flags = append(one.flags, "--"+f.Name+"="+f.Value.String())
		}
	})
	for _, path := range o.guards {
		one.flags = append(one.flags, "--guard="+path)
	}
	return one, nil
}

// scheduleJSON is one job, for schedule --check.
type scheduleJSON struct {
	Schema   int         `json:"schema"`
	Line     int         `json:"line"`
	Job      string      `json:"job"`
	Schedule string      `json:"schedule"`
	Zone     string      `json:"zone"`
	Options  []string    `json:"options"`
	Command  string      `json:"command"`
	LateMS   int64       `json:"late_ms"`
	Next     []time.Time `json:"next"`
}

func (a *app) printSchedule(jobs []scheduled, from time.Time, asJSON bool) error {
	var t table
	t.row("LINE", "JOB", "SCHEDULE", "ZONE", "NEXT")
	for _, j := range jobs {
		next := nextOf(j.Schedule, from, checkedNext)
		if asJSON {
			v := scheduleJSON{schema, j.Line, j.Name, j.Expr, j.Zone.String(), append([]string{}, j.Options...), j.Command, j.late.Milliseconds(), next}
			if err := a.json(v); err != nil {
				return err
			}
			continue
		}
		var texts []string
		for _, at := range next {
			texts = append(texts, at.In(j.Zone).Format("2006-01-02T15:04:05.999Z07:00"))
		}
		t.row(fmt.Sprint(j.Line), showName(j.Name), j.Expr, j.Zone.String(), orDash(strings.Join(texts, "  ")))
	}
	if !asJSON {
		t.print(a.out)
	}
	return nil
}

// nextOf are the next n occurrences after t.
func nextOf(s ledger.Schedule, t time.Time, n int) []time.Time {
	next := []time.Time{}
	for range n {
		at, ok := s.Next(t)
		if !ok || at.UTC().Year() > lastYear {
			break
		}
		next, t = append(next, at.UTC()), at
	}
	return next
}

// play runs the schedule until a signal ends it.
func (s *scheduler) play(ctx context.Context) error {
	jobs, err := s.read()
	if err != nil {
		return err
	}
	if err := s.prepare(); err != nil {
		return err
	}
	defer s.cleanUp()
	s.take(jobs)
	s.loop(ctx)
	return nil
}
