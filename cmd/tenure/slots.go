package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/slots"
	"github.com/tenure-project/tenure/store"
)

func newSlotsCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "slots",
		Short: "Say which host serves which keys, and see who does",
		Long: `Keys hash to 16,384 slots; a table says which owner has which range of them,
under an epoch that goes with every write. RANGE is A-B, both included, or one
slot.`,
		Args: cobra.NoArgs,
		RunE: showHelp,
	}
	cmd.AddCommand(newSlotsInitCmd(a), newSlotsLsCmd(a), newSlotsMapCmd(a), newSlotsKeyCmd(a), newSlotsClaimCmd(a), newSlotsHostCmd(a),
		newSlotsReleaseCmd(a), newSlotsPlanCmd(a), newSlotsRebalanceCmd(a), newSlotsPinCmd(a), newSlotsUnpinCmd(a), newSlotsJumpCmd(a))
	return cmd
}

// tableArg is the table that a command names.
func tableArg(args []string) (string, error) {
	return args[0], store.CheckName("table name", args[0])
}

// rangeArg is a range of slots, with what is wrong with it in the words of a command line.
func rangeArg(text string) (slots.Range, error) {
	r, err := slots.ParseRange(text)
	if err != nil {
		return r, invalid("the range %s", plainCause(err))
	}
	return r, nil
}

// openTable opens a table that there is.
func openTable(ctx context.Context, c *tenure.Client, name string) (*slots.Table, error) {
	t, err := slots.Open(ctx, c, name)
	if errors.Is(err, tenure.ErrNotFound) && !errors.Is(err, tenure.ErrRegressed) {
		return nil, noTable(c, name)
	}
	return t, err
}

func noTable(c *tenure.Client, name string) error {
	return notFound("the namespace %s has no table %s: `tenure slots ls` lists them, `tenure slots init %s` makes it", showName(c.Namespace()), showName(name), showName(name))
}

// countFlag is a number of things, from 1 to most; 0 stands for "not given".
type countFlag struct {
	p    *int
	most int
}

func (f countFlag) String() string {
	if f.p == nil || *f.p == 0 {
		return ""
	}
	return strconv.Itoa(*f.p)
}

func (f countFlag) Type() string { return "number" }

func (f countFlag) Set(s string) error {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > f.most {
		return fmt.Errorf("give a whole number from 1 to %d, not %q", f.most, s)
	}
	*f.p = n
	return nil
}

func newSlotsInitCmd(a *app) *cobra.Command {
	var shards int
	var register bool
	cmd := &cobra.Command{
		Use:   "init TABLE [--shards N] [--register]",
		Short: "Make a table of slots",
		Long: `Make the table, in which nobody owns anything yet. Where the store commits
several keys at once, each range has a record of its own; elsewhere, and with
--register, the table is one record. That cannot be changed later, nor can the
shards: equal ranges that a balancer moves, and that can be pinned.

A table that is there is left as it is, if it is of the form and has the shards
that are asked for.`,
		Example: `  tenure slots init orders --shards 256
  tenure slots init sessions --register`,
		Args:              args(1, "TABLE"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.action(func(ctx context.Context, _ *cobra.Command, args []string) error {
			name, err := tableArg(args)
			if err != nil {
				return err
			}
			var opts []slots.Option
			if shards > 0 {
				opts = append(opts, slots.Shards(shards))
			}
			if register {
				opts = append(opts, slots.Register())
			}
			return a.withClient(ctx, func(c *tenure.Client) error { return a.makeTable(ctx, c, name, opts) })
		}),
	}
	addTimeoutFlag(cmd, timeoutUsage)
	cmd.Flags().Var(countFlag{&shards, slots.Count}, "shards", "cut the slots into this many equal shards, for a balancer and for pins")
	cmd.Flags().BoolVar(&register, "register", false, "keep the table in one record, whatever the store can do")
	return cmd
}

func (a *app) makeTable(ctx context.Context, c *tenure.Client, name string, opts []slots.Option) error {
	did := "made"
	if _, err := slots.Open(ctx, c, name); err == nil {
		did = "was there already"
	}
	t, err := slots.Create(ctx, c, name, opts...)
	if errors.Is(err, store.ErrExists) {
		return invalid("%s; nothing was changed", plainCause(err))
	}
	if err != nil {
		return err
	}
	p, err := t.Plan(ctx)
	if err != nil {
		return fmt.Errorf("the table is there, but its plan cannot be read back: %w", err)
	}
	cut := "no shards"
	if p != nil {
		cut = plural(len(p.Shards), "shard")
	}
	a.printf("table %s: %s (%s, %s)\n", showName(name), did, formText(t.Form()), cut)
	return nil
}

// formText says where the rows of a table are.
func formText(f slots.Form) string {
	if f == slots.RegisterForm {
		return "one record"
	}
	return "a record for each range"
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func newSlotsJumpCmd(a *app) *cobra.Command {
	var above uint64
	cmd := &cobra.Command{
		Use:   "jump TABLE --above N",
		Short: "After a restore: make every later epoch of a table higher than N",
		Long: `Raise the table's counter to at least N, so that the next epoch is above it. It
never lowers anything, gives nothing to anybody, and leaves owners their ranges.
` + "`tenure jump --all`" + ` raises every table of the namespace, and what new ones begin
above.`,
		Example:           `  tenure slots jump orders --above 90210`,
		Args:              args(1, "TABLE"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.action(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			if err := required(cmd, "above"); err != nil {
				return err
			}
			name, err := tableArg(args)
			if err != nil {
				return err
			}
			return a.withExisting(ctx, func(c *tenure.Client) error { return a.jumpTable(ctx, c, name, above) })
		}),
	}
	cmd.Flags().Var(numberFlag{&above}, "above", "the highest epoch that anything has seen")
	addTimeoutFlag(cmd, timeoutUsage)
	return cmd
}

func (a *app) jumpTable(ctx context.Context, c *tenure.Client, name string, above uint64) error {
	changed, err := slots.JumpTable(ctx, c, name, above)
	switch {
	case errors.Is(err, tenure.ErrNotFound) && !errors.Is(err, tenure.ErrRegressed):
		return noTable(c, name)
	case err != nil:
		return err
	case changed:
		a.printf("table %s: every later epoch is above %d\n", showName(name), above)
	default:
		a.printf("table %s: every later epoch was above %d already\n", showName(name), above)
	}
	return nil
}
