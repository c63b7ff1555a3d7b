package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-project/tenure"
)

func newStoreInitCmd(a *app) *cobra.Command {
	var keep time.Duration
	cmd := &cobra.Command{
		Use:   "init [--retention 0|DUR]",
		Short: "Make a namespace with the settings that it will keep",
		Long: `Make a namespace, and the store where the driver can. It does nothing if the
namespace exists with the same settings, and fails if it has others.

--retention says how long a released record is kept at least before
` + "`tenure store prune`" + ` may remove it: 0 keeps everything for ever, else at least
48h. Default: 720h for a store on one host that can delete by version, else 0.`,
		Example: `  tenure store init
  tenure -n batch store init --retention 168h`,
		Args: args(0),
		RunE: a.action(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
			var opts []tenure.Option
			given := cmd.Flags().Changed("retention")
			if given {
				opts = append(opts, tenure.WithRetention(keep))
			}
			return a.withClient(ctx, func(c *tenure.Client) error {
				s, err := c.Settings(ctx)
				if err != nil {
					return err
				}
				if given && s.Retention != keep {
					return invalid("the namespace %q exists since %s and keeps released records %s, not %s: a retention never changes, so choose another namespace",
						s.Namespace, stamp(s.Created), retention(s.Retention), retention(keep))
				}
				a.printf("the namespace %s is ready: released records are kept %s, format level %d\n", showName(s.Namespace), retention(s.Retention), s.Level)
				return nil
			}, opts...)
		}),
	}
	addTimeoutFlag(cmd, timeoutUsage)
	cmd.Flags().Var(durationFlag{&keep, notNegative}, "retention", "how long released records are kept at least; 0 is for ever")
	return cmd
}
