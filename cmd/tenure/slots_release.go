package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/slots"
)

func newSlotsReleaseCmd(a *app) *cobra.Command {
	var o slots.StealOptions
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "release TABLE RANGE --epoch N --reason TEXT [--vouch]",
		Short: "End the ownership of one range, whether or not its owner lives",
		Long: `End the ownership of exactly this range under exactly this epoch (` + "`tenure slots\nls`" + ` shows it); another one is not touched, with exit code 76. The owner is not
asked: it stops at its next renewal. Everyone first watches the range for the
old TTL, because the owner may live. If it does, it may claim the range again,
under a new epoch. A session's range is not freed while its session may live:
end that first (` + "`tenure node fence`" + `, ` + "`tenure node force`" + `).

With --vouch you give your word that the owner is gone: the next claim is at
once. If you are wrong, two serve the range at the same time, and only what
checks the epoch refuses the old one.`,
		Example:           `  tenure slots release orders 0-255 --epoch 4711 --reason "host-3 burnt down"`,
		Args:              args(2, "TABLE", "RANGE"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.action(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			if err := required(cmd, "epoch", "reason"); err != nil {
				return err
			}
			name, err := tableArg(args)
			if err != nil {
				return err
			}
			if o.Range, err = rangeArg(args[1]); err != nil {
				return err
			}
			if o.By == "" {
				o.By = operator(a.env)
			}
			return a.withExisting(ctx, func(c *tenure.Client) error { return a.releaseRange(ctx, c, name, o, asJSON) })
		}),
	}
	addJSONFlag(cmd, &asJSON)
	addTimeoutFlag(cmd, timeoutUsage)
	f := cmd.Flags()
	f.Var(numberFlag{&o.Epoch}, "epoch", "the epoch whose ownership is meant to end")
	f.Var(textFlag{&o.Why}, "reason", "why, for whoever looks at the range")
	f.Var(textFlag{&o.By}, "by", "who (default user@host)")
	f.BoolVar(&o.Vouch, "vouch", false, "give your word that the owner is gone, so that nobody waits")
	return cmd
}

func (a *app) releaseRange(ctx context.Context, c *tenure.Client, name string, o slots.StealOptions, asJSON bool) error {
	t, err := openTable(ctx, c, name)
	if err != nil {
		return err
	}
	r, err := t.Steal(ctx, o)
	if errors.Is(err, tenure.ErrConflict) {
		return fmt.Errorf("table %q, slots %v: %w: epoch %d: %s; nothing was changed", name, o.Range, tenure.ErrNotCurrent, o.Epoch, plainCause(err))
	}
	if err != nil {
		return err
	}
	if asJSON {
		return a.json(newRowJSON(c.Namespace(), name, &r, nil))
	}
	a.printf("ended the ownership of slots %v under epoch %d, of %s, for %s\n", o.Range, o.Epoch, showName(r.Freed.Owner), showText(o.By))
	if d := time.Duration(r.Freed.SupersededTTLMS) * time.Millisecond; d > 0 {
		a.printf("nobody gets it before having watched it for %v: the owner may live until then\n", d)
		return nil
	}
	if r.Freed.How == lease.HowVouched {
		a.printf("the next claim is at once: that nobody else serves it rests on your word that the owner is gone\n")
		return nil
	}
	a.printf("the next claim is at once: the owner's session is over\n")
	return nil
}
