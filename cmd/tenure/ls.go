package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-project/tenure"
)

func newLsCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ls [PREFIX]",
		Short: "List the leases of a namespace",
		Long: `List the leases whose names start with PREFIX, in the order of their keys.

Names that could be mistaken for others are quoted, with escapes. A session's
lease is marked if its session is over, unknown, or cannot be looked up (?).
A record that cannot be read is reported on standard error and the listing goes
on; the exit code then says what was wrong.`,
		Example: `  tenure ls
  tenure ls deploy/
  tenure ls --json | jq -r 'select(.state == "held") | .lease'`,
	}
	return a.listing(cmd, a.list)
}

func (a *app) list(ctx context.Context, c *tenure.Client, prefix string, asJSON bool) error {
	var t table
	t.row("NAME", "KIND", "STATE", "TOKEN", "HOLDER", "SINCE", "AGE", "NOTE")
	var errs []error
	look := newSessions(c)
	for s, err := range c.List(ctx, prefix) {
		switch {
		case err != nil:
			errs = append(errs, err)
		case asJSON:
			under, err := look.of(ctx, s)
			if err != nil {
				errs = append(errs, err)
			}
			if err := a.json(newStatusJSON(c.Namespace(), s, nil, under)); err != nil {
				return err
			}
		default:
			under, err := look.of(ctx, s)
			if err != nil { // the list is whole without that
				a.warn("%v", err)
			}
			t.row(showName(s.Name), s.Kind, lsState(s, under), fmt.Sprint(s.Token), orDash(printable(s.Label)), stamp(s.Since), age(time.Since(s.Since)), orDash(printable(s.Note)))
		}
	}
	return a.endListing(&t, asJSON, errs, c.Namespace(), "lease", prefix)
}

// lsState tells a lease that is free from one that everyone first has to watch, and
// one that is held from one whose session is over.
func lsState(s tenure.Status, under *session) string {
	switch {
	case s.State == tenure.Released && s.FreeAfter > 0:
		return string(s.State) + ", watched " + s.FreeAfter.String() + " first"
	case under == nil || under.state == sessionCurrent:
		return string(s.State)
	case under.failed:
		return string(s.State) + ", session ?"
	}
	return string(s.State) + ", session " + under.state
}
