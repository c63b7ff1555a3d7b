package main

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/ledger"
	"github.com/tenure-project/tenure/store"
)

// ledgerListing is one run of ledger ls.
type ledgerListing struct {
	a      *app
	job    string
	state  string
	limit  int // of the runs in a table; 0 is none
	asJSON bool

	t    table
	more int // runs that the limit left out
	open int // runs that are running, where unknown ones are listed
	errs []error
}

func newLedgerLsCmd(a *app) *cobra.Command {
	x := &ledgerListing{a: a, limit: listedRuns}
	cmd := &cobra.Command{
		Use:   "ls [--job NAME] [--state STATE]",
		Short: "List the jobs of a namespace, or runs in one state",
		Long: `Without --state, one line per job, with how many runs are in which state. With
--state, one line per run: unknown (an attempt vanished, and must be settled),
running, failed, committed, repeated (happened more than once, by what the
ledger knows), abandoned (an attempt was given up, so that its effect may have
come beside another's) or all. A table has the first 1,000 runs; --limit 0
lists all, and so does --json.
Of a run that is over the occurrence is only known as long as its result is
kept: ` + "`tenure ledger show`" + ` tells it.

An attempt whose host died is running until somebody has taken the job's lease
over, which the next ` + "`tenure once`" + ` of the job does.`,
		Example: `  tenure ledger ls
  tenure ledger ls --state unknown
  tenure ledger ls --job backup --state failed --json | jq -r .run`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.action(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			if x.job != "" {
				if err := store.CheckName("job name", x.job); err != nil {
					return err
				}
			}
			return a.withReader(ctx, func(c *tenure.Client) error { return x.list(ctx, c) })
		}),
	}
	f := cmd.Flags()
	f.Var(textFlag{&x.job}, "job", "only the job of this `name`")
	f.Var(stateFlag{&x.state}, "state", "list the runs in this `state`: "+strings.Join(listedStates, ", "))
	f.Var(limitFlag{&x.limit}, "limit", "list at most so many runs as a table; 0 is all (default 1000)")
	_ = cmd.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(listedStates, cobra.ShellCompDirectiveNoFileComp))
	addJSONFlag(cmd, &x.asJSON)
	addTimeoutFlag(cmd, timeoutUsage)
	return cmd
}

var listedStates = []string{stateUnknown, stateRunning, stateFailed, stateCommitted, stateRepeated, stateAbandoned, stateAll}

// listedRuns is how many runs a person reads at most.
const listedRuns = 1000

// limitFlag is how many runs are listed.
type limitFlag struct{ p *int }

func (f limitFlag) String() string { return "" } // said in the usage

func (f limitFlag) Type() string { return "N" }

func (f limitFlag) Set(s string) error {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return fmt.Errorf("give how many runs to list, or 0 for all, not %q", s)
	}
	*f.p = n
	return nil
}

// stateFlag is one of the states that can be listed.
type stateFlag struct{ p *string }

func (f stateFlag) String() string {
	if f.p == nil {
		return ""
	}
	return *f.p
}

func (f stateFlag) Type() string { return "state" }

func (f stateFlag) Set(s string) error {
	if !slices.Contains(listedStates, s) {
		return fmt.Errorf("give one of %s, not %q", strings.Join(listedStates, ", "), s)
	}
	*f.p = s
	return nil
}

func (x *ledgerListing) list(ctx context.Context, c *tenure.Client) error {
	if x.state == "" {
		x.t.row("JOB", "COMMITTED", "FAILED", "RUNNING", "UNKNOWN", "REPEATED", "EPOCH", "SITE")
	} else {
		x.t.row("JOB", "OCCURRENCE", "STATE", "ATTEMPTS", "RUN")
	}
	for job, err := range x.jobs(ctx, c) {
		if err == nil {
			err = x.one(ctx, c, job)
		}
		if err != nil {
			x.errs = append(x.errs, err)
		}
	}
	if x.more > 0 {
		fmt.Fprintf(x.a.stderr, "tenure: %d more are not listed: narrow the listing with --job or --state, or list all with --limit 0\n", x.more)
	}
	err := x.a.endListing(&x.t, x.asJSON, x.errs, c.Namespace(), x.what(), "")
	if x.open > 0 && len(x.t.rows) == 1 && !x.asJSON {
		fmt.Fprintf(x.a.stderr, "tenure: %d running: if a host died, its run is among them until somebody takes the job's lease over; see `tenure ledger ls --state running`\n", x.open)
	}
	return err
}

// what is listed, in words.
func (x *ledgerListing) what() string {
	switch {
	case x.state == "" && x.job == "":
		return "job"
	case x.state == "":
		return "job " + showName(x.job)
	}
	what := "run"
	if x.state != stateAll {
		what = x.state + " run"
	}
	if x.job != "" {
		what += " of job " + showName(x.job)
	}
	return what
}

func (x *ledgerListing) jobs(ctx context.Context, c *tenure.Client) iter.Seq2[string, error] {
	if x.job == "" {
		return ledger.List(ctx, c)
	}
	return func(yield func(string, error) bool) { yield(x.job, nil) }
}

func (x *ledgerListing) one(ctx context.Context, c *tenure.Client, job string) error {
	l, err := ledger.Open(c, job)
	if err != nil {
		return err
	}
	if x.state == stateUnknown || x.state == stateRunning {
		runs, err := l.Unsettled(ctx)
		if err != nil {
			return err
		}
		return x.runs(c, job, slices.Values(runs))
	}
	all, err := l.Load(ctx)
	if err != nil {
		return err
	}
	if x.state != "" {
		return x.runs(c, job, all.Runs())
	}
	if all.Site == "" {
		return nil // it never ran
	}
	n := countRuns(all.Runs())
	if x.asJSON {
		return x.a.json(newJobJSON(c.Namespace(), all, n))
	}
	x.t.row(showName(job), fmt.Sprint(n.committed), fmt.Sprint(n.failed), fmt.Sprint(n.running), fmt.Sprint(n.unknown), fmt.Sprint(n.repeated),
		fmt.Sprint(all.Epoch), showName(all.Site))
	return nil
}

func (x *ledgerListing) runs(c *tenure.Client, job string, runs iter.Seq[ledger.RunInfo]) error {
	for r := range runs {
		if !inState(r, x.state) {
			if x.state == stateUnknown && r.Running {
				x.open++
			}
			continue
		}
		if x.asJSON {
			if err := x.a.json(newRunJSON(c.Namespace(), job, r)); err != nil {
				return err
			}
			continue
		}
		if x.limit > 0 && len(x.t.rows) > x.limit {
			x.more++
			continue
		}
		state := runState(r)
		if r.Repeated {
			state += ", " + stateRepeated
		}
		x.t.row(showName(job), occurrenceText(r), state, fmt.Sprint(newestAttempt(r)), r.ID.String())
	}
	return nil
}

func inState(r ledger.RunInfo, state string) bool {
	switch state {
	case stateUnknown:
		return r.Unknown
	case stateRunning:
		return r.Running
	case stateFailed:
		return runFailed(r)
	case stateCommitted:
		return r.Committed
	case stateRepeated:
		return r.Repeated
	case stateAbandoned:
		return slices.ContainsFunc(r.Attempts, func(at ledger.AttemptInfo) bool { return at.Abandoned != nil })
	}
	return true
}

// newestAttempt is the highest number of an attempt: how many there were at its site.
func newestAttempt(r ledger.RunInfo) (n uint64) {
	for _, at := range r.Attempts {
		n = max(n, at.Attempt)
	}
	return n
}

// occurrenceText is when the run was due, or its name; "-" where neither is known.
func occurrenceText(r ledger.RunInfo) string {
	if !r.At.IsZero() {
		return instantText(r.At)
	}
	return showText(r.Trigger)
}
