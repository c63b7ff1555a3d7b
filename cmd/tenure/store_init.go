package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-project/tenure"
)

func newStoreInitCmd(a *app) *cobra.Command {
	var keep time.Duration
	var above uint64
	var recover bool
	cmd := &cobra.Command{
		Use:   "init [--retention 0|DUR] [--recover --above N]",
		Short: "Make a namespace with the settings that it will keep",
		Long: `Make a namespace, and the store where the driver can. It does nothing if the
namespace exists with the same settings, and fails if it has others.

--retention says how long a released record is kept at least before
` + "`tenure store prune`" + ` may remove it: 0 keeps everything for ever, else at least
48h. Default: 720h for a store on one host that can delete by version, else 0.

--recover is for a namespace whose settings were lost while its leases are
there: it makes them anew, with a floor at --above and above every counter that
is still found. Give a number at or above every token that anything has seen,
and cut every client off for the largest TTL first.`,
		Example: `  tenure store init
  tenure -n batch store init --retention 168h`,
		Args: args(0),
		RunE: a.action(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
			var opts []tenure.Option
			if recover != (above > 0) {
				return &usageError{err: errors.New("--recover and --above go together"), path: cmd.CommandPath()}
			}
			if recover {
				opts = append(opts, tenure.WithRecovery(above))
			}
			given := cmd.Flags().Changed("retention")
			if given {
				opts = append(opts, tenure.WithRetention(keep))
			}
			return a.withClient(ctx, func(c *tenure.Client) error {
				s, err := c.Settings(ctx)
				if err != nil {
					return err
				}
				if recover && s.Floor < above {
					return invalid("the settings of the namespace %q are there, with a floor of %d: raise it with `tenure jump --all --above %d`", s.Namespace, s.Floor, above)
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
	cmd.Flags().BoolVar(&recover, "recover", false, "make lost settings of a namespace anew")
	cmd.Flags().Var(numberFlag{&above}, "above", "with --recover: a number at or above every token ever seen")
	cmd.Flags().Var(durationFlag{&keep, notNegative}, "retention", "how long released records are kept at least; 0 is for ever")
	return cmd
}
