package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tenure-project/tenure"
)

// listing completes a command that lists what begins with a prefix.
func (a *app) listing(cmd *cobra.Command, list func(ctx context.Context, c *tenure.Client, prefix string, asJSON bool) error) *cobra.Command {
	var asJSON bool
	cmd.Args, cmd.ValidArgsFunction = args(0, "PREFIX"), cobra.NoFileCompletions
	cmd.RunE = a.action(func(ctx context.Context, cmd *cobra.Command, args []string) error {
		prefix := ""
		if len(args) > 0 {
			prefix = args[0]
		}
		return a.withReader(ctx, func(c *tenure.Client) error { return list(ctx, c, prefix, asJSON) })
	})
	addJSONFlag(cmd, &asJSON)
	addTimeoutFlag(cmd, timeoutUsage)
	return cmd
}

// endListing prints a listing's table, or that there is nothing of what to list.
func (a *app) endListing(t *table, asJSON bool, errs []error, namespace, what, prefix string) error {
	if !asJSON && len(t.rows) > 1 {
		t.print(a.out)
	} else if !asJSON && len(errs) == 0 {
		which := ""
		if prefix != "" {
			which = fmt.Sprintf(" with a name that begins with %q", prefix)
		}
		fmt.Fprintf(a.stderr, "tenure: the namespace %s has no %s%s yet\n", showName(namespace), what, which)
	}
	return errors.Join(errs...)
}
