package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tenure-project/tenure"
)

func newCheckCmd(a *app) *cobra.Command {
	var asJSON bool
	var token uint64
	cmd := &cobra.Command{
		Use:   "check [NAME] [--token N]",
		Short: "Ask whether a token is the current one: exit code 0 if it is, 76 if not",
		Long: `Ask the store whether the lease is held with exactly this token. It prints
nothing if it is, and exits with 76 if not.

In a command that runs under a lease NAME and token are its own by default. The
answer is true at one instant during the call; only a guard at the resource
makes it last.`,
		Example: `  tenure check && upload result.tar
  tenure check deploy/prod --token 7`,
		Args:              args(0, "NAME"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.action(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			name, err := a.leaseName(cmd, args)
			if err != nil {
				return err
			}
			if err := a.proof(cmd, name, &token, nil); err != nil {
				return err
			}
			return a.withReader(ctx, func(c *tenure.Client) error { return a.check(ctx, c, name, token, asJSON) })
		}),
	}
	addJSONFlag(cmd, &asJSON)
	addTimeoutFlag(cmd, timeoutUsage)
	cmd.Flags().Var(numberFlag{&token}, "token", "the token in question (default $TENURE_TOKEN under that lease)")
	return cmd
}

func (a *app) check(ctx context.Context, c *tenure.Client, name string, token uint64, asJSON bool) error {
	if !asJSON {
		return c.CheckToken(ctx, name, token)
	}
	s, err := c.Status(ctx, name)
	if err != nil {
		return err
	}
	j := checkJSON{Schema: schema, Namespace: c.Namespace(), Lease: name, Token: token, State: string(s.State)}
	if s.State == tenure.Held {
		j.Now = s.Token
	}
	j.Current = j.Now == token
	if err := a.json(j); err != nil || j.Current {
		return err
	}
	return fmt.Errorf("lease %q: %w: %d", name, tenure.ErrNotCurrent, token)
}
