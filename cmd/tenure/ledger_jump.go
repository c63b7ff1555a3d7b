package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/ledger"
)

func newLedgerJumpCmd(a *app) *cobra.Command {
	var above uint64
	var anew bool
	cmd := &cobra.Command{
		Use:   "jump JOB --above N",
		Short: "After a restore or a loss: let the hosts go on that remember more",
		Long: `Raise the sequence of the job's ledger to at least N, so that hosts that have
seen more than the store shows go on. Do it last: what the store forgot is done
again, unless ` + "`tenure ledger import`" + ` brought it back before. Where there is no
ledger any more, --anew begins one, which knows of no run. It never lowers
anything. The leases need ` + "`tenure jump --all`" + ` as well.`,
		Example: `  tenure ledger jump backup --above 2061
  tenure ledger jump backup --above 2061 --anew`,
		Args:              args(1, "JOB"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.action(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			if err := required(cmd, "above"); err != nil {
				return err
			}
			job, err := jobArg(args)
			if err != nil {
				return err
			}
			with := a.withExisting // an empty store would be taken for the one that is gone
			if anew {
				with = func(ctx context.Context, f func(*tenure.Client) error) error { return a.withClient(ctx, f) }
			}
			return with(ctx, func(c *tenure.Client) error { return a.jumpLedger(ctx, c, job, above, anew) })
		}),
	}
	cmd.Flags().Var(numberFlag{&above}, "above", "the highest sequence that any host has seen")
	cmd.Flags().BoolVar(&anew, "anew", false, "begin a ledger if there is none")
	addTimeoutFlag(cmd, timeoutUsage)
	return cmd
}

func (a *app) jumpLedger(ctx context.Context, c *tenure.Client, job string, above uint64, anew bool) error {
	l, err := ledger.Open(c, job)
	if err != nil {
		return err
	}
	jump := l.Jump
	if anew {
		jump = l.Begin
	}
	if err := jump(ctx, above); errors.Is(err, tenure.ErrNotFound) {
		return notFound("job %s has no ledger in this store: see that it is the right one; --anew begins a ledger, which knows of no run", showName(job))
	} else if err != nil {
		return err
	}
	a.printf("job %s: the sequence of its ledger is at least %d\n", showName(job), above)
	return nil
}

// ledgerFell is what to do about a ledger that shows less than this host has seen.
func ledgerFell(err error, e *tenure.RegressedError) string {
	job := showName(e.Name)
	if errors.As(err, new(*ledger.GoneError)) {
		return fmt.Sprintf("mount the volume, or mend the URL. If the ledger is lost: `tenure ledger import` what knows of it; then `tenure ledger jump %s --above %d`, with --anew if nothing does", job, e.Seen)
	}
	return fmt.Sprintf("if the store was set back: `tenure ledger import` what knows of the runs since, for others are done again; then `tenure ledger jump %s --above %d` or higher, and `tenure jump --all` (docs/GUARANTEES.md, lost state)", job, e.Seen)
}
