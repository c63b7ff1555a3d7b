package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/clock"
	"github.com/tenure-project/tenure/slots"
)

func newSlotsLsCmd(a *app) *cobra.Command {
	var asJSON bool
	var observe time.Duration
	cmd := &cobra.Command{
		Use:   "ls [TABLE]",
		Short: "List the tables of a namespace, or the ranges of one",
		Long: `List the tables of the namespace, or the ranges of TABLE: who owns each, under
which epoch, and since when. Slots that are not listed were never claimed.

A range that is held does not prove that its owner lives. With --observe the
command watches that long for a renewal of each range that is renewed by itself,
and says what it saw. A session's range is renewed by its session's one record:
` + "`tenure node status NODE --observe`" + ` watches that.`,
		Example: `  tenure slots ls
  tenure slots ls orders --observe 10s
  tenure slots ls orders --json | jq -r 'select(.state != "held") | .range'`,
		Args:              args(0, "TABLE"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.action(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				if observe > 0 {
					return &usageError{err: errors.New("--observe watches the ranges of a table: TABLE is missing"), path: cmd.CommandPath()}
				}
				return a.withReader(ctx, func(c *tenure.Client) error { return a.listTables(ctx, c, asJSON) })
			}
			name, err := tableArg(args)
			if err != nil {
				return err
			}
			return a.withReader(ctx, func(c *tenure.Client) error { return a.listRanges(ctx, c, name, observe, asJSON) })
		}),
	}
	addJSONFlag(cmd, &asJSON)
	addTimeoutFlag(cmd, timeoutUsage)
	cmd.Flags().Var(durationFlag{&observe, positive}, "observe", "watch this long for renewals of the ranges")
	return cmd
}

// listTables lists the tables, past those that cannot be read.
func (a *app) listTables(ctx context.Context, c *tenure.Client, asJSON bool) error {
	var t table
	t.row("TABLE", "FORM", "HELD", "RANGES", "OWNERS", "SHARDS", "EPOCHS", "CREATED")
	var errs []error
	for name, err := range slots.Tables(ctx, c) {
		var v slots.View
		if err == nil {
			v, err = viewOf(ctx, c, name)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		j := newTableJSON(c.Namespace(), &v)
		if asJSON {
			if err := a.json(j); err != nil {
				return err
			}
			continue
		}
		t.row(showName(name), j.Form, fmt.Sprintf("%d of %d", j.Slots, slots.Count), fmt.Sprint(j.Ranges), fmt.Sprint(j.Owners), fmt.Sprint(j.Shards),
			fmt.Sprint(j.Counter), stamp(time.UnixMilli(v.CreatedMS)))
	}
	return a.endListing(&t, asJSON, errs, c.Namespace(), "table of slots", "")
}

// viewOf reads a table that there is.
func viewOf(ctx context.Context, c *tenure.Client, name string) (slots.View, error) {
	t, err := openTable(ctx, c, name)
	if err != nil {
		return slots.View{}, err
	}
	return t.Read(ctx)
}

// listRanges lists the rows of a table as they are at the end of what was observed.
func (a *app) listRanges(ctx context.Context, c *tenure.Client, name string, observe time.Duration, asJSON bool) error {
	tb, err := openTable(ctx, c, name)
	if err != nil {
		return err
	}
	v, err := tb.Read(ctx)
	if err != nil {
		return err
	}
	var seen map[slots.Range]*observed
	if observe > 0 {
		if v, seen, err = a.watchRanges(ctx, tb, &v, observe); err != nil {
			return err
		}
	}
	if asJSON {
		for i := range v.Rows {
			r := &v.Rows[i]
			if err := a.json(newRowJSON(c.Namespace(), name, r, seen[r.Range])); err != nil {
				return err
			}
		}
		return nil
	}
	if len(v.Rows) == 0 {
		fmt.Fprintf(a.stderr, "tenure: nobody ever claimed a slot of table %s\n", showName(name))
		return nil
	}
	var t table
	head := []string{"RANGE", "STATE", "OWNER", "ADDRESS", "EPOCH", "KIND", "SINCE"}
	if observe > 0 {
		head = append(head, "OBSERVED")
	}
	t.row(head...)
	for i := range v.Rows {
		r := &v.Rows[i]
		cells := rangeCells(r)
		if observe > 0 {
			cells = append(cells, observedCell(r, seen[r.Range]))
		}
		t.row(cells...)
	}
	t.print(a.out)
	return nil
}

// rangeCells are a row of the table for people. Of a free range they tell of the last
// owner, in brackets.
func rangeCells(r *slots.Row) []string {
	state, owner, addr, kind, since := rangeStateText(r), showName(r.Owner()), "", "", r.Since
	if h := r.Host; h != nil {
		addr, kind = printable(h.Addr), string(h.Kind)
		if h.Node != "" {
			kind += " of " + showName(h.Node)
		}
	} else {
		owner, since = "("+owner+")", r.Freed.At
	}
	return []string{r.Range.String(), state, owner, orDash(addr), fmt.Sprint(r.Epoch), orDash(kind), stamp(time.UnixMilli(since))}
}

// rangeStateText tells a range that is free from one that is not free for everybody.
func rangeStateText(r *slots.Row) string {
	switch rangeState(r) {
	case rangeKept:
		return fmt.Sprintf("free for %s, for others after %v", showName(r.Freed.Successor), time.Duration(r.Freed.HoldMS)*time.Millisecond)
	case rangeWatched:
		return fmt.Sprintf("free, watched %v first", time.Duration(r.Freed.SupersededTTLMS)*time.Millisecond)
	}
	return rangeState(r)
}

func observedCell(r *slots.Row, seen *observed) string {
	switch {
	case seen == nil:
		return "-"
	case seen.alive:
		return "renewed"
	case seen.silent > 0:
		return "silent for " + age(seen.silent)
	}
	return "changed hands"
}

// watchRanges reads the table again and again until limit has passed, or every range that
// is renewed by itself was. It returns the last state, and what was seen of the ranges
// that were held by themselves. Durations are by the boot clock.
func (a *app) watchRanges(ctx context.Context, t *slots.Table, first *slots.View, limit time.Duration) (slots.View, map[slots.Range]*observed, error) {
	seen, before, left := map[slots.Range]*observed{}, map[slots.Range]slots.Row{}, 0
	for _, r := range first.Rows {
		if r.Held() && r.Host.Kind == slots.Self {
			seen[r.Range], before[r.Range] = &observed{}, r
			left++
		}
	}
	now, from := *first, a.clk.Boot()
	pause := min(max(limit/50, 50*time.Millisecond), time.Second)
	for passed := time.Duration(0); left > 0 && passed < limit; {
		if !clock.Sleep(a.clk, min(pause, limit-passed), ctx.Done()) {
			return now, nil, context.Cause(ctx)
		}
		next, err := t.Read(ctx)
		if err != nil {
			return now, nil, err
		}
		now, passed = next, a.clk.Boot()-from
		for rng, old := range before {
			o, r := seen[rng], rowAt(&now, rng)
			same := r != nil && r.Held() && r.Epoch == old.Epoch && r.Host.Is(old.Host)
			if o.total, o.silent = passed, passed; !same || r.Renewal != old.Renewal {
				o.silent, o.alive = 0, same
				delete(before, rng) // what is known is known
				left--
			}
		}
	}
	return now, seen, nil
}

// rowAt is the row with exactly these bounds, nil if there is none.
func rowAt(v *slots.View, rng slots.Range) *slots.Row {
	if r := v.RowOf(rng.A); r != nil && r.Range == rng {
		return r
	}
	return nil
}
