package main

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-project/tenure/guard/fileguard"
	"github.com/tenure-project/tenure/ledger"
	"github.com/tenure-project/tenure/store"
)

// defaultLate is how long ago an occurrence may be that is still to be done.
const defaultLate = time.Hour

// doing is one run of the command once: what run does, for one occurrence of a job.
type doing struct {
	running
	job        string
	when       occurrence
	unknown    unknownFlag
	probeLimit time.Duration
	attempts   int
	site       string
	keep       bool // output
	replay     bool
	quiet      bool
	exists     bool // the store and the namespace must, when it begins
	doneCode   uint8

	run     ledger.Run // known when the supervisor looked at the clock
	attempt ledger.Key
	outcome ledger.State
}

func newDoing(a *app) *doing {
	o := &doing{running: running{a: a, wait: forever, session: sessionNever}, attempts: 1, probeLimit: defaultProbeLimit, unknown: unknownFlag{policy: ledger.Hold}}
	o.when.late = defaultLate
	o.proves, o.marks = o.jobPairs, o.mark
	return o
}

func newOnceCmd(a *app) *cobra.Command {
	o := newDoing(a)
	cmd := &cobra.Command{
		Use:   "once --job NAME --at TIME|--every DUR|--cron EXPR|--run-id ID [flags] -- CMD [ARG...]",
		Short: "Run a command once per occurrence of a schedule, on whichever host is first",
		Long: `Run CMD if this occurrence of the job was not done yet, on any host, and write
down what became of it. For plain cron, or a timer of systemd, on every host.
Processes, signals, losses and exit codes are those of ` + "`tenure run`" + `.

--every and --cron mean their latest occurrence at or before now. If it is done,
nothing runs, and the exit code is 0. While another host is at it, this one
waits, and takes over if that one dies. If an earlier attempt vanished without a
word, it may have done its work: --unknown says what then. The default is to
hold: nothing runs, exit code 81, until ` + "`tenure ledger settle`" + `.

CMD finds TENURE_JOB, TENURE_RUN, TENURE_ATTEMPT and TENURE_AT in its
environment, beside what it finds under ` + "`tenure run`" + `; TENURE_TOKEN is the epoch.`,
		Example: `  tenure once --job backup --cron '30 2 * * *' --tz Europe/Berlin -- ./backup.sh
  tenure once --job poll --every 5m --unknown retry -- ./poll.sh
  tenure once --job migrate --run-id v42 --keep-output --replay -- ./migrate.sh`,
		Args: func(cmd *cobra.Command, args []string) error { return o.told(runArgs(cmd, args)) },
		RunE: func(cmd *cobra.Command, args []string) error {
			a.begun = true
			o.command = args
			if err := o.complete(cmd); err != nil {
				return o.told(err)
			}
			return o.told(o.play(o.hold))
		},
	}
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return o.told(&usageError{err: err, path: cmd.CommandPath()})
	})
	f := cmd.Flags()
	f.Var(textFlag{&o.job}, "job", "the job's `name`")
	o.addWhichFlags(cmd)
	o.addJobFlags(cmd)
	f.BoolVar(&o.replay, "replay", false, "if it is done already, print the output that was kept and return its status")
	addMustExistFlag(cmd, &o.exists)
	f.Var(codeFlag{&o.doneCode}, "done-code", "the exit code if it is done already")
	return cmd
}

// addWhichFlags adds the flags that say which occurrence is meant.
func (o *doing) addWhichFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.Var(timeFlag{&o.when.at}, "at", "the occurrence of this instant, as RFC 3339: 2026-03-01T02:30:00Z")
	f.Var(durationFlag{&o.when.every, everyRange}, "every", "the latest whole multiple of this since 1970-01-01T00:00Z")
	f.Var(textFlag{&o.when.expr}, "cron", "the latest time that these five `fields` match")
	f.Var(textFlag{&o.when.zone}, "tz", "the time zone of --cron, by `name` (default UTC)")
	f.Var(textFlag{&o.when.name}, "run-id", "not an instant, but the run of this `name`")
}

// addJobFlags adds the flags that a line of a schedule may have, too.
func (o *doing) addJobFlags(cmd *cobra.Command) {
	o.addFlags(cmd, "job")
	f := cmd.Flags()
	f.Var(durationFlag{&o.when.late, positive}, "late", "how long ago the latest occurrence may be; an older one is left undone")
	f.Var(&o.unknown, "unknown", "what to do if an earlier attempt vanished: hold, retry, or probe=`CMD`")
	f.Var(durationFlag{&o.probeLimit, positive}, "probe-limit", "how long the probe of --unknown may take; then it is ended, and has not said anything")
	f.Var(attemptsFlag{&o.attempts}, "attempts", "how often a run is tried that fails: a number, or unlimited")
	f.Var(textFlag{&o.site}, "site", "the `name` of this store's ledger among others that it may be merged with (default main; the first run fixes it)")
	_ = cmd.RegisterFlagCompletionFunc("unknown", cobra.FixedCompletions([]string{string(ledger.Hold), string(ledger.Retry), string(ledger.Probe) + "="}, cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace))
	f.BoolVar(&o.keep, "keep-output", false, "keep the first 64 KiB of standard output for --replay")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "say nothing if it is done already")
	f.StringArrayVar(&o.guards, "guard", nil, "a `path` whose guard is raised to the epoch before CMD starts (may be repeated)")
}

// complete checks everything that can be checked before anything happens.
func (o *doing) complete(cmd *cobra.Command) error {
	if err := required(cmd, "job"); err != nil {
		return err
	}
	if err := o.when.complete(cmd); err != nil {
		return err
	}
	return o.completeJob(cmd)
}

// completeJob is what a line of a schedule is checked for, too.
func (o *doing) completeJob(cmd *cobra.Command) error {
	if cmd.Flags().Changed("probe-limit") && o.unknown.policy != ledger.Probe {
		return &usageError{err: errors.New("--probe-limit goes with --unknown probe=CMD"), path: cmd.CommandPath()}
	}
	err := o.begin(cmd, func() error {
		o.lease = ledger.LeaseName(o.job)
		if o.site != "" {
			if err := store.CheckName("site", o.site); err != nil {
				return err
			}
		}
		return store.CheckName("job name", o.job)
	})
	if err != nil {
		return err
	}
	for _, path := range o.guards {
		g, err := fileguard.Open(path, o.t.namespace, o.lease)
		if err != nil {
			return err
		}
		o.raisers = append(o.raisers, g)
	}
	return o.checkFiles()
}

// unknownFlag is hold, retry or probe=CMD.
type unknownFlag struct {
	policy ledger.Policy
	probe  string
}

func (f *unknownFlag) String() string {
	if f.policy == ledger.Probe {
		return string(f.policy) + "=" + f.probe
	}
	return string(f.policy)
}

func (f *unknownFlag) Type() string { return "policy" }

func (f *unknownFlag) Set(s string) error {
	const probe = string(ledger.Probe) + "="
	switch {
	case s == string(ledger.Hold) || s == string(ledger.Retry):
		f.policy = ledger.Policy(s)
	case len(s) > len(probe) && s[:len(probe)] == probe:
		f.policy, f.probe = ledger.Probe, s[len(probe):]
	default:
		return fmt.Errorf("give hold, retry or probe=CMD, not %q", s)
	}
	return nil
}

// attemptsFlag is a number from 1, or unlimited, which is 0.
type attemptsFlag struct{ p *int }

const unlimited = "unlimited"

func (f attemptsFlag) String() string {
	switch {
	case f.p == nil:
		return ""
	case *f.p == 0:
		return unlimited
	}
	return strconv.Itoa(*f.p)
}

func (f attemptsFlag) Type() string { return "N|unlimited" }

func (f attemptsFlag) Set(s string) error {
	if s == unlimited {
		*f.p = 0
		return nil
	}
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil || n == 0 {
		return fmt.Errorf("give a whole number from 1, or %s, not %q", unlimited, s)
	}
	*f.p = int(n)
	return nil
}

// codeFlag is an exit code.
type codeFlag struct{ p *uint8 }

func (f codeFlag) String() string {
	if f.p == nil {
		return ""
	}
	return strconv.Itoa(int(*f.p))
}

func (f codeFlag) Type() string { return "code" }

func (f codeFlag) Set(s string) error {
	n, err := strconv.ParseUint(s, 10, 8)
	if err != nil {
		return fmt.Errorf("an exit code is a number from 0 to 255, not %q", s)
	}
	*f.p = uint8(n)
	return nil
}

// timeFlag is an instant in whole milliseconds.
type timeFlag struct{ p *time.Time }

func (f timeFlag) String() string {
	if f.p == nil || f.p.IsZero() {
		return ""
	}
	return f.p.Format(time.RFC3339Nano)
}

func (f timeFlag) Type() string { return "time" }

func (f timeFlag) Set(s string) (err error) {
	*f.p, err = parseInstant(s)
	return err
}

// parseInstant reads an instant of an occurrence.
func parseInstant(s string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339Nano, s)
	switch {
	case err != nil:
		return t, fmt.Errorf("%q is not an instant such as 2026-03-01T02:30:00Z or 2026-03-01T02:30:00+01:00", s)
	case t.UnixMilli() < 0 || t.Nanosecond()%int(time.Millisecond) != 0 || t.UTC().Year() > lastYear:
		return t, errors.New("an occurrence is an instant in whole milliseconds from 1970 to 9999, in UTC")
	}
	return t.UTC(), nil
}
