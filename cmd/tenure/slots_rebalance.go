package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/clock"
	"github.com/tenure-project/tenure/store"
)

func newSlotsRebalanceCmd(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "rebalance TABLE",
		Short: "Wait until the shards of a table are where they should be",
		Long: `Watch the balancer of the table at work until no shard is to move any more, and
print every change of what is left. The balancer needs no push: it looks at
every change by itself, but gives a new host time to settle, and limits how
many shards move at the same time.

It fails at once (69) if nobody balances, or if shards are left that no host
may have.`,
		Example:           `  tenure slots rebalance orders --timeout 10m && echo balanced`,
		Args:              args(1, "TABLE"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.action(func(ctx context.Context, _ *cobra.Command, args []string) error {
			name, err := tableArg(args)
			if err != nil {
				return err
			}
			return a.withReader(ctx, func(c *tenure.Client) error { return a.rebalance(ctx, c, name, asJSON) })
		}),
	}
	addJSONFlag(cmd, &asJSON)
	addTimeoutFlag(cmd, "give up after this long, with exit code 69 (default: none)")
	return cmd
}

// rebalance looks until nothing is to be done.
func (a *app) rebalance(ctx context.Context, c *tenure.Client, name string, asJSON bool) error {
	for before := ""; ; {
		p, err := readPlanned(ctx, c, name)
		if err != nil {
			return err
		}
		left, unplaced := p.left()
		switch {
		case left == 0 && unplaced > 0:
			return &unbalancedError{fmt.Sprintf("table %s: no host may have %s", showName(name), plural(unplaced, "shard")), fmt.Sprintf("`tenure slots plan %s` says why", showName(name))}
		case left > 0 && p.lead.State != tenure.Held:
			return &unbalancedError{fmt.Sprintf("table %s: nobody balances, and %s should move", showName(name), plural(left, "shard")), fmt.Sprintf("start a balanced host: `tenure slots host %s`, or a server with package slots", showName(name))}
		case left == 0 && asJSON:
			return a.json(p.json(c.Namespace()))
		case left == 0:
			a.printf("%s\n", p.done())
			return nil
		}
		if now := plural(left, "shard"); now != before {
			fmt.Fprintf(a.stderr, "tenure: %s to go\n", now)
			before = now
		}
		if !clock.Sleep(a.clk, pauseBalance, ctx.Done()) {
			return context.Cause(ctx)
		}
	}
}

// unbalancedError says that shards are not where they should be, and stay there.
type unbalancedError struct{ text, next string }

func (e *unbalancedError) Error() string { return e.text }

func (e *unbalancedError) Unwrap() error { return store.ErrUnavailable }

// left counts the shards that are to be claimed or moved, and those that nobody may have.
func (p *planned) left() (left, unplaced int) {
	for _, r := range p.next.Rows {
		switch {
		case r.Wanted == "" && r.Owner == "":
			unplaced++
		case r.Wanted != r.Owner || r.Target != r.Owner:
			left++
		}
	}
	return left, unplaced
}

// done says how the shards are shared out.
func (p *planned) done() string {
	hosts := 0
	for _, h := range p.next.Hosts {
		if h.Holds > 0 {
			hosts++
		}
	}
	return fmt.Sprintf("table %s is balanced: %s on %s", showName(p.table), plural(len(p.next.Rows), "shard"), plural(hosts, "host"))
}

// pauseBalance is the pause between two looks at a plan that is being carried out.
const pauseBalance = 250 * time.Millisecond
