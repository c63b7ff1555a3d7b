package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-project/tenure"
)

func newHistoryCmd(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "history [NAME]",
		Short: "Show who held a lease, and how each tenure ended",
		Long: `Show every known tenure of a lease in the order of their tokens, the present one
last. NAME is $TENURE_LEASE by default. Times are by the clocks of those who
wrote them.`,
		Example: `  tenure history deploy/prod
  tenure history deploy/prod --json | jq -r 'select(.how == "forced") | .by'`,
		Args:              args(0, "NAME"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.action(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			name, err := a.leaseName(cmd, args)
			if err != nil {
				return err
			}
			return a.withExisting(ctx, func(c *tenure.Client) error {
				h, err := c.History(ctx, name)
				if err != nil {
					return err
				}
				if asJSON {
					return a.historyJSON(c.Namespace(), h)
				}
				a.printHistory(h)
				return nil
			})
		}),
	}
	addJSONFlag(cmd, &asJSON)
	addTimeoutFlag(cmd, timeoutUsage)
	return cmd
}

func (a *app) historyJSON(namespace string, h tenure.History) error {
	for _, t := range h.Tenures {
		if err := a.json(newTenureJSON(namespace, h.Name, t, h.Dropped)); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) printHistory(h tenure.History) {
	var t table
	t.row("TOKEN", "HOLDER", "SINCE", "UNTIL", "FOR", "ENDED", "BY", "WHY")
	for _, x := range h.Tenures {
		end := x.Until
		if end.IsZero() {
			end = time.Now()
		}
		t.row(fmt.Sprint(x.Token), showText(x.Label), stamp(x.Since), stamp(x.Until), age(end.Sub(x.Since)),
			orDash(x.How), showText(x.By), showText(x.Why))
	}
	t.print(a.out)
	if h.Dropped > 0 {
		a.printf("\n%d older tenures are lost: they could not be archived in time.\n", h.Dropped)
	}
}
