package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/tenure-project/tenure"
)

func newReleaseCmd(a *app) *cobra.Command {
	var token uint64
	var owner string
	cmd := &cobra.Command{
		Use:   "release [NAME] [--token N] [--owner ID]",
		Short: "Release a lease for its holder, who is named exactly",
		Long: `Release a lease that is held with exactly this token by exactly this owner; the
next acquire is then at once. Anything else is left alone, with exit code 76. A
session's lease is released by its session alone, and refused with 64.

In a command that runs under a lease NAME, token and owner are its own by
default. A holder that still works under it loses it: what runs under
` + "`tenure run`" + ` is ended. To end the tenure of a holder that is gone, see
` + "`tenure steal`" + `.`,
		Example: `  tenure release
  tenure release deploy/prod --token 7 --owner 0f8fad5b-d9cb-469f-a165-70867728950e`,
		Args:              args(0, "NAME"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.action(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			name, err := a.leaseName(cmd, args)
			if err != nil {
				return err
			}
			if err := a.proof(cmd, name, &token, &owner); err != nil {
				return err
			}
			return a.withClient(ctx, func(c *tenure.Client) error {
				if err := c.ReleaseByProof(ctx, name, token, owner); err != nil {
					return err
				}
				a.printf("released %s: token %d has ended, the next acquire is at once\n", showName(name), token)
				return nil
			})
		}),
	}
	addTimeoutFlag(cmd, timeoutUsage)
	cmd.Flags().Var(numberFlag{&token}, "token", "the holder's token (default $TENURE_TOKEN under that lease)")
	cmd.Flags().Var(textFlag{&owner}, "owner", "the holder's owner id (default $TENURE_OWNER under that lease)")
	return cmd
}
