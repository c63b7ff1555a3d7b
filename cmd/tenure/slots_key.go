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

func newSlotsKeyCmd(a *app) *cobra.Command {
	var table string
	var isInt, asJSON bool
	cmd := &cobra.Command{
		Use:   "key KEY [--table TABLE]",
		Short: "Show the slot of a key, and who owns it",
		Long: `Show the slot of a key, and with --table who owns it. KEY is text, taken byte by
byte; with --int it is a whole number of 64 bits. A key that begins with "-"
comes after "--".`,
		Example: `  tenure slots key user:42
  tenure slots key --int --table orders 4711`,
		Args:              args(1, "KEY"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.action(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			j := keyJSON{Schema: schema, Key: args[0], Int: isInt, Table: table}
			slot, err := slotArg(args[0], isInt)
			if err != nil {
				return &usageError{err: err, path: cmd.CommandPath()}
			}
			j.Slot = int(slot)
			if table == "" {
				return a.printKey(j, nil, asJSON)
			}
			if err := store.CheckName("table name", table); err != nil {
				return err
			}
			return a.withReader(ctx, func(c *tenure.Client) error {
				v, err := viewOf(ctx, c, table)
				if err != nil {
					return err
				}
				r := v.RowOf(slot)
				if r != nil {
					row := newRowJSON(c.Namespace(), table, r, nil)
					j.Row = &row
				}
				return a.printKey(j, r, asJSON)
			})
		}),
	}
	addJSONFlag(cmd, &asJSON)
	addTimeoutFlag(cmd, timeoutUsage)
	cmd.Flags().BoolVar(&isInt, "int", false, "KEY is a whole number, not text")
	cmd.Flags().Var(textFlag{&table}, "table", "say who owns the slot in this `table`")
	return cmd
}

// slotArg is the slot of a key.
func slotArg(key string, isInt bool) (uint16, error) {
	if !isInt {
		if key == "" {
			return 0, errors.New("KEY is empty")
		}
		return slots.SlotOf(key), nil
	}
	if n, err := strconv.ParseUint(key, 10, 64); err == nil {
		return slots.SlotOfInt(n), nil
	}
	n, err := strconv.ParseInt(key, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("with --int KEY is a whole number of 64 bits, not %q", key)
	}
	return slots.SlotOfInt(uint64(n)), nil
}

func (a *app) printKey(j keyJSON, r *slots.Row, asJSON bool) error {
	if asJSON {
		return a.json(j)
	}
	var t table
	t.row("key", showText(j.Key))
	t.row("slot", fmt.Sprint(j.Slot))
	switch {
	case j.Table == "":
	case r == nil:
		t.row("table", showName(j.Table))
		t.row("state", "free: never claimed")
	default:
		t.row("table", showName(j.Table))
		t.row("range", r.Range.String())
		t.row("state", rangeStateText(r))
		if h := r.Host; h != nil {
			t.row("owner", showName(h.Owner))
			t.row("address", orDash(printable(h.Addr)))
		}
		t.row("epoch", fmt.Sprint(r.Epoch))
	}
	t.print(a.out)
	return nil
}
