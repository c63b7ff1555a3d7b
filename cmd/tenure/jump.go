package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/store"
)

func newJumpCmd(a *app) *cobra.Command {
	var all bool
	var above uint64
	cmd := &cobra.Command{
		Use:   "jump NAME|--all --above N",
		Short: "After a restore: make every later token higher than N",
		Long: `Raise the counter of one lease, or of all of them and the namespace's floor, to
at least N, so that the next token is above it. It never lowers anything, gives
nothing to anybody, and leaves a holder its lease.

After the store was restored from a backup or failed over to an older copy: cut
every client off for the largest TTL, jump above the highest token that anything
has seen, then let the clients in.`,
		Example: `  tenure jump --all --above 100000
  tenure jump deploy/prod --above 4711`,
		Args:              args(0, "NAME"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.action(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			if all == (len(args) == 1) {
				return &usageError{err: errors.New("give either NAME or --all"), path: cmd.CommandPath()}
			}
			if err := required(cmd, "above"); err != nil {
				return err
			}
			if all {
				return a.withClient(ctx, func(c *tenure.Client) error { return a.jumpAll(ctx, c, above) })
			}
			if err := store.CheckName("lease name", args[0]); err != nil {
				return err
			}
			return a.withClient(ctx, func(c *tenure.Client) error { return a.jump(ctx, c, args[0], above) })
		}),
	}
	addTimeoutFlag(cmd, timeoutUsage)
	cmd.Flags().BoolVar(&all, "all", false, "every lease of the namespace, and its floor for names yet unknown")
	cmd.Flags().Var(numberFlag{&above}, "above", "the highest token that anything has seen")
	return cmd
}

func (a *app) jump(ctx context.Context, c *tenure.Client, name string, above uint64) error {
	if err := c.Jump(ctx, name, above); err != nil {
		return err
	}
	s, err := c.Status(ctx, name)
	if err != nil {
		return fmt.Errorf("the jump is done, but the lease cannot be read back: %w", err)
	}
	a.printf("the next token of %s is above %d\n", showName(name), s.Counter)
	return nil
}

func (a *app) jumpAll(ctx context.Context, c *tenure.Client, above uint64) error {
	n, err := c.JumpAll(ctx, above)
	if err != nil && n == 0 {
		return err
	}
	a.printf("every token of the namespace %s is above %d from now on (%d leases raised)\n", showName(c.Namespace()), above, n)
	return err
}
