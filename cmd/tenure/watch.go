package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tenure-project/tenure"
)

func newWatchCmd(a *app) *cobra.Command {
	var asJSON bool
	var count uint64
	cmd := &cobra.Command{
		Use:   "watch [NAME]",
		Short: "Print every change of a lease as it happens",
		Long: `Print the present state of a lease, then every change of owner and every
vacancy, in order, one line each. NAME is $TENURE_LEASE by default.

It ends by a signal, with exit code 0, or by --count or --timeout. A store that
cannot be read is reported on standard error and watched on.`,
		Example: `  tenure watch deploy/prod
  tenure watch deploy/prod --json --count 2 --timeout 10m`,
		Args:              args(0, "NAME"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.action(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			name, err := a.leaseName(cmd, args)
			if err != nil {
				return err
			}
			w := watch{app: a, json: asJSON, count: count}
			err = a.withExisting(ctx, func(c *tenure.Client) error { return w.run(ctx, c, name) })
			return w.verdict(ctx, err)
		}),
	}
	addJSONFlag(cmd, &asJSON)
	cmd.Flags().Var(numberFlag{&count}, "count", "end after this many lines")
	addTimeoutFlag(cmd, "end after this long: exit code 0, or 69 if --count is given and was not reached")
	return cmd
}

// watch is one run of the command.
type watch struct {
	app     *app
	json    bool
	count   uint64 // 0: no end
	printed uint64
	trouble string // the last trouble with the store that was reported
}

func (w *watch) run(ctx context.Context, c *tenure.Client, name string) error {
	for ch, err := range c.Watch(ctx, name) {
		if err != nil {
			if err := w.bear(err); err != nil {
				return err
			}
			continue
		}
		w.trouble = ""
		if err := w.print(c.Namespace(), ch); err != nil {
			return err
		}
		if w.printed++; w.printed == w.count {
			return nil
		}
	}
	return nil
}

// bear reports trouble that may pass, once, and returns what will not.
func (w *watch) bear(err error) error {
	if !errors.Is(err, tenure.ErrUnavailable) {
		return err
	}
	if text := err.Error(); text != w.trouble {
		w.trouble = text
		w.app.warn("cannot read the lease now, watching on: %s", text)
	}
	return nil
}

func (w *watch) print(namespace string, ch tenure.Change) error {
	if w.json {
		if err := w.app.json(newChangeJSON(namespace, ch)); err != nil {
			return err
		}
	} else {
		if ch.Missed > 0 {
			w.app.printf("%d changes before this one were too many to be told\n", ch.Missed)
		}
		w.app.printf("%s\n", changeLine(ch))
	}
	return w.app.out.flush()
}

func changeLine(ch tenure.Change) string {
	t := ch.Tenure
	switch ch.State {
	case tenure.Absent:
		return "- absent: never used here, or removed by retention"
	case tenure.Held:
		return fmt.Sprintf("%s held: token %d, by %s (owner %s)", stamp(t.Since), t.Token, showText(t.Label), t.Owner)
	}
	line := fmt.Sprintf("%s %s: token %d ended (%s", stamp(t.Until), ch.State, t.Token, t.How)
	if t.By != "" {
		line += " by " + showText(t.By)
	}
	if t.Why != "" {
		line += ": " + showText(t.Why)
	}
	return line + ")"
}

func firstErr(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// verdict makes the ends that the user asked for a success.
func (w *watch) verdict(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	switch {
	case err != nil && ctx.Err() == nil:
		return err
	case isA[*timeLimitError](cause) && w.printed == 0:
		return firstErr(err, errors.New("the store did not answer"))
	case isA[*timeLimitError](cause) && w.printed < w.count:
		return fmt.Errorf("%d of %d lines came in time", w.printed, w.count)
	}
	return nil
}
