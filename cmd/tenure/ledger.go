package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/ledger"
	"github.com/tenure-project/tenure/store"
)

func newLedgerCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ledger",
		Short: "See what jobs did, and settle what is unknown",
		Long: `The ledger remembers which runs of a job happened: those of ` + "`tenure once`" + ` and
` + "`tenure schedule`" + `. RUN is a run's id (64 hex digits), or the instant of an
occurrence, or the name that --run-id gave.`,
		Args: cobra.NoArgs,
		RunE: showHelp,
	}
	cmd.AddCommand(newLedgerLsCmd(a), newLedgerShowCmd(a), newLedgerSettleCmd(a), newLedgerRetryCmd(a), newLedgerCompactCmd(a),
		newLedgerMergeCmd(a), newLedgerImportCmd(a), newLedgerExportCmd(a), newLedgerJumpCmd(a))
	return cmd
}

// jobArg is the job that a command names.
func jobArg(args []string) (string, error) {
	return args[0], store.CheckName("job name", args[0])
}

// runArg is the run of job that text means: its id, an instant, or a name.
func runArg(job, text string) (ledger.Run, error) {
	if id, err := ledger.ParseRunID(text); err == nil {
		return ledger.ByID(job, id), nil
	}
	if at, err := parseInstant(text); err == nil {
		return ledger.Occurrence(job, ledger.DefaultTrigger, at)
	}
	return ledger.Named(job, text)
}

// aboutRun completes a command that takes JOB RUN.
func (a *app) aboutRun(cmd *cobra.Command, f func(ctx context.Context, c *tenure.Client, l *ledger.Ledger, run ledger.Run) error) {
	cmd.Args, cmd.ValidArgsFunction = args(2, "JOB", "RUN"), cobra.NoFileCompletions
	cmd.RunE = a.action(func(ctx context.Context, _ *cobra.Command, args []string) error {
		job, err := jobArg(args)
		if err != nil {
			return err
		}
		run, err := runArg(job, args[1])
		if err != nil {
			return err
		}
		return a.withExisting(ctx, func(c *tenure.Client) error {
			l, err := ledger.Open(c, job)
			if err != nil {
				return err
			}
			return f(ctx, c, l, run)
		})
	})
	addTimeoutFlag(cmd, timeoutUsage)
}

// known is what the ledger has of a run. One that it never saw is an error.
func known(ctx context.Context, l *ledger.Ledger, run ledger.Run) (ledger.RunInfo, error) {
	r, err := l.Show(ctx, run)
	if err != nil {
		return r, err
	}
	if len(r.Attempts) == 0 {
		return r, notFound("%s: the ledger has nothing of it; see `tenure ledger ls --job %s --state all`", runText(run), showName(l.Agent()))
	}
	if r.Trigger == "" {
		r.Trigger, r.At = run.Trigger, run.At
	}
	return r, nil
}

// notFound is an ErrNotFound that prints as just its words.
func notFound(format string, args ...any) error {
	return &inputError{store.Errorf(store.ErrNotFound, "", "", "", format, args...)}
}
