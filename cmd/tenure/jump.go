package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/authority"
	"github.com/tenure-project/tenure/slots"
	"github.com/tenure-project/tenure/store"
)

func newJumpCmd(a *app) *cobra.Command {
	var all bool
	var node string
	var above uint64
	cmd := &cobra.Command{
		Use:   "jump NAME|--node NODE|--all --above N",
		Short: "After a restore: make every later token and term higher than N",
		Long: `Raise the counter of one lease, of one node, or of all leases, nodes,
authorities and tables of slots and the namespace's floor, to at least N, so
that the next token, term, sequence or epoch is above it. It never lowers
anything, gives nothing to anybody, and leaves a holder its lease. But the
session of a node that was raised ends at its next renewal, and a leader begins
again.

After the store was restored from a backup or failed over to an older copy: cut
every client off for the largest TTL, jump above the highest token, term and
sequence that anything has seen, then let the clients in. If some cannot be cut
off, jump, wait for the largest TTL, and jump again.`,
		Example: `  tenure jump --all --above 100000
  tenure jump deploy/prod --above 4711
  tenure jump --node web-1 --above 40`,
		Args:              args(0, "NAME"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.action(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			if given(all)+given(node != "")+len(args) != 1 {
				return &usageError{err: errors.New("give either NAME, --node or --all"), path: cmd.CommandPath()}
			}
			if err := required(cmd, "above"); err != nil {
				return err
			}
			if all {
				return a.withClient(ctx, func(c *tenure.Client) error { return a.jumpAll(ctx, c, above) })
			}
			if node != "" {
				return a.jumpNode(ctx, node, above)
			}
			if err := store.CheckName("lease name", args[0]); err != nil {
				return err
			}
			return a.withClient(ctx, func(c *tenure.Client) error { return a.jump(ctx, c, args[0], above) })
		}),
	}
	addTimeoutFlag(cmd, timeoutUsage)
	cmd.Flags().BoolVar(&all, "all", false, "every lease, node, authority and table of slots of the namespace, and its floor for names yet unknown")
	cmd.Flags().Var(textFlag{&node}, "node", "the `name` of one node")
	cmd.Flags().Var(numberFlag{&above}, "above", "the highest token, term, sequence or epoch that anything has seen")
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
	led, failed := jumpAuthorities(ctx, c, above)
	tables, broken := slots.JumpAll(ctx, c, above)
	if err = errors.Join(err, failed, broken); err != nil && n+led+tables == 0 {
		return err
	}
	what := "every token, term, sequence and epoch of the namespace %s is above %d from now on"
	if err != nil {
		what = "not all of the namespace %s is above %d: jump again once what is wrong is mended"
	}
	a.printf(what+" (raised: leases and nodes %d, authorities %d, tables of slots %d)\n", showName(c.Namespace()), above, n, led, tables)
	return err
}

// jumpAuthorities raises every authority of the namespace, past those that it cannot
// raise.
func jumpAuthorities(ctx context.Context, c *tenure.Client, above uint64) (raised int, err error) {
	var errs []error
	for name, err := range authority.List(ctx, c) {
		if err == nil {
			if _, err = authority.Jump(ctx, c, name, authority.JumpTo{Token: above, Sequence: above}); err == nil {
				raised++
			}
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return raised, errors.Join(errs...)
}

func (a *app) jumpNode(ctx context.Context, node string, above uint64) error {
	if err := store.CheckName("node name", node); err != nil {
		return err
	}
	return a.withClient(ctx, func(c *tenure.Client) error {
		raised, err := c.JumpNode(ctx, node, above)
		if errors.Is(err, tenure.ErrNotFound) {
			return fmt.Errorf("%w: jump --all raises the floor for such names", err)
		}
		if err != nil {
			return err
		}
		s, err := c.Node(ctx, node)
		if err != nil {
			return fmt.Errorf("the jump is done, but the node cannot be read back: %w", err)
		}
		a.printf("the next term of node %s is above %d\n", showName(node), s.Counter)
		if raised && s.State == tenure.Held && !s.Revoker {
			a.printf("the session of its owner ends at its next renewal, and all its leases with it\n")
		}
		return nil
	})
}

func given(yes bool) int {
	if yes {
		return 1
	}
	return 0
}
