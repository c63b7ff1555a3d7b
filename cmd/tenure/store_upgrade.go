package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/tenure-project/tenure"
)

func newStoreUpgradeCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "upgrade",
		Short: "Raise a namespace to the newest format level",
		Long: `Raise a namespace to the newest format level that this program writes. Programs
that know only older levels refuse the namespace from then on (exit code 83), so
upgrade all of them first. There is no way back.`,
		Args: args(0),
		RunE: a.action(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			return a.withClient(ctx, func(c *tenure.Client) error {
				from, to, err := c.Upgrade(ctx)
				if err != nil {
					return err
				}
				if from == to {
					a.printf("the namespace %s is at format level %d: nothing to do\n", showName(c.Namespace()), to)
					return nil
				}
				a.printf("the namespace %s was raised from format level %d to %d\n", showName(c.Namespace()), from, to)
				return nil
			})
		}),
	}
	addTimeoutFlag(cmd, timeoutUsage)
	return cmd
}
